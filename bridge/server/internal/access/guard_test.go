package access

import (
	"net/http/httptest"
	"strings"
	"testing"
)

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
