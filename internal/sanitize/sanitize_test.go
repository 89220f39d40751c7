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
