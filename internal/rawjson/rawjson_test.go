package rawjson

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
		got := Delete(in, tc.drop)
		if string(got) != tc.want {
			t.Errorf("Delete(%s, %s) = %s, want %s", tc.in, tc.drop, got, tc.want)
		}
		if again := Delete(got, tc.drop); !Same(again, got) {
			t.Errorf("Delete(%s): a copy although nothing changes", got)
		}
		if string(in) != tc.in {
			t.Errorf("Delete(%s) changed its input to %s", tc.in, in)
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
		if got := Set([]byte(tc.in), "a", []byte("9")); string(got) != tc.want {
			t.Errorf("Set(%s) = %s, want %s", tc.in, got, tc.want)
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
		if got := Get([]byte(tc.in), "a"); string(got) != tc.want {
			t.Errorf("Get(%s) = %s, want %s", tc.in, got, tc.want)
		}
	}
}

// FuzzRaw compares Walk with encoding/json, and checks that no input makes it fail.
func FuzzRaw(f *testing.F) {
	for _, s := range []string{`{"a":[1,{"b":"\\\""}],"c":null}`, `[]`, `[[],{},"",0]`, `{"a"`, `{"a":`, `[1,`, `{"a":1}}`, `{,}`, `"\`, ` [ 1 , 2 ] `} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got := Edit(b, func(_, v []byte) []byte { return v })
		if !Same(got, b) {
			t.Fatalf("Edit(%q) = %q although nothing changes", b, got)
		}
		got = EditItems(b, func([]byte) []byte { return nil })
		dropped := Edit(b, func(name, v []byte) []byte {
			if len(name)%2 == 0 {
				return nil
			}
			return v
		})
		Set(b, "x", []byte("1"))
		if !json.Valid(b) {
			return
		}
		if !json.Valid(got) || !json.Valid(dropped) {
			t.Fatalf("%q became %q and %q", b, got, dropped)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, b); err != nil || !bytes.Equal(Compact(b), compact.Bytes()) {
			t.Fatalf("Compact(%q) = %q, want %q, %v", b, Compact(b), compact.Bytes(), err)
		}
		var items []json.RawMessage
		if json.Unmarshal(b, &items) == nil && items != nil {
			var ours []json.RawMessage
			Walk(b, '[', func(_, at, end int) bool {
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
				if g := Get(b, name); !bytes.Equal(g, v) {
					t.Fatalf("Get(%q, %q) = %q, want %q", b, name, g, v)
				}
			}
		}
	})
}

// Nesting uses no stack.
func TestDeep(t *testing.T) {
	deep := strings.Repeat(`{"a":[`, 500_000) + strings.Repeat(`]}`, 500_000)
	if got := Get([]byte(`{"x":`+deep+`,"y":1}`), "y"); string(got) != "1" {
		t.Errorf("behind what is deep stands %q", got)
	}
}

func TestDeeper(t *testing.T) {
	for text, want := range map[string]bool{`[[]]`: false, `[[[]]]`: true, `[{"a":[`: true, `[[],[],{}]`: false, `"[[[[`: false, `["]]","\"[[[",[`: false, `]]][[[`: false, ``: false} {
		if got := Deeper([]byte(text), 2); got != want {
			t.Errorf("Deeper(%s, 2) = %t", text, got)
		}
	}
}

// Merge does what Set does for one member after the other.
func TestMerge(t *testing.T) {
	for _, object := range []string{`{}`, ` { } `, `{"a":1}`, `{"a":1,"b":{"c":2},"a":3}`, `{"\u0061":1,"b":2}`, `null`} {
		for _, over := range []string{`{}`, `{"a":9}`, `{"b":8,"c":7}`, `{"c":1,"a":2,"c":3}`, `{"\"":1}`, `[]`} {
			want := []byte(object)
			Each([]byte(over), func(name, value []byte) { want = Set(want, string(name), value) })
			if got := Merge([]byte(object), []byte(over)); string(got) != string(want) {
				t.Errorf("Merge(%s, %s) = %s, want %s", object, over, got, want)
			}
		}
	}
}

// Rewrite keeps the bytes of values, and the first of members with one name.
func TestRewrite(t *testing.T) {
	one := []byte(`{"a": 1.50,"b":{"c" : 2}}`)
	for got, want := range map[string]string{
		string(Rewrite(one, nil, Member{Name: "a", Value: []byte("3")})):                          `{"a":1.50,"b":{"c" : 2}}`,
		string(Rewrite([]byte("{}"), nil, Member{Name: `a"`, Value: []byte("3")})):                `{"a\"":3}`,
		string(Rewrite(one, func(k string, v []byte) (string, []byte) { return "x", v })):         `{"x":1.50}`,
		string(Rewrite(one, func(k string, _ []byte) (string, []byte) { return k, nil })):         `{}`,
		string(Rewrite([]byte(`{"\u0061":1,"a":2}`), nil, Member{Name: "b", Value: []byte("3")})): `{"a":1,"b":3}`,
		string(List([]string{"a", `b"`})):                                                         `["a","b\""]`,
		string(List(nil)):                                                                         `[]`,
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
