package gateway

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
)

// TestPerCallRevision: a session with a connection for each call ends when the
// server comes back with another revision, before anything is sent to it.
func TestPerCallRevision(t *testing.T) {
	f := &fake{}
	run(t, ServerOptions{Adapter: f, Share: ShareCall}, func(t *testing.T, b *Gateway) {
		s, _ := begin(t, b, "")
		if got := do(t, s, "1", "tools/call", `{"name":"a"}`); strings.Contains(got, "error") {
			t.Fatal(got)
		}
		f.result = strings.Replace(everything, "2025-11-25", "2025-06-18", 1)
		got := do(t, s, "2", "tools/call", `{"name":"a"}`)
		if !strings.Contains(got, "another revision") && !strings.Contains(got, "session has ended") {
			t.Errorf("answered %s", got)
		}
		synctest.Wait()
		if got := f.wire(f.opened()).received(); len(got) != 0 {
			t.Errorf("the server got %q", got)
		}
		if _, err := s.Call(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`), nil, nil); !errors.Is(err, bridge.ErrEnded) && !errors.Is(err, bridge.ErrUnavailable) {
			t.Errorf("the session goes on: %v", err)
		}
	})
}

// A server that says nothing of what it can do is passed on as one that can do
// nothing: initialize is answered with JSON all the same.
func TestInitializeWithoutCapabilities(t *testing.T) {
	for _, said := range []string{"", `"capabilities":null,`, `"capabilities":[],`} {
		for _, share := range []Share{ShareCall, SharePrincipal, ShareAll} {
			f := &fake{result: `{"protocolVersion":"2025-11-25",` + said + `"serverInfo":{"name":"fake","version":"1"}}`}
			run(t, ServerOptions{Adapter: f, Share: share}, func(t *testing.T, b *Gateway) {
				_, got, err := initialize(t, b, "", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`)
				if err != nil {
					t.Fatal(err)
				}
				if !json.Valid([]byte(got)) || !strings.Contains(got, `"capabilities":{}`) {
					t.Errorf("share %s, said %q: answered %s", share, said, got)
				}
			})
		}
	}
}
