package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/internal/auth/assertion"
	"github.com/mcp-bridge/bridge/internal/oauth"
)

// Client is an OAuth client that gets tokens for itself (RFC 6749, section 4.4), or with which a
// person signs in.
type Client struct {
	ID     string `yaml:"id"`     // required without Login
	Secret string `yaml:"secret"` // required without KeyFile
	// KeyFile names a PEM file with the private key that signs instead of a secret. KeyID is the
	// authorization server's name for the key. Algorithm is the signature algorithm; empty means the
	// usual one for the key.
	KeyFile   string `yaml:"key_file"`
	KeyID     string `yaml:"key_id"`
	Algorithm string `yaml:"algorithm"`
	// Issuer is the URL of the authorization server, whose metadata names the token endpoint.
	Issuer string `yaml:"issuer"`
	// TokenURL is the token endpoint. Empty means that of Issuer's metadata, or else that of the
	// document's security scheme.
	TokenURL string `yaml:"token_url"`
	// Resource is the parameter resource of token requests. Empty omits the parameter.
	Resource string `yaml:"resource"`
	// Scopes are the requested scopes. Empty means those that the operation needs.
	Scopes []string `yaml:"scopes"`
	// Params are further parameters of token requests, such as audience.
	Params map[string]string `yaml:"params"`
	// InBody sends ID and Secret in the body instead of by basic authentication.
	InBody bool `yaml:"in_body"`
	// RedirectURI is the address to which a person's browser returns after the sign-in. PKCE is
	// "assume" for an authorization server that supports PKCE but does not say so: see oauth.Settings.
	RedirectURI string `yaml:"redirect_uri"`
	PKCE        string `yaml:"pkce"`
}

// settings returns the settings with which the bridge gets tokens for a credential with Client or
// Login.
func (c *Credential) settings() oauth.Settings {
	s := oauth.Settings{
		Login:    c.Login,
		Exchange: c.Exchange,
		API:      true,
	}
	if of := c.Client; of != nil {
		s.Issuer, s.Resource, s.Scopes, s.RedirectURI, s.PKCE = of.Issuer, of.Resource, of.Scopes, of.RedirectURI, of.PKCE
		if of.ID != "" || !c.Login {
			s.Client = &oauth.Client{
				ID:        of.ID,
				Secret:    of.Secret,
				KeyFile:   of.KeyFile,
				KeyID:     of.KeyID,
				Algorithm: of.Algorithm,
				TokenURL:  of.TokenURL,
				Params:    of.Params,
				InBody:    of.InBody,
			}
		}
	}
	return s
}

// CheckTokens returns the faults in the settings of Client, Login and Exchange. It makes no
// connection.
func (c *Credential) CheckTokens() error {
	if c.Client == nil && !c.Login {
		return nil
	}
	s := c.settings()
	if c.Client != nil && !c.Login {
		if c.Exchange != "" && s.Issuer == "" && s.Client.TokenURL == "" {
			return errors.New("client: set issuer or token_url: with exchange, callers' tokens go only to an authorization server of the configuration, never to one of a document")
		}
		// The document may name the token endpoint. tokenURL checks that later.
		s.Issuer = cmp.Or(s.Issuer, "https://example.com")
		s.Client.TokenURL, s.Client.Params = "", nil
	}
	err := s.Validate()
	if s.Client != nil {
		if wrong := s.Client.Validate(); wrong != nil {
			err = errors.Join(err, fmt.Errorf("client: %w", wrong))
		}
	}
	return err
}

// SignIn returns by with the API's address and with the settings for a person's sign-in at the API.
func (c *Credential) SignIn(address string, by remote.Config) *remote.Config {
	s := c.settings()
	by.URL, by.OAuth = address, &s
	return &by
}

// Look checks the file of the key, as assertion.Look does.
func (c *Client) Look(absolute func(string) string) (setting, remark string, fault error) {
	remark, fault = assertion.Look(&c.KeyFile, absolute)
	return "key_file", remark, fault
}

// tokenURL returns the token endpoint of a client: that of the configuration, or else that of the
// scheme. An endpoint of the scheme must use https, unless its server is trusted. If a document at a
// URL names an endpoint that is not trusted, refused says why the client's secret does not go there.
func (r *Reach) tokenURL(c *Client, scheme *openapi.SecurityScheme) (at endpoint, refused string, err error) {
	text := cmp.Or(c.TokenURL, c.Issuer)
	named := text != ""
	if !named {
		f := clientFlow(scheme)
		text, at.remote, at.public = f.TokenURL, f.Remote, f.Public
	}
	if text == "" {
		return at, "", errors.New("client: the document names no token endpoint: set token_url, or issuer, whose metadata names one")
	}
	home := r.home
	if at.URL, err = url.Parse(text); err != nil {
		return at, "", errors.New("client: token_url is not a URL")
	}
	if !at.IsAbs() && home.URL != nil {
		at.URL, at.remote, at.public = home.ResolveReference(at.URL), at.remote || home.remote, at.public || home.public
	}
	switch {
	case at.Host == "" || at.Scheme != "http" && at.Scheme != "https" || at.User != nil:
		return at, "", errors.New("client: token_url must be an address such as https://login.example.com/token")
	case r.untrusted(at), r.refuses(at):
		refused = fmt.Sprintf("the document names the token endpoint of %s, and was read from another server. The client's secret does not go there; the operator of the bridge can allow it with token_url or trusted", originOf(at.URL))
	case !named && at.Scheme != "https" && !r.trusted.has(at.URL):
		return at, "", errors.New("client: the document names a token endpoint on another server without https: set token_url to allow it")
	}
	return at, refused, nil
}

// clientFlow returns the client credentials flow of a scheme; the zero Flow if there is none.
func clientFlow(scheme *openapi.SecurityScheme) (found openapi.Flow) {
	if scheme == nil {
		return found
	}
	for _, f := range scheme.Flows {
		if f.Kind == "clientCredentials" {
			found = f
		}
	}
	return found
}

// tokenSchemes returns the schemes of the document that name a token endpoint for clients.
func (r *Reach) tokenSchemes() []*openapi.SecurityScheme {
	if r.o.Document == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(r.o.Document.Schemes), func(s *openapi.SecurityScheme) bool { return clientFlow(s).TokenURL == "" })
}

// tokens gets the tokens for requests with one credential.
type tokens struct {
	by        remote.Authorizer
	number    uint64 // of the tokens with the same budget, whose cache must not confuse them
	hide      func(string)
	last      atomic.Pointer[string] // the token that was hidden last
	warnLogin func()                 // logs that a sign-in is missing; nil if none is needed
}

// get returns a token, or an empty text while the authorization server is unknown.
func (t *tokens) get(ctx context.Context) (string, error) {
	token, err := t.by.Token(ctx)
	if err != nil {
		return "", publicError(err)
	}
	if token == "" && t.warnLogin != nil {
		t.warnLogin()
		return "", errors.New("nobody has signed in to the API: the operator of the bridge must sign in")
	}
	if last := t.last.Load(); last == nil || *last != token {
		t.hide(token)
		t.last.Store(&token)
	}
	return token, nil
}

// refused records that the API refused a token; h is the header of the answer. It reports whether to
// try again with another token.
func (t *tokens) refused(ctx context.Context, token string, h http.Header) (bool, error) {
	again, err := t.by.Refused(ctx, token, h, http.StatusUnauthorized, 0)
	return again, publicError(err)
}

// publicError reduces an error to the text for clients. The log has the rest.
func publicError(err error) error {
	if f, ok := errors.AsType[*oauth.Failure](err); ok {
		return errors.New(f.Public)
	}
	return err
}
