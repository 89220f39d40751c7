package jsonrpc

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestValid(t *testing.T) {
	for _, tc := range []struct {
		name, b string
		deep    int
		want    bool
	}{
		{"object", " {\"a\":[1,-2.5e3,\"x\\u00e9\\n\",true,null]}\n", 2, true},
		{"too deep", `{"a":[1]}`, 1, false},
		{"text", `"x"`, 0, true},
		{"nothing", " ", 5, false},
		{"two", `1 2`, 5, false},
		{"broken off", `{"a":`, 5, false},
		{"control character", "\"\x01\"", 5, false},
		{"very deep", strings.Repeat("[", 2000) + strings.Repeat("]", 2000), 5000, false},
	} {
		if got := Valid([]byte(tc.b), tc.deep); got != tc.want {
			t.Errorf("%s: Valid(%.40q, %d) = %v, want %v", tc.name, tc.b, tc.deep, got, tc.want)
		}
	}
	if end := Value([]byte(`[1, {"a":2} ,3]`), 4, 9); end != 11 {
		t.Errorf("Value ends at %d, want 11", end)
	}
}

func FuzzValid(f *testing.F) {
	f.Add([]byte(`{"a":[1,-2.5e3,"x\u00e9\n",true,null]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, want := Valid(b, maxDepth), json.Valid(b); got != want && strings.Count(string(b), "[")+strings.Count(string(b), "{") < maxDepth {
			t.Errorf("Valid(%q) = %v, want %v", b, got, want)
		}
	})
}
