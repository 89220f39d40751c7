package access

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/config"
)

// guardOf makes a guard of the server one.
func guardOf(change func(*config.Config)) *guard {
	c := config.Default()
	c.Servers = []config.Server{config.DefaultServer("one", "")}
	if change != nil {
		change(&c)
	}
	return newGuard(&c, quiet)
}

// exposed are the settings of a bridge that more than this machine reaches.
func exposed(c *config.Config) {
	c.AllowedHosts = []string{"mcp.example.com", "pinned.example.com:8808"}
	c.AllowedOrigins = []string{
		"https://app.example.com", "http://dev.example.com:3000", "chrome-extension://listed", "vscode-webview://listed", "app://obsidian.md", "tauri://localhost",
	}
	c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	c.Servers[0].Forward = []bridge.Forward{{From: "X-Tenant", To: "X-Customer"}}
}

// Which Host is served, on a loopback listener and on another.
func TestHost(t *testing.T) {
	own, listed, all := guardOf(nil), guardOf(exposed), guardOf(keyed)
	shown := guardOf(func(c *config.Config) { keyed(c); c.PublicStatus = true })
	for _, test := range []struct {
		host                   string
		own, anywhere, limited bool // on loopback; elsewhere without and with allowed_hosts
	}{
		{"127.0.0.1:8808", true, true, true},
		{"127.9.9.9", true, true, true},
		{"localhost:8808", true, true, true},
		{"LOCALHOST", true, true, true},
		{"sub.localhost:1", true, true, true},
		{"[::1]:8808", true, true, true},
		{"[::1]", true, true, true},
		{"[::ffff:127.0.0.1]:8808", true, true, true},
		{"evil.example.com", false, false, false},
		{"localhost.evil.example.com:8808", false, false, false},
		{"127.0.0.1.nip.io:8808", false, false, false},
		{"evil.example.com:127.0.0.1", false, false, false},
		{"0.0.0.0:8808", false, true, false},
		{"2130706433", false, false, false},
		{"192.168.0.1", false, true, false},
		{"[::]:8808", false, true, false},
		{"[fe80::1]", false, true, false},
		{"", false, true, false},
		{"MCP.Example.com:9", false, false, true},
		{"pinned.example.com:8808", false, false, true},
		{"pinned.example.com:1", false, false, false},
	} {
		got := [5]bool{own.hostAllowed(test.host, true), own.hostAllowed(test.host, false), shown.hostAllowed(test.host, false), listed.hostAllowed(test.host, false), all.hostAllowed(test.host, false)}
		if want := [5]bool{test.own, test.anywhere, test.anywhere, test.limited, true}; got != want {
			t.Errorf("%q on loopback, elsewhere, elsewhere with a status for everybody, with a list, where all takes a key: allowed %v, want %v", test.host, got, want)
		}
	}
}

// Which Origin may call: without access rules, pages of this machine. With them, a page of this machine may
// call only if its origin is listed, as may the pages of the bridge's own address.
func TestOrigin(t *testing.T) {
	own, listed, ruled := guardOf(nil), guardOf(exposed), guardOf(keyed)
	named := guardOf(func(c *config.Config) { keyed(c); c.AllowedOrigins = []string{"http://localhost:3000"} })
	for _, test := range []struct {
		origin, host         string
		own, anywhere        bool // on loopback; elsewhere, with a list
		ruled, ruledAndNamed bool // with access rules, on loopback
	}{
		{"http://localhost:3000", "localhost:8808", true, false, false, true},
		{"http://localhost:3000", loopback, true, false, false, true},
		{"http://localhost:3001", loopback, true, false, false, false},
		{"http://127.0.0.1:3000", loopback, true, false, false, false},
		{"http://127.0.0.1:8808", loopback, true, true, true, true},
		{"http://localhost:8808", "localhost:8808", true, false, true, true},
		{"http://LOCALHOST:8808", "LocalHost:8808", true, false, true, true},
		{"http://localhost:8808", loopback, true, false, false, false},
		{"http://app.localhost", loopback, true, false, false, false},
		{"HTTP://LocalHost", loopback, true, false, false, false},
		{"https://[::1]:5173", loopback, true, false, false, false},
		{"null", loopback, false, false, false, false},
		{"", loopback, false, false, false, false},
		{"file://", loopback, false, false, false, false},
		{"chrome-extension://abcdef", loopback, false, false, false, false},
		{"https://evil.example.com", loopback, false, false, false, false},
		{"http://localhost.evil.example.com", loopback, false, false, false, false},
		{"http://127.0.0.1.evil.example.com", loopback, false, false, false, false},
		{"http://evil.example.com:8808", "evil.example.com:8808", false, false, false, false},
		{"https://app.example.com", "mcp.example.com", false, true, false, false},
		{"https://APP.example.com:443", "mcp.example.com", false, true, false, false},
		{"http://app.example.com", "mcp.example.com", false, false, false, false},
		{"https://app.example.com:8443", "mcp.example.com", false, false, false, false},
		{"https://app.example.com.evil.example", "mcp.example.com", false, false, false, false},
		{"http://dev.example.com:3000", "mcp.example.com", false, true, false, false},
		{"https://mcp.example.com", "mcp.example.com", false, true, false, false},
		{"http://192.0.2.1:8808", "192.0.2.1:8808", true, true, true, true},
		{"http://\x7f", loopback, false, false, false, false},
		{"chrome-extension://listed", "mcp.example.com", false, true, false, false},
		{"vscode-webview://listed", "mcp.example.com", false, true, false, false},
		{"app://obsidian.md", "mcp.example.com", false, true, false, false},
		{"tauri://localhost", "mcp.example.com", false, true, false, false},
		{"moz-extension://listed", "mcp.example.com", false, false, false, false},
		{"app://localhost", "mcp.example.com", false, false, false, false},
		{"tauri://mcp.example.com", "mcp.example.com", false, false, false, false},
		{"tauri://localhost", loopback, false, true, false, false},
	} {
		got := [4]bool{own.originAllowed(test.origin, test.host, true), listed.originAllowed(test.origin, test.host, false), ruled.originAllowed(test.origin, test.host, true), named.originAllowed(test.origin, test.host, true)}
		if want := [4]bool{test.own, test.anywhere, test.ruled, test.ruledAndNamed}; got != want {
			t.Errorf("from %q to %q on loopback, elsewhere with a list, with rules, with rules and a list: allowed %v, want %v", test.origin, test.host, got, want)
		}
	}
	// A list without an item allows none, unlike no list.
	for text, want := range map[string]bool{"": true, "allowed_origins: []": false} {
		c, err := config.Parse("bridge.yaml", []byte(text+"\nservers: { one: { stdio: { command: one } } }\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, origin := range []string{"http://localhost:3000", "http://app.localhost", "http://127.0.0.1:8808"} {
			if got := newGuard(c, quiet).originAllowed(origin, loopback, true); got != want {
				t.Errorf("with %q, %s is allowed: %t", text, origin, got)
			}
		}
	}
}

// What a request from a page gets. Pages of other sites cannot call without an Origin either.
func TestCheckOrigin(t *testing.T) {
	g := guardOf(exposed)
	const app = "https://app.example.com"
	for _, test := range []struct {
		path   string
		header []string
		ok     bool
	}{
		{"/mcp", nil, true},
		{"/mcp", []string{"Origin", app}, true},
		{"/mcp", []string{"Origin", app, "Origin", "https://evil.example.com"}, false},
		{"/mcp", []string{"Origin", "https://evil.example.com", "Sec-Fetch-Site", "same-origin"}, false},
		{"/mcp", []string{"Origin", app, "Sec-Fetch-Site", "cross-site"}, true},
		{"/mcp", []string{"Origin", "https://evil.example.com", "Sec-Fetch-Site", "cross-site"}, false},
		{"/mcp", []string{"Sec-Fetch-Site", "cross-site"}, false},
		{"/mcp", []string{"Sec-Fetch-Site", "none"}, true},
		{"/mcp", []string{"Sec-Fetch-Site", "same-origin"}, true},
		{"/healthz", []string{"Sec-Fetch-Site", "cross-site"}, true},
	} {
		w, r := httptest.NewRecorder(), from(peer, public, "POST", test.path, append(test.header, "Host", "mcp.example.com")...)
		if ok := g.checkOrigin(w, r); ok != test.ok || !ok && w.Code != 403 {
			t.Errorf("%s %q: %t %d, want %t", test.path, test.header, ok, w.Code, test.ok)
		}
		want := ""
		if test.ok {
			want = r.Header.Get("Origin")
		}
		if h := w.Header(); h.Get("Access-Control-Allow-Origin") != want || want != "" && h.Get("Access-Control-Expose-Headers") != "Mcp-Session-Id, WWW-Authenticate, Retry-After" {
			t.Errorf("%s %q: %v", test.path, test.header, h)
		}
	}
}

// Browsers may call from allowed origins, and send what is needed. A preflight needs no key.
func TestCORS(t *testing.T) {
	preflight := func(origin string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		if guardOf(exposed).checkOrigin(w, from(peer, public, "OPTIONS", "/mcp", "Host", "mcp.example.com", "Origin", origin, "Access-Control-Request-Method", "POST",
			"Access-Control-Request-Headers", "mcp-param-region,mcp-session-id, x-tenant, x-other,Mcp-Param-Bad\r\nX: y,mcp-param-"+strings.Repeat(",mcp-param-x", 100))) {
			t.Errorf("a preflight from %s goes on", origin)
		}
		return w
	}
	w := preflight("https://app.example.com")
	h := w.Header()
	if w.Code != 204 || h.Get("Access-Control-Allow-Origin") != "https://app.example.com" || !strings.Contains(h.Get("Vary"), "Origin") || h.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("%d %v", w.Code, h)
	}
	for _, method := range []string{"GET", "POST", "DELETE"} {
		if !strings.Contains(h.Get("Access-Control-Allow-Methods"), method) {
			t.Errorf("the methods are %q", h.Get("Access-Control-Allow-Methods"))
		}
	}
	got := h.Get("Access-Control-Allow-Headers")
	for _, name := range []string{"Content-Type", "Accept", "Authorization", "X-API-Key", "MCP-Protocol-Version", "Mcp-Session-Id", "Mcp-Method", "Mcp-Name", "Last-Event-ID", "mcp-param-region", "x-tenant", "traceparent", "tracestate", "baggage"} {
		if !strings.Contains(got, name) {
			t.Errorf("%s is not allowed: %s", name, got)
		}
	}
	if n := strings.Count(got, "mcp-param-"); n != maxFurtherHeaders-1 || strings.Contains(got, "x-other") || strings.Contains(got, "Bad") || strings.Contains(got, "mcp-param-,") {
		t.Errorf("the headers are %q, %d of them for params", got, n)
	}
	if w := preflight("https://evil.example.com"); w.Code != 403 || w.Header().Get("Access-Control-Allow-Methods") != "" {
		t.Errorf("from a foreign origin: %d %v", w.Code, w.Header())
	}
}

// The log has of a page's address only its origin, and of a long header a part.
func TestDeniedLogged(t *testing.T) {
	for want, header := range map[string][]string{
		"origin=https://evil.example.com ":                 {"Sec-Fetch-Site", "cross-site", "Referer", "https://evil.example.com/path?token=s3cr3t"},
		"origin=https://" + strings.Repeat("x", 192) + " ": {"Origin", "https://" + strings.Repeat("x", 300)},
	} {
		var out bytes.Buffer
		c := config.Default()
		g := newGuard(&c, slog.New(slog.NewTextHandler(&out, nil)))
		if g.checkOrigin(httptest.NewRecorder(), from(peer, loopback, "GET", "/mcp", header...)) || !strings.Contains(out.String(), want) {
			t.Errorf("%s, want %s", &out, want)
		}
	}
}

// The name under which a proxy was asked, and the address that it has seen, count if the proxy is trusted; what its
// client has made up does not. A front tells addresses apart in the same way (I-114).
func TestThroughProxies(t *testing.T) {
	a := ruled(t, exposed)
	for _, test := range []struct {
		peer string
		host string // X-Forwarded-Host
		want string
	}{
		{proxy, "mcp.example.com", "mcp.example.com"},
		{proxy, "mcp.example.com, other", "mcp.example.com"},
		{"[::ffff:10.0.0.1]:5", "mcp.example.com", "mcp.example.com"},
		{proxy, "", "inner"},
		{peer, "mcp.example.com", "inner"},
		{"@", "mcp.example.com", "inner"},
	} {
		r := from(test.peer, public, "GET", "/", "Host", "inner")
		if test.host != "" {
			r.Header.Set("X-Forwarded-Host", test.host)
		}
		if got := a.RequestedHost(r); got != test.want {
			t.Errorf("%s says %q: %q, want %q", test.peer, test.host, got, test.want)
		}
	}
	for _, test := range []struct {
		peer string
		said []string // lines of X-Forwarded-For
		want string
	}{
		{proxy, []string{"203.0.113.1"}, "203.0.113.1"},
		{proxy, []string{"203.0.113.1, 10.0.0.2"}, "203.0.113.1"}, // by two proxies
		{proxy, []string{"192.0.2.1, 203.0.113.1"}, "203.0.113.1"},
		{proxy, []string{"192.0.2.1", " 203.0.113.1 "}, "203.0.113.1"},
		{proxy, []string{"::ffff:203.0.113.1"}, "203.0.113.1"},
		{proxy, []string{"203.0.113.1, 203.0.113.3"}, "203.0.113.3"},
		{proxy, []string{"203.0.113.1, what"}, "10.0.0.1"}, // the proxy's own
		{proxy, nil, "10.0.0.1"},
		{peer, []string{"203.0.113.1"}, "198.51.100.7"},
	} {
		r := from(test.peer, public, "GET", "/")
		r.Header["X-Forwarded-For"] = test.said
		if got, front := a.Client(r).String(), (fronted{a: a}).From(r).String(); got != test.want || front != test.want {
			t.Errorf("%s says %q: %s, and to a front %s, want %s", test.peer, test.said, got, front, test.want)
		}
	}
}

// No Host and no Origin makes the guard panic, and what it allows without a list of others is a web origin.
func FuzzGuard(f *testing.F) {
	for _, s := range []string{"null", "http://localhost", "http://[::1]:80", "//", "http://[", "http://a:b", "http://%zz", "[::1", "::1", "[", ":"} {
		f.Add(s, s)
	}
	g := &guard{origins: []string{"https://app.example.com"}, hosts: []string{"mcp.example.com"}}
	f.Fuzz(func(t *testing.T, origin, host string) {
		for _, local := range []bool{true, false} {
			g.hostAllowed(host, local)
			if g.originAllowed(origin, host, local) && !strings.HasPrefix(strings.ToLower(origin), "http") {
				t.Errorf("origin %q is allowed", origin)
			}
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = host
		g.trusts(r.RemoteAddr)
	})
}
