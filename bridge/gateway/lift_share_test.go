package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
)

// Sessions that share a connection have subscriptions of their own over it; with
// a connection for each call there are none.
func TestListenShared(t *testing.T) {
	for _, share := range []Share{SharePrincipal, ShareAll} {
		t.Run(string(share), func(t *testing.T) {
			f := &statelessFake{serve: completely("{}")}
			run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: share}}, func(t *testing.T, g *gateway) {
				s, st, _ := beginAs(t, g, able("2025-11-25"))
				other, others, _ := beginAs(t, g, able("2025-11-25"))
				bridgetest.Contains(t, do(t, s, "1", "resources/subscribe", `{"uri":"x:a"}`), `"result":{}`)
				if f.opened() != 1 {
					t.Fatalf("%d connections", f.opened())
				}
				same(t, "filters", f.wire(1).filters(), []string{`{` + bothLists + `}`, `{` + bothLists + `}`, `{` + bothLists + `,"resourceSubscriptions":["x:a"]}`})
				mine := f.wire(1).received(era.Listen)[2]
				f.wire(1).tell(mine.ID, "notifications/resources/updated", "x:a")
				if got := st.take(); len(got) != 1 {
					t.Errorf("the client got %q", got)
				}
				if got := others.take(); len(got) != 0 {
					t.Errorf("the other client got %q", got)
				}
				f.wire(1).die()
				time.Sleep(time.Minute)
				if got := st.take(); len(got) != 3 {
					t.Errorf("the client got %q", got)
				}
				if got := others.take(); len(got) != 2 {
					t.Errorf("the other client got %q", got)
				}
				open := len(f.wire(2).filters())
				other.End(bridge.ErrEnded)
				if got := f.wire(2).cancelled(); open != 2 || len(got) != 1 {
					t.Errorf("%d subscriptions, %q ended", open, got)
				}
			})
		})
	}
	t.Run("call", func(t *testing.T) {
		f := &statelessFake{serve: completely("{}")}
		run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: ShareCall}}, func(t *testing.T, g *gateway) {
			s, _, a := beginAs(t, g, able("2025-11-25"))
			bridgetest.Lacks(t, a, "listChanged", `"subscribe"`)
			bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"result":{}`)
			bridgetest.Contains(t, do(t, s, "2", "resources/subscribe", `{"uri":"x:a"}`), "-32601")
			for i := range f.opened() {
				if got := f.wire(i + 1).filters(); len(got) > 0 {
					t.Errorf("it was asked for %q", got)
				}
			}
		})
	})
}

// Of several servers that are offered as one, a modern one is listened to from
// the first call that goes there, whoever has opened the connection.
func TestListenMerged(t *testing.T) {
	for _, share := range []Share{ShareSession, SharePrincipal} {
		synctest.Test(t, func(t *testing.T) {
			f, old := &statelessFake{serve: completely(`{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}`)}, &fake{}
			g := newGateway(Options{Servers: []ServerOptions{{Name: "new", Adapter: f, ServerSettings: ServerSettings{Share: share}}, {Name: "old", Adapter: old}}, Log: slog.New(slog.DiscardHandler)})
			defer g.Close(context.Background())
			for i := range 2 { // the second session is told what is known
				s, m, err := g.initialize(context.Background(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":`+able("2025-11-25")+`}`), SessionOptions{ID: fmt.Sprint("id", sessions.Add(1))})
				if err != nil {
					t.Fatal(err)
				}
				bridgetest.Contains(t, bridgetest.Text(m), `be kind`, `"logging"`)
				st := &stream{}
				s.Attach(st)
				bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"name":"t"`)
				w := f.wire(f.opened())
				open := w.received(era.Listen)
				if want := map[Share]int{ShareSession: 1, SharePrincipal: i + 1}[share]; len(open) != want {
					t.Fatalf("%d subscriptions, want %d", len(open), want)
				}
				w.tell(open[len(open)-1].ID, "notifications/tools/list_changed", "")
				same(t, "the client", st.take(), []string{`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}`})
				if i == 1 {
					break
				}
				s.End(bridge.ErrEnded)
				synctest.Wait()
			}
		})
	}
}

// Subscribing, ending that, cancelling, losing the connection and leaving, all
// at once: nobody waits for ever, and nothing is left.
func TestListenRace(t *testing.T) {
	for round := range 20 {
		f := &statelessFake{serve: completely("{}")}
		run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: []Share{ShareSession, SharePrincipal}[round%2]}}, func(t *testing.T, g *gateway) {
			s, _, _ := beginAs(t, g, able("2025-11-25"))
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					for k := range 6 {
						uri := fmt.Sprintf(`{"uri":"x:%d"}`, (i+k)%5)
						time.Sleep(time.Duration((i*7+k*13)%60) * time.Millisecond)
						id := fmt.Sprint(i*100 + k)
						switch (i + k) % 4 {
						case 0:
							s.Notify(parseRaw(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+fmt.Sprint(((i+1)%8)*100+k)+`}}`), nil)
						case 1:
							_, _ = s.Call(parseRaw(`{"jsonrpc":"2.0","id":`+id+`,"method":"resources/unsubscribe","params":`+uri+`}`), nil, nil)
						default:
							_, _ = s.Call(parseRaw(`{"jsonrpc":"2.0","id":`+id+`,"method":"resources/subscribe","params":`+uri+`}`), nil, nil)
						}
					}
				})
			}
			if round%3 == 0 {
				wg.Go(func() {
					time.Sleep(70 * time.Millisecond)
					f.wire1(t).die()
				})
			}
			if round%3 == 1 {
				wg.Go(func() {
					time.Sleep(90 * time.Millisecond)
					s.End(bridge.ErrEnded)
				})
			}
			wg.Wait()
		})
	}
}
