package main

import (
	"strings"
	"testing"
)

func TestCut(t *testing.T) {
	for _, test := range []struct {
		in    string
		width int
		want  string
	}{
		{"short", 5, "short"},
		{"longer", 5, "long…"},
		{"a word", 3, "a…"},
		{"日本語", 6, "日本語"},
		{"日本語", 5, "日本…"},
		{"日本語", 4, "日…"},
		{"e\u0301e\u0301", 2, "e\u0301e\u0301"},
	} {
		got := cut(test.in, test.width)
		if got != test.want || columns(got) > test.width {
			t.Errorf("cut(%q, %d) = %q, want %q", test.in, test.width, got, test.want)
		}
	}
}

func TestTable(t *testing.T) {
	tab := table{head: []string{"NAME", "EMPTY", "DESCRIPTION"}}
	tab.add("a", "", "one\n  line")
	tab.add("日本", "", strings.Repeat("long ", 10))
	tab.add("longest", "", "")
	want := "  NAME     DESCRIPTION\n  a        one line\n  日本     long long long l…\n  longest\n"
	if got := tab.format("  ", 28, plain); got != want {
		t.Errorf("the table is\n%s\nwant\n%s", got, want)
	}
}
