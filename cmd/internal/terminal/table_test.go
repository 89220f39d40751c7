package terminal_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
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
		got := terminal.Cut(test.in, test.width)
		if got != test.want || terminal.Columns(got) > test.width {
			t.Errorf("Cut(%q, %d) = %q, want %q", test.in, test.width, got, test.want)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, test := range []struct {
		in    string
		width int
		want  []string
	}{
		{"", 5, nil},
		{"one two", 7, []string{"one two"}},
		{"one  two\nthree", 8, []string{"one two", "three"}},
		{"a longer word", 3, []string{"a", "longer", "word"}},
		{"日本 語", 4, []string{"日本", "語"}},
	} {
		if got := terminal.Wrap(test.in, test.width); !slices.Equal(got, test.want) {
			t.Errorf("Wrap(%q, %d) = %q, want %q", test.in, test.width, got, test.want)
		}
	}
}

func TestTable(t *testing.T) {
	tab := terminal.Table{Head: []string{"NAME", "EMPTY", "DESCRIPTION"}}
	tab.Add("a", "", "one\n  line")
	tab.Add("日本", "", strings.Repeat("long ", 10))
	tab.Add("longest", "", "")
	want := "  NAME     DESCRIPTION\n  a        one line\n  日本     long long long l…\n  longest\n"
	if got := tab.Format("  ", 28, nil); got != want {
		t.Errorf("the table is\n%s\nwant\n%s", got, want)
	}
	tab.Add(strings.Repeat("x", 200_000), "", "")
	if got := tab.Format("  ", 0, nil); len(got) > 2000 {
		t.Errorf("with a long name, the table has %d bytes", len(got))
	}
}

// A narrow table loses the columns that it names, one after the other, and then the ends of its lines. Colors take
// no width.
func TestTableDrop(t *testing.T) {
	tab := terminal.Table{Head: []string{"NAME", "ONE", "TWO", "REASON"}, Drop: []string{"TWO", "ONE"},
		Paint: func(column, cell string) string {
			if column == "ONE" {
				return "<" + cell + ">"
			}
			return cell
		}}
	tab.Add("server", "1", "2", strings.Repeat("why ", 10))
	for _, test := range []struct {
		width int
		want  string
	}{
		{0, "NAME    ONE  TWO  REASON\nserver  <1>    2    why why why why why why why why why why\n"},
		{42, "NAME    ONE  TWO  REASON\nserver  <1>    2    why why why why why why…\n"},
		{41, "NAME    ONE  REASON\nserver  <1>    why why why why why why why…\n"},
		{36, "NAME    REASON\nserver  why why why why why why why…\n"},
		{10, "NAME    R…\nserver  w…\n"},
		{4, "NAME\nser…\n"},
	} {
		if got := tab.Format("", test.width, nil); got != test.want {
			t.Errorf("with %d columns:\n%s\nwant\n%s", test.width, got, test.want)
		}
	}
}
