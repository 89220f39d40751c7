package gateway

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// Limits of package cache.
const (
	maxFetch    = 5 * time.Minute
	maxFresh    = 24 * time.Hour
	legacyFresh = 5 * time.Second
)

// lister is a legacy server that counts how often it is asked for a list. The
// list has the number of the answer, and comes after a time.
type lister struct {
	*fake
	after time.Duration
	list  string // empty means one of its own
	fail  string // an error that answers instead

	mu    sync.Mutex // guards what follows
	asked int
}

func newLister() *lister {
	l := &lister{fake: &fake{}}
	l.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if _, ok := list.Of(m.Method); !ok {
			return false
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.asked++
		list := cmp.Or(l.list, fmt.Sprintf(`{"tools":[{"name":"t%d"}],"x":1.0}`, l.asked))
		say := func() { f.answer(m, list) }
		if l.fail != "" {
			no := l.fail
			say = func() { f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":%s}`, m.ID, no)) }
		}
		if l.after == 0 {
			say()
		} else {
			time.AfterFunc(l.after, say)
		}
		return true
	}
	return l
}

func (l *lister) times() int {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked
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
		run(t, ServerOptions{Adapter: l, ServerSettings: ServerSettings{Breaker: breaker.Options{Failures: 1}}}, func(t *testing.T, g *gateway) {
			list := func(v visitor) { t.Helper(); bridgetest.Contains(t, v.call(t, g, "tools/list", ""), `"t1"`) }
			list(v)
			time.Sleep(25 * time.Minute)
			if n := g.lanes.Open(); n != 0 {
				t.Fatalf("%d connections are open", n)
			}
			dead = true
			list(v)
			list(v)
			other := v
			other.meta += `,"dev.mcp-bridge/lane":"another"`
			if st := g.Status()[0].Breaker; st != "open" {
				t.Errorf("the breaker is %s", st)
			}
			list(other) // of which none was ever open
			bridgetest.Contains(t, v.call(t, g, "tools/call", `"name":"t1"`), `"error"`)
			bridgetest.Contains(t, v.call(t, g, "tools/list", `"cursor":"c"`), `"error"`)
		})
	}
}

// A child process that was stopped for idleness is not started for a list.
func TestCacheUnheardAsleep(t *testing.T) {
	l := newLister()
	run(t, ServerOptions{Adapter: l, Idle: 10 * time.Second, Process: true}, func(t *testing.T, g *gateway) {
		v := visitor{}
		bridgetest.Contains(t, v.call(t, g, "tools/list", ""), `"t1"`)
		time.Sleep(time.Minute)
		bridgetest.Contains(t, v.call(t, g, "tools/list", ""), `"t1"`)
		if n := l.opened(); n != 1 {
			t.Errorf("%d processes were started", n)
		}
		v.call(t, g, "tools/call", `"name":"x"`) // now it runs, and may have changed while nobody listened
		bridgetest.Contains(t, v.call(t, g, "tools/list", ""), `"t2"`)
	})
}

// knowing is a server whose adapter says by itself what has changed.
type knowing struct {
	*lister
	changed func(string)
	stopped bool
}

func (k *knowing) AnnounceChanges(changed func(string)) func() {
	k.changed = changed
	return func() { k.stopped = true }
}

// The next list shows a change that the adapter itself announces, also when nobody is
// connected.
func TestCacheAnnounced(t *testing.T) {
	for _, share := range []Share{ShareSession, ShareCall} {
		k := &knowing{lister: newLister()}
		synctest.Test(t, func(t *testing.T) {
			g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: k, Idle: 10 * time.Second, ServerSettings: ServerSettings{Share: share, Cache: cache.Options{Lists: time.Minute}}}}, Log: slog.New(slog.DiscardHandler)})
			v := visitor{}
			bridgetest.Contains(t, v.call(t, g, "tools/list", ""), `"t1"`)
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if n := g.lanes.Open(); n != 0 {
				t.Fatalf("%d connections are open", n)
			}
			bridgetest.Contains(t, v.call(t, g, "tools/list", ""), `"t1"`)
			k.changed("notifications/resources/list_changed")
			bridgetest.Contains(t, v.call(t, g, "tools/list", ""), `"t1"`)
			k.changed("notifications/tools/list_changed")
			bridgetest.Contains(t, v.call(t, g, "tools/list", ""), `"t2"`)

			s, _ := begin(t, g, "")
			if share == ShareSession { // a list that is a sleeping connection's own is dropped, too
				k.wire(k.open()).say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
				synctest.Wait()
				bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"t3"`)
				time.Sleep(20 * time.Second)
				bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"t3"`)
				k.changed("notifications/tools/list_changed")
				bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"t4"`)
			}
			g.Close(context.Background())
			if !k.stopped {
				t.Error("the adapter was not told that nobody wants to know any more")
			}
		})
	}
}

// Wrong arguments are a reason to ask anew what a tool wants, but not for each
// call; and what is given out again is looked at once.
func TestCacheValidated(t *testing.T) {
	l := newLister()
	l.list = `{"tools":[{"name":"t","inputSchema":{"type":"object","required":["a"]}}]}`
	run(t, ServerOptions{Adapter: l, ServerSettings: ServerSettings{Validate: true}}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		for range 50 {
			bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"t","arguments":{}}`), `"isError":true`)
		}
		if n := l.times(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		do(t, s, "1", "tools/list", `{}`)
		time.Sleep(2 * time.Second)
		l.list = `{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}`
		bridgetest.Lacks(t, do(t, s, "1", "tools/call", `{"name":"t","arguments":{}}`), `"isError"`)
		l.list = `{"tools":[{"name":"t","inputSchema":{"type":"object","required":["b"]}}]}`
		l.wire(1).say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		synctest.Wait()
		do(t, s, "1", "tools/list", `{}`)
		bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"t","arguments":{}}`), `b: is missing`)
		if n := l.times(); n != 3 {
			t.Errorf("asked %d times", n)
		}
	})
}
