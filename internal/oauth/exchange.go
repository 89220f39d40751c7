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

// Values of Settings.Exchange.
const (
	// ExchangeStandard is token exchange as RFC 8693 has it.
	ExchangeStandard = "standard"
	// ExchangeOnBehalfOf is that of Microsoft Entra: an assertion (RFC 7523 §2.1) with
	// requested_token_use=on_behalf_of.
	ExchangeOnBehalfOf = "on-behalf-of"
)

type subjectKey struct{}

// WithSubject returns a context for Machine's methods: the request is made for the caller with
// that token. Nothing is changed without one.
func WithSubject(ctx context.Context, s *identity.Subject) context.Context {
	if s == nil {
		return ctx
	}
	return context.WithValue(ctx, subjectKey{}, s)
}

// subject returns the token that is exchanged for a request. One that has ended was shown
// when a connection was opened, and makes way for what its caller has shown since.
func (m *Machine) subject(ctx context.Context) (*identity.Subject, error) {
	s, _ := ctx.Value(subjectKey{}).(*identity.Subject)
	if s == nil {
		return nil, &Failure{Public: "it is used with the token of each caller, and this one has shown none: a key is not enough, nor is a token that the bridge itself has given"}
	}
	if m.o.Client.TokenURL == "" && strings.TrimSuffix(s.Issuer, "/") != strings.TrimSuffix(m.o.Issuer, "/") {
		return nil, &Failure{Public: "the caller's token is of another issuer than the one that gives tokens for it"}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	last, _ := m.shown.Get(s.Principal)
	if now := time.Now(); !s.Until.After(now) {
		if last == nil || !last.Until.After(now) {
			return nil, &Failure{Public: "the token of its caller has ended"}
		}
		return last, nil
	}
	if last == nil || s.Until.After(last.Until) {
		m.shown.Add(s.Principal, s)
	}
	return s, nil
}

// keyOf returns the key under which tokens are kept that are given for a subject: another token
// of the same caller may be good for other things.
func keyOf(s *identity.Subject) string {
	sum := sha256.Sum256([]byte(s.Token))
	return "\x00" + s.Principal + "\x00" + string(sum[:])
}

// formOf returns the request that exchanges the subject for another token.
func formOf(s *identity.Subject, how string) url.Values {
	if how == ExchangeOnBehalfOf {
		return url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {s.Token}, "requested_token_use": {"on_behalf_of"}}
	}
	return url.Values{
		"grant_type":    {"urn:ietf:params:oauth:grant-type:token-exchange"},
		"subject_token": {s.Token}, "subject_token_type": {"urn:ietf:params:oauth:token-type:access_token"},
	}
}

// validExchange returns what is wrong with Exchange.
func (s *Settings) validExchange() error {
	switch {
	case s.Exchange == "":
		return nil
	case s.Exchange != ExchangeStandard && s.Exchange != ExchangeOnBehalfOf:
		return errors.New("exchange must be standard (RFC 8693) or on-behalf-of (Microsoft Entra)")
	case s.Login:
		return errors.New("exchange is of no use with login: calls are made as the caller, or as the person who has signed in")
	case s.Issuer == "" && (s.Client == nil || s.Client.TokenURL == ""):
		return errors.New("issuer is missing: the tokens of callers are shown only to an authorization server that is named here")
	case len(s.Scopes) == 0 && (s.Resource == ResourceOff || s.API && s.Resource == ""):
		return errors.New("scopes are missing: with exchange and without a resource, they alone say what a caller's token is exchanged for, and a server, or its document, must not choose that: write them, such as scopes: [crm.read], or name the resource")
	}
	return nil
}
