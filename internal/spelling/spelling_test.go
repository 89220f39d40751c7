package spelling

import (
	"strings"
	"testing"
)

// A template that is brought to canonical spelling expands to canonical URIs.
func TestCanonicalTemplate(t *testing.T) {
	for template, want := range map[string]string{
		"file:///docs/café/{name}":   "file:///docs/caf%C3%A9/{name}",
		"File:///my docs/.{name}/ü":  "file:///my%20docs/.{name}/%C3%BC",
		"HTTP://Host.example:80/{x}": "http://host.example/{x}",
		"HTTP://Host.{zone}/A":       "http://host.{zone}/A",
		"http://Host.example{/x}":    "http://host.example{/x}",
		"http://host.example{?x}":    "http://host.example/{?x}",
		"http://host.example?x={x}":  "http://host.example/?x={x}",
		"Demo://Host{?x}":            "demo://Host{?x}",
		"Note:{+x}{?y,z*}":           "note:{+x}{?y,z*}",
		"{scheme}://a b":             "{scheme}://a%20b",
		"plain%7e%2f":                "plain~%2F",
		"a:{x":                       "a:{x",
		"":                           "",
	} {
		if got := CanonicalTemplate(template); got != want {
			t.Errorf("CanonicalTemplate(%q) = %q, want %q", template, got, want)
		}
	}
}

// Whatever a client or a server writes, the canonical spelling has only characters that a URI may have, and is the same
// for the encoded URI.
func FuzzCanonical(f *testing.F) {
	for _, uri := range []string{"file:///Straße/a b.txt", "HTTP://Host:80?q=%zz%", "a:b/../c", `file:\\x\..\y`, "%", "%2e%2E/%25"} {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		got := Canonical(uri)
		if again := encoded(got); again != got || strings.ContainsFunc(got, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			t.Errorf("Canonical(%q) = %q, encoded again %q", uri, got, again)
		}
	})
}
