package main

import (
	"strings"
	"testing"
	"unicode"
)

func TestClean(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"plain ünï 日本 👩‍💻\n\ttext", "plain ünï 日本 👩‍💻\n\ttext"},
		{"a\r\nb", "a\nb"},
		{"\x1b[2Jgone", "␛[2Jgone"},
		{"\x1b]0;title\x07", "␛]0;title␇"},
		{"over\rwritten\b", "over␍written␈"},
		{"\x00\x7f", "␀␡"},
		{"\u009b31m", "\ufffd31m"},
		{"\x9b31m", "\ufffd31m"},                   // the same, as one byte
		{"user\u202egnp.exe", "user\ufffdgnp.exe"}, // shown backwards otherwise
		{"a\u2028b", "a\ufffdb"},
	} {
		if got := clean(test.in); got != test.want {
			t.Errorf("clean(%q) = %q, want %q", test.in, got, test.want)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add("\x1b[31m\xc2\x9b\r\n")
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range clean(s) {
			if unicode.IsControl(r) && r != '\n' && r != '\t' {
				t.Errorf("clean(%q) leaves %q", s, r)
			}
		}
	})
}

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
