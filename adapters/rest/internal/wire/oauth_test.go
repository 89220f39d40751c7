package wire

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/oauth/login"
	"github.com/mcp-bridge/bridge/internal/oauth/oauthtest"
)

// guarded is an API that accepts the tokens of an issuer.
func guarded(t *testing.T, i *oauthtest.Issuer) *recorder {
	return newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
		token, _ := bytes.CutPrefix([]byte(r.Header.Get("Authorization")), []byte("Bearer "))
		g, ok := i.Good(string(token))
		if !ok {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"client":"`+g.Client+`","scope":"`+g.Scope+`","resource":"`+g.Resource+`"}`)
	})
}

// I-300, I-301: a client finds the token endpoint by the metadata of its issuer, and may sign
// instead of a secret. It asks the API for nothing.
func TestClientIssuer(t *testing.T) {
	i := oauthtest.Serve(t)
	srv := guarded(t, i)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	i.Register(oauthtest.Registered{ID: "signs", Key: key.Public()})
	i.Register(oauthtest.Registered{ID: "knows", Secret: "the-secret"})
	for name, c := range map[string]Client{
		`{"client":"signs","scope":"read","resource":""}`:                  {ID: "signs", KeyFile: file, Issuer: i.URL},
		`{"client":"knows","scope":"own","resource":"https://a.example/"}`: {ID: "knows", Secret: "the-secret", Issuer: i.URL, Scopes: []string{"own"}, Resource: "https://a.example/"},
	} {
		s := newSource(t, Options{BaseURL: srv.URL, Credentials: map[string]Credential{"o": {Client: &c}}, Document: &openapi.Document{Schemes: []*openapi.SecurityScheme{{Name: "o", Type: "oauth2"}}}})
		x := secured("POST", openapi.Requirement{{Name: "o", Scopes: []string{"read"}}})
		if got := said(call(t, s, &Call{Tool: x})); got != name {
			t.Errorf("%s, want %s", got, name)
		}
		i.Revoke(true) // for any reason: the request is sent again with another token
		if got := said(call(t, s, &Call{Tool: x})); got != name {
			t.Errorf("after the token was taken back: %s, want %s", got, name)
		}
		if all := srv.requests(); len(all) != 3 {
			t.Errorf("the API has %v", all)
		}
	}
	for name, c := range map[string]Client{"issuer": {ID: "a", Secret: "b", Issuer: i.URL, Scopes: []string{"c"}}, "token_url": {ID: "a", Secret: "b", TokenURL: i.URL + "/token", Resource: "https://a.example/"}} {
		if err := (&Credential{Exchange: oauth.ExchangeStandard, Client: &c}).CheckTokens(); err != nil {
			t.Errorf("exchange with %s: %v", name, err)
		}
	}
}

// I-302: an API is used with the login of a person, which is renewed when the API refuses it.
// Without a login nothing is sent.
func TestLoginOfAPI(t *testing.T) {
	t.Setenv("MCP_BRIDGE_STATE_DIR", t.TempDir())
	i := oauthtest.Serve(t)
	srv := guarded(t, i)
	c := Credential{Login: true, Client: &Client{Issuer: i.URL, Scopes: []string{"read"}}}
	log := &bytes.Buffer{}
	s := newSource(t, Options{Name: "wiki", BaseURL: srv.URL + "/v1", Default: &c, Log: slog.New(slog.NewTextHandler(log, nil))})
	x := tool("GET", "/x")
	for range 2 {
		if got := said(call(t, s, &Call{Tool: x})); !contains(got, "was not sent: nobody has signed in to the API") {
			t.Errorf("without a login: %s", got)
		}
	}
	if all := srv.requests(); len(all) != 0 || !contains(log.String(), "mcp-bridge login wiki") {
		t.Errorf("without a login: %v; the log: %s", all, log)
	}
	how := c.SignIn(srv.URL+"/v1", remote.Config{})
	store, err := login.OpenOwn(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(how.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := login.New(login.Options{Store: store, Options: oauth.Options{Settings: *how.OAuth, Server: at, Transport: http.DefaultTransport, Log: slog.New(slog.DiscardHandler)}, Ask: func(address string) {
		go func() {
			res, err := http.Get(address)
			if err != nil {
				t.Error(err)
				return
			}
			_ = res.Body.Close()
		}()
	}})
	defer p.Close()
	if _, err := p.SignIn(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all := srv.requests(); len(all) != 1 || all[0].method != http.MethodGet || len(all[0].body) != 0 {
		t.Errorf("to sign in, the API was asked %v", all)
	}
	if got := said(call(t, s, &Call{Tool: x})); !contains(got, `"scope":"read","resource":""`) {
		t.Errorf("with a login: %s", got)
	}
	i.Revoke(false)
	if got := said(call(t, s, &Call{Tool: x})); !contains(got, `"scope":"read"`) || i.Asked("/token") != 2 {
		t.Errorf("after the token was taken back: %s, %d tokens", got, i.Asked("/token"))
	}
	i.Revoke(true)
	if got := said(call(t, s, &Call{Tool: x})); !contains(got, "is refused by the API: there is no token for it") || contains(got, "mcp-bridge login") {
		t.Errorf("after all was taken back: %s", got)
	}
}
