package oauth

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/internal/auth/identity"
)

// The values of Settings.Exchange.
const (
	// ExchangeStandard is token exchange as in RFC 8693.
	ExchangeStandard = "standard"
	// ExchangeOnBehalfOf is the flow of Microsoft Entra: an assertion (RFC 7523 §2.1) with
	// requested_token_use=on_behalf_of.
	ExchangeOnBehalfOf = "on-behalf-of"
)

type subjectKey struct{}

// WithSubject returns a context that gives the methods of a Machine the caller's token. If s is nil, it returns ctx.
func WithSubject(ctx context.Context, s *identity.Subject) context.Context {
	if s == nil {
		return ctx
	}
	return context.WithValue(ctx, subjectKey{}, s)
}

// subject returns the caller's token to exchange for a request. If it has expired, it dates from the opening of the
// connection, and the caller's newest token replaces it.
func (m *Machine) subject(ctx context.Context) (*identity.Subject, error) {
	s, _ := ctx.Value(subjectKey{}).(*identity.Subject)
	if s == nil {
		return nil, &Failure{Public: "it needs the caller's own token of the identity provider: a key, or a token that the bridge has issued, is not enough"}
	}
	if m.o.Client.TokenURL == "" && strings.TrimSuffix(s.Issuer, "/") != strings.TrimSuffix(m.o.Issuer, "/") {
		return nil, &Failure{Public: "the caller's token must be of the issuer that issues tokens for it"}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	last, _ := m.subjects.Get(s.Principal)
	if now := time.Now(); !s.Until.After(now) {
		if last == nil || !last.Until.After(now) {
			return nil, &Failure{Public: "the caller's token has expired: sign in again"}
		}
		return last, nil
	}
	if last == nil || s.Until.After(last.Until) {
		m.subjects.Add(s.Principal, s)
	}
	return s, nil
}

// keyOf returns the cache key for the tokens of a caller. The caller's token is a part of the key, because another
// token of the same caller may have other rights.
func keyOf(s *identity.Subject) string {
	sum := sha256.Sum256([]byte(s.Token))
	return "\x00" + s.Principal + "\x00" + string(sum[:])
}

// formOf returns the form that requests the exchange.
func formOf(s *identity.Subject, how string) url.Values {
	if how == ExchangeOnBehalfOf {
		return url.Values{
			"grant_type":          {"urn:ietf:params:oauth:grant-type:jwt-bearer"},
			"assertion":           {s.Token},
			"requested_token_use": {"on_behalf_of"},
		}
	}
	return url.Values{
		"grant_type":    {"urn:ietf:params:oauth:grant-type:token-exchange"},
		"subject_token": {s.Token}, "subject_token_type": {"urn:ietf:params:oauth:token-type:access_token"},
	}
}

// validExchange returns the faults of Exchange.
func (s *Settings) validExchange() error {
	switch {
	case s.Exchange == "":
		return nil
	case s.Exchange != ExchangeStandard && s.Exchange != ExchangeOnBehalfOf:
		return errors.New("exchange must be standard (RFC 8693) or on-behalf-of (Microsoft Entra)")
	case s.Login:
		return errors.New("exchange and login exclude each other: calls are made as the caller, or as the person who has signed in")
	case s.Issuer == "" && (s.Client == nil || s.Client.TokenURL == ""):
		return errors.New("issuer is missing: the bridge sends tokens of callers only to an authorization server that the configuration names")
	case len(s.Scopes) == 0 && (s.Resource == ResourceOff || s.API && s.Resource == ""):
		return errors.New("scopes are missing: exchange without a resource needs them to limit the new token: set scopes, such as [crm.read], or set resource")
	}
	return nil
}
