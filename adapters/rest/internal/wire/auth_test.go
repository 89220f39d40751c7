package wire

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/internal/oauth"
)

var schemes = []*openapi.SecurityScheme{
	{Name: "head", Type: "apiKey", In: openapi.InHeader, Param: "X-Api-Key"},
	{Name: "query", Type: "apiKey", In: openapi.InQuery, Param: "api key"},
	{Name: "cookie", Type: "apiKey", In: openapi.InCookie, Param: "sid"},
	{Name: "basic", Type: "http", Scheme: "basic"},
	{Name: "bearer", Type: "http", Scheme: "bearer"},
	{Name: "oauth", Type: "oauth2", Flows: []openapi.Flow{{Kind: "clientCredentials", TokenURL: "/token"}}},
	{Name: "oidc", Type: "openIdConnect"},
	{Name: "cert", Type: "mutualTLS"},
}

func secured(method string, needs ...openapi.Requirement) *openapi.Tool {
	t := tool(method, "/x")
	t.Operation.Security = needs
	return t
}

func needs(names ...string) openapi.Requirement {
	r := openapi.Requirement{}
	for _, n := range names {
		r = append(r, openapi.SchemeUse{Name: n})
	}
	return r
}

func TestCredentials(t *testing.T) {
	srv := newRecorder(t, nil)
	doc := &openapi.Document{Schemes: schemes, Operations: []*openapi.Operation{{Security: []openapi.Requirement{needs("head")}}}}
	all := map[string]Credential{
		"head": {Key: "key-in-header"}, "query": {Key: "key&in=query"}, "cookie": {Key: "key;in cookie"},
		"basic": {User: "ann", Password: "open:sesame"}, "bearer": {Bearer: "the-token"}, "oidc": {Bearer: "other-token"},
	}
	only := func(names ...string) map[string]Credential {
		m := map[string]Credential{}
		for _, n := range names {
			m[n] = all[n]
		}
		return m
	}
	for _, tc := range []struct {
		name  string
		creds map[string]Credential
		dflt  *Credential
		needs []openapi.Requirement
		want  string
	}{
		{"none needed", all, nil, nil, "GET /x"},
		{"header", all, nil, []openapi.Requirement{needs("head")}, "GET /x\nX-Api-Key: key-in-header"},
		{"query", all, nil, []openapi.Requirement{needs("query")}, "GET /x?api%20key=key%26in%3Dquery"},
		{"cookie", all, nil, []openapi.Requirement{needs("cookie")}, "GET /x\nCookie: sid=key%3Bin%20cookie"},
		{"basic", all, nil, []openapi.Requirement{needs("basic")}, "GET /x\nAuthorization: Basic YW5uOm9wZW46c2VzYW1l"},
		{"bearer", all, nil, []openapi.Requirement{needs("bearer")}, "GET /x\nAuthorization: Bearer the-token"},
		{"a token that is there", all, nil, []openapi.Requirement{needs("oidc")}, "GET /x\nAuthorization: Bearer other-token"},
		{"together", all, nil, []openapi.Requirement{needs("head", "query")}, "GET /x?api%20key=key%26in%3Dquery\nX-Api-Key: key-in-header"},
		{"the first that is configured", only("bearer"), nil, []openapi.Requirement{needs("head"), needs("bearer")}, "GET /x\nAuthorization: Bearer the-token"},
		{"half of the first", only("head", "bearer"), nil, []openapi.Requirement{needs("head", "query"), needs("bearer")}, "GET /x\nAuthorization: Bearer the-token"},
		{"none that is configured", only("bearer"), nil, []openapi.Requirement{needs("head")}, "GET /x"},
		{"an unknown one", all, nil, []openapi.Requirement{needs("gone")}, "GET /x"},
		{"optional, and there is one", only("head"), nil, []openapi.Requirement{needs(), needs("head")}, "GET /x\nX-Api-Key: key-in-header"},
		{"optional, and there is none", nil, nil, []openapi.Requirement{needs(), needs("head")}, "GET /x"},
		{"default", nil, &Credential{Key: "default-key", Header: "X-Key"}, []openapi.Requirement{needs("head")}, "GET /x\nX-Key: default-key"},
		{"default where none is needed", nil, &Credential{Key: "default-key", Header: "X-Key"}, nil, "GET /x"},
	} {
		s := newSource(t, Options{Document: doc, BaseURL: srv.URL, Credentials: tc.creds, Default: tc.dflt})
		c := &Call{Tool: secured("GET", tc.needs...)}
		call(t, s, c)
		if got := srv.requests()[0].lines(); got != tc.want {
			t.Errorf("%s: %s\nwant %s", tc.name, got, tc.want)
		}
		p, err := s.Plan(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"key-in", "key&in", "key%26", "key;in", "open:sesame", "YW5u", "the-token", "other-token", "default-key"} {
			if contains(p.String(), secret) || contains(fmt.Sprint(p.URL, p.Header), secret) {
				t.Errorf("%s: the plan has a secret:\n%s", tc.name, p)
			}
		}
		if contains(tc.want, "\n") != contains(p.String(), masked) && !contains(tc.want, "api%20key") {
			t.Errorf("%s: the plan does not show where the secret goes:\n%s", tc.name, p)
		}
	}
	byHand := newSource(t, Options{BaseURL: srv.URL, Default: &Credential{Key: "k1234567", Cookie: "sid"}})
	call(t, byHand, &Call{Tool: tool("GET", "/x", &openapi.Parameter{Name: "c", In: "cookie", Style: "form"}), Args: []byte(`{"c":1}`)})
	if got, want := srv.requests()[0].lines(), "GET /x\nCookie: c=1; sid=k1234567"; got != want {
		t.Errorf("by hand: %s, want %s", got, want)
	}
}

// In a document whose operations do not say what they need, all get what is configured. Parameters
// of the document with the place and name of a credential get it too, whatever the operation needs.
func TestCredentialsUnsaid(t *testing.T) {
	key := &Credential{Key: "key-12345", Query: "k"}
	unsaid, said := &openapi.Document{Schemes: schemes}, &openapi.Document{Schemes: schemes, Operations: []*openapi.Operation{{Security: []openapi.Requirement{needs("bearer")}}}}
	named := tool("GET", "/x", &openapi.Parameter{Name: "x-api-key", In: openapi.InHeader})
	said.Operations = append(said.Operations, named.Operation)
	for _, tc := range []struct {
		name  string
		doc   *openapi.Document
		creds map[string]Credential
		dflt  *Credential
		tool  *openapi.Tool
		want  string
		idle  int
	}{
		{"default", unsaid, nil, &Credential{Bearer: "the-token"}, tool("GET", "/x"), "GET /x\nAuthorization: Bearer the-token", 0},
		{"named", unsaid, map[string]Credential{"bearer": {Bearer: "the-token"}}, nil, tool("GET", "/x"), "GET /x\nAuthorization: Bearer the-token", 0},
		{"several", unsaid, map[string]Credential{"bearer": {Bearer: "the-token"}, "basic": {User: "a", Password: "secret-word"}, "head": {Key: "key-12345"}}, nil, tool("GET", "/x"),
			"GET /x\nAuthorization: Basic YTpzZWNyZXQtd29yZA==\nX-Api-Key: key-12345", 1},
		{"none on purpose", unsaid, nil, key, tool("GET", "/x"), "GET /x", 1},
		{"others say", said, nil, key, tool("GET", "/x"), "GET /x", 1},
		{"parameter", said, map[string]Credential{"head": {Key: "key-12345"}}, nil, named, "GET /x\nX-Api-Key: key-12345", 0},
		{"parameter of another tool", said, map[string]Credential{"head": {Key: "key-12345"}}, nil, tool("GET", "/x", &openapi.Parameter{Name: "x-api-key", In: openapi.InHeader}), "GET /x", 1},
		{"parameter, and only a default", said, nil, key, tool("GET", "/x", &openapi.Parameter{Name: "k", In: openapi.InQuery}), "GET /x", 1},
	} {
		srv := newRecorder(t, nil)
		if tc.name == "none on purpose" {
			tc.tool.Operation.Security = []openapi.Requirement{}
		}
		s := newSource(t, Options{Document: tc.doc, BaseURL: srv.URL, Credentials: tc.creds, Default: tc.dflt})
		tc.tool.Arguments = nil
		call(t, s, &Call{Tool: tc.tool})
		if got := srv.requests()[0].lines(); got != tc.want {
			t.Errorf("%s: %s\nwant %s", tc.name, got, tc.want)
		}
		if got := s.Reach().Idle([]*openapi.Operation{tc.tool.Operation}); len(got) != tc.idle {
			t.Errorf("%s: idle are %q", tc.name, got)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	doc := &openapi.Document{Schemes: schemes, Servers: []openapi.Server{{URL: "https://api.example.com"}}}
	named := func(token string) *openapi.Document { // of a document that names a token endpoint
		flow := openapi.Flow{Kind: "clientCredentials", TokenURL: token}
		return &openapi.Document{Schemes: []*openapi.SecurityScheme{{Name: "oauth", Type: "oauth2", Flows: []openapi.Flow{flow}}}, Servers: doc.Servers}
	}
	client := func(c Credential) Options {
		return Options{Document: named("https://api.example.com/token"), BaseURL: "https://api.example.com", Default: &c}
	}
	const issuer = "https://idp.example.com"
	for _, tc := range []struct {
		o    Options
		want string
	}{
		{Options{}, "set base_url"},
		{Options{BaseURL: "ftp://x"}, "must be a URL such as https://"},
		{Options{BaseURL: "https://user:pass@x"}, "must not hold a password"},
		{Options{Document: doc, Credentials: map[string]Credential{"haed": {Key: "x"}}}, "did you mean head?"},
		{Options{Document: doc, Credentials: map[string]Credential{"head": {Bearer: "x"}}}, "do not fit the document's scheme, which has type apiKey"},
		{Options{Document: doc, Credentials: map[string]Credential{"bearer": {User: "x"}}}, "do not fit the document's scheme, which has type bearer"},
		{Options{Document: doc, Credentials: map[string]Credential{"head": {Key: "a\r\nb"}}}, "a header cannot have"},
		{Options{Document: doc, Credentials: map[string]Credential{"basic": {User: "a:b"}}}, "colon"},
		{Options{Document: doc, Default: &Credential{Key: "x"}}, "the value has no place: set header"},
		{Options{Document: doc, Default: &Credential{}}, "no credential is given"},
		{Options{BaseURL: "https://api.example.com", Default: &Credential{Client: &Client{ID: "x", Secret: "y"}}}, "set token_url"},
		{Options{Document: doc, Forward: []string{"Host"}}, "cannot be passed on"},
		{Options{Document: doc, Forward: []string{"X-A as Mcp-Session-Id"}}, "cannot be passed on"},
		{Options{Document: doc, Forward: []string{"Content-MD5"}}, "cannot be passed on"},
		{Options{Document: doc, Forward: []string{"a b"}}, "not the name of a header"},
		{Options{Document: doc, Headers: map[string]string{"X": "a\nb"}}, "cannot be sent"},
		{Options{Document: doc, Trusted: []string{"nonsense"}}, "trusted"},
		{Options{Document: doc, HTTP: remote.Config{CAFile: "/nowhere"}}, "ca_file"},
		{Options{Document: named("http://other.example.com/token"), Credentials: map[string]Credential{"oauth": {Client: &Client{ID: "x", Secret: "y"}}}}, "on another server without https"},
		{client(Credential{Client: &Client{ID: "a", Secret: "b", KeyFile: "key.pem", Issuer: issuer}}), "key_file replaces secret"},
		{client(Credential{Client: &Client{Secret: "b", Issuer: issuer}}), "id is missing"},
		{client(Credential{Client: &Client{ID: "a", Issuer: issuer}}), "secret is missing"},
		{client(Credential{Client: &Client{ID: "a", Secret: "b", Issuer: "http://idp.example.com"}}), "issuer must be https"},
		{client(Credential{Client: &Client{ID: "a", Secret: "b", Issuer: issuer, RedirectURI: "http://localhost/"}}), "redirect_uri needs login: true"},
		{client(Credential{Exchange: oauth.ExchangeStandard, Client: &Client{ID: "a", Secret: "b", Scopes: []string{"c"}}}), "set issuer or token_url"},
		{client(Credential{Exchange: oauth.ExchangeOnBehalfOf, Client: &Client{ID: "a", KeyFile: "key.pem", Scopes: []string{"c"}}}), "never to one of a document"},
		{client(Credential{Exchange: oauth.ExchangeStandard, Client: &Client{ID: "a", Secret: "b", Issuer: issuer}}), "scopes are missing: exchange without a resource"},
		{client(Credential{Login: true, Client: &Client{ID: "a", TokenURL: issuer}}), "token_url has no effect with login"},
	} {
		s, err := New(tc.o)
		if err == nil {
			s.Close()
		}
		if err == nil || !contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %s", tc.o, err, tc.want)
		}
	}
}

// Credentials and headers go to the API's own server, and to trusted ones.
func TestHosts(t *testing.T) {
	home, other := newRecorder(t, nil), newRecorder(t, nil)
	doc := &openapi.Document{Servers: []openapi.Server{{URL: home.URL + "/v1/"}}}
	up := tool("PUT", "/x", &openapi.Parameter{Name: "X-Trace", In: "header", Style: "simple"})
	up.Operation.Servers = []openapi.Server{{URL: other.URL}}
	o := Options{Document: doc, Default: &Credential{Bearer: "the-token"}, Headers: map[string]string{"X-Fixed": "1"}, Forward: []string{"Authorization as X-Caller", "X-Tenant as X-Org"}}
	from := http.Header{"Authorization": {"Bearer callers"}, "X-Tenant": {"t"}, "X-Other": {"o"}}
	s := newSource(t, o)
	fixed := tool("GET", "/x", &openapi.Parameter{Name: "X-Fixed", In: "header", Style: "simple"}, &openapi.Parameter{Name: "Authorization", In: "header", Style: "simple"})
	call(t, s, &Call{Tool: fixed, Header: from, Args: []byte(`{"X-Fixed":"mine","Authorization":"mine"}`)})
	if got, want := home.requests()[0].lines(), "GET /v1/x\nAuthorization: Bearer the-token\nX-Caller: Bearer callers\nX-Fixed: 1\nX-Org: t"; got != want {
		t.Errorf("home: %s\nwant %s", got, want)
	}
	call(t, s, &Call{Tool: up, Header: from, Args: []byte(`{"X-Trace":"7"}`)})
	if got, want := other.requests()[0].lines(), "PUT /x\nX-Trace: 7"; got != want {
		t.Errorf("another server: %s\nwant %s", got, want)
	}
	o.Trusted = []string{other.URL}
	call(t, newSource(t, o), &Call{Tool: up})
	if got, want := other.requests()[0].lines(), "PUT /x\nAuthorization: Bearer the-token\nX-Fixed: 1"; got != want {
		t.Errorf("a trusted server: %s\nwant %s", got, want)
	}
	o.Forward = []string{"Authorization"}
	s = newSource(t, o)
	c := &Call{Tool: tool("GET", "/x"), Header: from}
	call(t, s, c)
	if got, want := home.requests()[0].lines(), "GET /v1/x\nAuthorization: Bearer callers\nX-Fixed: 1"; got != want {
		t.Errorf("the caller's own: %s\nwant %s", got, want)
	}
	if p, _ := s.Plan(c); contains(p.String(), "callers") {
		t.Errorf("the plan shows what the caller sent:\n%s", p)
	}
}

func TestServers(t *testing.T) {
	v := func(name, dflt string, enum ...string) openapi.Variable {
		return openapi.Variable{Name: name, Default: dflt, Enum: enum}
	}
	for _, tc := range []struct {
		name     string
		location string
		server   openapi.Server
		own      []openapi.Server
		o        Options
		path     string
		want     string
		err      string
	}{
		{name: "plain", server: openapi.Server{URL: "https://a.example.com/v1"}, path: "/x", want: "https://a.example.com/v1/x"},
		{name: "a slash too many", server: openapi.Server{URL: "https://a.example.com/v1/"}, path: "/x/", want: "https://a.example.com/v1/x/"},
		{name: "a slash too few", server: openapi.Server{URL: "https://a.example.com"}, path: "x", want: "https://a.example.com/x"},
		{name: "variables", server: openapi.Server{URL: "https://{region}.example.com:{port}/{v}", Variables: []openapi.Variable{v("region", "eu", "eu", "us"), v("port", "8443"), v("v", "v2")}},
			o: Options{Variables: map[string]string{"region": "us"}}, path: "/x", want: "https://us.example.com:8443/v2/x"},
		{name: "a variable that may not be", server: openapi.Server{URL: "https://{region}.example.com", Variables: []openapi.Variable{v("region", "eu", "eu", "us")}},
			o: Options{Variables: map[string]string{"region": "evil.example.org/"}}, path: "/x", err: "must be one of eu, us"},
		{name: "a variable that nobody explains", server: openapi.Server{URL: "https://{x}.example.com"}, path: "/x", err: "a variable without a value in the document: set variables: { x: … }, or base_url"},
		{name: "relative", location: "https://docs.example.com/api/openapi.yaml", server: openapi.Server{URL: "../v1"}, path: "/x", want: "https://docs.example.com/v1/x"},
		{name: "relative to the root", location: "https://docs.example.com/api/openapi.yaml", server: openapi.Server{URL: "/v1"}, path: "/x", want: "https://docs.example.com/v1/x"},
		{name: "relative to a file", location: "/etc/openapi.yaml", server: openapi.Server{URL: "/v1"}, path: "/x", err: "is relative"},
		{name: "the operation's own", server: openapi.Server{URL: "https://a.example.com"}, own: []openapi.Server{{URL: "https://b.example.com"}}, path: "/x", want: "https://b.example.com/x"},
		{name: "overridden", server: openapi.Server{URL: "https://a.example.com"}, own: []openapi.Server{{URL: "https://b.example.com"}}, o: Options{BaseURL: "http://localhost:1/base?api-version=2"}, path: "/x?y=1", want: "http://localhost:1/base/x?api-version=2&y=1"},
		{name: "encoded", server: openapi.Server{URL: "https://a.example.com/a%2Fb"}, path: "/x", want: "https://a.example.com/a%2Fb/x"},
	} {
		o := tc.o
		o.Document = &openapi.Document{Location: tc.location, Servers: []openapi.Server{tc.server}}
		x := tool("GET", tc.path)
		x.Operation.Servers = tc.own
		s, err := New(o)
		var got string
		if err == nil {
			var p *Plan
			if p, err = s.Plan(&Call{Tool: x}); err == nil {
				got = p.URL.String()
			}
			s.Close()
		}
		if got != tc.want || (tc.err == "") != (err == nil) || err != nil && !contains(err.Error(), tc.err) {
			t.Errorf("%s: %s, %v; want %s, %s", tc.name, got, err, tc.want, tc.err)
		}
	}
}

// issuer gives tokens by client credentials.
type issuer struct {
	*httptest.Server
	asked atomic.Int32
	mu    sync.Mutex // guards forms
	forms []string
	life  int
	deny  bool
}

func newIssuer(t *testing.T) *issuer {
	i := &issuer{life: 3600}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := i.asked.Add(1)
		user, pass, _ := r.BasicAuth()
		_ = r.ParseForm()
		i.mu.Lock()
		i.forms = append(i.forms, user+"/"+pass+" "+r.PostForm.Encode())
		i.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if i.deny {
			w.WriteHeader(401)
			_, _ = w.Write([]byte(`{"error":"invalid_client","error_description":"secret the-secret is wrong"}`))
			return
		}
		_, _ = fmt.Fprintf(w, `{"access_token":"token-number-%d","token_type":"Bearer","expires_in":%d}`, n, i.life)
	}))
	t.Cleanup(i.Close)
	return i
}

func TestClientCredentials(t *testing.T) {
	i := newIssuer(t)
	var revoked atomic.Value
	revoked.Store("")
	srv := newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer "+revoked.Load().(string) || r.Header.Get("Authorization") == "" {
			w.WriteHeader(401)
			return
		}
		_, _ = w.Write([]byte("{}"))
	})
	o := Options{Document: &openapi.Document{Schemes: schemes}, BaseURL: srv.URL, Credentials: map[string]Credential{
		"oauth": {Client: &Client{ID: "me:1", Secret: "the-secret/é", TokenURL: i.URL + "/token", Params: map[string]string{"audience": "a b"}}},
	}}
	s := newSource(t, o)
	x := secured("POST", openapi.Requirement{{Name: "oauth", Scopes: []string{"read", "write"}}})
	// Concurrent requests share one token.
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if b, err := s.Call(context.Background(), &Call{Tool: x}); err != nil || contains(string(b), "isError") {
				t.Errorf("%s, %v", b, err)
			}
		})
	}
	wg.Wait()
	if n := i.asked.Load(); n != 1 {
		t.Errorf("%d tokens were asked for, want 1", n)
	}
	if got, want := i.forms[0], "me%3A1/the-secret%2F%C3%A9 audience=a+b&grant_type=client_credentials&scope=read+write"; got != want {
		t.Errorf("asked with %s\nwant %s", got, want)
	}
	srv.requests()
	// After a revocation there is one new token, and the request is sent again, even a POST.
	revoked.Store("token-number-1")
	if got := said(call(t, s, &Call{Tool: x})); got != "{}" || i.asked.Load() != 2 {
		t.Errorf("%q after %d tokens", got, i.asked.Load())
	}
	if q := srv.requests(); len(q) != 2 || q[1].header.Get("Authorization") != "Bearer token-number-2" {
		t.Errorf("requests: %v", q)
	}
	// If no token is accepted, there is no other within ten seconds.
	revoked.Store("token-number-2")
	srv.then = func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(401)
		_, _ = w.Write([]byte(r.Header.Get("Authorization")))
	}
	if got := said(call(t, s, &Call{Tool: x})); !contains(got, "401 Unauthorized from POST /x") || contains(got, "token-number") {
		t.Errorf("never accepted: %q", got)
	}
	if n := len(srv.requests()); n != 1 || i.asked.Load() != 2 {
		t.Errorf("%d requests, %d tokens", n, i.asked.Load())
	}
	i.deny = true
	if got := said(call(t, newSource(t, o), &Call{Tool: x})); !contains(got, "was not sent: there is no token for it: its authorization server says invalid_client") || contains(got, "the-secret") {
		t.Errorf("denied: %q", got)
	}
	i.deny = false
	o.Credentials["oauth"] = Credential{Client: &Client{ID: "me", Secret: "the-secret", TokenURL: i.URL, InBody: true, Scopes: []string{"own"}}}
	call(t, newSource(t, o), &Call{Tool: x})
	if got, want := i.forms[len(i.forms)-1], "/ client_id=me&client_secret=the-secret&grant_type=client_credentials&scope=own"; got != want {
		t.Errorf("in the body: %s, want %s", got, want)
	}
}

// A token is renewed before it ends. Concurrent callers wait for the same one, and a caller that
// leaves does not cancel it.
func TestTokenLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		s, _ := scripted(t, Options{Default: &Credential{Client: &Client{ID: "me", Secret: "s", TokenURL: "https://login.example.com"}}}, func(r *http.Request) (*http.Response, error) {
			res := status(200)
			if r.URL.Host == "login.example.com" {
				asked++
				time.Sleep(time.Second)
				res.Body = body(fmt.Sprintf(`{"access_token":"token%d","expires_in":60}`, asked))
			} else {
				res.Body = body(`"` + r.Header.Get("Authorization") + `"`)
			}
			return res, nil
		})
		defer s.Close()
		c := &Call{Tool: tool("GET", "/x")}
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		if _, err := s.Call(ctx, c); err == nil {
			t.Error("a caller that has gone gets an answer")
		}
		want := func(token string) {
			t.Helper()
			if got := said(call(t, s, c)); got != `"Bearer `+token+`"` {
				t.Errorf("%s, want %s", got, token)
			}
		}
		want("token1")
		time.Sleep(46 * time.Second) // of 60, less a fifth
		want("token1")
		time.Sleep(2 * time.Second)
		want("token2")
	})
}

// A failing token endpoint is not asked at each call, but again after a while.
func TestTokenRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, well := 0, false
		s, _ := scripted(t, Options{Default: &Credential{Client: &Client{ID: "me", Secret: "s", TokenURL: "https://login.example.com"}}}, func(r *http.Request) (*http.Response, error) {
			res := status(200)
			if r.URL.Host == "login.example.com" {
				if asked++; !well {
					return status(503), nil
				}
				res.Body = body(`{"access_token":"token","expires_in":60}`)
			}
			return res, nil
		})
		defer s.Close()
		c := &Call{Tool: tool("POST", "/x")}
		want := func(after time.Duration, n int, text string) {
			t.Helper()
			time.Sleep(after)
			for range 3 {
				if got := said(call(t, s, c)); !contains(got, text) || asked != n {
					t.Errorf("%s after %d tokens were asked for, want %s after %d", got, asked, text, n)
				}
			}
		}
		want(0, 1, "no token")
		want(999*time.Millisecond, 1, "no token")
		want(time.Millisecond, 2, "no token")
		want(time.Second, 2, "no token")
		want(time.Second, 3, "no token")
		for n := 4; n < 20; n++ {
			want(30*time.Second, n, "no token")
		}
		well = true
		want(30*time.Second, 20, "{}")
	})
}

// A key in the query of the API's address is masked everywhere.
func TestKeyInAddress(t *testing.T) {
	rec := newRecorder(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RequestURI) })
	s := newSource(t, Options{BaseURL: rec.URL + "/v1?api_key=the-secret-key&flag"})
	c := &Call{Tool: tool("GET", "/x", parameter("query", "form", true)), Args: []byte(`{"c":"1"}`)}
	p, err := s.Plan(c)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Split(p.String(), "\n")[0], "GET "+rec.URL+"/v1/x?api_key=***&***&c=1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := said(call(t, s, c)), "/v1/x?api_key=***&flag&c=1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
