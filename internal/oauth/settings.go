// Package oauth gets the tokens that servers want of the bridge as their client.
package oauth

import (
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/mcp-bridge/bridge/internal/auth/assertion"
	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
)

// Settings say how the bridge gets tokens for one server.
type Settings struct {
	// Issuer is the authorization server, exactly as it names itself. Empty means the one that
	// the server names.
	Issuer string `yaml:"issuer"`
	// Client is who asks for tokens.
	Client *Client `yaml:"client"`
	// Login has the bridge act as the person who has signed in at the server: by
	// "mcp-bridge login", or when the server asks for it and a person is there.
	Login bool `yaml:"login"`
	// Exchange has the bridge exchange the token of each caller for one of the server, as
	// Client: ExchangeStandard or ExchangeOnBehalfOf. Empty means that it does not.
	Exchange string `yaml:"exchange"`
	// ClientMetadataURL is where the metadata of the bridge as a client is, for Login at an
	// authorization server that takes that in place of a registration.
	ClientMetadataURL string `yaml:"client_metadata_url"`
	// RedirectURI is where the browser comes back to, on this machine. Empty means any free
	// port.
	RedirectURI string `yaml:"redirect_uri"`
	// PKCE is "assume" for an authorization server that has PKCE with S256, and does not say
	// so in its metadata. Empty means that one which does not say so is refused.
	PKCE string `yaml:"pkce"`
	// Scopes are asked for. Empty means those that the server names.
	Scopes []string `yaml:"scopes"`
	// Resource is what tokens are asked for; "off" leaves it out. Empty means what the
	// metadata of the server says, or its address.
	Resource string `yaml:"resource"`
	// Private lets the server name an authorization server in a private network.
	Private bool `yaml:"private"`
	// Ask shows a person the address of a page to sign in on, for the server of that URL; nil
	// means that nobody is there. Only a program can set it.
	Ask func(server, address string) `yaml:"-"`
	// Device has the person sign in on any device instead (RFC 8628): it shows the address to
	// open there and the code to enter, and an address that has both or is empty. Only a
	// program can set it.
	Device func(server, address, code, both string) `yaml:"-"`
	// API says that the server is no MCP server, but an HTTP API: its metadata is read only if
	// nothing else says who gives tokens, and no resource is asked for unless that or Resource
	// names one. Only a program can set it.
	API bool `yaml:"-"`
	// Own says that all callers are the person whom Ask asks: errors may have the address of
	// the page. With it, another could sign in there as somebody else. Only a program can
	// set it.
	Own bool `yaml:"-"`
	// Unasked says that nobody has asked for a login: where none can be kept, the server is
	// used without one. Only a program can set it.
	Unasked bool `yaml:"-"`
	// Command is what somebody has to run to sign in. Empty means "mcp-bridge login NAME".
	// Only a program can set it.
	Command string `yaml:"-"`
}

// Client is who asks for tokens (RFC 6749 §4.4): a name that the authorization server
// knows, with a secret, or with a key that signs (RFC 7523).
type Client struct {
	// ID is its name. It is required.
	ID string `yaml:"id"`
	// Secret is its password.
	Secret string `yaml:"secret"`
	// KeyFile names a file with the PEM private key that signs in place of a secret. KeyID is
	// the name that the authorization server has for it, and Algorithm what it signs by;
	// empty means the usual one for the key.
	KeyFile   string `yaml:"key_file"`
	KeyID     string `yaml:"key_id"`
	Algorithm string `yaml:"algorithm"`
	// TokenURL is where tokens come from. Empty means where the metadata of the authorization
	// server says.
	TokenURL string `yaml:"token_url"`
	// Params are added to the request for a token, such as audience.
	Params map[string]string `yaml:"params"`
	// InBody sends ID and Secret in the body, and not by basic authentication.
	InBody bool `yaml:"in_body"`
}

// Trusted returns the addresses that whoever runs the bridge has named, beside that of the
// server: they may be anywhere.
func (s *Settings) Trusted() (all []string) {
	if s.Issuer != "" {
		all = append(all, s.Issuer)
	}
	if s.Client != nil && s.Client.TokenURL != "" {
		all = append(all, s.Client.TokenURL)
	}
	return all
}

// ResourceOff is the value of Settings.Resource that leaves the parameter out.
const ResourceOff = "off"

// PKCEAssume is the value of Settings.PKCE.
const PKCEAssume = "assume"

// Validate reports what is wrong with the settings. It only looks. Values are not shown.
func (s *Settings) Validate() error {
	var errs []error
	if s.Issuer != "" {
		if err := safe(s.Issuer, true); err != nil {
			errs = append(errs, fmt.Errorf("issuer %w", err))
		}
	}
	if s.Client == nil && !s.Login {
		errs = append(errs, errors.New("client is missing: write client: { id: …, secret: … }, or with key_file in place of secret; or login: true"))
	} else if s.Client != nil && s.Client.Secret == "" && s.Client.KeyFile == "" && !s.Login {
		errs = append(errs, errors.New("client: secret is missing: write it, or a key_file in its place"))
	} else if s.Client != nil && s.Client.Secret != "" && s.Issuer == "" && s.Client.TokenURL == "" {
		// A server could name an authorization server of its own, and would get the secret.
		errs = append(errs, errors.New("issuer is missing: a secret is shown only to an authorization server that is named here; a key_file needs no issuer"))
	}
	if s.Login && s.Client != nil && s.Client.TokenURL != "" {
		errs = append(errs, errors.New("client: token_url is of no use with login: name the issuer"))
	}
	if s.Login && s.Client != nil && len(s.Client.Params) > 0 {
		errs = append(errs, errors.New("client: params are of no use with login"))
	}
	if err := s.validExchange(); err != nil {
		errs = append(errs, err)
	}
	for _, k := range []struct{ name, value string }{{"client_metadata_url", s.ClientMetadataURL}, {"redirect_uri", s.RedirectURI}, {"pkce", s.PKCE}} {
		if k.value != "" && !s.Login {
			errs = append(errs, fmt.Errorf("%s is of use with login: true only", k.name))
		}
	}
	if u, err := url.Parse(s.ClientMetadataURL); s.ClientMetadataURL != "" && (err != nil || u.Scheme != "https" || u.Host == "" || u.Path == "" || u.Path == "/" || u.Fragment != "" || u.User != nil) {
		errs = append(errs, errors.New("client_metadata_url must be an https URL with a path, such as https://app.example.com/client.json"))
	}
	if s.RedirectURI != "" {
		u, err := url.Parse(s.RedirectURI)
		if err != nil || u.Scheme != "http" || !discovery.Loopback(u.Hostname()) || u.Path == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			errs = append(errs, errors.New("redirect_uri must be an address of this machine, such as http://localhost:7777/callback"))
		}
	}
	if s.PKCE != "" && s.PKCE != PKCEAssume {
		errs = append(errs, errors.New("pkce must be assume, or left out"))
	}
	if s.Resource != "" && s.Resource != ResourceOff {
		if u, err := url.Parse(s.Resource); err != nil || !u.IsAbs() || u.Fragment != "" {
			errs = append(errs, errors.New("resource must be off, or a URL without a #fragment, such as https://tools.example.com/mcp"))
		}
	}
	for _, scope := range s.Scopes {
		if !isScope(scope) {
			errs = append(errs, errors.New("scopes must be a list of words without spaces, such as [read, write]"))
			break
		}
	}
	return errors.Join(errs...)
}

// isScope reports whether a text is one scope (RFC 6749 §3.3).
func isScope(s string) bool {
	return s != "" && !slices.ContainsFunc([]byte(s), func(b byte) bool { return b <= ' ' || b > '~' || b == '"' || b == '\\' })
}

// Validate reports what is wrong with the settings. It only looks. Values are not shown.
func (c *Client) Validate() error {
	var errs []error
	if c.ID == "" {
		errs = append(errs, errors.New("id is missing: write the name that the authorization server has for the bridge"))
	}
	if c.Secret != "" && c.KeyFile != "" {
		errs = append(errs, errors.New("key_file is in the place of secret: remove one of the two"))
	}
	for _, k := range []struct{ name, value string }{{"key_id", c.KeyID}, {"algorithm", c.Algorithm}} {
		if k.value != "" && c.KeyFile == "" {
			errs = append(errs, fmt.Errorf("%s is of use with key_file only", k.name))
		}
	}
	if c.Algorithm != "" && !slices.Contains(assertion.Algorithms, c.Algorithm) {
		errs = append(errs, fmt.Errorf("algorithm must be one of %v", assertion.Algorithms))
	}
	if c.InBody && c.Secret == "" {
		errs = append(errs, errors.New("in_body is of use with secret only"))
	}
	if c.TokenURL != "" {
		if err := safe(c.TokenURL, false); err != nil {
			errs = append(errs, fmt.Errorf("token_url %w", err))
		}
	}
	for name := range c.Params {
		if slices.Contains([]string{"grant_type", "client_id", "client_secret", "client_assertion", "client_assertion_type", "scope", "resource", "subject_token", "assertion"}, name) {
			errs = append(errs, fmt.Errorf("params must not have %s: it has a setting of its own", name))
		}
	}
	return errors.Join(errs...)
}

// Look looks at the file of the key, as assertion.Look does.
func (c *Client) Look(absolute func(string) string) (setting, remark string, fault error) {
	remark, fault = assertion.Look(&c.KeyFile, absolute)
	return "key_file", remark, fault
}

// safe returns what is wrong with an address that secrets go to.
func safe(text string, issuer bool) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "" || u.Opaque != "" || u.User != nil || u.Fragment != "":
		return errors.New("must be an address such as https://login.example.com/realms/mcp")
	case issuer && (u.RawQuery != "" || u.ForceQuery):
		return errors.New("must not have a query")
	case u.Scheme == "https" || u.Scheme == "http" && discovery.Loopback(u.Hostname()):
		return nil
	}
	return errors.New("must be https; http is for this machine only")
}
