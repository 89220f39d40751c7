// Package oauth gets the tokens that the bridge needs as a client of servers.
package oauth

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/internal/auth/assertion"
	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
)

// Settings are the settings for tokens of one server.
type Settings struct {
	// Issuer is the exact issuer identifier of the authorization server. If it is empty, the server names the issuer.
	Issuer string `yaml:"issuer"`
	// Client is the bridge's client at the authorization server.
	Client *Client `yaml:"client"`
	// Login makes the bridge act as the person who has signed in at the server. The person signs in with "mcp-bridge
	// login", or when the server asks for it and a person is present.
	Login bool `yaml:"login"`
	// Exchange makes the bridge, as Client, exchange each caller's token for a token of the server. It is
	// ExchangeStandard, ExchangeOnBehalfOf, or empty for no exchange.
	Exchange string `yaml:"exchange"`
	// ClientMetadataURL is the address of the bridge's client metadata. At authorization servers that accept it, Login
	// uses this address instead of a registration.
	ClientMetadataURL string `yaml:"client_metadata_url"`
	// RedirectURI is the redirect address, which is on this machine. Empty means any free port.
	RedirectURI string `yaml:"redirect_uri"`
	// PKCE is PKCEAssume for an authorization server that supports PKCE with S256 but does not list it in its metadata.
	// If PKCE is empty, such a server is refused.
	PKCE string `yaml:"pkce"`
	// Scopes are the scopes to request. If they are empty, the server names the scopes.
	Scopes []string `yaml:"scopes"`
	// Resource is the resource parameter, or ResourceOff for none. Empty means the resource in the server's metadata,
	// else the server's address.
	Resource string `yaml:"resource"`
	// Private allows the server to name an authorization server in a private network.
	Private bool `yaml:"private"`
	// Ask shows a person the sign-in page for the server of a URL. If Ask is nil, nobody can sign in. Only a program
	// can set it.
	Ask func(server, address string) `yaml:"-"`
	// Device makes the person sign in on any device instead (RFC 8628). It shows the address, the code to enter there,
	// and an address that contains the code, or "". Only a program can set it.
	Device func(server, address, code, both string) `yaml:"-"`
	// API means that the server is an HTTP API and not an MCP server. Its metadata is read only if nothing else names
	// the issuer. Tokens are requested without a resource unless the metadata or Resource names a resource. Only a
	// program can set it.
	API bool `yaml:"-"`
	// Own means that all callers are the person of Ask, so errors may show the address of the sign-in page. Any other
	// caller could sign in there as somebody else. Only a program can set it.
	Own bool `yaml:"-"`
	// Unasked means that nobody asked for a login. If no login can be stored, the server is used without a login. Only
	// a program can set it.
	Unasked bool `yaml:"-"`
	// Command is the sign-in command. Empty means "mcp-bridge login NAME". Only a program can set it.
	Command string `yaml:"-"`
}

// Client is a client of an authorization server (RFC 6749 §4.4): an id with a secret, or with a key that signs (RFC
// 7523).
type Client struct {
	// ID is the client_id. It is required.
	ID string `yaml:"id"`
	// Secret is the client_secret.
	Secret string `yaml:"secret"`
	// KeyFile names a file with the PEM private key that signs instead of a secret. KeyID is the key's kid at the
	// authorization server. Algorithm is the key's algorithm; empty means the usual algorithm.
	KeyFile   string `yaml:"key_file"`
	KeyID     string `yaml:"key_id"`
	Algorithm string `yaml:"algorithm"`
	// TokenURL is the token endpoint. If it is empty, the authorization server's metadata names the endpoint.
	TokenURL string `yaml:"token_url"`
	// Params are added to the token request, such as audience.
	Params map[string]string `yaml:"params"`
	// InBody sends ID and Secret in the body instead of the Authorization header.
	InBody bool `yaml:"in_body"`
}

// Trusted returns the addresses in the settings, without the server's address. These addresses may be in private
// networks.
func (s *Settings) Trusted() (all []string) {
	if s.Issuer != "" {
		all = append(all, s.Issuer)
	}
	if s.Client != nil && s.Client.TokenURL != "" {
		all = append(all, s.Client.TokenURL)
	}
	return all
}

// ResourceOff is the value of Settings.Resource that omits the parameter.
const ResourceOff = "off"

// PKCEAssume is the value of Settings.PKCE for a server that does not list PKCE in its metadata.
const PKCEAssume = "assume"

// CheckIssuer returns an error if an issuer is the address of its metadata.
func CheckIssuer(issuer string) error {
	if strings.Contains(issuer, "/.well-known/") {
		return errors.New("is the address of metadata: write the issuer that is named there")
	}
	return nil
}

// Validate reports faults of the settings. It opens no files and shows no values.
func (s *Settings) Validate() error {
	var errs []error
	if s.Issuer != "" {
		if err := cmp.Or(checkAddress(s.Issuer, true), CheckIssuer(s.Issuer)); err != nil {
			errs = append(errs, fmt.Errorf("issuer %w", err))
		}
	}
	if s.Client == nil && !s.Login {
		errs = append(errs, errors.New("client is missing: write client: { id: …, secret: … }, or with key_file instead of secret; or login: true"))
	} else if s.Client != nil && s.Client.Secret == "" && s.Client.KeyFile == "" && !s.Login {
		errs = append(errs, errors.New("client: secret is missing: write it, or a key_file instead"))
	} else if s.Client != nil && s.Client.Secret != "" && s.Issuer == "" && s.Client.TokenURL == "" {
		// Otherwise, a server could name its own authorization server, which would then get the secret.
		errs = append(errs, errors.New("issuer is missing: the bridge sends a secret only to an authorization server that the configuration names; a key_file needs no issuer"))
	}
	if s.Login && s.Client != nil && s.Client.TokenURL != "" {
		errs = append(errs, errors.New("client: token_url has no effect with login: set issuer instead"))
	}
	if s.Login && s.Client != nil && len(s.Client.Params) > 0 {
		errs = append(errs, errors.New("client: params have no effect with login: remove them"))
	}
	if err := s.validExchange(); err != nil {
		errs = append(errs, err)
	}
	for _, k := range []struct{ name, value string }{{"client_metadata_url", s.ClientMetadataURL}, {"redirect_uri", s.RedirectURI}, {"pkce", s.PKCE}} {
		if k.value != "" && !s.Login {
			errs = append(errs, fmt.Errorf("%s needs login: true", k.name))
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

// isScope reports whether a text is a scope (RFC 6749 §3.3).
func isScope(s string) bool {
	return s != "" && !slices.ContainsFunc([]byte(s), func(b byte) bool { return b <= ' ' || b > '~' || b == '"' || b == '\\' })
}

// Validate reports faults of the settings. It opens no files and shows no values.
func (c *Client) Validate() error {
	var errs []error
	if c.ID == "" {
		errs = append(errs, errors.New("id is missing: write the client_id of the bridge at the authorization server"))
	}
	if c.Secret != "" && c.KeyFile != "" {
		errs = append(errs, errors.New("key_file replaces secret: remove one of the two"))
	}
	for _, k := range []struct{ name, value string }{{"key_id", c.KeyID}, {"algorithm", c.Algorithm}} {
		if k.value != "" && c.KeyFile == "" {
			errs = append(errs, fmt.Errorf("%s needs key_file", k.name))
		}
	}
	if c.Algorithm != "" && !slices.Contains(assertion.Algorithms, c.Algorithm) {
		errs = append(errs, fmt.Errorf("algorithm must be one of %v", assertion.Algorithms))
	}
	if c.InBody && c.Secret == "" {
		errs = append(errs, errors.New("in_body needs secret"))
	}
	if c.TokenURL != "" {
		if err := checkAddress(c.TokenURL, false); err != nil {
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

// Look checks the key file like assertion.Look.
func (c *Client) Look(absolute func(string) string) (setting, remark string, fault error) {
	remark, fault = assertion.Look(&c.KeyFile, absolute)
	return "key_file", remark, fault
}

// checkAddress returns an error if an address cannot receive secrets.
func checkAddress(text string, issuer bool) error {
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
