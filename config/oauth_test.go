package config

import (
	"strings"
	"testing"
)

// The usual port is no part of an address as browsers send it: with it, nobody could agree to
// anything on the page of the front.
func TestPublicURL(t *testing.T) {
	for address, want := range map[string]string{
		"https://mcp.example.com": "", "https://mcp.example.com:8443": "", "http://127.0.0.1:8808": "", "https://mcp.example.com:80": "", "http://localhost:443": "",
		"https://mcp.example.com:443": "must be without :443", "http://localhost:80": "must be without :80", "https://[::1]:443": "must be without :443",
		"https://mcp.example.com/": "without a path", "https://MCP.example.com": "lower case", "http://mcp.example.com": "https",
	} {
		if err := checkPublicURL(address); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("checkPublicURL(%q) = %v, want %q", address, err, want)
		}
	}
}
