package gateway

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
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
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/scaletest"
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

// hinted makes a modern server that answers tools/list with these members, and
// counts how often. %d in them is the number of the answer.
func hinted(members string) (*statelessFake, func() int) {
	var mu sync.Mutex
	asked := 0
	s := &statelessFake{serve: func(s *statelessWire, m *jsonrpc.Message) bool {
		switch m.Method {
		case era.Listen:
			s.acknowledge(m)
		case "tools/list", "resources/read":
			mu.Lock()
			asked++
			s.reply(m, `{"resultType":"complete",`+strings.ReplaceAll(members, "%d", fmt.Sprint(asked))+`}`)
			mu.Unlock()
		default:
			s.reply(m, `{"resultType":"complete"}`)
		}
		return true
	}}
	return s, func() int {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return asked
	}
}

// However many clients list at once, and however they share the server's
// connections, it is asked once.
func TestCacheOneFetchForAll(t *testing.T) {
	clients := scaletest.Of(200, 1000)
	for _, share := range []Share{ShareSession, SharePrincipal, ShareAll, ShareCall} {
		l := newLister()
		l.after = time.Second
		run(t, ServerOptions{Adapter: l, ServerSettings: ServerSettings{Share: share, MaxChildren: clients + 1}}, func(t *testing.T, g *gateway) {
			var wg sync.WaitGroup
			for range clients {
				s, _ := begin(t, g, "")
				wg.Go(func() {
					if a := do(t, s, `"mine"`, "tools/list", `{}`); a != `{"jsonrpc":"2.0","id":"mine","result":{"tools":[{"name":"t1"}],"x":1.0}}` {
						t.Errorf("got %s", a)
					}
				})
			}
			wg.Wait()
			if n, st := l.times(), g.Status()[0].Cache; n != 1 || st.Joined != uint64(clients-1) || st.Misses != 1 {
				t.Errorf("%s: the server was asked %d times; %+v", share, n, st)
			}
		})
	}
	modern, asked := hinted(`"tools":[{"name":"t%d"}],"ttlMs":1000,"cacheScope":"private"`)
	run(t, ServerOptions{Adapter: modern}, func(t *testing.T, g *gateway) {
		var all []*visiting
		for i := range clients {
			all = append(all, visitor{}.ask(t, g, fmt.Sprint(i), "tools/list", ""))
		}
		for i, v := range all {
			<-v.done
			bridgetest.Contains(t, v.answer, fmt.Sprintf(`"id":%d,`, i), `"name":"t1"`, `"ttlMs":1000`)
		}
		if n := asked(); n != 1 {
			t.Errorf("the modern server was asked %d times", n)
		}
	})
}

// A resource is kept as the modern server says, and until it says that it has
// changed. A legacy server's is not.
func TestCacheRead(t *testing.T) {
	f, asked := hinted(`"contents":[{"uri":"a:","text":"%d"}],"ttlMs":60000,"cacheScope":"private"`)
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		ear := visitor{}.ask(t, g, "9", era.Listen, `"notifications":{"resourceSubscriptions":["a:"]}`)
		read := func() string { return visitor{}.call(t, g, "resources/read", `"uri":"a:"`) }
		bridgetest.Contains(t, read(), `"text":"1"`)
		bridgetest.Contains(t, read(), `"text":"1"`)
		s := f.wire(1)
		s.tell(s.received(era.Listen)[0].ID, "notifications/resources/updated", "b:")
		ear.take()
		bridgetest.Contains(t, read(), `"text":"1"`)
		s.tell(s.received(era.Listen)[0].ID, "notifications/resources/updated", "a:/part")
		bridgetest.Contains(t, strings.Join(ear.take(), ""), "a:/part")
		bridgetest.Contains(t, read(), `"text":"2"`)
		if n := asked(); n != 2 {
			t.Errorf("asked %d times", n)
		}
		ear.cancel(bridge.ErrCancelled)
		<-ear.done
	})
	l := &fake{}
	run(t, ServerOptions{Adapter: l}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		for range 3 {
			do(t, s, "1", "resources/read", `{"uri":"a:"}`)
		}
		if n := len(requestsOf(l.wire(1).received(), "resources/read")); n != 3 {
			t.Errorf("read %d times", n)
		}
	})
}

// A connection that is asleep is not opened for a list; one that is lost is,
// and meanwhile what is kept is given out, for as long as the settings allow.
func TestCacheStale(t *testing.T) {
	l := newLister()
	run(t, ServerOptions{Adapter: l, ServerSettings: ServerSettings{Share: ShareAll, Cache: cache.Options{Stale: 30 * time.Minute}}, Process: true}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		v := visitor{}
		do(t, s, "1", "tools/list", `{}`)
		bridgetest.Contains(t, v.call(t, g, "tools/list", ""), `"t`)
		opened, asked := l.opened(), l.times()
		time.Sleep(25 * time.Minute) // the idle time is ten
		if n := g.lanes.Open(); n != 0 {
			t.Fatalf("%d connections are open", n)
		}
		bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"t`)
		bridgetest.Contains(t, v.call(t, g, "tools/list", ""), `"t`, `"ttlMs":0`)
		bridgetest.Contains(t, visitor{meta: `,"io.modelcontextprotocol/logLevel":"debug"`}.call(t, g, "tools/list", ""), `"t`)
		if l.opened() != opened || l.times() != asked {
			t.Errorf("the server was started, or asked, for a list")
		}
		if st := g.Status()[0]; !st.Cache.Stale || st.Cache.Served != 3 || st.Cache.Entries == 0 || st.Cache.Oldest < 25*time.Minute || st.Lanes != 0 {
			t.Errorf("the status is %+v", st)
		}
		time.Sleep(6 * time.Minute)
		do(t, s, "1", "tools/list", `{}`)
		if l.opened() == opened {
			t.Error("what is too old was given out")
		}
		if st := g.Status()[0]; st.Cache.Stale {
			t.Errorf("the status is %+v", st)
		}
	})
}

// While the server cannot be had its list can. That is said once; what it does
// not do is an error.
func TestCacheServerFails(t *testing.T) {
	l := newLister()
	var dead bool
	l.before = func(context.Context, int) error {
		if dead {
			return &bridge.Error{Server: "fake", Kind: bridge.ErrUnavailable, Public: "it does not start"}
		}
		return nil
	}
	log := &syncBuffer{}
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: l}}, Log: slog.New(slog.NewTextHandler(log, nil))})
		defer g.Close(context.Background())
		s, st := begin(t, g, "")
		do(t, s, "1", "tools/list", `{}`)
		dead = true
		l.wire(1).die()
		synctest.Wait()
		time.Sleep(2 * time.Minute)
		for range 3 {
			bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"t1"`)
			time.Sleep(time.Second)
		}
		bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"t1"}`), `"error"`)
		bridgetest.Contains(t, do(t, s, "1", "tools/list", `{"cursor":"c"}`), `"error"`) // there is none
		if n := strings.Count(log.String(), "serving an old list"); n != 1 {
			t.Errorf("it was said %d times", n)
		}
		dead = false
		time.Sleep(time.Minute)
		bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"t1"`) // and the server is tried
		time.Sleep(time.Second)
		bridgetest.Contains(t, strings.Join(st.take(), ""), "tools/list_changed")
		bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"t3"`) // what was asked before that was told is not kept
		if g.Status()[0].Cache.Stale {
			t.Error("it is stale still")
		}
		dead = true
		l.wire(2).die()
		synctest.Wait()
		time.Sleep(2 * time.Hour)
		bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"error"`)
	})
}

// syncBuffer is a log.
type syncBuffer struct {
	mu sync.Mutex // guards b
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// A process that is started for each call does not sleep: a list that is not fresh
// any more is a reason to start one, for clients of both eras.
func TestCacheShareCall(t *testing.T) {
	l := newLister()
	run(t, ServerOptions{Adapter: l, ServerSettings: ServerSettings{Share: ShareCall}, Process: true}, func(t *testing.T, g *gateway) {
		for i := range 3 {
			bridgetest.Contains(t, visitor{}.call(t, g, "tools/list", ""), fmt.Sprintf(`"t%d"`, 2*i+1))
			s, _ := begin(t, g, "")
			bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), fmt.Sprintf(`"t%d"`, 2*i+2)) // its client can do something else
			time.Sleep(legacyFresh)
		}
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

// A cursor is for the connection that gave it: a legacy server may know it in one
// session, or process, only (A4).
func TestCacheCursorsAreNotShared(t *testing.T) {
	for _, share := range []Share{ShareSession, SharePrincipal, ShareAll} {
		asked := 0
		var mu sync.Mutex
		f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
			if m.Method != "tools/list" {
				return false
			}
			mu.Lock()
			asked++
			mu.Unlock()
			switch params := string(m.Params); {
			case !strings.Contains(params, `"cursor"`):
				time.AfterFunc(time.Second, func() { f.answer(m, fmt.Sprintf(`{"tools":[{"name":"a"}],"nextCursor":"of%d"}`, f.n)) })
			case strings.Contains(params, fmt.Sprintf(`"of%d"`, f.n)):
				f.answer(m, `{"tools":[{"name":"b"}]}`)
			default:
				f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"bad cursor"}}`, m.ID))
			}
			return true
		}}
		run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: share, Cache: cache.Options{Lists: time.Minute}}}, func(t *testing.T, g *gateway) {
			var wg sync.WaitGroup
			for i := range 3 {
				s, _ := begin(t, g, "")
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
