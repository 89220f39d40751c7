package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// A subscription whose session ends while the server cannot be opened is not
// kept up: nobody would ever end it.
func TestShareLeavesWhileServerIsAway(t *testing.T) {
	f := &fake{}
	f.before = func(ctx context.Context, n int) error {
		if n == 2 {
			select {
			case <-time.After(30 * time.Second):
			case <-ctx.Done():
			}
			return errors.New("no")
		}
		return nil
	}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: SharePrincipal}}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "p")
		do(t, s, "1", "resources/subscribe", `{"uri":"a:"}`)
		f.wire(1).die()
		time.Sleep(10 * time.Second) // the lane tries to open it for the sake of the subscription
		s.End(bridge.ErrEnded)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if st := state(g); st.Lanes != 0 || f.open() != 1 { // for a subscription one would have been opened
			t.Errorf("a subscription or a connection of nobody is kept: %d connections, %d were opened", st.Lanes, f.open())
		}
	})
}

// A subscription is restored also when the connection was lost right behind the
// answer to it.
func TestLaneSubscribedAtTheLast(t *testing.T) {
	f := &fake{}
	f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "resources/subscribe" && f.n == 1 {
			f.answer(m, "{}")
			f.die()
			return true
		}
		return false
	}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		for range 20 {
			f.opens, f.wires = nil, nil
			s, _ := begin(t, g, "")
			do(t, s, "1", "resources/subscribe", `{"uri":"a:"}`)
			time.Sleep(time.Minute)
			synctest.Wait()
			if f.opened() != 2 {
				t.Fatalf("opened %d times, want twice", f.opened())
			}
			bridgetest.Contains(t, strings.Join(f.wire(2).received(), "\n"), "resources/subscribe")
			s.End(bridge.ErrEnded)
			synctest.Wait()
		}
	})
}

// Connections of principals that are gone for good are not kept in mind without
// limit.
func TestShareForgetsPrincipals(t *testing.T) {
	run(t, ServerOptions{Adapter: &fake{}, ServerSettings: ServerSettings{Share: SharePrincipal, MaxChildren: 4}}, func(t *testing.T, g *gateway) {
		stays, _ := begin(t, g, "stays")
		for i := range 20 {
			s, _ := begin(t, g, fmt.Sprint(i))
			s.End(bridge.ErrEnded)
			time.Sleep(time.Hour)
			stays.Seen()
		}
		bridgetest.Contains(t, do(t, stays, "1", "tools/list", `{}`), `"result"`)
	})
}
