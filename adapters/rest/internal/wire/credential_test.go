package wire

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// An executed request is not sent again if its result, elsewhere, refuses the token.
func TestTokenBehindSeeOther(t *testing.T) {
	srv := newRecorder(t, nil)
	srv.then = func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/token":
			_, _ = w.Write([]byte(`{"access_token":"token-1234","token_type":"bearer"}`))
		case "/x":
			http.Redirect(w, r, "/result", http.StatusSeeOther)
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
	}
	s := newSource(t, Options{BaseURL: srv.URL, Default: &Credential{Client: &Client{ID: "a", Secret: "b", TokenURL: srv.URL + "/token"}}})
	got := said(call(t, s, &Call{Tool: tool("POST", "/x")}))
	if !strings.HasPrefix(got, "401 Unauthorized") {
		t.Errorf("got %s", got)
	}
	posts := 0
	for _, r := range srv.requests() {
		if r.method == "POST" && r.uri == "/x" {
			posts++
		}
	}
	if posts != 1 {
		t.Errorf("the request was made %d times", posts)
	}
}

// Configured secrets stay masked; tokens change, and a bounded number is remembered.
func TestMaskLasts(t *testing.T) {
	srv := answering(t, 200, "text/plain", "the key is secret-key-1, the token token/9999")
	s := newSource(t, Options{BaseURL: srv.URL, Default: &Credential{Key: "secret-key-1", Header: "X-Key"}})
	for i := range 10_000 {
		s.hide(fmt.Sprintf("token/%04d", i))
	}
	if got := said(call(t, s, &Call{Tool: tool("GET", "/x")})); got != "the key is ***, the token ***" {
		t.Errorf("got %s", got)
	}
}

// No member of an object replaces a credential, in any place, or a part of the query in the API's address.
func TestCredentialNames(t *testing.T) {
	srv := newRecorder(t, nil)
	query := tool("GET", "/x", &openapi.Parameter{Name: "c", In: openapi.InQueryString, ContentType: httpio.Form})
	for _, tc := range []struct {
		tool *openapi.Tool
		o    Options
	}{
		{query, Options{BaseURL: srv.URL, Default: &Credential{Key: "k1234567", Query: "key"}}},
		{tool("GET", "/x", parameter("query", "form", true)), Options{BaseURL: srv.URL, Default: &Credential{Key: "k1234567", Query: "key"}}},
		{tool("GET", "/x", parameter("query", "form", true)), Options{BaseURL: srv.URL + "/api?code=k1234567&key=7"}},
		{tool("GET", "/x", parameter("cookie", "form", true)), Options{BaseURL: srv.URL, Default: &Credential{Key: "k1234567", Cookie: "key"}}},
	} {
		s := newSource(t, tc.o)
		for args, want := range map[string]string{`{"c":{"key":"mine"}}`: "c: must not have a member called key", `{"c":{"other":"mine"}}`: "200 OK"} {
			if got := said(call(t, s, &Call{Tool: tc.tool, Args: []byte(args)})); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s\n%v", args, got, srv.requests())
			}
		}
	}
}

// A client certificate is sent only if the source's settings name one. It is a credential: other servers
// do not see it.
func TestCertificate(t *testing.T) {
	show := func() *httptest.Server {
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprintf(w, "%d over %s", len(r.TLS.PeerCertificates), r.Proto)
		}))
		srv.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
		srv.EnableHTTP2 = true
		srv.StartTLS()
		t.Cleanup(srv.Close)
		return srv
	}
	home, other := show(), show()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		at := filepath.Join(dir, name)
		if err := os.WriteFile(at, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return at
	}
	der, err := x509.MarshalPKCS8PrivateKey(home.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	ca, key := write("ca.pem", "CERTIFICATE", home.Certificate().Raw), write("key.pem", "PRIVATE KEY", der)
	with := remote.Config{CAFile: ca, CertFile: ca, KeyFile: key}
	for _, test := range []struct {
		name        string
		http        remote.Config
		trusted     []string
		home, other string // certificates
	}{
		{"without one", remote.Config{CAFile: ca}, nil, "0", "0"},
		{"of its own server", with, nil, "1", "0"},
		{"of a trusted server", with, []string{other.URL}, "1", "1"},
	} {
		s := newSource(t, Options{Document: &openapi.Document{Schemes: schemes, Servers: []openapi.Server{{URL: home.URL}}}, HTTP: test.http, Trusted: test.trusted})
		x := secured("GET", needs("cert"))
		if got := said(call(t, s, &Call{Tool: x})); got != test.home+" over HTTP/2.0" {
			t.Errorf("%s: the API's own server: %s", test.name, got)
		}
		x.Operation.Servers = []openapi.Server{{URL: other.URL}}
		if got := said(call(t, s, &Call{Tool: x})); got != test.other+" over HTTP/2.0" {
			t.Errorf("%s: another server: %s", test.name, got)
		}
	}
}

// A client without a token endpoint uses that of the document, if there is only one: for all
// operations, with the scopes of those that name them.
func TestTokenAddressOfDocument(t *testing.T) {
	srv := newRecorder(t, nil)
	srv.then = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			_, _ = w.Write([]byte(`{"access_token":"token-1234","token_type":"bearer"}`))
		}
	}
	oauth := func(name, at string) *openapi.SecurityScheme {
		return &openapi.SecurityScheme{Name: name, Type: "oauth2", Flows: []openapi.Flow{{Kind: "authorizationCode", TokenURL: "https://example.com/other"}, {Kind: "clientCredentials", TokenURL: at}}}
	}
	key := &openapi.SecurityScheme{Name: "key", Type: "apiKey", In: openapi.InHeader, Param: "X-Key"}
	client := &Credential{Client: &Client{ID: "id", Secret: "secret-1"}}
	s := newSource(t, Options{BaseURL: srv.URL, Default: client, Document: &openapi.Document{Schemes: []*openapi.SecurityScheme{key, oauth("O", srv.URL+"/token")}}})
	for _, test := range []struct{ needs, scope string }{{"O", "scope=read&"}, {"key", ""}} {
		x := secured("GET", openapi.Requirement{{Name: test.needs, Scopes: []string{"read"}}})
		call(t, s, &Call{Tool: x})
		all := srv.requests()
		if len(all) != 2 || all[0].uri != "/token" || strings.Contains(string(all[0].body), "scope=read") != (test.scope != "") || all[1].header.Get("Authorization") != "Bearer token-1234" {
			t.Errorf("%s: %v", test.needs, all)
		}
	}
	for want, schemes := range map[string][]*openapi.SecurityScheme{
		"the document names no token endpoint: set token_url":                       {key},
		"the schemes O and P of the document have different token addresses: set t": {oauth("O", "/token"), oauth("P", "/other")},
		"": {oauth("O", "/token"), oauth("P", "/token")},
	} {
		s, err := New(Options{BaseURL: srv.URL, Default: client, Document: &openapi.Document{Schemes: schemes}})
		if err == nil {
			s.Close()
		}
		if fmt.Sprint(err) == "<nil>" != (want == "") || !strings.Contains(fmt.Sprint(err), want) && want != "" {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
