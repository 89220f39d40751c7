package server

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/config"
)

const (
	loopback = "127.0.0.1:8808"
	public   = "192.0.2.1:8808"
	peer     = "198.51.100.7:1234"
	proxy    = "10.0.0.1:1234"
)

// exposed are the settings of a bridge that more than this machine reaches.
func exposed(c *config.Config) {
	c.AllowedHosts = []string{"mcp.example.com", "pinned.example.com:8808"}
	c.AllowedOrigins = []string{
		"https://app.example.com", "http://dev.example.com:3000", "chrome-extension://listed", "vscode-webview://listed", "app://obsidian.md", "tauri://localhost",
	}
	c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
}

// Which Host is served, on a loopback listener and on another.
func TestHost(t *testing.T) {
	own, listed, keyed := newRig(t, nil, "one"), newRig(t, exposed, "one"), newRig(t, private, "one")
	shown := newRig(t, func(c *config.Config) { private(c); c.PublicStatus = true }, "one")
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
		for _, method := range []string{"GET", "POST", "DELETE", "OPTIONS"} {
			for _, path := range []string{"/mcp", "/messages", "/healthz", "/readyz", "/metrics", "/nowhere"} {
				refused := func(r *rig, at string) bool {
					return r.answer(from(peer, at, method, path, "Host", test.host)).Code == http.StatusForbidden
				}
				if refused(own, loopback) == test.own {
					t.Errorf("%s %s with Host %q on loopback: refused %t", method, path, test.host, test.own)
				}
				if refused(own, public) == test.anywhere {
					t.Errorf("%s %s with Host %q elsewhere: refused %t", method, path, test.host, test.anywhere)
				}
				if refused(shown, public) == test.anywhere {
					t.Errorf("%s %s with Host %q elsewhere, with a status for everybody: refused %t", method, path, test.host, test.anywhere)
				}
				if refused(keyed, public) {
					t.Errorf("%s %s with Host %q elsewhere, where all takes a key: refused", method, path, test.host)
				}
				if refused(listed, public) == test.limited {
					t.Errorf("%s %s with Host %q and a list: refused %t", method, path, test.host, test.limited)
				}
			}
		}
	}
}

// Which Origin may call, on every endpoint and with every method.
func TestOrigin(t *testing.T) {
	own, listed := newRig(t, nil, "one"), newRig(t, exposed, "one")
	for _, test := range []struct {
		origin, host  string
		own, anywhere bool // on loopback; elsewhere, with a list
	}{
		{"http://localhost:3000", "localhost:8808", true, false},
		{"http://127.0.0.1:8808", loopback, true, true},
		{"HTTP://LocalHost", loopback, true, false},
		{"https://[::1]:5173", loopback, true, false},
		{"null", loopback, false, false},
		{"", loopback, false, false},
		{"file://", loopback, false, false},
		{"chrome-extension://abcdef", loopback, false, false},
		{"https://evil.example.com", loopback, false, false},
		{"http://localhost.evil.example.com", loopback, false, false},
		{"http://127.0.0.1.evil.example.com", loopback, false, false},
		{"http://evil.example.com:8808", "evil.example.com:8808", false, false},
		{"https://app.example.com", "mcp.example.com", false, true},
		{"https://APP.example.com:443", "mcp.example.com", false, true},
		{"http://app.example.com", "mcp.example.com", false, false},
		{"https://app.example.com:8443", "mcp.example.com", false, false},
		{"https://app.example.com.evil.example", "mcp.example.com", false, false},
		{"http://dev.example.com:3000", "mcp.example.com", false, true},
		{"https://mcp.example.com", "mcp.example.com", false, true},
		{"http://192.0.2.1:8808", "192.0.2.1:8808", false, false},
		{"http://\x7f", loopback, false, false},
		{"chrome-extension://listed", "mcp.example.com", false, true},
		{"vscode-webview://listed", "mcp.example.com", false, true},
		{"app://obsidian.md", "mcp.example.com", false, true},
		{"tauri://localhost", "mcp.example.com", false, true},
		{"moz-extension://listed", "mcp.example.com", false, false},
		{"app://localhost", "mcp.example.com", false, false},
		{"tauri://mcp.example.com", "mcp.example.com", false, false},
		{"tauri://localhost", loopback, false, true},
	} {
		for _, method := range []string{"GET", "POST", "DELETE", "OPTIONS"} {
			for _, path := range []string{"/mcp", "/one/mcp", "/messages", "/healthz", "/readyz", "/nowhere"} {
				for at, want := range map[string]bool{loopback: test.own, public: test.anywhere} {
					r := own
					if at == public {
						r = listed
					}
					w := r.answer(from(peer, at, method, path, "Host", test.host, "Origin", test.origin))
					if got := w.Code != http.StatusForbidden; got != want {
						t.Errorf("%s %s from %q to %q at %s: %d, allowed should be %t", method, path, test.origin, test.host, at, w.Code, want)
					}
					if got := w.Header().Get("Access-Control-Allow-Origin"); (got != "") != want || got != "" && got != test.origin {
						t.Errorf("%s %s from %q: Access-Control-Allow-Origin %q", method, path, test.origin, got)
					}
				}
			}
		}
	}
	if w := own.answer(from(peer, loopback, "POST", "/mcp", "Origin", "http://localhost", "Origin", "https://evil.example.com")); w.Code != http.StatusForbidden {
		t.Errorf("two Origins = %d, want 403", w.Code)
	}
}

// With access rules, a page of this machine may call only if its origin is listed, as may
// the pages of the bridge's own address; a key changes nothing about that.
func TestOriginKeyed(t *testing.T) {
	keyed := newRig(t, private, "one")
	listed := newRig(t, func(c *config.Config) { private(c); c.AllowedOrigins = []string{"http://localhost:3000"} }, "one")
	for _, test := range []struct {
		origin, host  string
		keyed, listed bool
	}{
		{"http://localhost:3000", loopback, false, true},
		{"http://localhost:3000", "localhost:8808", false, true},
		{"http://localhost:3001", loopback, false, false},
		{"http://127.0.0.1:3000", loopback, false, false},
		{"http://[::1]:5173", loopback, false, false},
		{"http://app.localhost", loopback, false, false},
		{"http://127.0.0.1:8808", loopback, true, true},
		{"http://localhost:8808", "localhost:8808", true, true},
		{"http://LOCALHOST:8808", "LocalHost:8808", true, true},
		{"http://localhost:8808", loopback, false, false},
	} {
		for _, path := range []string{"/one/mcp", "/mcp", "/healthz", "/readyz"} {
			for r, want := range map[*rig]bool{keyed: test.keyed, listed: test.listed} {
				w := r.answer(from(peer, loopback, "GET", path, "Host", test.host, "Origin", test.origin, "Authorization", "Bearer "+aliceKey))
				if got := w.Code != http.StatusForbidden; got != want || (w.Header().Get("Access-Control-Allow-Origin") != "") != want {
					t.Errorf("GET %s from %q to %q = %d, allowed should be %t", path, test.origin, test.host, w.Code, want)
				}
			}
		}
	}
}

// A list of origins without an item allows none, unlike no list. What is no page
// may call.
func TestOriginNone(t *testing.T) {
	for _, test := range []struct {
		key     string
		allowed bool
	}{{"", true}, {"allowed_origins: []", false}} {
		written, err := config.Parse("bridge.yaml", []byte(test.key+"\nservers: { one: { stdio: { command: one } } }\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t, func(c *config.Config) { c.AllowedOrigins = written.AllowedOrigins }, "one")
		for _, origin := range []string{"http://localhost:3000", "http://app.localhost", "http://127.0.0.1:8808"} {
			if got := r.answer(from(peer, loopback, "GET", "/healthz", "Origin", origin)).Code == http.StatusOK; got != test.allowed {
				t.Errorf("with %q, %s is allowed: %t, want %t", test.key, origin, got, test.allowed)
			}
		}
		if w := r.answer(from(peer, loopback, "GET", "/healthz")); w.Code != http.StatusOK {
			t.Errorf("with %q, a request without Origin = %d", test.key, w.Code)
		}
	}
}

// The name under which a proxy was asked counts if the proxy is trusted.
func TestForwardedHost(t *testing.T) {
	r := newRig(t, exposed, "one")
	for _, test := range []struct {
		peer, forwarded string
		status          int
	}{
		{proxy, "mcp.example.com", 200},
		{proxy, "mcp.example.com, inner", 200},
		{proxy, "evil.example.com", 403},
		{peer, "mcp.example.com", 403},
		{"[::ffff:10.0.0.1]:5", "mcp.example.com", 200},
		{"@", "mcp.example.com", 403},
	} {
		if w := r.answer(from(test.peer, public, "GET", "/healthz", "Host", "inner", "X-Forwarded-Host", test.forwarded)); w.Code != test.status {
			t.Errorf("%s says %q: %d, want %d", test.peer, test.forwarded, w.Code, test.status)
		}
	}
}

// Browsers may call from allowed origins, and read what they need.
func TestCORS(t *testing.T) {
	r := newRig(t, func(c *config.Config) {
		exposed(c)
		c.Servers[0].Forward = []bridge.Forward{{From: "X-Tenant", To: "X-Customer"}}
	}, "one")
	const origin = "https://app.example.com"
	for _, path := range []string{"/mcp", "/sse", "/messages", "/one/mcp", "/one/sse", "/one/messages"} {
		w := r.answer(from(peer, public, "OPTIONS", path, "Host", "mcp.example.com", "Origin", origin,
			"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "mcp-param-region,mcp-session-id, x-tenant, x-other,Mcp-Param-Bad\r\nX: y,mcp-param-"))
		h := w.Header()
		if w.Code != http.StatusNoContent || h.Get("Access-Control-Allow-Origin") != origin || !strings.Contains(h.Get("Vary"), "Origin") {
			t.Errorf("preflight of %s = %d %v", path, w.Code, h)
		}
		for _, method := range []string{"GET", "POST", "DELETE"} {
			if !strings.Contains(h.Get("Access-Control-Allow-Methods"), method) {
				t.Errorf("preflight of %s allows methods %q", path, h.Get("Access-Control-Allow-Methods"))
			}
		}
		for _, name := range []string{"Content-Type", "Accept", "Authorization", "MCP-Protocol-Version", "Mcp-Session-Id", "Mcp-Method", "Mcp-Name", "Last-Event-ID", "mcp-param-region", "x-tenant", "traceparent", "tracestate", "baggage"} {
			if !strings.Contains(h.Get("Access-Control-Allow-Headers"), name) {
				t.Errorf("preflight of %s does not allow %s", path, name)
			}
		}
		if got := h.Get("Access-Control-Allow-Headers"); strings.Contains(got, "x-other") || strings.Contains(got, "Bad") || strings.HasSuffix(got, "-") {
			t.Errorf("preflight of %s allows %q", path, got)
		}
		if h.Get("Access-Control-Allow-Credentials") != "" {
			t.Error("credentials are allowed")
		}
	}
	w := r.answer(from(peer, public, "POST", "/mcp", "Host", "mcp.example.com", "Origin", origin))
	for _, name := range []string{"Mcp-Session-Id", "WWW-Authenticate"} {
		if !strings.Contains(w.Header().Get("Access-Control-Expose-Headers"), name) {
			t.Errorf("an answer exposes %q, not %s", w.Header().Get("Access-Control-Expose-Headers"), name)
		}
	}
	if w := r.answer(from(peer, public, "OPTIONS", "/mcp", "Host", "mcp.example.com", "Origin", "https://evil.example.com",
		"Access-Control-Request-Method", "POST")); w.Code != http.StatusForbidden || w.Header().Get("Access-Control-Allow-Methods") != "" {
		t.Errorf("preflight of a foreign origin = %d %v", w.Code, w.Header())
	}
	if w := r.answer(from(peer, public, "GET", "/healthz", "Host", "mcp.example.com")); w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Error("a request without Origin is answered with CORS headers")
	}
}
