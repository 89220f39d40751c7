package session_test

import (
	"testing"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/bridge/session/sessiontest"
)

func TestMemory(t *testing.T) {
	sessiontest.Run(t, func(*testing.T) session.Store { return session.NewMemory(100) })
}

// visible ASCII, at least 128 bits (26 characters of 5 bits).
func TestNewID(t *testing.T) {
	a, b := session.NewID(), session.NewID()
	if a == b || len(a) < 26 {
		t.Errorf("ids %q and %q", a, b)
	}
	for _, c := range a {
		if c < 0x21 || c > 0x7e {
			t.Errorf("id %q has the character %q", a, c)
		}
	}
	if session.Key(a) == session.Key(b) {
		t.Error("two ids have one key")
	}
}
