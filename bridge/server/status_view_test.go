package server

import (
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/config"
)

// A key sees the state of the servers that it may use. An operator's key, and one for all servers, sees the
// whole bridge.
func TestSight(t *testing.T) {
	const carolKey = "carol-0123456789abcdef"
	change := func(c *config.Config) {
		private(c)
		c.Access = append(c.Access, config.Access{Name: "carol", Token: carolKey, Servers: []string{"one"}, Operator: true})
		c.Ready = config.ReadyAll
	}
	r := newRig(t, change, "one", "broken")
	r.Do("POST", "/broken/mcp", initialize, as(aliceKey)...).Wait()
	for _, test := range []struct {
		name, key string
		all       bool
	}{{"one that may use all", aliceKey, true}, {"one that may use some", bobKey, false}, {"an operator", carolKey, true}} {
		for path, whole := range map[string]string{"/metrics": "mcp_bridge_ready ", "/readyz": `"bridge"`, "/readyz?format=text": " subscriptions, "} {
			a := r.Do("GET", path, "", as(test.key)...).Wait().Body()
			if !strings.Contains(a, "one") {
				t.Errorf("%s, %s: its own server is not there: %s", test.name, path, a)
			}
			if strings.Contains(a, "broken") != test.all || strings.Contains(a, whole) != test.all {
				t.Errorf("%s, %s: sees all: %t, want %t: %s", test.name, path, !test.all, test.all, a)
			}
		}
	}
}
