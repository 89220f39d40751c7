package config

import (
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/mcp-bridge/bridge/internal/auth/jwks"
)

// OAuth is an identity provider that issues tokens. The bridge accepts its tokens.
type OAuth struct {
	// Issuer is the URL that identifies the issuer, exactly as in its tokens.
	Issuer string `yaml:"issuer"`
	// Audience lists the audiences that a token may have, besides the URL of the endpoint and that of the bridge.
	Audience []string `yaml:"audience"`
	// JWKS is the URL or the file with the issuer's keys. Default: the URL in the issuer's metadata.
	JWKS string `yaml:"jwks"`
	// Algorithms are the signature algorithms that tokens may use. Default: all of token.Algorithms.
	Algorithms []string `yaml:"algorithms"`
	// Scopes are the scopes that the bridge tells clients to request first.
	Scopes []string `yaml:"scopes"`
	// Implies maps a scope to the scopes that it includes.
	Implies map[string]Words `yaml:"implies"`
	// ScopeClaim is the claim that holds the scopes of a token. Default: scope and scp.
	ScopeClaim string `yaml:"scope_claim"`
	// ClockSkew is how much the clocks of the issuer and the bridge may differ: at most 5m. Default 30s.
	ClockSkew time.Duration `yaml:"clock_skew" default:"30s" max:"5m" why:"expired tokens stay valid for so long"`
	// Introspection says how to ask the issuer about opaque tokens. Default: the bridge refuses opaque tokens. At most
	// one issuer has it.
	Introspection Introspection `yaml:"introspection"`
	// Front makes the bridge the authorization server for clients: they register and get tokens at the bridge, and
	// users sign in at the issuer. At most one issuer has it. Default: clients get tokens from the issuer.
	Front *Front `yaml:"front"`
	// CAFile is a file of PEM certificates that the bridge trusts for the issuer, besides those of the system.
	CAFile string `yaml:"ca_file"`
	// Transport makes the requests to the issuer, in place of CAFile. Only a program can set it. Default: a transport
	// with CAFile and the proxies of the environment.
	Transport http.RoundTripper `yaml:"-"`
}

// RuleClaims returns the claims that rules for users of this issuer have.
func (o *OAuth) RuleClaims(rules []Access) []string {
	all := map[string]bool{}
	for _, a := range rules {
		if a.Issuer == "" || a.Issuer == o.Issuer {
			for name := range a.Claims {
				all[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Reach returns the transport for requests to the issuer.
func (o *OAuth) Reach() (http.RoundTripper, error) {
	if o.Transport != nil {
		return o.Transport, nil
	}
	return jwks.Transport(o.CAFile)
}
