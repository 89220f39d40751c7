package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth/authtest"
	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/oauth/oauthtest"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// exchanger is an issuer that exchanges the tokens of its users for tokens of a server.
type exchanger struct {
	*authtest.Issuer
	mu    sync.Mutex // guards the rest
	asked []url.Values
	over  []string // tokens of callers that it does not take any more
}

// exchanging makes an issuer one that exchanges tokens.
func exchanging(i *authtest.Issuer) *exchanger {
	e := &exchanger{Issuer: i}
	e.Answer("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		oauthtest.JSON(w, http.StatusOK, map[string]any{"issuer": e.URL, "jwks_uri": e.URL + "/jwks", "token_endpoint": e.URL + "/token"})
	})
	e.Answer("/token", func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		e.mu.Lock()
		defer e.mu.Unlock()
		e.asked = append(e.asked, r.PostForm)
		sub := subjectOf(r.PostForm.Get("subject_token"))
		if id, secret, _ := r.BasicAuth(); id != "bridge" || secret != "s3cret-of-the-bridge" || sub == "" || sub == "eve" || slices.Contains(e.over, r.PostForm.Get("subject_token")) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":"invalid_grant","error_description":"not for `+r.PostForm.Get("subject_token")+`"}`)
			return
		}
		oauthtest.JSON(w, http.StatusOK, map[string]any{
			"access_token": fmt.Sprintf("crm.%s.%d", sub, len(e.asked)), "token_type": "Bearer", "expires_in": 3600, "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
		})
	})
	return e
}

// subjectOf returns whose a token of the issuer is.
func subjectOf(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	var c struct{ Sub string }
	text, _ := base64.RawURLEncoding.DecodeString(parts[1])
	_ = json.Unmarshal(text, &c)
	return c.Sub
}

// times returns how often a token was exchanged, and forgets it.
func (e *exchanger) times() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := len(e.asked)
	e.asked = nil
	return n
}

// crm is a server, and an API, that take tokens of their own: what one says is whose token it
// was shown. It keeps all that it was sent.
type crm struct {
	*httptest.Server // nil if others serve it
	http.Handler
	mu    sync.Mutex // guards the rest
	sent  bytes.Buffer
	shown []string // with each POST
	over  []string // what it does not take any more
}

func newCRM(t *testing.T, speaks string) *crm {
	c := speaking(speaks)
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

// speaking makes a server that nobody serves yet.
func speaking(speaks string) *crm {
	c := &crm{}
	who := func(r *http.Request) *mcp.Server {
		s := mcp.NewServer(&mcp.Implementation{Name: "crm", Version: "1"}, nil)
		mcp.AddTool(s, &mcp.Tool{Name: "who"}, func(_ context.Context, q *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			h := r.Header // of the stream, with the older transport
			if q.Extra != nil {
				h = q.Extra.Header
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: whose(h.Get("Authorization"))}}}, nil, nil
		})
		return s
	}
	var inner http.Handler
	switch speaks {
	case "rest":
		inner = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=600")
			_, _ = io.WriteString(w, whose(r.Header.Get("Authorization")))
		})
	case "sse":
		inner = mcp.NewSSEHandler(who, nil)
	case "stateless":
		inner = mcp.NewStreamableHTTPHandler(who, &mcp.StreamableHTTPOptions{Stateless: true})
	default:
		inner = mcp.NewStreamableHTTPHandler(who, nil)
	}
	c.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		c.mu.Lock()
		fmt.Fprintf(&c.sent, "%s %s %v\n%s\n", r.Method, r.URL, r.Header, body)
		if r.Method == http.MethodPost { // others may come at any time, for connections that are there
			c.shown = append(c.shown, r.Header.Get("Authorization"))
		}
		over := slices.Contains(c.over, r.Header.Get("Authorization"))
		c.mu.Unlock()
		if over || !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer crm.") {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	})
	return c
}

// whose says whose token that is, which begins with Bearer crm.
func whose(authorization string) string {
	return "of " + strings.Split(authorization+"..", ".")[1]
}

// Each caller's token is exchanged for one of the server, which alone gets it: once while it is valid, anew for
// another token of the caller, and never without a token (I-303, I-308). The caller's own token is not in
// anything that was sent, logged or answered (N-84). A connection is opened again with the token that its caller shows now.
func TestExchange(t *testing.T) {
	for _, tc := range []struct{ name, speaks, share string }{
		{"a session each", "streamable", config.ShareSession},
		{"a caller's sessions together", "streamable", config.SharePrincipal},
		{"a connection for each call", "streamable", config.ShareCall},
		{"older transport", "sse", config.ShareSession},
		{"API", "rest", config.ShareSession},
	} {
		t.Run(tc.name, func(t *testing.T) { exchange(t, tc.speaks, tc.share) })
	}
}

func exchange(t *testing.T, speaks, share string) {
	e, far := exchanging(authtest.Serve(t)), newCRM(t, speaks)
	log := &lines{}
	c := config.Default()
	s := config.DefaultServer("one", gateway.Share(share))
	client := &oauth.Client{ID: "bridge", Secret: "s3cret-of-the-bridge", Params: map[string]string{"audience": "crm"}}
	switch speaks {
	case "rest":
		s.Rest = &config.Rest{BaseURL: far.URL, Cache: 1 << 20, Tools: []rest.Tool{{Key: "who", Request: "GET /who"}}}
		s.Rest.Auth.Default = &config.RestCredential{Exchange: oauth.ExchangeStandard, Client: &config.RestClient{ID: client.ID, Secret: client.Secret, Params: client.Params, Issuer: e.URL, Scopes: []string{"crm.read"}}}
	default:
		s.HTTP = &config.Remote{URL: far.URL, Transport: speaks, OAuth: &config.RemoteOAuth{Exchange: oauth.ExchangeStandard, Issuer: e.URL, Client: client, Scopes: []string{"crm.read"}, Resource: "https://crm.example.com"}}
		s.Era = config.EraLegacy
	}
	reopens := speaks == "streamable" && share == config.ShareSession
	if reopens {
		s.IdleStop = 10 * time.Millisecond
	}
	c.Servers = []config.Server{s}
	users(e.Issuer)(&c)
	c.OAuth[0].Transport = nil
	c.PublicURL = here
	c.AccessLog = config.AccessLog{To: filepath.Join(t.TempDir(), "access.log"), Payloads: true}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	b := build(&c, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})), (*server).reach)
	site := wiretest.NewSiteFrom(t, b.http)
	var tokens []string
	token := func(sub string, more ...authtest.Claims) []string {
		raw := e.Token(here, append(more, authtest.Claims{"sub": sub, "groups": "eng", "jti": fmt.Sprint(len(tokens))})...)
		tokens = append(tokens, raw)
		return as(raw)
	}
	answers := ""
	ask := func(who []string, id, body string) *wiretest.Reply {
		if id != "" {
			who = append(slices.Clip(who), "Mcp-Session-Id", id)
		}
		r := site.Do("POST", "/one/mcp", body, who...).Wait()
		answers += r.Body() + fmt.Sprint(r.Status())
		return r
	}
	says := func(who []string, id, want string) {
		t.Helper()
		if r := ask(who, id, call("1", "who")); !strings.Contains(r.Body(), want) {
			t.Errorf("%d %s, want %s", r.Status(), r.Body(), want)
		}
	}
	ann, bob := token("ann"), token("bob")
	annID, bobID := ask(ann, "", initialize).Header("Mcp-Session-Id"), ask(bob, "", initialize).Header("Mcp-Session-Id")
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			for sub, id := range map[string]string{"ann": annID, "bob": bobID} {
				r := site.Do("POST", "/one/mcp", call("1", "who"), append(map[string][]string{"ann": ann, "bob": bob}[sub][:2:2], "Mcp-Session-Id", id)...).Wait()
				if !strings.Contains(r.Body(), "of "+sub) {
					t.Errorf("%s: %d %s", sub, r.Status(), r.Body())
				}
			}
		})
	}
	all.Wait()
	e.mu.Lock()
	for _, f := range e.asked {
		if f.Get("grant_type") != "urn:ietf:params:oauth:grant-type:token-exchange" || f.Get("subject_token_type") != "urn:ietf:params:oauth:token-type:access_token" || f.Get("audience") != "crm" || f.Get("scope") != "crm.read" || (f.Get("resource") == "https://crm.example.com") == (speaks == "rest") {
			t.Errorf("asked with %v", f)
		}
	}
	e.mu.Unlock()
	if n := e.times(); n != 2 {
		t.Errorf("tokens were exchanged %d times, want once for each of two callers", n)
	}
	// Another token of the same caller starts anew, in the same session.
	says(token("ann"), annID, "of ann")
	says(ann, annID, "of ann") // the one before is good as well
	if n := e.times(); n != 1 {
		t.Errorf("tokens were exchanged %d times for a new one of a caller, want 1", n)
	}
	// A client without sessions.
	body, head := modernCall("tools/call", `"name":"who",`)
	a := site.Do("POST", "/one/mcp", body, append(append(head, "Mcp-Name", "who"), token("cid")...)...).Wait()
	if answers += a.Body(); !strings.Contains(a.Body(), "of cid") {
		t.Errorf("without a session: %d %s", a.Status(), a.Body())
	}
	// Without a token, or without one for this caller: nothing is sent, and others go on.
	far.mu.Lock()
	before := len(far.shown)
	far.mu.Unlock()
	forged := append(as(aliceKey), claimToken, "9999999999 "+e.URL+" "+tokens[0]+" staff/"+e.URL+"#ann")
	for want, who := range map[string][]string{"own token of the identity provider": forged, "invalid_grant": token("eve")} {
		r := ask(who, "", initialize)
		if id := r.Header("Mcp-Session-Id"); id != "" {
			r = ask(who, id, call("1", "who"))
		}
		if !strings.Contains(r.Body(), want) {
			t.Errorf("%d %s, want %s", r.Status(), r.Body(), want)
		}
	}
	far.mu.Lock()
	if after := len(far.shown); after != before {
		t.Errorf("the server got %d requests of those who have no token for it", after-before)
	}
	far.mu.Unlock()
	says(ann, annID, "of ann")
	if r := site.Do("GET", "/readyz", "", as(aliceKey)...).Wait(); r.Status() != http.StatusOK {
		t.Errorf("one who has no token makes the server count as ill: %s", r.Body())
	}
	if reopens {
		eventually(t, "its connection is closed", func() bool { return b.Status()[0].Lanes == 0 })
		e.mu.Lock()
		e.over = tokens
		e.mu.Unlock()
		far.mu.Lock()
		far.over = slices.Clone(far.shown)
		far.mu.Unlock()
		says(token("ann"), annID, "of ann")
	}
	// N-84.
	for _, path := range []string{"/readyz", "/metrics", "/whoami"} {
		answers += site.Do("GET", path, "", ann...).Wait().Body()
	}
	b.Close(context.Background())
	access, err := os.ReadFile(c.AccessLog.To)
	if err != nil {
		t.Fatal(err)
	}
	far.mu.Lock()
	defer far.mu.Unlock()
	for what, text := range map[string]string{"the server": far.sent.String(), "the log": log.String(), "a client": answers, "the access log": string(access)} {
		if text == "" {
			t.Errorf("%s has nothing", what)
		}
		for _, raw := range append(tokens, aliceKey) {
			for _, part := range strings.Split(raw, ".") {
				if len(part) > 20 && strings.Contains(text, part) && !strings.HasPrefix(part, "eyJhbGciOi") || strings.Contains(text, raw) {
					t.Errorf("%s has got a part of a caller's token", what)
				}
			}
		}
		if strings.Contains(text, "s3cret-of-the-bridge") || what != "the server" && strings.Contains(text, "crm.ann.") {
			t.Errorf("%s has a secret or a token of the server", what)
		}
	}
	for _, shown := range far.shown {
		if !strings.HasPrefix(shown, "Bearer crm.") {
			t.Errorf("the server was shown %q", shown)
		}
	}
}

// The token of each caller is exchanged at the instance that owns its session, also for requests that reach
// another instance, and a newer token anew (I-303). No token of a caller reaches the server.
func TestClusterExchange(t *testing.T) {
	t.Parallel()
	severally(t, 0, plain, func(t *testing.T, v *several) {
		e, far := exchanging(authtest.New(t, "http://127.0.0.1:1")), speaking("stateless") // a session there would outlive its instance
		sites := map[string]*wiretest.Site{"127.0.0.1:1": wiretest.NewSite(t, e), "127.0.0.1:2": wiretest.NewSite(t, far)}
		v.conf = func(c *config.Config) {
			users(e.Issuer)(c)
			c.PublicURL = here
		}
		for range 2 {
			v.add(func(s *config.Server) {
				s.Stdio, s.Era = nil, config.EraLegacy
				s.HTTP = &config.Remote{
					URL:   "http://127.0.0.1:2",
					OAuth: &config.RemoteOAuth{Exchange: oauth.ExchangeStandard, Issuer: e.URL, Client: &oauth.Client{ID: "bridge", Secret: "s3cret-of-the-bridge"}},
					Dial:  func(_ context.Context, _, address string) (net.Conn, error) { return sites[address].Dial(), nil },
				}
			})
		}
		v.joined(2)
		var tokens []string
		shows := map[string]string{}
		fresh := func(sub string) {
			shows[sub] = e.Token(here, authtest.Claims{"sub": sub, "groups": "eng", "jti": fmt.Sprint(len(tokens))})
			tokens = append(tokens, shows[sub])
		}
		sessions := map[string]string{}
		for n, sub := range []string{"ann", "bob"} {
			fresh(sub)
			v.shows = "Bearer " + shows[sub]
			res, m := v.post(v.all[n], "", initialize)
			if sessions[sub] = res.Header("Mcp-Session-Id"); sessions[sub] == "" {
				t.Fatalf("initialize of %s: %d %s", sub, res.Status(), m.Raw)
			}
		}
		says := func() {
			t.Helper()
			for sub, id := range sessions {
				v.shows = "Bearer " + shows[sub]
				for n, w := range v.all {
					if res, m := v.post(w, id, call("1", "who")); m.Get("result.content.0.text").Str != "of "+sub {
						t.Errorf("%s at %d: %d %s", sub, n, res.Status(), m.Raw)
					}
				}
			}
		}
		says()
		if n := e.times(); n != 2 {
			t.Errorf("tokens were exchanged %d times, want once for each caller", n)
		}
		fresh("ann")
		says()
		e.mu.Lock()
		if len(e.asked) != 1 || e.asked[0].Get("subject_token") != shows["ann"] {
			t.Errorf("for a newer token, tokens were exchanged %d times", len(e.asked))
		}
		e.mu.Unlock()
		v.shows = "Bearer " + shows["bob"]
		for _, w := range v.all {
			if res, m := v.post(w, sessions["ann"], call("1", "who")); res.Status() != http.StatusNotFound {
				t.Errorf("bob in the session of ann: %d %s", res.Status(), m.Raw)
			}
		}
		far.mu.Lock()
		defer far.mu.Unlock()
		for _, raw := range tokens {
			if sent := far.sent.String(); !strings.Contains(sent, "crm.ann.") || strings.Contains(sent, strings.Split(raw, ".")[2]) {
				t.Error("N-84: the server has got a caller's token")
			}
		}
	})
}

// eventually waits for something that others do.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	t.Logf("waiting until %s", what)
	for !is() {
		time.Sleep(10 * time.Millisecond)
	}
}
