package era

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

//
func TestEncodeHeader(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"plain", "fetch_page", "fetch_page"},
		{"empty", "", ""},
		{"inner space", "a b ~", "a b ~"},
		{"not ASCII", "doc://ä", "=?base64?ZG9jOi8vw6Q=?="},
		{"space first", " us-west1", "=?base64?IHVzLXdlc3Qx?="},
		{"space last", "us-west1 ", "=?base64?dXMtd2VzdDEg?="},
		{"only a space", " ", "=?base64?IA==?="},
		{"tab inside", "a\tb", "=?base64?YQli?="},
		{"line break", "line1\r\nline2", "=?base64?bGluZTENCmxpbmUy?="},
		{"NUL", "\x00", "=?base64?AA==?="},
		{"DEL", "\x7f", "=?base64?fw==?="},
		{"sentinel", "=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="},
		{"sentinel of nothing", "=?base64??=", "=?base64?PT9iYXNlNjQ/Pz0=?="},
		{"sentinel whose halves overlap", "=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="},
		{"other case is no sentinel", "=?BASE64?YQ==?=", "=?BASE64?YQ==?="},
		{"half a sentinel", "=?base64?YQ==", "=?base64?YQ=="},
	} {
		if got := EncodeHeader(tc.in); got != tc.want {
			t.Errorf("%s: EncodeHeader(%q) = %q, want %q", tc.name, tc.in, got, tc.want)
		}
	}
}

//
func TestDecodeHeader(t *testing.T) {
	for _, tc := range []struct {
		name, in, want string
		ok             bool
	}{
		{"plain", "fetch_page", "fetch_page", true},
		{"white space around", " \tfetch page ", "fetch page", true},
		{"encoded", "=?base64?5pel5pys6Kqe?=", "日本語", true},
		{"encoded without need", "=?base64?SGVsbG8=?=", "Hello", true},
		{"encoded spaces stay", "=?base64?IHVzLXdlc3Qx?=", " us-west1", true},
		{"encoded nothing", "=?base64??=", "", true},
		{"other case is literal", "=?BASE64?SGVsbG8=?=", "=?BASE64?SGVsbG8=?=", true},
		{"no tail is literal", "=?base64?SGVsbG8=", "=?base64?SGVsbG8=", true},
		{"no head is literal", "SGVsbG8=?=", "SGVsbG8=?=", true},
		{"overlapping halves are literal", "=?base64?=", "=?base64?=", true},
		{"raw UTF-8", "doc://ä", "doc://ä", true},
		{"bad base64", "=?base64?SGVs!!!bG8=?=", "", false},
		{"no padding", "=?base64?SGVsbG8?=", "", false},
		{"line break in base64", "=?base64?SGVs\nbG8=?=", "", false},
		{"base64 of no UTF-8", "=?base64?/w==?=", "\xff", false},
		{"no UTF-8", "a\xff", "a\xff", false},
	} {
		if got, ok := DecodeHeader(tc.in); got != tc.want || ok != tc.ok {
			t.Errorf("%s: DecodeHeader(%q) = %q, %t, want %q, %t", tc.name, tc.in, got, ok, tc.want, tc.ok)
		}
	}
}

//
func TestEqualHeader(t *testing.T) {
	for _, tc := range []struct {
		header, want string
		equal        bool
	}{
		{"tools/call", "tools/call", true},
		{"  tools/call\t", "tools/call", true},
		{"TOOLS/CALL", "tools/call", false},
		{"", "", true},
		{"", "x", false},
		{"=?base64?ZG9jOi8vw6Q=?=", "doc://ä", true},
		{"doc://ä", "doc://ä", true},
		{"doc://\xe4", "doc://ä", false},
		{"=?base64?eA==?=", "x", true},
		{"=?base64?eA==?=", "=?base64?eA==?=", false}, // decoded before it is compared
		{"=?base64?eA?=", "x", false},
		{"=?BASE64?eA==?=", "=?BASE64?eA==?=", true},
		{"=?BASE64?eA==?=", "x", false},
	} {
		if got := EqualHeader(tc.header, tc.want); got != tc.equal {
			t.Errorf("EqualHeader(%q, %q) = %t", tc.header, tc.want, got)
		}
	}
}

//
func TestNameOf(t *testing.T) {
	for _, tc := range []struct {
		method, params, want string
		ok                   bool
	}{
		{"tools/call", `{"arguments":{"name":"no"},"name":"fetch","uri":"u"}`, "fetch", true},
		{"tools/call", `{"n\u0061me":"f\u00e9"}`, "fé", true},
		{"prompts/get", `{ "name" : "p" }`, "p", true},
		{"prompts/get", `{"name":""}`, "", true},
		{"resources/read", `{"name":"n","uri":"doc://ä"}`, "doc://ä", true},
		{"tasks/get", `{"taskId":"t"}`, "t", true},
		{"tasks/update", `{"taskId":"t"}`, "t", true},
		{"tasks/cancel", `{"taskId":"t"}`, "t", true},
		{"tasks/get", `{"taskId":"t","task\u0049d":"u"}`, "", false},
		{"tools/call", `{"name":7}`, "", false},
		{"tools/call", `{"Name":"x"}`, "", false},
		{"tools/call", `{}`, "", false},
		{"tools/call", ``, "", false},
		{"tools/list", `{"name":"x"}`, "", false},
		{"resources/subscribe", `{"uri":"x"}`, "", false},
		{"completion/complete", `{"name":"x"}`, "", false},
	} {
		if got, ok := NameOf(tc.method, []byte(tc.params)); got != tc.want || ok != tc.ok {
			t.Errorf("NameOf(%q, %s) = %q, %t, want %q, %t", tc.method, tc.params, got, ok, tc.want, tc.ok)
		}
	}
}

// The names are those that net/http looks headers up by.
func TestHeaderNames(t *testing.T) {
	for _, name := range []string{HeaderMethod, HeaderName, HeaderVersion, HeaderParam} {
		if http.CanonicalHeaderKey(name) != name {
			t.Errorf("%s is not in Go's form", name)
		}
	}
}

// FuzzHeader checks that every text passes through a header unchanged, and that nothing invalid gets into one.
func FuzzHeader(f *testing.F) {
	for _, s := range []string{"", "a", " a", "a\t", "ä", "\r\nX: y", "=?base64?YQ==?=", "=?base64?=", "=?BASE64?YQ==?=", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, v string) {
		h := EncodeHeader(v)
		if strings.ContainsFunc(h, func(r rune) bool { return r < ' ' || r > '~' }) || h != strings.Trim(h, " \t") {
			t.Fatalf("EncodeHeader(%q) = %q", v, h)
		}
		if utf8.ValidString(v) && !EqualHeader(h, v) {
			t.Fatalf("%q came back from %q as another text", v, h)
		}
		if got, ok := DecodeHeader(v); ok && !utf8.ValidString(got) {
			t.Fatalf("DecodeHeader(%q) = %q", v, got)
		}
		params := append(append([]byte(`{"name":`), rawjson.Quote(v)...), '}')
		if name, ok := NameOf("tools/call", params); !ok || utf8.ValidString(v) && name != v {
			t.Fatalf("NameOf(%s) = %q, %t", params, name, ok)
		}
		NameOf("tools/call", bytes.TrimSpace([]byte(v)))
	})
}
