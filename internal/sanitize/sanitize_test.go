package sanitize_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/mcp-bridge/bridge/internal/sanitize"
)

func TestText(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"plain ünï 日本 👩‍💻\n\ttext", "plain ünï 日本 👩‍💻\n\ttext"},
		{"a\r\nb", "a\nb"},
		{"\x1b[2Jgone", "␛[2Jgone"},
		{"\x1b]0;title\x07", "␛]0;title␇"},
		{"over\rwritten\b", "over␍written␈"},
		{"\x00\x7f", "␀␡"},
		{"\u009b31m", `\u009b31m`},
		{"\x9b31m", `\x9b31m`},                     // the same, as one byte
		{"user\u202egnp.exe", `user\u202egnp.exe`}, // shown backwards otherwise
		{"\u202a\u202b\u202c\u202d\u2066\u2067\u2068\u2069\u200e\u200f\u061c", `\u202a\u202b\u202c\u202d\u2066\u2067\u2068\u2069\u200e\u200f\u061c`},
		{"a\u2028b", `a\u2028b`},
		{"\ufffd", "\ufffd"},
	} {
		if got := sanitize.Text(test.in); got != test.want {
			t.Errorf("Text(%q) = %q, want %q", test.in, got, test.want)
		}
	}
}

func TestJSON(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"{\n\t\"ü\": \"日本 👩‍💻 \\u001b\"\n}", "{\n\t\"ü\": \"日本 👩‍💻 \\u001b\"\n}"},
		{"[\"a\u009bb\u202e\", \"\u061c\x7f\"]", `["a\u009bb\u202e", "\u061c\u007f"]`},
		{"\"\u2069\"", `"\u2069"`},
	} {
		if got := string(sanitize.JSON([]byte(test.in))); got != test.want {
			t.Errorf("JSON(%q) = %q, want %q", test.in, got, test.want)
		}
		var out bytes.Buffer
		if n, err := sanitize.JSONWriter(&out).Write([]byte(test.in)); n != len(test.in) || err != nil || out.String() != test.want {
			t.Errorf("a writer: %d, %v, %q", n, err, &out)
		}
	}
}

func hides(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}

// Nothing stays hidden, and JSON says what it said.
func FuzzVisible(f *testing.F) {
	f.Add("\x1b[31m\xc2\x9b\r\n\u202e")
	f.Add("\xe2\x80\u2069\x7f")
	f.Fuzz(func(t *testing.T, s string) {
		if got := sanitize.Text(s); strings.ContainsFunc(strings.NewReplacer("\n", "", "\t", "").Replace(got), hides) {
			t.Errorf("Text(%q) leaves %q", s, got)
		}
		raw, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		got := sanitize.JSON(raw)
		var before, after string
		if json.Unmarshal(raw, &before) != nil || json.Unmarshal(got, &after) != nil || before != after || strings.ContainsFunc(string(got), hides) {
			t.Errorf("JSON(%q) = %q", raw, got)
		}
	})
}

// A text that may be random looks like a secret, one of words and versions does not.
func TestMayBeSecret(t *testing.T) {
	for text, want := range map[string]bool{
		"npx": false, "@modelcontextprotocol/server-filesystem@2025.11.25": false, "/srv/data/2026-11-21": false, "claude-sonnet-4-20250514": false,
		"A tool that gets the things of a customer": false, "ghcr.io/acme/tool:v1.2.3": false, "listAllProjectsOfOrganization": false, "openapi-3.1.json": false,
		"sk-proj-abcdefgh": true, "ghp_abcdefgh": true, "AKIAIOSFODNN7EXAMPLE": true, "eyJhbGciOiJIUzI1NiJ9.e30.x": true, "0123456789abcdef": true,
		"550e8400-e29b-41d4-a716-446655440000": true, "Bearer x": true, "12345678901234567890": true, "a/9f8e7d6c5b4a39281706f5e4d3c2b1a0/b": true, "dGhpcyBpcyBhIHNlY3JldA==": true,
		"-----BEGIN PRIVATE KEY-----": true, "V1StGXR8_Z5jdHi6B-myT": true, "dGhpc19pc19h_c2VjcmV0-a2V5_MTIzNDU": true,
	} {
		if got := sanitize.MayBeSecret(text); got != want {
			t.Errorf("MayBeSecret(%q) = %t", text, got)
		}
	}
}

func TestMayNameSecret(t *testing.T) {
	for _, name := range []string{"X-Api-Key", "Authorization", "proxy-auth", "X-Signature", "Set-Cookie", "X-JWT-Assertion", "DB_PASSWD", "--pass-phrase"} {
		if !sanitize.MayNameSecret(name) {
			t.Errorf("%s: no secret", name)
		}
	}
	for _, name := range []string{"Content-Type", "X-Request-Id", "LOG_LEVEL", "--port"} {
		if sanitize.MayNameSecret(name) {
			t.Errorf("%s: a secret", name)
		}
	}
}
