package era

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// Hostile input costs no more than its length: nesting takes no stack, repeated members no copies.
func TestHostile(t *testing.T) {
	n := scaletest.Of(50_000, 500_000)
	deep := strings.Repeat(`{"a":[`, n) + strings.Repeat(`]}`, n)
	if _, ok := canonicalJSON([]byte(deep)); ok {
		t.Error("what is too deep has a canonical form")
	}
	many := `{` + strings.Repeat(`"content":0,`, 10_000) + `"role":"user","content":[{"type":"text","text":"` + strings.Repeat("x", 10_000) + `"}]}`
	got, no := Question("sampling/createMessage", []byte(`{"messages":[`+many+`]}`), Rev20251125, Rev20250618, []byte(`{"sampling":{}}`), nil)
	if no != nil || len(got) > 2*len(many) {
		t.Errorf("%d bytes became %d (%v)", len(many), len(got), no)
	}
}

// FuzzCanonical checks that the canonical form of JSON is JSON.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{`{"b":[1,{"a":"\\\""}],"a":null}`, `{"a":1,"a":2}`, `[[],{},"",0]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if canonical, ok := canonicalJSON(b); ok && json.Valid(b) && !json.Valid(canonical) {
			t.Fatalf("canonicalJSON(%q) = %q", b, canonical)
		}
	})
}
