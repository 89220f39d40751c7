package server

import (
	"bytes"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth/authtest"
	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// A browser at the root comes to the page for operators, or reads where MCP is. MCP clients get their answers as before.
func TestRoot(t *testing.T) {
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	keyed := func(c *config.Config) { c.Access = []config.Access{{Name: "ops", Token: opsKey}} }
	for _, test := range []struct {
		name         string
		change       func(*config.Config)
		method, path string
		accept       string
		status       int
		want         string // the Location, or a part of the text
	}{
		{"with the page", nil, "GET", "/", browser, 307, "ui/"},
		{"its head", nil, "HEAD", "/", browser, 307, "ui/"},
		{"with keys and the page", func(c *config.Config) { keyed(c); c.Console = config.ConsoleOn }, "GET", "/", browser, 307, "ui/"},
		{"below a path", func(c *config.Config) { c.BasePath = "/a/b" }, "GET", "/a/b/", browser, 307, "ui/"},
		{"below a path without a slash", func(c *config.Config) { c.BasePath = "/a/b" }, "GET", "/a/b", browser, 307, "b/ui/"},
		{"without the page", func(c *config.Config) { c.Console = config.ConsoleOff }, "GET", "/", browser, 404, "MCP clients use /mcp\n"},
		{"the page elsewhere", func(c *config.Config) { c.ConsoleListen = "127.0.0.1:8809" }, "GET", "/", browser, 404, "MCP clients use /mcp\n"},
		{"with keys", func(c *config.Config) { keyed(c); c.BasePath = "/b" }, "GET", "/b", browser, 404, "MCP clients use /b/mcp\n"},
		{"a client", nil, "GET", "/", "text/event-stream", 404, "not found; MCP endpoints: /mcp, /one/mcp"},
		{"a client's call", nil, "POST", "/", "application/json, text/event-stream", 404, "not found; MCP endpoints: /mcp, /one/mcp"},
		{"a client without a key", keyed, "POST", "/", "application/json, text/event-stream", 401, ""},
	} {
		r := newRig(t, test.change, "one")
		w := r.answer(from(closeBy, bridgeAt, test.method, test.path, "Accept", test.accept))
		got := w.Body.String()
		if test.status == 307 {
			got = w.Header().Get("Location")
		}
		if w.Code != test.status || !strings.Contains(got, test.want) || test.status == 307 && got != test.want {
			t.Errorf("%s: %d %s, want %d %s", test.name, w.Code, got, test.status, test.want)
		}
	}
}

// TestRoutes states what is served, and through what requests pass on their way there, the
// outermost first. Each order is relied on:
//
//   - recovered ends one request where anything below it panics.
//   - limitBody sets its deadline before anything waits for a body: handlers may answer without
//     reading it, and net/http reads it then.
//   - stripClusterHeaders removes what only instances say of a caller, before the caller is checked.
//   - closeWhileDraining applies to every answer, also to those of middleware below.
//   - checkHost refuses other names, also on public paths: for a browser, a page of an attacker's
//     name that points to us has our origin. It refuses paths with % before they are used.
//   - checkOrigin answers preflights, which show no key. It refuses other pages before keys are
//     checked. Metadata and the pages of the front are for all pages.
//   - serverExists comes before the key is checked: the path of a server that does not exist is
//     like any other unknown path, and is not logged.
//   - servesClients comes before that too: a worker asks no issuer about tokens.
//   - checkTools reads only the URL, and may refuse before a key is checked.
//   - checkClient, checkCaller, checkOperator, checkSender and checkPage set the caller, which all
//     middleware below uses.
//   - identify needs a caller with a good token, and comes before checkScopes, which uses its target.
//   - endWithToken wraps everything that may open a stream.
//   - checkGrant comes before checkScopes: nobody learns the scopes of a server that it may not use.
//   - forOperators comes before hasConsole, and both before anything that reads a cookie.
func TestRoutes(t *testing.T) {
	const (
		all       = "recovered > limitBody > stripClusterHeaders > closeWhileDraining > checkHost"
		metadata  = all + " > allowAllOrigins"
		public    = all + " > checkOrigin"
		let       = " > identify > endWithToken > checkGrant > checkScopes"
		clients   = public + " > serverExists > servesClients > checkTools > checkClient" + let
		operators = public + " > forOperators"
		console   = operators + " > hasConsole"
		page      = console + " > serverExists > checkTools > checkPage" + let
	)
	i := authtest.New(t, "https://idp.example.com")
	r := newRig(t, func(c *config.Config) {
		users(i)(c)
		c.BasePath, c.PublicURL = "/b", here
		c.OAuth[0].Front = &config.Front{Client: &oauth.Client{ID: "bridge", Secret: "the-secret"}}
	}, "one")
	tree := r.s.http.Handler.(*tree)
	var got []string
	for _, route := range tree.routes {
		got = append(got, route.methods+" "+route.whole()+": "+chain(route.group.Handlers))
	}
	want := []string{
		"any /b/mcp: " + clients,
		"any /b/sse: " + clients,
		"POST, OPTIONS /b/messages: " + clients,
		"any /b/:server/mcp: " + clients,
		"any /b/:server/sse: " + clients,
		"POST, OPTIONS /b/:server/messages: " + clients,
		"GET, HEAD /b/whoami: " + public + " > checkCaller",
		"POST /b/hooks/:server: " + public + " > checkSender",
		"GET, HEAD /b/healthz: " + public,
		"GET, HEAD /b/health: " + public,
		"GET, HEAD /b/readyz: " + public,
		"GET, HEAD /b/ready: " + public,
		"GET, HEAD /b/metrics: " + public + " > checkOperator",
		"any /b/: " + public,
		"any /b/ui: " + console,
		"any /b/ui/: " + console,
		"any /b/ui/:file: " + console,
		"any /b/ui/:file/*rest: " + console,
		"POST /b/ui/login: " + console,
		"POST /b/ui/logout: " + console,
		"any /b/ui/mcp: " + page,
		"any /b/ui/mcp/:server: " + page,
		"any /b/ui/mcp/:server/*rest: " + console,
		"any /b/ui/api/v1/*path: " + operators,
		"any /b: " + public,
		"GET, HEAD /b/.well-known/oauth-protected-resource: " + metadata,
		"GET, HEAD /b/.well-known/oauth-protected-resource/*endpoint: " + metadata,
		"GET, HEAD /.well-known/oauth-protected-resource/b: " + metadata,
		"GET, HEAD /.well-known/oauth-protected-resource/b/*endpoint: " + metadata,
	}
	for _, path := range []string{
		"/.well-known/oauth-authorization-server/b", "/.well-known/openid-configuration/b", "/b/.well-known/oauth-authorization-server", "/b/.well-known/openid-configuration",
		"/b/authorize", "/b/oauth/callback", "/b/oauth/consent", "/b/oauth/jwks", "/b/oauth/revoke", "/b/register", "/b/token",
	} {
		want = append(want, "any "+path+": "+all)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
	if other := chain(tree.other.group.Handlers); other != public || tree.other.methods != anyMethod {
		t.Errorf("what is not there: %s", other)
	}
	// gin has them all, and nothing else.
	known := map[string]bool{}
	for _, route := range tree.engine.Routes() {
		known[route.Path] = true
	}
	for _, route := range tree.routes {
		delete(known, route.whole())
	}
	if len(known) > 0 {
		t.Errorf("gin has the routes %v too", known)
	}
}

// chain returns the names of handlers.
func chain(handlers gin.HandlersChain) string {
	var names []string
	for _, h := range handlers {
		name := runtime.FuncForPC(reflect.ValueOf(h).Pointer()).Name()
		names = append(names, strings.TrimSuffix(name[strings.LastIndexByte(name, '.')+1:], "-fm"))
	}
	return strings.Join(names, " > ")
}

// gin finds no route for a path that is none of it. What it misses, otherMethod finds: gin
// v1.12 does not go back for a slash at the end, as of /ui/login/.
func TestRoutesAgree(t *testing.T) {
	words := []string{"", "mcp", "m", "hooks", "health", "ui", "u", "api", "v1", "login", "x", ":server", "é"}
	tree := newRig(t, nil, "one").s.http.Handler.(*tree)
	// The same routes without what they pass and serve.
	var e *gin.Engine
	found := ""
	quietly(func() {
		e = newEngine()
		for _, r := range tree.routes {
			e.Any(r.whole(), func(c *gin.Context) { found = r.whole() + " " + c.Param("server") })
		}
	})
	e.NoRoute(func(*gin.Context) { found = "" })
	var look func(path string, depth int)
	n := 0
	look = func(path string, depth int) {
		for _, word := range words {
			at := path + "/" + word
			e.ServeHTTP(httptest.NewRecorder(), &http.Request{Method: "GET", URL: &url.URL{Path: at}})
			all := map[string]bool{}
			for i, r := range tree.routes {
				if params, ok := matches(at, tree.parts[i]); ok {
					all[r.whole()+" "+params.ByName("server")] = true
				}
			}
			if n++; found != "" && !all[found] {
				t.Errorf("%q: gin has %q, and otherMethod %v", at, found, all)
			}
			if depth > 1 {
				look(at, depth-1)
			}
		}
	}
	depth := scaletest.Alone(3, 4)
	look("", depth)
	if n < int(math.Pow(float64(len(words)), float64(depth))) {
		t.Errorf("only %d paths", n)
	}
}

// flushing is a writer that knows more than net/http's interface.
type flushing struct {
	http.ResponseWriter
	heads int
}

func (f *flushing) WriteHeader(status int) {
	f.heads++
	f.ResponseWriter.WriteHeader(status)
}

func (f *flushing) FlushError() error { return errors.New("the client has gone") }

// Handlers write to the writer that the HTTP server or a program around the bridge gave, and gin
// says nothing behind them.
func TestWriter(t *testing.T) {
	tree := newRig(t, nil, "one").s.http.Handler.(*tree)
	f := &flushing{ResponseWriter: httptest.NewRecorder()}
	quietly(func() {
		tree.engine.GET("/flush", func(c *gin.Context) {
			got, _ := of(c)
			if got.(*noted).ResponseWriter != http.ResponseWriter(f) || http.NewResponseController(got).Flush() == nil {
				t.Errorf("it has a %T", got)
			}
		})
	})
	tree.ServeHTTP(f, from(peer, loopback, "GET", "/flush"))
	if f.heads != 0 {
		t.Errorf("a header was written %d times behind a handler that has written none", f.heads)
	}
	tree.ServeHTTP(f, from(peer, loopback, "GET", "/nowhere"))
	if got := f.ResponseWriter.(*httptest.ResponseRecorder); f.heads != 1 || got.Code != 404 || strings.Count(got.Body.String(), "{") != 2 {
		t.Errorf("%d headers, %d %s", f.heads, got.Code, got.Body)
	}
}

// gin prints nothing of the bridge's routes, whatever its mode: clients on stdio would read
// it. The program around the bridge has its mode back.
func TestGinPrintsNothing(t *testing.T) {
	out, mode := gin.DefaultWriter, gin.Mode()
	var printed bytes.Buffer
	gin.DefaultWriter = &printed
	gin.SetMode(gin.DebugMode)
	defer func() {
		gin.DefaultWriter = out
		gin.SetMode(mode)
	}()
	r := newRig(t, nil, "one")
	h := r.s.HandlerAt("/tools")
	h.ServeHTTP(httptest.NewRecorder(), from(peer, loopback, "GET", "/tools/healthz"))
	h.ServeHTTP(httptest.NewRecorder(), from(peer, loopback, "PUT", "/tools/nowhere"))
	if printed.Len() > 0 || gin.Mode() != gin.DebugMode {
		t.Errorf("in the mode %s gin has printed %q", gin.Mode(), printed.String())
	}
}
