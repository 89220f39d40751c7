package server

import (
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/config"
)

// Pages of other sites cannot call without an Origin either. Their Origin must be allowed and sent.
func TestCrossSite(t *testing.T) {
	r := newRig(t, func(c *config.Config) { c.AllowedOrigins = []string{"https://app.example.com"} }, "one")
	for _, test := range []struct {
		path, site, origin string
		status             int
	}{
		{"/readyz", "cross-site", "", 403},
		{"/metrics", "cross-site", "", 403},
		{"/one/sse", "cross-site", "", 403},
		{"/nowhere", "cross-site", "", 403},
		{"/healthz", "cross-site", "", 200},
		{"/readyz", "none", "", 200},
		{"/readyz", "same-origin", "", 200},
		{"/readyz", "", "", 200},
		{"/readyz", "cross-site", "https://app.example.com", 200},
		{"/readyz", "cross-site", "https://evil.example.com", 403},
	} {
		var header []string
		if test.site != "" {
			header = append(header, "Sec-Fetch-Site", test.site)
		}
		if test.origin != "" {
			header = append(header, "Origin", test.origin)
		}
		w := r.answer(from(peer, loopback, "GET", test.path, header...))
		if w.Code != test.status {
			t.Errorf("%s, %s %s: %d %s, want %d", test.path, test.site, test.origin, w.Code, w.Body, test.status)
		}
		if got := w.Header().Get("X-Content-Type-Options"); got != "nosniff" {
			t.Errorf("%s: X-Content-Type-Options %q", test.path, got)
		}
	}
}

// A path has one spelling only.
func TestEncodedPaths(t *testing.T) {
	r := newRig(t, private, "one")
	for path, status := range map[string]int{"/one/mcp": 401, "/one%2fmcp": 404, "/one%2Fmcp": 404, "/%6fne/mcp": 404, "/one/%6dcp": 404} {
		if w := r.answer(from(peer, loopback, "POST", path)); w.Code != status {
			t.Errorf("%s: %d %s, want %d", path, w.Code, w.Body, status)
		}
	}
}

// The answer to a method that a path does not allow names the allowed methods.
func TestAllow(t *testing.T) {
	r := newRig(t, nil, "one")
	for path, want := range map[string]string{"/mcp": "GET, POST, DELETE, OPTIONS", "/one/sse": "GET, POST, DELETE, OPTIONS", "/healthz": "GET, HEAD"} {
		for _, method := range []string{"FOO", "PURGE"} {
			w := r.answer(from(peer, loopback, method, path))
			if got := strings.Join(w.Header()["Allow"], "; "); w.Code != 405 || got != want {
				t.Errorf("%s %s: %d, Allow %q, want 405 and %q", method, path, w.Code, got, want)
			}
		}
	}
}
