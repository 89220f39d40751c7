package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/filter"
)

// One principal cannot take all connections, of a server or of all, from others:
// unless there are none.
func TestPortions(t *testing.T) {
	for _, test := range []struct {
		name   string
		o      Options
		grants map[string]filter.Grant
		want   int    // sessions of p
		reason string // of the next one
	}{
		{"a server's", Options{Servers: []ServerOptions{{ServerSettings: ServerSettings{MaxChildren: 4}}}}, map[string]filter.Grant{"p": {}, "q": {}}, 3, "one caller has too many connections to it"},
		{"of all servers", Options{MaxLanes: 8, Servers: []ServerOptions{{}}}, map[string]filter.Grant{"p": {}, "q": {}}, 6, "one caller has too many connections to all servers"},
		{"two", Options{Servers: []ServerOptions{{ServerSettings: ServerSettings{MaxChildren: 2}}}}, map[string]filter.Grant{"p": {}, "q": {}}, 1, "one caller has too many connections to it"},
		{"a server that no other may use", Options{Servers: []ServerOptions{{ServerSettings: ServerSettings{MaxChildren: 4}}}}, map[string]filter.Grant{"p": {}, "q": {Servers: []string{"x*"}}}, 4, "it has too many connections"},
		{"nobody else", Options{Servers: []ServerOptions{{ServerSettings: ServerSettings{MaxChildren: 4}}}}, map[string]filter.Grant{"p": {}}, 4, "it has too many connections"},
		{"one place", Options{Servers: []ServerOptions{{ServerSettings: ServerSettings{MaxChildren: 1}}}}, map[string]filter.Grant{"p": {}, "q": {}}, 1, "one caller has too many connections to it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := test.o
				o.Servers[0].Name, o.Servers[0].Adapter = "fake", &fake{}
				o.Grants, o.Log = test.grants, slog.New(slog.DiscardHandler)
				g := newGateway(o)
				var all []*sitting
				for range test.want {
					s, _ := begin(t, g, "p")
					all = append(all, s)
				}
				for range 3 {
					_, a, err := initialize(t, g, "p", bridgetest.InitializeParams)
					if err == nil {
						t.Fatalf("more than %d sessions", test.want)
					}
					bridgetest.Contains(t, a, test.reason, `"bridge":"overloaded"`)
				}
				if test.grants["q"].Covers("fake") && test.name != "one place" && len(test.grants) > 1 {
					if _, a, err := initialize(t, g, "q", bridgetest.InitializeParams); err != nil {
						t.Errorf("another: %s", a)
					}
				}
				all[0].End(bridge.ErrEnded)
				synctest.Wait()
				s, _ := begin(t, g, "p")
				bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"result"`)
				g.Close(context.Background())
				if s := g.table.Load().servers[0]; !s.laneShares.Idle() || !g.laneShares.Idle() || g.lanes.Open()+s.lane.Budget.Open() != 0 {
					t.Errorf("something is left: %d of all, %d of the server", g.lanes.Open(), s.lane.Budget.Open())
				}
			})
		})
	}
}

// Who is added has a share of the connections of each server at once.
func TestPortionsAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: &fake{}, ServerSettings: ServerSettings{MaxChildren: 4}}}, Grants: map[string]filter.Grant{"p": {}}, Log: slog.New(slog.DiscardHandler)})
		defer g.Close(context.Background())
		if err := g.Apply(Change{Names: []string{"fake"}, Settings: &Settings{Grants: map[string]filter.Grant{"p": {}, "q": {}}}}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			begin(t, g, "p")
		}
		if _, a, err := initialize(t, g, "p", bridgetest.InitializeParams); err == nil {
			t.Errorf("one caller has all connections: %s", a)
		}
		if _, a, err := initialize(t, g, "q", bridgetest.InitializeParams); err != nil {
			t.Errorf("who was added: %s", a)
		}
	})
}

// What a principal's clients without sessions do not use makes room for what
// they need, and nothing of others does.
func TestPortionsYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: &fake{}, ServerSettings: ServerSettings{MaxChildren: 4}}}, Grants: map[string]filter.Grant{"p": {}, "q": {}}, Log: slog.New(slog.DiscardHandler)})
		defer g.Close(context.Background())
		call := func(principal string, n int) string {
			return visitor{principal: principal, caps: fmt.Sprintf(`{"extensions":{"x/%d":{}}}`, n)}.call(t, g, "tools/call", `"name":"x"`)
		}
		bridgetest.Contains(t, call("q", 0), `"result"`)
		for n := range 6 {
			bridgetest.Contains(t, call("p", n), `"result"`)
			time.Sleep(time.Second)
		}
		if of := g.table.Load().servers[0].laneShares; of.Has("p") != 3 || of.Has("q") != 1 {
			t.Errorf("connections: %d and %d", of.Has("p"), of.Has("q"))
		}
	})
}
