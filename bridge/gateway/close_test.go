package gateway

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
)

// A client that goes during initialize is no fault of the server's.
func TestLaneClosedWhileOpening(t *testing.T) {
	f := &fake{serve: silent("initialize")}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s, _, err := g.initialize(ctx, bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+bridgetest.InitializeParams+`}`), SessionOptions{Server: "fake", ID: "x"})
		if s != nil || err == nil {
			t.Errorf("Initialize = %v, %v", s, err)
		}
		synctest.Wait()
		if st := g.Status()[0]; !st.Usable || st.Lanes != 0 || st.Sessions != 0 {
			t.Errorf("Status = %+v", st)
		}
	})
}

// The end of Close's context cuts the polite part short, also of sessions that
// had ended before.
func TestLaneCloseHurries(t *testing.T) {
	polite := func(ctx context.Context, _ *fakeWire) {
		select {
		case <-ctx.Done():
		case <-time.After(time.Hour):
		}
	}
	for _, share := range []Share{ShareSession, SharePrincipal, ShareCall} {
		t.Run(string(share), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: &fake{closes: polite}, ServerSettings: ServerSettings{Share: share}}}})
				s, _ := begin(t, g, "")
				begin(t, g, "")
				s.End(bridge.ErrEnded)
				synctest.Wait()
				at := time.Now()
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				g.Close(ctx)
				if took := time.Since(at); took != time.Second {
					t.Errorf("Close took %v, want 1s", took)
				}
			})
		})
	}
}

// Close returns although a connection does not close.
func TestCloseGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: &fake{closes: func(context.Context, *fakeWire) { <-free }}}}})
		begin(t, g, "")
		at := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		g.Close(ctx)
		if took := time.Since(at); took != time.Second+lastWait {
			t.Errorf("Close took %v, want %v", took, time.Second+lastWait)
		}
		close(free)
	})
}
