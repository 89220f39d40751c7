package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/guard/retry"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// A server may change its mind about whom its list is for. What was kept for one
// caller does not keep it from what is everybody's now.
func TestCacheBecomesPublic(t *testing.T) {
	for _, before := range []string{`"ttlMs":0,"cacheScope":"private"`, `"ttlMs":1000,"cacheScope":"private"`} {
		asked := 0
		f := &statelessFake{serve: func(w *statelessWire, m *jsonrpc.Message) bool {
			if m.Method == "tools/list" {
				terms := before
				if asked++; asked > 1 {
					terms = `"ttlMs":60000,"cacheScope":"public"`
				}
				w.reply(m, fmt.Sprintf(`{"resultType":"complete","tools":[{"name":"t%d"}],%s}`, asked, terms))
			}
			return true
		}}
		run(t, ServerOptions{Adapter: f}, func(t *testing.T, b *Gateway) {
			bridgetest.Contains(t, visitor{}.call(t, b, "tools/list", ""), `"t1"`)
			time.Sleep(20 * time.Second)
			for range 3 {
				bridgetest.Contains(t, visitor{}.call(t, b, "tools/list", ""), `"t2"`)
			}
		})
	}
}

// editions is a modern server whose list has two pages, and is another one with
// each edition. With steady cursors the second page has the same one in each.
type editions struct {
	now    int
	steady bool
}

func (s *editions) serve(w *statelessWire, m *jsonrpc.Message) bool {
	if m.Method != "tools/list" {
		return true
	}
	next := fmt.Sprintf(`"c%d"`, s.now)
	if s.steady {
		next = `"2"`
	}
	const terms = `"ttlMs":60000,"cacheScope":"public"`
	switch params := string(m.Params); {
	case !strings.Contains(params, `"cursor"`):
		w.reply(m, fmt.Sprintf(`{"resultType":"complete","tools":[{"name":"a%d"}],"nextCursor":%s,%s}`, s.now, next, terms))
	case strings.Contains(params, next):
		w.reply(m, fmt.Sprintf(`{"resultType":"complete","tools":[{"name":"b%d"}],%s}`, s.now, terms))
	default:
		w.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"bad cursor"}}`, m.ID))
	}
	return true
}

// B13: all pages go with a cursor that is not good any more, also those that
// another caller has asked for.
func TestCachePublicPages(t *testing.T) {
	s := &editions{now: 1}
	a, b := visitor{principal: "a"}, visitor{principal: "b"}
	run(t, ServerOptions{Adapter: &statelessFake{serve: s.serve}}, func(t *testing.T, br *Gateway) {
		a.call(t, br, "tools/list", "")
		s.now = 2
		bridgetest.Contains(t, b.call(t, br, "tools/list", ""), `"a1"`)
		bridgetest.Contains(t, b.call(t, br, "tools/list", `"cursor":"c1"`), "bad cursor")
		bridgetest.Contains(t, b.call(t, br, "tools/list", ""), `"a2"`)
		bridgetest.Contains(t, b.call(t, br, "tools/list", `"cursor":"c2"`), `"b2"`)
	})
	s = &editions{now: 1, steady: true}
	run(t, ServerOptions{Adapter: &statelessFake{serve: s.serve}}, func(t *testing.T, br *Gateway) {
		a.call(t, br, "tools/list", "")
		time.Sleep(50 * time.Second)
		bridgetest.Contains(t, b.call(t, br, "tools/list", `"cursor":"2"`), `"b1"`)
		time.Sleep(15 * time.Second)
		s.now = 2
		bridgetest.Contains(t, a.call(t, br, "tools/list", ""), `"a2"`)
		bridgetest.Contains(t, a.call(t, br, "tools/list", `"cursor":"2"`), `"b2"`)
	})
}

// a server that lists the same for everybody may well have private
// resources. Whose they are is for the server to say.
func TestCacheSharedIsForLists(t *testing.T) {
	f, asked := hinted(`"contents":[{"uri":"a:","text":"%d"}],"ttlMs":60000,"cacheScope":"private"`)
	run(t, ServerOptions{Adapter: f, Cache: cache.Options{Shared: true}}, func(t *testing.T, b *Gateway) {
		for range 2 {
			bridgetest.Contains(t, visitor{principal: "a"}.call(t, b, "resources/read", `"uri":"a:"`), `"text":"1"`)
			bridgetest.Contains(t, visitor{principal: "b"}.call(t, b, "resources/read", `"uri":"a:"`), `"text":"2"`)
		}
		visitor{principal: "a"}.call(t, b, "server/discover", "")
		before := len(f.wire(2).received("server/discover"))
		visitor{principal: "b"}.call(t, b, "server/discover", "")
		if n := len(f.wire(2).received("server/discover")); n != before+1 || asked() != 2 {
			t.Errorf("what the server says of itself to one was told another")
		}
	})
}

// What is stale is said once each time that the server cannot be had, and shown
// until it has answered: also when nothing but resources is asked for.
func TestCacheStaleReadsEnd(t *testing.T) {
	dead := false
	f := &statelessFake{serve: func(w *statelessWire, m *jsonrpc.Message) bool {
		switch {
		case m.Method != "resources/read":
		case dead:
			w.die()
		default:
			w.reply(m, `{"resultType":"complete","contents":[],"ttlMs":1000,"cacheScope":"private"}`)
		}
		return true
	}}
	run(t, ServerOptions{Adapter: f, Retry: retry.Options{Off: true}}, func(t *testing.T, b *Gateway) {
		for _, dead = range []bool{false, true, false, true} {
			bridgetest.Contains(t, visitor{}.call(t, b, "resources/read", `"uri":"a:"`), `"contents":[]`)
			if stale := b.Status()[0].Cache.Stale; stale != dead {
				t.Errorf("the server is dead: %t, and what is given out is stale: %t", dead, stale)
			}
			time.Sleep(time.Minute)
		}
	})
}

// A process that is started for each call does not sleep: a list that is not fresh
// any more is a reason to start one, for clients of both eras.
func TestCacheShareCall(t *testing.T) {
	l := newLister()
	run(t, ServerOptions{Adapter: l, Share: ShareCall, Process: true}, func(t *testing.T, b *Gateway) {
		for i := range 3 {
			bridgetest.Contains(t, visitor{}.call(t, b, "tools/list", ""), fmt.Sprintf(`"t%d"`, 2*i+1))
			s, _ := begin(t, b, "")
			bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), fmt.Sprintf(`"t%d"`, 2*i+2)) // its client can do something else
			time.Sleep(unannouncedFor)
		}
	})
}
