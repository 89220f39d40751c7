package aggregate

import (
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/internal/list"
)

// No URI of a client, and no template of a server, takes long to compare or exits the program. A comparison in
// quadratic time would exceed the test binary's deadline.
func TestCatalogMatches(t *testing.T) {
	c := &catalog{}
	page := `{"resourceTemplates":[{"uriTemplate":"a:{x}"},{"uriTemplate":"b:{` + strings.Repeat("v,", 2000) + `v}"},{"uriTemplate":"c:{+path}/{id}"}]}`
	c.learn(list.Templates, []byte(page), func(key string) string { return key }, true, true)
	for uri, want := range map[string]bool{
		"a:1": true, "a:1/2": false, "a:%20x": true, "b:1": false, "c:/x/y/z": true, "d:": false,
		"a:" + strings.Repeat(",x", 5_000) + "/": false, "a:" + strings.Repeat(",x", 1_000_000): false,
	} {
		if got := c.matches(uri); got != want {
			t.Errorf("matches(%.40q) = %t, want %t", uri, got, want)
		}
	}
}

// External names are stable, and every model provider accepts them.
func TestExposed(t *testing.T) {
	long := strings.Repeat("x", 80)
	for _, test := range []struct{ prefix, name, want string }{
		{"a__", "echo", "a__echo"},
		{"a__", "get.user-1", "a__get.user-1"},
		{"", "echo", "echo"},
		{"a__", "find user/1", "a__find_user_1_58ec6a78"},
		{"a__", long, "a__" + strings.Repeat("x", 52) + "_a0a9eb4f"},
		{"a__", "größe", "a__gr__e_"},
	} {
		got := externalName(test.prefix, test.name)
		if !strings.HasPrefix(got, test.want[:min(len(test.want), 9)]) || len(got) > maxName || strings.Trim(got, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") != "" {
			t.Errorf("externalName(%q, %q) = %q", test.prefix, test.name, got)
		}
		if got != externalName(test.prefix, test.name) {
			t.Error("the name is not stable")
		}
	}
	if externalName("a__", "x/y") == externalName("a__", "x y") {
		t.Error("two names become one")
	}
}
