package auth

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/internal/auth/authtest"
	"github.com/mcp-bridge/bridge/internal/auth/token"
)

const site = "https://mcp.example.com"

// open runs a Door for users of two issuers until the test ends. It is called in a bubble.
func open(t testing.TB, rules []Rule) (*Authenticator, []*authtest.Issuer, *bytes.Buffer) {
	var log bytes.Buffer
	one, two := authtest.New(t, "https://one.example.com"), authtest.New(t, "https://two.example.com")
	logger := slog.New(slog.NewTextHandler(&log, nil))
	a := NewAuthenticator(New([]Key{{Principal: "key", Token: alpha}}, logger), []token.Issuer{
		{URL: one.URL, Transport: one, Implies: map[string][]string{"all": {"read"}}}, {URL: two.URL, Transport: two},
	}, rules, logger)
	authtest.Run(t, a.Run)
	return a, []*authtest.Issuer{one, two}, &log
}

type claims = authtest.Claims

// The first rule whose every condition matches counts (I-050, I-051). Issuer and subject alone identify a user
// (I-028).
func TestRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, issuers, log := open(t, []Rule{
			{Name: "groups", Claims: map[string][]string{"groups": {"eng", "ops-*"}, "hd": {"example.com"}}},
			{Name: "roles", Issuer: "https://two.example.com", Claims: map[string][]string{"realm_access.roles": {"mcp"}}},
			{Name: "scopes", Scopes: []string{"read", "write"}},
			{Name: "level", Claims: map[string][]string{"level": {"7"}, "verified": {"true"}}},
			{Name: "named", Users: []string{"ann", "build-*"}},
		})
		for _, tc := range []struct {
			name   string
			issuer int
			change claims
			want   string
		}{
			{"item of a list", 0, claims{"groups": []string{"x", "eng"}, "hd": "example.com"}, "groups/https://one.example.com#ann"},
			{"pattern", 0, claims{"groups": "ops-eu", "hd": "example.com"}, "groups/https://one.example.com#ann"},
			{"one claim of two", 0, claims{"groups": []string{"eng"}, "hd": "example.org"}, "named/https://one.example.com#ann"},
			{"nearly the pattern", 0, claims{"sub": "bob", "groups": []string{"my-ops-x", "engineers", "Eng"}, "hd": "example.com"}, ""},
			{"object", 1, claims{"realm_access": claims{"roles": []string{"mcp"}}}, "roles/https://two.example.com#ann"},
			{"of the other issuer", 0, claims{"sub": "bob", "realm_access": claims{"roles": []string{"mcp"}}}, ""},
			{"scopes", 0, claims{"sub": "bob", "scope": "write all"}, "scopes/https://one.example.com#bob"},
			{"implied by the other issuer", 1, claims{"sub": "bob", "scope": "write all"}, ""},
			{"number and boolean", 0, claims{"sub": "bob", "level": 7, "verified": true}, "level/https://one.example.com#bob"},
			{"false", 0, claims{"sub": "bob", "level": 7, "verified": false}, ""},
			{"claim that is an object", 0, claims{"sub": "bob", "level": claims{"7": 7}, "verified": true}, ""},
			{"N-36 the same subject elsewhere", 1, nil, "named/https://two.example.com#ann"},
			{"client with the name of a user", 0, claims{"sub": nil, "client_id": "build-7"}, ""},
			{"client by a claim", 0, claims{"sub": nil, "client_id": "build-7", "level": 7, "verified": true}, "level/https://one.example.com?build-7"},
			{"user of that name", 0, claims{"sub": "build-7"}, "named/https://one.example.com#build-7"},
			{"name of somebody", 0, claims{"sub": "bob", "email": "ann", "preferred_username": "ann", "name": "ann"}, ""},
		} {
			raw := issuers[tc.issuer].Token(site, tc.change)
			for range 2 { // the second time it is cached
				got, err := a.Caller(t.Context(), headers("Authorization", "Bearer "+raw), token.Resource{Root: site})
				if got.Principal != tc.want || (tc.want == "") != errors.Is(err, ErrDenied) {
					t.Errorf("%s: %q, %v, want %q", tc.name, got.Principal, err, tc.want)
				}
				if err == nil && RuleOf(got.Principal) != strings.SplitN(tc.want, "/", 2)[0] {
					t.Errorf("%s: rule %q", tc.name, RuleOf(got.Principal))
				}
			}
		}
		// Entra leaves out groups if there are too many.
		for range 3 {
			_, err := a.Caller(t.Context(), headers("Authorization", "Bearer "+issuers[0].Token(site, claims{"sub": "bob", "_claim_names": claims{"groups": "src1"}, "hd": "example.com"})), token.Resource{Root: site})
			if !errors.Is(err, ErrDenied) {
				t.Error(err)
			}
		}
		if n := strings.Count(log.String(), "leaves a claim out"); n != 1 {
			t.Errorf("said %d times that groups are cut off:\n%s", n, log)
		}
	})
}

// A rule without conditions admits nobody, and one for everybody also admits programs. A token that is refused again
// and again is logged once.
func TestNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, issuers, log := open(t, []Rule{{Name: "empty"}, {Name: "issuer", Issuer: "https://one.example.com"}})
		raw := issuers[0].Token(site)
		for range 3 {
			if got, err := a.Caller(t.Context(), headers("Authorization", "Bearer "+raw), token.Resource{Root: site}); !errors.Is(err, ErrDenied) {
				t.Errorf("%q, %v", got.Principal, err)
			}
		}
		if n := strings.Count(log.String(), "was refused"); n != 1 || a.Count(token.Denied) != 3 {
			t.Errorf("said %d times, counted %d:\n%s", n, a.Count(token.Denied), log)
		}
		a, issuers, _ = open(t, []Rule{{Name: "all", Users: []string{"*"}}})
		raw = issuers[0].Token(site, claims{"sub": nil, "client_id": "build-7"})
		if got, err := a.Caller(t.Context(), headers("Authorization", "Bearer "+raw), token.Resource{Root: site}); got.Principal != "all/https://one.example.com?build-7" {
			t.Errorf("a program: %q, %v", got.Principal, err)
		}
	})
}

// A long request is checked again and again, and counts once.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _ := open(t, nil)
		h := headers("X-Api-Key", alpha)
		if _, err := a.Caller(t.Context(), h, token.Resource{Root: site}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if who, err := a.Again(t.Context(), h, token.Resource{Root: site}); err != nil || who.Principal != "key" {
				t.Errorf("%q, %v", who.Principal, err)
			}
		}
		a.Set([]Key{{Principal: "other", Token: alpha}})
		if who, err := a.Again(t.Context(), h, token.Resource{Root: site}); err != nil || who.Principal != "other" {
			t.Errorf("after it is another's: %q, %v", who.Principal, err)
		}
		a.Set(nil)
		if _, err := a.Again(t.Context(), h, token.Resource{Root: site}); !errors.Is(err, ErrInvalid) {
			t.Errorf("after it was taken away: %v", err)
		}
		if a.Count(token.OK) != 1 || a.Count(token.Invalid) != 0 {
			t.Errorf("counted %d and %d", a.Count(token.OK), a.Count(token.Invalid))
		}
	})
}

// N-01 to N-05, and other credentials where tokens are accepted: keys still work.
func TestShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, issuers, log := open(t, []Rule{{Name: "all", Users: []string{"*"}}})
		good := issuers[0].Token(site)
		const user = "all/https://one.example.com#ann"
		for _, tc := range []struct {
			name string
			h    http.Header
			want string
			err  error
		}{
			{"token", headers("Authorization", "Bearer "+good), user, nil}, {"token, other case", headers("Authorization", "bearer  "+good), user, nil},
			{"key", headers("Authorization", "Bearer "+alpha), "key", nil}, {"key in its header", headers("X-API-Key", alpha), "key", nil},
			{"N-01 nothing", http.Header{}, "", ErrMissing}, {"N-02 empty", headers("Authorization", "Bearer "), "", nil},
			{"N-02 empty without a space", headers("Authorization", "Bearer"), "", nil},
			{"N-03 two", headers("Authorization", "Bearer "+good, "Authorization", "Bearer "+good), "", ErrInvalid},
			{"N-04 key and token", headers("Authorization", "Bearer "+good, "X-API-Key", alpha), "", ErrInvalid},
			{"token as a key", headers("X-API-Key", good), "", ErrInvalid}, {"token as both", headers("Authorization", "Bearer "+good, "X-API-Key", good), "", ErrInvalid},
			{"another scheme", headers("Authorization", "DPoP "+good), "", ErrInvalid},
		} {
			got, err := a.Caller(t.Context(), tc.h, token.Resource{Root: site})
			if got.Principal != tc.want || (err == nil) != (tc.want != "") || tc.err != nil && err != tc.err {
				t.Errorf("%s: %q, %v", tc.name, got.Principal, err)
			}
		}
		for r, want := range map[token.Result]uint64{token.OK: 4, token.Missing: 1, token.Invalid: 7} {
			if n := a.Count(r); n != want {
				t.Errorf("%d are counted as %s, want %d", n, r, want)
			}
		}
		if strings.Contains(log.String(), good[:20]) {
			t.Error("the log has a token")
		}
	})
}

// A caller with a cached token costs almost nothing.
func BenchmarkToken(b *testing.B) {
	a, issuers, _ := open(b, []Rule{{Name: "all", Users: []string{"*"}}})
	h := headers("Authorization", "Bearer "+issuers[0].Token(site, claims{"groups": []string{"eng", "ops"}, "name": strings.Repeat("x", 300)}))
	to := token.Resource{Root: site, Path: "/mcp"}
	if _, err := a.Caller(b.Context(), h, to); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Caller(b.Context(), h, to); err != nil {
			b.Fatal(err)
		}
	}
}
