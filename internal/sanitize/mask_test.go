package sanitize

import (
	"fmt"
	"testing"
)

func TestMask(t *testing.T) {
	m := NewMask("***", "key", `a "b/<`, "")
	m.Add("key-of-today")
	for _, test := range []struct{ in, want string }{
		{"nothing", "nothing"},
		{"a key, and key", "a ***, and ***"},
		{`a "b/<`, "***"},
		{`{"a":"a \"b\/<"}`, `{"a":"***"}`},
		{`{"a":"a \"b/\u003c"}`, `{"a":"***"}`},
		{"?a=a%20%22b%2F%3C&b=a+%22b%2F%3C", "?a=***&b=***"},
	} {
		if got := string(m.Bytes([]byte(test.in))); got != test.want {
			t.Errorf("%s: got %s, want %s", test.in, got, test.want)
		}
	}
	if got := string(m.With("key-of-today").Bytes([]byte("key-of-today"))); got != "***" {
		t.Errorf("the longest first: got %s", got)
	}
}

// Fixed secrets stay masked, and so do the last of the added ones.
func TestMaskAdd(t *testing.T) {
	m := NewMask("***", "fixed")
	for i := range 10_000 {
		m.Add(fmt.Sprintf("token/%04d", i))
	}
	if got := string(m.Bytes([]byte("fixed, token/9999, token/0000"))); got != "***, ***, token/0000" {
		t.Errorf("got %s", got)
	}
	if n := len(m.added); n > maxAdded {
		t.Errorf("%d texts are looked for", n)
	}
}
