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
