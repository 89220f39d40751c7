package oauth_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/internal/auth/authtest"
	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/oauth/oauthtest"
)

const (
	server = "https://tools.example.com/mcp"
	idp    = "https://idp.example.com/realm"
	secret = "s3cret of the bridge+/="
)

// rig is a server with its authorization server.
type rig struct {
	net    *oauthtest.Net
	issuer *oauthtest.Issuer
	tools  *oauthtest.Resource
	log    *bytes.Buffer
}

func newRig(t *testing.T) *rig {
	r := &rig{net: &oauthtest.Net{}, issuer: oauthtest.NewIssuer(t, idp), log: &bytes.Buffer{}}
	r.tools = &oauthtest.Resource{URL: server, Issuer: r.issuer, Next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") })}
	r.net.Put("tools.example.com", r.tools)
	at := http.NewServeMux()
	at.Handle("/realm/", r.issuer)
	at.HandleFunc("/.well-known/oauth-authorization-server/realm", func(w http.ResponseWriter, q *http.Request) {
		q.URL.Path = "/realm/.well-known/oauth-authorization-server"
		r.issuer.ServeHTTP(w, q)
	})
	r.net.Put("idp.example.com", at)
	r.issuer.Register(oauthtest.Registered{ID: "the bridge", Secret: secret})
	return r
}

func (r *rig) machine(t *testing.T, s oauth.Settings) *oauth.Machine {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	m := oauth.NewMachine(oauth.Options{Settings: s, Server: u, Transport: r.net, Log: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	t.Cleanup(m.Close)
	return m
}

// call sends a request to the server like remote.Client, and returns its status.
func (r *rig) call(t *testing.T, m *oauth.Machine) (int, error) {
	t.Helper()
	for before := 0; ; before++ {
		token, err := m.Token(t.Context())
		if err != nil {
			return 0, err
		}
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			q.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := r.net.RoundTrip(q)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode == http.StatusOK {
			return res.StatusCode, nil
		}
		if again, err := m.Refused(t.Context(), token, res.Header, res.StatusCode, before); err != nil || !again {
			return res.StatusCode, err
		}
	}
}

// works calls the server, which must answer.
func (r *rig) works(t *testing.T, what string, m *oauth.Machine) {
	t.Helper()
	if status, err := r.call(t, m); status != http.StatusOK || err != nil {
		t.Errorf("%s: %d, %v\n%s", what, status, err, r.log)
	}
}

// asked compares the number of requests for a token.
func (r *rig) asked(t *testing.T, want int) {
	t.Helper()
	if n := r.issuer.Asked("/token"); n != want {
		t.Errorf("%d requests for a token, want %d", n, want)
	}
}

// grant returns what the present token is for.
func (r *rig) grant(ctx context.Context, t *testing.T, m *oauth.Machine) oauthtest.Grant {
	t.Helper()
	token, err := m.Token(ctx)
	g, ok := r.issuer.Good(token)
	if err != nil || !ok {
		t.Errorf("the token: %v, good %t", err, ok)
	}
	return g
}

func configured() oauth.Settings {
	return oauth.Settings{Issuer: idp, Client: &oauth.Client{ID: "the bridge", Secret: secret}}
}

// I-300: a token is requested before the first request, for the resource that the server names, and used until
// shortly before its end. Concurrent requests share a token request.
func TestMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		m := r.machine(t, configured())
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				r.works(t, "call", m)
			})
		}
		wg.Wait()
		r.asked(t, 1)
		token, _ := m.Token(t.Context())
		if g := r.grant(t.Context(), t, m); g.Resource != server || g.Client != "the bridge" {
			t.Errorf("the token is for %+v", g)
		}
		<-time.After(time.Hour - 31*time.Second)
		if again, _ := m.Token(t.Context()); again != token {
			t.Error("another token 31 s before the end of the first")
		}
		<-time.After(2 * time.Second)
		if again, err := m.Token(t.Context()); again == token || err != nil {
			t.Errorf("no other token 29 s before the end of the first: %v", err)
		}
	})
}

// I-219: client authentication. I-211: requested scopes.
func TestMachineShows(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*rig, *oauth.Settings)
		method string
		scope  string
	}{
		{"basic", func(*rig, *oauth.Settings) {}, "", ""},
		{"basic, registered so", func(*rig, *oauth.Settings) {}, "client_secret_basic", ""},
		{"in the body", func(_ *rig, s *oauth.Settings) { s.Client.InBody = true }, "client_secret_post", ""},
		{"as the issuer wants it", func(r *rig, _ *oauth.Settings) {
			r.issuer.Change = func(m map[string]any) { m["token_endpoint_auth_methods_supported"] = []string{"client_secret_post"} }
		}, "client_secret_post", ""},
		{"without metadata of the issuer", func(r *rig, s *oauth.Settings) {
			r.issuer.Change = func(m map[string]any) { t.Error("the metadata was read") }
			s.Issuer, s.Client.TokenURL = "", idp+"/token"
		}, "", ""},
		{"scopes of the settings", func(r *rig, s *oauth.Settings) {
			r.tools.Change = func(m map[string]any) { m["scopes_supported"] = []string{"a", "b"} }
			s.Scopes = []string{"x", "y"}
		}, "", "x y"},
		{"scopes of the server", func(r *rig, _ *oauth.Settings) {
			r.tools.Change = func(m map[string]any) { m["scopes_supported"] = []string{"a", "b"} }
		}, "", "a b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, s := newRig(t), configured()
			tc.change(r, &s)
			r.issuer.Register(oauthtest.Registered{ID: "the bridge", Secret: secret, Method: tc.method})
			m := r.machine(t, s)
			r.works(t, "call", m)
			token, _ := m.Token(t.Context())
			if g, _ := r.issuer.Good(token); g.Scope != tc.scope {
				t.Errorf("scope %q, want %q", g.Scope, tc.scope)
			}
			if strings.Contains(r.log.String(), secret) || strings.Contains(r.log.String(), token) {
				t.Errorf("a secret is in the log:\n%s", r.log)
			}
		})
	}
}

// I-301: the key signs an assertion for the issuer that the server names. A new key in the file signs the next one.
func TestMachineSigns(t *testing.T) {
	for _, name := range []string{"RS256", "ES256", "EdDSA"} {
		r, key := newRig(t), authtest.NewKey(t, "k1", name)
		r.issuer.Register(oauthtest.Registered{ID: "the bridge", Key: key.Private.Public()})
		file := key.File(t)
		m := r.machine(t, oauth.Settings{Client: &oauth.Client{ID: "the bridge", KeyFile: file, KeyID: "k1"}})
		r.works(t, name, m)
		next := authtest.NewKey(t, "k1", "ES256")
		if err := os.Rename(next.File(t), file); err != nil {
			t.Fatal(err)
		}
		r.issuer.Register(oauthtest.Registered{ID: "the bridge", Key: next.Private.Public()})
		r.issuer.Revoke(true)
		r.works(t, name+", after the key was replaced", m)
	}
}

// A token that the server refuses is replaced once, for all requests, and the request is sent again. If the server
// accepts no token at all, the authorization server is not asked with each request.
func TestMachineRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		m := r.machine(t, configured())
		r.works(t, "call", m)
		r.issuer.Revoke(false)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				r.works(t, "after the token was taken back", m)
			})
		}
		wg.Wait()
		r.asked(t, 2)
		r.net.Put("tools.example.com", oauthtest.Pages{
			"/mcp": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		})
		for range 20 {
			if status, err := r.call(t, m); status != http.StatusUnauthorized || err != nil {
				t.Errorf("call = %d, %v, want 401", status, err)
			}
		}
		if n := r.issuer.Asked("/token"); n > 3 {
			t.Errorf("%d requests for a token, want 3 at most", n)
		}
	})
}

// N-71, N-72: an authorization server that refuses, or is down, is asked again, but not with each call. Its messages
// are shown without the secret.
func TestMachineBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		m := r.machine(t, configured())
		r.issuer.Answer("/token", func(w http.ResponseWriter, q *http.Request) {
			_, sent, _ := q.BasicAuth()
			oauthtest.JSON(w, http.StatusBadRequest, map[string]any{"error": "invalid_client", "error_description": "not you: " + sent + " " + secret})
		})
		began := time.Now()
		for time.Since(began) < 10*time.Second {
			_, err := m.Token(t.Context())
			var f *oauth.Failure
			if !errors.As(err, &f) || !strings.Contains(f.Public, "invalid_client") || strings.Contains(err.Error(), "s3cret") {
				t.Fatalf("Token: %v", err)
			}
			<-time.After(100 * time.Millisecond)
		}
		if n := r.issuer.Asked("/token"); n < 3 || n > 5 {
			t.Errorf("%d requests in 10 s, want 4 or so", n)
		}
		if strings.Contains(r.log.String(), "s3cret") {
			t.Errorf("the secret is in the log:\n%s", r.log)
		}
		r.issuer.Answer("/token", func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() })
		<-time.After(time.Minute)
		if _, err := m.Token(t.Context()); err == nil {
			t.Error("a token from a server that hangs")
		}
		r.issuer.Answer("/token", nil)
		<-time.After(time.Minute)
		r.works(t, "call", m)
	})
}

// N-57, N-58, N-63: the secret goes only to the token endpoint of the configured issuer, never to an address that a
// server, metadata or a redirect names. A token goes to its server only.
func TestMachineSecretStays(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*rig)
		works  bool
	}{
		{"as it should be", func(*rig) {}, true},
		{"the server names another issuer", func(r *rig) {
			r.tools.Change = func(m map[string]any) { m["authorization_servers"] = []string{"https://evil.example.com"} }
		}, true},
		{"the server is another resource", func(r *rig) {
			r.tools.Change = func(m map[string]any) { m["resource"] = "https://bank.example.com/mcp" }
		}, false},
		{"the metadata is of another issuer", func(r *rig) {
			r.issuer.Change = func(m map[string]any) { m["issuer"] = "https://evil.example.com" }
		}, false},
		{"the token endpoint is not encrypted", func(r *rig) {
			r.issuer.Change = func(m map[string]any) { m["token_endpoint"] = "http://idp.example.com/realm/token" }
		}, false},
		{"the token endpoint redirects", func(r *rig) {
			r.issuer.Answer("/token", func(w http.ResponseWriter, q *http.Request) {
				http.Redirect(w, q, "https://evil.example.com/token", http.StatusTemporaryRedirect)
			})
		}, false},
		{"the token endpoint redirects within", func(r *rig) {
			r.issuer.Answer("/token", func(w http.ResponseWriter, q *http.Request) {
				http.Redirect(w, q, "/realm/else", http.StatusTemporaryRedirect)
			})
		}, false},
		{"the metadata of the issuer redirects", func(r *rig) {
			r.issuer.Answer("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, q *http.Request) {
				http.Redirect(w, q, "https://evil.example.com/", http.StatusFound)
			})
		}, false},
	} {
		r := newRig(t)
		tc.change(r)
		evil := oauthtest.NewIssuer(t, "https://evil.example.com")
		r.net.Put("evil.example.com", evil)
		m := r.machine(t, configured())
		status, err := r.call(t, m)
		if (status == http.StatusOK) != tc.works {
			t.Errorf("%s: call = %d, %v, want works: %t", tc.name, status, err, tc.works)
		}
		token, _ := m.Token(t.Context())
		for _, s := range r.net.Sent("") {
			all := s.Header.Get("Authorization") + s.URL + s.Body
			if _, password, ok := (&http.Request{Header: s.Header}).BasicAuth(); ok {
				all += password
			}
			if strings.Contains(all, "s3cret") && s.URL != idp+"/token" {
				t.Errorf("%s: the secret went to %s", tc.name, s.URL)
			}
			if token != "" && strings.Contains(all, token) && s.URL != server {
				t.Errorf("%s: the token went to %s", tc.name, s.URL)
			}
			if strings.HasPrefix(s.URL, "https://evil") {
				t.Errorf("%s: asked %s", tc.name, s.URL)
			}
		}
	}
}

// A key signs for the issuer that the server names. The assertion is useless elsewhere, and none is sent before the
// server has named an issuer.
func TestMachineUnknownIssuer(t *testing.T) {
	r := newRig(t)
	key := authtest.NewKey(t, "k1", "ES256")
	r.issuer.Register(oauthtest.Registered{ID: "the bridge", Key: key.Private.Public()})
	named := false
	r.net.Put("tools.example.com", http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch {
		case q.URL.Path == "/elsewhere":
			named = true
			oauthtest.JSON(w, http.StatusOK, map[string]any{"resource": server, "authorization_servers": []string{idp}})
		case q.URL.Path == "/mcp" && q.Header.Get("Authorization") == "":
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="https://tools.example.com/elsewhere", scope="a b"`)
			w.WriteHeader(http.StatusUnauthorized)
		case q.URL.Path == "/mcp":
			r.tools.ServeHTTP(w, q)
		default:
			http.NotFound(w, q)
		}
	}))
	m := r.machine(t, oauth.Settings{Client: &oauth.Client{ID: "the bridge", KeyFile: key.File(t)}})
	if status, err := r.call(t, m); status != http.StatusOK || err != nil || !named {
		t.Errorf("call = %d, %v", status, err)
	}
	if g := r.grant(t.Context(), t, m); g.Scope != "a b" {
		t.Errorf("scope %q, want that of the challenge", g.Scope)
	}
}

// Close cancels a request for a token and wakes the callers that wait for it.
func TestMachineClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.issuer.Answer("/token", func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() })
		m := r.machine(t, configured())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := m.Token(context.Background()); err == nil {
				t.Error("a token from a server that hangs")
			}
		})
		synctest.Wait()
		m.Close()
		wg.Wait()
		if _, err := m.Token(t.Context()); err == nil {
			t.Error("a token after Close")
		}
	})
}

// Validate names faults without values.
func TestValidate(t *testing.T) {
	good := func() oauth.Settings { s := configured(); return s }
	for _, tc := range []struct {
		name   string
		change func(*oauth.Settings)
		want   string
	}{
		{"good", func(*oauth.Settings) {}, ""},
		{"key without an issuer", func(s *oauth.Settings) { *s = oauth.Settings{Client: &oauth.Client{ID: "a", KeyFile: "k"}} }, ""},
		{"issuer on this machine", func(s *oauth.Settings) { s.Issuer = "http://localhost:9000" }, ""},
		{"no client", func(s *oauth.Settings) { s.Client = nil }, "client is missing"},
		{"secret without an issuer", func(s *oauth.Settings) { s.Issuer = "" }, "issuer is missing"},
		{"issuer not encrypted", func(s *oauth.Settings) { s.Issuer = "http://idp.example.com" }, "issuer must be https"},
		{"issuer with a query", func(s *oauth.Settings) { s.Issuer += "?a" }, "issuer must not have a query"},
		{"resource", func(s *oauth.Settings) { s.Resource = "tools" }, "resource must be"},
		{"scope", func(s *oauth.Settings) { s.Scopes = []string{"a b"} }, "scopes must be"},
		{"no id", func(s *oauth.Settings) { s.Client.ID = "" }, "id is missing"},
		{"no secret", func(s *oauth.Settings) { s.Client.Secret = "" }, "secret is missing"},
		{"both", func(s *oauth.Settings) { s.Client.KeyFile = "k" }, "key_file replaces secret"},
		{"key_id", func(s *oauth.Settings) { s.Client.KeyID = "k" }, "key_id needs key_file"},
		{"algorithm", func(s *oauth.Settings) { s.Client.Secret, s.Client.KeyFile, s.Client.Algorithm = "", "k", "HS256" }, "algorithm must be"},
		{"in_body", func(s *oauth.Settings) { s.Client.Secret, s.Client.KeyFile, s.Client.InBody = "", "k", true }, "in_body needs secret"},
		{"token_url", func(s *oauth.Settings) { s.Client.TokenURL = "http://idp.example.com/t" }, "token_url must be https"},
		{"params", func(s *oauth.Settings) { s.Client.Params = map[string]string{"client_secret": "x"} }, "params must not have client_secret"},
	} {
		s := good()
		tc.change(&s)
		err := s.Validate()
		if s.Client != nil {
			err = errors.Join(err, s.Client.Validate())
		}
		switch {
		case tc.want == "" && err != nil, tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)), err != nil && strings.Contains(err.Error(), "s3cret"):
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

// I-207: a server of 2025-03-26 without any metadata is its own authorization server.
func TestAssumed(t *testing.T) {
	n := &oauthtest.Net{}
	own := oauthtest.NewIssuer(t, "https://tools.example.com")
	key := authtest.NewKey(t, "k1", "ES256")
	own.Register(oauthtest.Registered{ID: "the bridge", Key: key.Private.Public()})
	own.Answer("/.well-known/oauth-authorization-server", http.NotFound)
	n.Put("tools.example.com", own)
	own.Answer("/mcp", func(w http.ResponseWriter, q *http.Request) {
		token, _ := strings.CutPrefix(q.Header.Get("Authorization"), "Bearer ")
		if g, ok := own.Good(token); !ok || g.Resource != server {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	r := &rig{net: n, issuer: own, log: &bytes.Buffer{}}
	m := r.machine(t, oauth.Settings{Client: &oauth.Client{ID: "the bridge", KeyFile: key.File(t)}})
	r.works(t, "call", m)
}
