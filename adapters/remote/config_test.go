package remote

import (
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	const at = "https://tools.example.com/mcp"
	for _, test := range []struct {
		name string
		c    Config
		want string // in the error; empty means none
	}{
		{"only a URL", Config{URL: at}, ""},
		{"all", Config{URL: "http://[::1]:3001/sse?key=1", Headers: map[string]string{"Authorization": "Bearer x", "x-tenant": ""}, Transport: TransportSSE,
			CAFile: "ca.pem", CertFile: "c.pem", KeyFile: "k.pem", Proxy: "socks5://u:p@proxy:1080", IdleTimeout: 1}, ""},
		{"no proxy", Config{URL: at, Proxy: "none", Transport: TransportAuto}, ""},
		{"odd characters that servers take", Config{URL: at + "?only=a|b^c&config={\"debug\":true}"}, ""},
		{"a placeholder", Config{URL: at + "/{tenant}"}, "braces or < > that stand for a value"},
		{"another in the query", Config{URL: at + "?key=<YOUR KEY>"}, "braces or < > that stand for a value"},
		{"a space", Config{URL: at + " "}, "has a space"},
		{"no URL", Config{}, "url is missing"},
		{"no scheme", Config{URL: "tools.example.com/mcp"}, "url must be the address"},
		{"other scheme", Config{URL: "ws://tools.example.com/secret"}, `url has the unknown scheme "ws": write http:// or https://`},
		{"no host", Config{URL: "http:///secret"}, "url must be the address"},
		{"broken URL", Config{URL: "http://secret%zz/"}, "url must be the address"},
		{"password", Config{URL: "http://u:secret@h/"}, "url must not hold a password"},
		{"fragment", Config{URL: at + "#secret"}, "url must not have a #fragment"},
		{"name of a header", Config{URL: at, Headers: map[string]string{"a b": "secret"}}, `headers: "a b" is not the name`},
		{"value of a header (R-177)", Config{URL: at, Headers: map[string]string{"X-A": "secret\r\nX-B: 1"}}, "headers: the value of X-A has a line break"},
		{"header of the bridge", Config{URL: at, Headers: map[string]string{"mcp-session-id": "secret"}}, "headers: mcp-session-id is set by the bridge itself"},
		{"transport", Config{URL: at, Transport: "SSE"}, "transport must be"},
		{"a transport of another program", Config{URL: at, Transport: "streamable-http"}, `transport is "streamable-http": write streamable`},
		{"another", Config{URL: at, Transport: "sse-only"}, `transport is "sse-only": write sse`},
		{"one that detects", Config{URL: at, Transport: "http-first"}, `transport is "http-first": leave it out`},
		{"certificate without key", Config{URL: at, CertFile: "c.pem"}, "belong together"},
		{"key without certificate", Config{URL: at, KeyFile: "k.pem"}, "belong together"},
		{"proxy without scheme", Config{URL: at, Proxy: "secret:3128"}, "proxy must be"},
		{"scheme of a proxy", Config{URL: at, Proxy: "ftp://secret:3128"}, "proxy must be"},
		{"broken proxy", Config{URL: at, Proxy: "http://secret%zz"}, "proxy must be"},
	} {
		err := test.c.Validate()
		switch {
		case test.want == "":
			if err != nil {
				t.Errorf("%s: Validate = %v, want none", test.name, err)
			}
		case err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret"):
			t.Errorf("%s: Validate = %v, want %q, without what may be secret", test.name, err, test.want)
		}
	}
	c := Config{Headers: map[string]string{"Te": ""}, Transport: "x", CertFile: "x", Proxy: "x"}
	if err := c.Validate(); strings.Count(err.Error(), "\n") != 4 {
		t.Errorf("Validate = %v, want five faults", err)
	}
}

// D0.9: only the bridge sets the headers of the transport and the connection.
func TestReserved(t *testing.T) {
	for _, name := range []string{"mcp-session-id", "MCP-Protocol-Version", "Mcp-Param-X", "last-event-id", "HOST", "Content-Type", "accept", "Connection", "X-Forwarded-For", "proxy-authorization", "Origin", "transfer-encoding"} {
		if !Reserved(name) {
			t.Errorf("Reserved(%q) = false", name)
		}
	}
	for _, name := range []string{"Authorization", "Cookie", "X-Tenant", "User-Agent", "Traceparent", "Mcpx", "Accept-Language"} {
		if Reserved(name) {
			t.Errorf("Reserved(%q) = true", name)
		}
	}
}
