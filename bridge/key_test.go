package bridge_test

import (
	"net/http"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
)

// Clients share a connection only if the server could not tell them apart. Whatever differs makes another key.
func TestConnectionKey(t *testing.T) {
	forward := []bridge.Forward{{From: "X-Team", To: "X-Team"}, {Token: true, To: "Authorization"}}
	caller := func(change func(*bridge.Caller)) *bridge.Caller {
		c := &bridge.Caller{
			Principal:    "ann",
			Revision:     "2025-06-18",
			Capabilities: []byte(`{"roots":{},"sampling":{}}`),
			Header:       http.Header{"X-Team": {"red"}},
		}
		change(c)
		return c
	}
	for _, test := range []struct {
		name             string
		change           func(*bridge.Caller)
		session, without bool // another session, another client without a session
	}{
		{"nothing", func(*bridge.Caller) {}, false, false},
		{"the order of capabilities", func(c *bridge.Caller) { c.Capabilities = []byte(`{ "sampling": {}, "roots": {} }`) }, false, false},
		{"tasks", func(c *bridge.Caller) { c.Capabilities = []byte(`{"roots":{},"sampling":{},"tasks":{}}`) }, false, false},
		{"a header that is not forwarded", func(c *bridge.Caller) { c.Header.Set("X-Other", "1") }, false, false},
		{"a token, which does not last", func(c *bridge.Caller) { c.Header.Set("Authorization", "Bearer 1") }, false, false},
		{"capabilities", func(c *bridge.Caller) { c.Capabilities = []byte(`{"roots":{}}`) }, true, false},
		{"the revision", func(c *bridge.Caller) { c.Revision = "2025-11-25" }, true, false},
		{"the principal", func(c *bridge.Caller) { c.Principal = "bob" }, true, true},
		{"a header", func(c *bridge.Caller) { c.Header.Set("X-Team", "blue") }, true, true},
		{"a second value", func(c *bridge.Caller) { c.Header.Add("X-Team", "blue") }, true, true},
		{"no header", func(c *bridge.Caller) { c.Header = nil }, true, true},
	} {
		one, other := caller(func(*bridge.Caller) {}), caller(test.change)
		c, _ := bridge.SessionKey(one, forward)
		b, _ := bridge.SessionKey(other, forward)
		if (c != b) != test.session {
			t.Errorf("%s: keys of sessions %q and %q", test.name, c, b)
		}
		if c, b := bridge.IdentityKey(one, forward), bridge.IdentityKey(other, forward); (c != b) != test.without {
			t.Errorf("%s: keys of clients without sessions %q and %q", test.name, c, b)
		}
	}
	two, one := caller(func(c *bridge.Caller) { c.Header.Add("X-Team", "blue") }), caller(func(c *bridge.Caller) { c.Header.Set("X-Team", "red\x00X-Team:blue") })
	if c, b := bridge.IdentityKey(two, forward), bridge.IdentityKey(one, forward); c == b {
		t.Errorf("two values and one that imitates them have the key %q", c)
	}
}
