package oauth

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/internal/auth"
)

// Values of Settings.Exchange.
const (
	// ExchangeStandard is token exchange as RFC 8693 has it.
	ExchangeStandard = "standard"
	// ExchangeOnBehalfOf is that of Microsoft Entra: an assertion (RFC 7523 §2.1) with
	// requested_token_use=on_behalf_of.
	ExchangeOnBehalfOf = "on-behalf-of"
)

// Subject is the token that the caller of a request has shown, as the bridge has verified
// it: what is exchanged for a token of the server (I-303).
type Subject struct {
	Token     string
	Issuer    string
	Principal string    // whose it is
	Until     time.Time // when it ends
}

// Put notes the subject of a request in its headers, as they travel inside the bridge.
func (s *Subject) Put(h http.Header) {
	h[auth.TokenHeader] = []string{strings.Join([]string{strconv.FormatInt(s.Until.Unix(), 10), s.Issuer, s.Token, s.Principal}, " ")}
}

// subjectIn reads what Put has written; nil if that is nothing.
func subjectIn(h http.Header) *Subject {
	values := h[auth.TokenHeader]
	if len(values) != 1 {
		return nil
	}
	parts := strings.SplitN(values[0], " ", 4) // only the last may have spaces
	if len(parts) != 4 {
		return nil
	}
	until, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil {
		return nil
	}
	return &Subject{Issuer: parts[1], Token: parts[2], Principal: parts[3], Until: time.Unix(until, 0)}
}

type subjectKey struct{}

// WithSubject returns a context for Machine's methods: the request is made for the caller
// whose subject the headers have. Nothing is changed without one.
func WithSubject(ctx context.Context, h http.Header) context.Context {
	if s := subjectIn(h); s != nil {
		return context.WithValue(ctx, subjectKey{}, s)
	}
	return ctx
}

// subject returns the token that is exchanged for a request. One that has ended was shown
// when a connection was opened, and makes way for what its caller has shown since.
func (m *Machine) subject(ctx context.Context) (*Subject, error) {
	s, _ := ctx.Value(subjectKey{}).(*Subject)
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

// key is what tokens are kept by that are given for a subject: another token of the same
// caller may be good for other things.
func (s *Subject) key() string {
	sum := sha256.Sum256([]byte(s.Token))
	return "\x00" + s.Principal + "\x00" + string(sum[:])
}

// form returns the request that exchanges the subject for another token.
func (s *Subject) form(how string) url.Values {
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
