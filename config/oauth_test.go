package config

import (
	"strings"
	"testing"
)

// Browsers leave out the default port. With it in public_url, the page of the front would refuse
// every consent.
func TestPublicURL(t *testing.T) {
	for address, want := range map[string]string{
		"https://mcp.example.com": "", "https://mcp.example.com:8443": "", "http://127.0.0.1:8808": "", "https://mcp.example.com:80": "", "http://localhost:443": "",
		"https://mcp.example.com:443": "must not have :443", "http://localhost:80": "must not have :80", "https://[::1]:443": "must not have :443",
		"https://mcp.example.com/": "without a path", "https://MCP.example.com": "lower case", "http://mcp.example.com": "https",
	} {
		if err := checkPublicURL(address); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("checkPublicURL(%q) = %v, want %q", address, err, want)
		}
	}
}
