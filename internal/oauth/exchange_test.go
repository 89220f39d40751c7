package oauth_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/internal/auth/identity"
	"github.com/mcp-bridge/bridge/internal/oauth"
)

// exchanging returns settings with token exchange.
func exchanging(how string) oauth.Settings {
	s := configured()
	s.Exchange = how
	return s
}

// shown returns the context of a request whose caller has a token.
func shown(t *testing.T, principal, token string, life time.Duration) context.Context {
	return oauth.WithSubject(t.Context(), &identity.Subject{Token: token, Issuer: idp, Principal: principal, Until: time.Now().Add(life)})
}

// I-303: requests with one caller's token get the token it was exchanged for. Concurrent requests share an exchange.
// The result is cached until shortly before it or the caller's token ends. A new token of the caller starts anew.
func TestExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.issuer.Takes = func(s string) bool { return strings.HasPrefix(s, "of-") }
		m := r.machine(t, exchanging(oauth.ExchangeStandard))
		ann, bob := shown(t, "staff/ann b", "of-ann-1", 2*time.Hour), shown(t, "staff/bob", "of-bob-1", 20*time.Minute)
		var wg sync.WaitGroup
		for range 50 {
			for want, ctx := range map[string]context.Context{"of-ann-1": ann, "of-bob-1": bob} {
				wg.Go(func() {
					if g := r.grant(ctx, t, m); g.Subject != want || g.Client != "the bridge" || g.Resource != server {
						t.Errorf("%s: %v", want, g)
					}
				})
			}
		}
		wg.Wait()
		r.asked(t, 2)
		again := shown(t, "staff/ann b", "of-ann-2", 2*time.Hour)
		if g := r.grant(again, t, m); g.Subject != "of-ann-2" {
			t.Errorf("a new token of the caller: %v", g)
		}
		r.grant(ann, t, m)
		r.asked(t, 3)
		// A token for an hour is not cached longer than the caller's own token lives.
		<-time.After(19 * time.Minute)
		r.grant(ann, t, m)
		r.grant(bob, t, m)
		r.asked(t, 3)
		<-time.After(45 * time.Second)
		r.grant(bob, t, m)
		r.asked(t, 4)
		// The caller's own token has expired: the caller's latest token is used, and nobody else's.
		<-time.After(time.Minute)
		if _, err := m.Token(bob); err == nil || !strings.Contains(err.Error(), "the caller's token has expired") {
			t.Errorf("with a token that has ended: %v", err)
		}
		r.asked(t, 4)
		r.grant(shown(t, "staff/bob", "of-bob-2", time.Hour), t, m)
		if g := r.grant(bob, t, m); g.Subject != "of-bob-2" {
			t.Errorf("with a token that has ended, after another: %v", g)
		}
		r.asked(t, 5)
		if strings.Contains(r.log.String(), "of-ann") || strings.Contains(r.log.String(), "of-bob") {
			t.Errorf("the log has a caller's token: %s", r.log)
		}
	})
}

// I-303: credentials that are never exchanged. One caller's refusal concerns nobody else.
func TestExchangeRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.issuer.Takes = func(s string) bool { return s == "good" }
		m := r.machine(t, exchanging(oauth.ExchangeStandard))
		other := &identity.Subject{Token: "good", Issuer: "https://other.example.com", Principal: "staff/ann", Until: time.Now().Add(time.Hour)}
		for want, ctx := range map[string]context.Context{
			"the caller's own token": t.Context(),
			"must be of the issuer":  oauth.WithSubject(t.Context(), other),
			"invalid_grant":          shown(t, "staff/eve", "bad-token-of-eve", time.Hour),
		} {
			_, err := m.Token(ctx)
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "bad-token") {
				t.Errorf("%v, want %s", err, want)
			}
		}
		r.asked(t, 1)
		r.grant(shown(t, "staff/ann", "good", time.Hour), t, m) // after others were refused
		if _, err := m.Token(shown(t, "staff/eve", "bad-token-of-eve", time.Hour)); err == nil || r.issuer.Asked("/token") != 2 {
			t.Errorf("again, at once: %v, %d requests", err, r.issuer.Asked("/token"))
		}
		// With token_url the tokens may be of any issuer.
		s := exchanging(oauth.ExchangeStandard)
		s.Client.TokenURL = idp + "/token"
		r.grant(oauth.WithSubject(t.Context(), other), t, r.machine(t, s))
	})
}

// If a server refuses a token, the same caller gets another one, once in a while.
func TestExchangeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.issuer.Takes = func(string) bool { return true }
		m := r.machine(t, exchanging(oauth.ExchangeStandard))
		ann, bob := shown(t, "ann", "a", time.Hour), shown(t, "bob", "b", time.Hour)
		for _, ctx := range []context.Context{ann, bob} {
			first, err := m.Token(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := m.Refused(ctx, first, nil, http.StatusUnauthorized, 0); !again || err != nil {
				t.Fatalf("refused: %v, %v", again, err)
			}
			second, err := m.Token(ctx)
			if err != nil || second == first {
				t.Errorf("the same token again: %v", err)
			}
			if again, _ := m.Refused(ctx, second, nil, http.StatusUnauthorized, 0); again {
				t.Error("a third token at once")
			}
		}
	})
}

// I-304: the form for Microsoft Entra.
func TestOnBehalfOf(t *testing.T) {
	r := newRig(t)
	r.issuer.Takes = func(s string) bool { return s == "of-ann" }
	s := exchanging(oauth.ExchangeOnBehalfOf)
	s.Resource, s.Scopes = oauth.ResourceOff, []string{"api://crm/.default"}
	if g := r.grant(shown(t, "staff/ann", "of-ann", time.Hour), t, r.machine(t, s)); g.Subject != "of-ann" || g.Resource != "" || g.Scope != "api://crm/.default" {
		t.Errorf("%v", g)
	}
}

// I-303: the cache is bounded.
func TestExchangeBounded(t *testing.T) {
	r := newRig(t)
	r.issuer.Takes = func(string) bool { return true }
	s := exchanging(oauth.ExchangeStandard)
	s.Resource, s.Scopes = oauth.ResourceOff, []string{"a"}
	m := r.machine(t, s)
	m.Fill()
	for i := range 100 {
		if _, err := m.Token(shown(t, fmt.Sprint("p", i), fmt.Sprint("t", i), time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if tokens, callers := m.Kept(); tokens != oauth.MaxKept || callers != oauth.MaxKept {
		t.Errorf("%d tokens of %d callers are kept", tokens, callers)
	}
}

// Faults of the settings.
func TestExchangeSettings(t *testing.T) {
	for want, change := range map[string]func(*oauth.Settings){
		"exchange must be standard":                       func(s *oauth.Settings) { s.Exchange = "yes" },
		"exchange and login exclude each other":           func(s *oauth.Settings) { s.Login = true },
		"issuer is missing: the bridge sends tokens":      func(s *oauth.Settings) { s.Issuer, s.Client.Secret, s.Client.KeyFile = "", "", "key.pem" },
		"client is missing":                               func(s *oauth.Settings) { s.Client = nil },
		"scopes are missing: exchange without a resource": func(s *oauth.Settings) { s.Resource = oauth.ResourceOff },
		"without a resource":                              func(s *oauth.Settings) { s.API = true },
	} {
		s := exchanging(oauth.ExchangeStandard)
		s.Client = &oauth.Client{ID: "a", Secret: "b"}
		if change(&s); s.Validate() == nil || !strings.Contains(s.Validate().Error(), want) {
			t.Errorf("%v, want %s", s.Validate(), want)
		}
	}
	for name, change := range map[string]func(*oauth.Settings){
		"as it is":               func(*oauth.Settings) {},
		"scopes, no resource":    func(s *oauth.Settings) { s.Resource, s.Scopes = oauth.ResourceOff, []string{"a"} },
		"an API with scopes":     func(s *oauth.Settings) { s.API, s.Scopes = true, []string{"a"} },
		"an API with a resource": func(s *oauth.Settings) { s.API, s.Resource = true, "https://crm.example.com" },
		"no exchange":            func(s *oauth.Settings) { s.Exchange, s.Resource = "", oauth.ResourceOff },
	} {
		s := exchanging(oauth.ExchangeStandard)
		if change(&s); s.Validate() != nil {
			t.Errorf("%s: %v", name, s.Validate())
		}
	}
	c := oauth.Client{ID: "a", Secret: "b", Params: map[string]string{"subject_token": "x"}}
	if err := c.Validate(); err == nil {
		t.Error("params may set the subject")
	}
}
