package similar_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/internal/similar"
)

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0},
		{"kitten", "sitting", 3}, {"ab", "ba", 1}, {"sahre", "share", 1}, {"stdoi", "stdio", 1}, {"abcd", "badc", 2}, {"ca", "abc", 3}, {"comand", "command", 1},
		{strings.Repeat("x", 1000), strings.Repeat("x", 120), 0}, // only the first letters count
		{strings.Repeat("x", 1000), "", 100},
	} {
		if got := similar.Distance(test.a, test.b); got != test.want {
			t.Errorf("Distance(%.10q, %.10q) = %d, want %d", test.a, test.b, got, test.want)
		}
	}
}

func TestFold(t *testing.T) {
	for _, name := range []string{"getUser", "get-user", "get_user", "Get.User", "get user"} {
		if got := similar.Fold(name); got != "getuser" {
			t.Errorf("Fold(%q) = %q, want getuser", name, got)
		}
	}
}

func TestNames(t *testing.T) {
	names := []string{"read_file", "read_multiple_files", "write_file", "list_directory", "a", "b"}
	for _, test := range []struct {
		name string
		want []string
	}{
		{"readfile", []string{"read_file"}},
		{"read-fiel", []string{"read_file"}},
		{"directory", []string{"list_directory"}},
		{"file", []string{"read_file", "write_file", "read_multiple_files"}},
		{"c", nil},
		{"", nil},
		{"something else", nil},
		{strings.Repeat("x", 1000), nil},
	} {
		if got := similar.Names(test.name, names); !slices.Equal(got, test.want) {
			t.Errorf("Names(%.20q) = %q, want %q", test.name, got, test.want)
		}
	}
}

func TestHint(t *testing.T) {
	many := strings.Fields(strings.Repeat("aa ", 21))
	for _, test := range []struct {
		name  string
		names []string
		want  string
	}{
		{"files", []string{"file", "folder"}, "did you mean file?"},
		{"xyz", []string{"file", "folder"}, "there is file, folder"},
		{"xyz", nil, "it has none"},
		{"xyz", many, "there is " + strings.Join(many[:20], ", ") + ", …"},
	} {
		if got := similar.Hint(test.name, test.names, "it has none"); got != test.want {
			t.Errorf("Hint(%q, %d names) = %q, want %q", test.name, len(test.names), got, test.want)
		}
	}
}
