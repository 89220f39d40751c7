package glob

import (
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	for _, test := range []struct {
		pattern, text string
		want          bool
	}{
		{"get_*", "get_user", true}, {"get_*", "get_", true}, {"get_*", "forget_x", false}, {"*", "", true}, {"*", "x", true},
		{"", "", true}, {"", "x", false}, {"?", "é", true}, {"?", "", false}, {"a?c", "abc", true}, {"a?c", "ac", false},
		{"*a*b*", "xxaxxbxx", true}, {"*a*b", "xxaxxbxx", false}, {"**", "x", true}, {"a*a", "a", false}, {"a.c", "abc", false},
		{"[a]", "a", false}, {"[a]", "[a]", true}, {"file:///home/*", "file:///home/x/y", true}, {"ABC", "abc", false},
		{"*é*", "aéb", true}, {"*?é", "éé", true}, {"\xff*", "\xffx", true},
	} {
		if got := Match(test.pattern, test.text); got != test.want {
			t.Errorf("Match(%q, %q) = %t", test.pattern, test.text, got)
		}
	}
	if Match(strings.Repeat("*a", 30)+"b", strings.Repeat("a", 20000)) { // in exponential time this would not end
		t.Error("matched")
	}
}
