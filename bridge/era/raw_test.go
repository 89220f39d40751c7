package era

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestEdit(t *testing.T) {
	for _, tc := range []struct{ in, drop, want string }{
		{`{}`, "a", `{}`},
		{`{"a":1}`, "a", `{}`},
		{`{ "a" : 1 , "b":2}`, "a", `{ "b":2}`},
		{`{"b":2, "a":1 }`, "a", `{"b":2 }`},
		{`{"a":1,"b":[1.00,{"a":2}],"a":3}`, "a", `{"b":[1.00,{"a":2}]}`},
		{`{"a":1,"a":2,"c":1e400}`, "a", `{"c":1e400}`},
		{`{"b":1,"a":2,"c":3}`, "a", `{"b":1,"c":3}`},
		{`{"\u0061":1,"b":"\"a\":1"}`, "a", `{"b":"\"a\":1"}`},
		{`{"b\\":1,"a":{"x":"}"}}`, "a", `{"b\\":1}`},
		{`["a"]`, "a", `["a"]`},
		{`"a"`, "a", `"a"`},
	} {
		in := []byte(tc.in)
		got := drop(in, tc.drop)
		if string(got) != tc.want {
			t.Errorf("drop(%s, %s) = %s, want %s", tc.in, tc.drop, got, tc.want)
		}
		if again := drop(got, tc.drop); !same(again, got) {
			t.Errorf("drop(%s): a copy although nothing changes", got)
		}
		if string(in) != tc.in {
			t.Errorf("drop(%s) changed its input to %s", tc.in, in)
		}
	}
}

func TestPut(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{`{}`, `{"a":9}`},
		{`{"b":1}`, `{"b":1,"a":9}`},
		{`{"b":1 }`, `{"b":1 ,"a":9}`},
		{`{"a":1,"b":2}`, `{"a":9,"b":2}`},
		{`{"a":1,"b":2,"a":3}`, `{"a":9,"b":2}`},
		{`{"\u0061":[1,2]}`, `{"\u0061":9}`},
	} {
		if got := put([]byte(tc.in), "a", []byte("9")); string(got) != tc.want {
			t.Errorf("put(%s) = %s, want %s", tc.in, got, tc.want)
		}
	}
}

func TestGet(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{`{"a":1}`, "1"},
		{` {"b":{"a":1},"\u0061" : [1, 2] } `, "[1, 2]"},
		{`{"a":1,"a":2}`, "2"}, // as most peers read it
		{`{"A":1}`, ""},
		{`[{"a":1}]`, ""},
		{``, ""},
	} {
		if got := get([]byte(tc.in), "a"); string(got) != tc.want {
			t.Errorf("get(%s) = %s, want %s", tc.in, got, tc.want)
		}
	}
}

// FuzzRaw compares the walk with encoding/json, and sees that no bytes whatever
// make it fail.
func FuzzRaw(f *testing.F) {
	for _, s := range []string{`{"a":[1,{"b":"\\\""}],"c":null}`, `[]`, `[[],{},"",0]`, `{"a"`, `{"a":`, `[1,`, `{"a":1}}`, `{,}`, `"\`, ` [ 1 , 2 ] `} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got := edit(b, func(_, v []byte) []byte { return v })
		if !same(got, b) {
			t.Fatalf("edit(%q) = %q although nothing changes", b, got)
		}
		got = editItems(b, func([]byte) []byte { return nil })
		dropped := edit(b, func(name, v []byte) []byte {
			if len(name)%2 == 0 {
				return nil
			}
			return v
		})
		put(b, "x", []byte("1"))
		if canonical, ok := canonicalJSON(b); ok && json.Valid(b) && !json.Valid(canonical) {
			t.Fatalf("canonicalJSON(%q) = %q", b, canonical)
		}
		if !json.Valid(b) {
			return
		}
		if !json.Valid(got) || !json.Valid(dropped) {
			t.Fatalf("%q became %q and %q", b, got, dropped)
		}
		var items []json.RawMessage
		if json.Unmarshal(b, &items) == nil && items != nil {
			var ours []json.RawMessage
			walk(b, '[', func(_, at, end int) bool {
				ours = append(ours, b[at:end])
				return true
			})
			if !slices.EqualFunc(items, ours, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
				t.Fatalf("items of %q: %q", b, ours)
			}
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(b, &object) == nil && object != nil {
			for name, v := range object {
				if g := get(b, name); !bytes.Equal(g, v) {
					t.Fatalf("get(%q, %q) = %q, want %q", b, name, g, v)
				}
			}
		}
	})
}

// What is hostile costs no more than its length: nesting no stack, repeated
// members no copies.
func TestHostile(t *testing.T) {
	deep := strings.Repeat(`{"a":[`, 500_000) + strings.Repeat(`]}`, 500_000)
	if got := get([]byte(`{"x":`+deep+`,"y":1}`), "y"); string(got) != "1" {
		t.Errorf("behind what is deep stands %q", got)
	}
	if _, ok := canonicalJSON([]byte(deep)); ok {
		t.Error("what is too deep has a canonical form")
	}
	many := `{` + strings.Repeat(`"content":0,`, 10_000) + `"role":"user","content":[{"type":"text","text":"` + strings.Repeat("x", 10_000) + `"}]}`
	got, no := Question("sampling/createMessage", []byte(`{"messages":[`+many+`]}`), Rev20251125, Rev20250618, []byte(`{"sampling":{}}`), nil)
	if no != nil || len(got) > 2*len(many) {
		t.Errorf("%d bytes became %d (%v)", len(many), len(got), no)
	}
}
