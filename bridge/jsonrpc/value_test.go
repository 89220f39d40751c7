package jsonrpc

import (
	"bytes"
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
		d, ok := Read(b, maxDepth)
		if got := Valid(b, maxDepth); got != ok {
			t.Errorf("Valid(%q) = %v, Read says %v", b, got, ok)
		}
		var compact bytes.Buffer
		if ok && (json.Compact(&compact, b) != nil || !bytes.Equal(d.Text, compact.Bytes())) {
			t.Errorf("Read(%q) = %q, want %q", b, d.Text, compact.Bytes())
		}
		if got, want := ok, json.Valid(b); got != want && strings.Count(string(b), "[")+strings.Count(string(b), "{") < maxDepth {
			t.Errorf("Read(%q) says %v, want %v", b, got, want)
		}
	})
}

// A document knows the positions of large values in its text without white space.
func TestDocument(t *testing.T) {
	many := "[" + strings.Repeat(" 1 ,", largeSize) + "{}]"
	whole := " { \"a\" : " + many + ",\n\"b\":[[2 , 3]],\t\"c\":[" + many + "] } "
	d, ok := Read([]byte(whole), 4)
	if !ok {
		t.Fatal("not JSON")
	}
	size := 2*largeSize + len("[{}]")
	for _, tc := range []struct {
		where      string
		begin, end int
		n          int
		ok         bool
	}{
		{"all", 0, len(d.Text), 3, true},
		{"a", 5, 5 + size, largeSize + 1, true},
		{"the last of a", 5 + size - 3, 0, 0, false},
		{"b", 5 + size + 5, 0, 0, false},
		{"within b", 5 + size + 6, 0, 0, false},
		{"c", len(d.Text) - size - 3, len(d.Text) - 1, 1, true},
		{"within c", len(d.Text) - size - 2, len(d.Text) - 2, largeSize + 1, true},
	} {
		if end, n, ok := d.Large(tc.begin); end != tc.end || n != tc.n || ok != tc.ok {
			t.Errorf("%s: Large(%d) = %d, %d, %v, want %d, %d, %v", tc.where, tc.begin, end, n, ok, tc.end, tc.n, tc.ok)
		}
		if c := d.Text[tc.begin]; c != '{' && c != '[' {
			t.Errorf("%s: nothing begins at %d", tc.where, tc.begin)
		}
	}
	same := []byte(`{"a":" "}`)
	if d, _ := Read(same, 1); &d.Text[0] != &same[0] {
		t.Error("what has no white space is copied")
	}
	if _, ok := Read([]byte(whole), 2); ok {
		t.Error("what is nested too deep is read")
	}
}
