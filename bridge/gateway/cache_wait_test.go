package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/guard/retry"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// A server that takes a little longer for its list than those wait who ask over
// other connections is not asked once for each of them.
func TestCacheSlowServer(t *testing.T) {
	l := newLister()
	l.after = 3 * time.Second
	run(t, ServerOptions{Adapter: l}, func(t *testing.T, b *Gateway) {
		var wg sync.WaitGroup
		began := time.Now()
		for i := range 100 {
			s, _ := begin(t, b, "")
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"t`)
			})
		}
		wg.Wait()
		if n, took := l.times(), time.Since(began); n > 2 || took > 2*l.after {
			t.Errorf("it was asked %d times, which took %v", n, took)
		}
	})
}

// Whatever becomes of the connections of others, who has one that works gets the
// list.
func TestCacheAllOthersHang(t *testing.T) {
	for _, gone := range []bool{true, false} {
		t.Run(fmt.Sprint(gone), func(t *testing.T) {
			const others = 6
			l := newLister()
			serve := l.serve
			l.serve = func(w *fakeWire, m *jsonrpc.Message) bool {
				return w.n <= others && m.Method == "tools/list" || serve(w, m)
			}
			run(t, ServerOptions{Adapter: l}, func(t *testing.T, b *Gateway) {
				var bad []*Session
				var lost []*pendingCall
				for range others {
					s, _ := begin(t, b, "")
					bad = append(bad, s)
				}
				good, _ := begin(t, b, "")
				for _, s := range bad {
					lost = append(lost, start(t, s, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
					time.Sleep(time.Millisecond)
				}
				c := start(t, good, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
				synctest.Wait()
				if gone {
					for i, s := range bad {
						if n := len(requestsOf(l.wire(i+1).received(), "tools/list")); n > 0 { // it is waited for
							s.End(bridge.ErrEnded)
						}
					}
				}
				time.Sleep(maxTries * joinPatience)
				if !c.over() {
					t.Error("it waits still")
				}
				for _, s := range bad {
					s.End(bridge.ErrEnded)
				}
				<-c.done
				bridgetest.Contains(t, c.answer, `"t1"`)
				for _, c := range lost {
					<-c.done
				}
			})
		})
	}
}

// An answer that was long in coming does not take the place of a newer one.
func TestCacheOldAnswer(t *testing.T) {
	f := &fake{serve: func(w *fakeWire, m *jsonrpc.Message) bool {
		switch {
		case m.Method != "tools/list":
			return false
		case w.n == 1:
			time.AfterFunc(5*time.Second, func() { w.answer(m, toolList("old")) })
		default:
			w.answer(m, toolList("new"))
		}
		return true
	}}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, b *Gateway) {
		one, _ := begin(t, b, "")
		two, _ := begin(t, b, "")
		first := start(t, one, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		synctest.Wait()
		bridgetest.Contains(t, do(t, two, "1", "tools/list", `{}`), `"new"`)
		<-first.done
		bridgetest.Contains(t, do(t, two, "1", "tools/list", `{}`), `"new"`)
	})
}

// A connection that is closed and cannot be opened again, or must not, is no
// reason to have no list.
func TestCacheClosedAndFailing(t *testing.T) {
	for _, v := range []visitor{{}, {meta: `,"io.modelcontextprotocol/logLevel":"debug"`}} {
		l := newLister()
		dead := false
		l.before = func(context.Context, int) error {
			if dead {
				return &bridge.Error{Server: "fake", Kind: bridge.ErrUnavailable, Public: "it does not start"}
			}
			return nil
		}
		run(t, ServerOptions{Adapter: l, Breaker: breaker.Options{Failures: 1}}, func(t *testing.T, b *Gateway) {
			list := func(v visitor) { t.Helper(); bridgetest.Contains(t, v.call(t, b, "tools/list", ""), `"t1"`) }
			list(v)
			time.Sleep(25 * time.Minute)
			if n := b.lanes.Open(); n != 0 {
				t.Fatalf("%d connections are open", n)
			}
			dead = true
			list(v)
			list(v)
			other := v
			other.meta += `,"dev.mcp-bridge/lane":"another"`
			if st := b.Status()[0].Breaker; st != "open" {
				t.Errorf("the breaker is %s", st)
			}
			list(other) // of which none was ever open
			bridgetest.Contains(t, v.call(t, b, "tools/call", `"name":"t1"`), `"error"`)
			bridgetest.Contains(t, v.call(t, b, "tools/list", `"cursor":"c"`), `"error"`)
		})
	}
}

// A cursor is for the connection that gave it: a legacy server may know it in one
// session, or process, only (A4).
func TestCacheCursorsAreNotShared(t *testing.T) {
	for _, share := range []Share{ShareSession, SharePrincipal, ShareAll} {
		asked := 0
		var mu sync.Mutex
		f := &fake{serve: func(w *fakeWire, m *jsonrpc.Message) bool {
			if m.Method != "tools/list" {
				return false
			}
			mu.Lock()
			asked++
			mu.Unlock()
			switch params := string(m.Params); {
			case !strings.Contains(params, `"cursor"`):
				time.AfterFunc(time.Second, func() { w.answer(m, fmt.Sprintf(`{"tools":[{"name":"a"}],"nextCursor":"of%d"}`, w.n)) })
			case strings.Contains(params, fmt.Sprintf(`"of%d"`, w.n)):
				w.answer(m, `{"tools":[{"name":"b"}]}`)
			default:
				w.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"bad cursor"}}`, m.ID))
			}
			return true
		}}
		run(t, ServerOptions{Adapter: f, Share: share}, func(t *testing.T, b *Gateway) {
			var wg sync.WaitGroup
			for i := range 3 {
				s, _ := begin(t, b, "")
				wg.Go(func() {
					for range 5 {
						next := gjson.Get(do(t, s, "1", "tools/list", `{}`), "result.nextCursor").Str
						time.Sleep(time.Duration(3-i) * time.Second) // the last to come is the first to go on
						bridgetest.Contains(t, do(t, s, "1", "tools/list", `{"cursor":`+rawjson.Quote(next)+`}`), `"b"`)
					}
				})
			}
			wg.Wait()
			if n := asked; n > f.open()*2 {
				t.Errorf("%s: asked %d times", share, n)
			}
		})
	}
}

// What a server has against one caller is not another's, also where all see the
// same list.
func TestCacheRefusalsAreNotShared(t *testing.T) {
	f := &fake{serve: func(w *fakeWire, m *jsonrpc.Message) bool {
		if m.Method != "tools/list" {
			return false
		}
		time.AfterFunc(time.Second, func() {
			if w.from.Principal == "alice" {
				w.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"alice has not paid"}}`, m.ID))
			} else {
				w.answer(m, toolList("t"))
			}
		})
		return true
	}}
	run(t, ServerOptions{Adapter: f, Cache: cache.Options{Shared: true}}, func(t *testing.T, b *Gateway) {
		alice, _ := begin(t, b, "alice")
		bob, _ := begin(t, b, "bob")
		first := start(t, alice, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		synctest.Wait()
		bridgetest.Contains(t, do(t, bob, "1", "tools/list", `{}`), `"t"`)
		<-first.done
		bridgetest.Contains(t, first.answer, "alice has not paid")
	})
}

// When a tool's headers are not what its list asked for, the list that clients get
// is asked for anew, also where they say something that is forwarded.
func TestCacheRefreshed(t *testing.T) {
	lists, calls := 0, 0
	f := &statelessFake{mirrors: true, serve: func(w *statelessWire, m *jsonrpc.Message) bool {
		switch m.Method {
		case era.Listen:
			w.acknowledge(m)
		case "tools/list":
			lists++
			w.reply(m, fmt.Sprintf(`{"resultType":"complete","tools":[{"name":"t","title":"%d","inputSchema":{"type":"object"}}],"ttlMs":60000,"cacheScope":"private"}`, lists))
		case "tools/call":
			if calls++; calls == 1 {
				w.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32020,"message":"a header is missing"}}`, m.ID))
			} else {
				w.reply(m, `{"resultType":"complete","content":[]}`)
			}
		}
		return true
	}}
	run(t, ServerOptions{Adapter: f, Forward: []bridge.Forward{{From: "X-Tenant", To: "X-Tenant"}}}, func(t *testing.T, b *Gateway) {
		e := &Envelope{Header: http.Header{"X-Tenant": {"a"}}}
		s, _, err := b.Initialize(context.Background(), "", "refreshed", "", e, bridgetest.Parse(t, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":`+bridgetest.InitializeParams+`}`))
		if err != nil {
			t.Fatal(err)
		}
		call := func(method, params string) string {
			a, _ := s.Call(bridgetest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)), e, nil)
			return bridgetest.Text(a)
		}
		bridgetest.Contains(t, call("tools/list", `{}`), `"title":"1"`)
		time.Sleep(time.Second)
		bridgetest.Contains(t, call("tools/call", `{"name":"t"}`), `"content":[]`)
		bridgetest.Contains(t, call("tools/list", `{}`), `"title":"2"`)
		if lists != 2 {
			t.Errorf("the tools were listed %d times", lists)
		}
	})
}

// Which tools may be called twice is known from a list that another has asked for,
// too.
func TestCacheRetries(t *testing.T) {
	calls := 0
	f := &statelessFake{serve: func(w *statelessWire, m *jsonrpc.Message) bool {
		switch m.Method {
		case "tools/list":
			w.reply(m, `{"resultType":"complete","tools":[{"name":"t","inputSchema":{"type":"object"},"annotations":{"idempotentHint":true}}],"ttlMs":60000,"cacheScope":"public"}`)
		case "tools/call":
			if calls++; calls == 1 {
				w.die()
			} else {
				w.reply(m, `{"resultType":"complete","content":[]}`)
			}
		}
		return true
	}}
	run(t, ServerOptions{Adapter: f, Retry: retry.Options{Tools: true}}, func(t *testing.T, b *Gateway) {
		visitor{principal: "a"}.call(t, b, "tools/list", "")
		visitor{principal: "b"}.call(t, b, "tools/list", "")
		bridgetest.Contains(t, visitor{principal: "b"}.call(t, b, "tools/call", `"name":"t"`), `"content":[]`)
	})
}
