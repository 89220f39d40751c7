package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// What package cache promises.
const (
	maxFetch       = 5 * time.Minute
	maxFresh       = 24 * time.Hour
	unannouncedFor = 5 * time.Second
	joinPatience   = 2 * time.Second
	maxTries       = 3
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
	l.serve = func(w *fakeWire, m *jsonrpc.Message) bool {
		if _, ok := list.Of(m.Method); !ok {
			return false
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.asked++
		list := cmp.Or(l.list, fmt.Sprintf(`{"tools":[{"name":"t%d"}],"x":1.0}`, l.asked))
		say := func() { w.answer(m, list) }
		if l.fail != "" {
			no := l.fail
			say = func() { w.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":%s}`, m.ID, no)) }
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
	f := &statelessFake{serve: func(w *statelessWire, m *jsonrpc.Message) bool {
		switch m.Method {
		case era.Listen:
			w.acknowledge(m)
		case "tools/list", "resources/read":
			mu.Lock()
			asked++
			w.reply(m, `{"resultType":"complete",`+strings.ReplaceAll(members, "%d", fmt.Sprint(asked))+`}`)
			mu.Unlock()
		default:
			w.reply(m, `{"resultType":"complete"}`)
		}
		return true
	}}
	return f, func() int {
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
		run(t, ServerOptions{Adapter: l, Share: share, MaxLanes: clients + 1}, func(t *testing.T, b *Gateway) {
			var wg sync.WaitGroup
			for range clients {
				s, _ := begin(t, b, "")
				wg.Go(func() {
					if a := do(t, s, `"mine"`, "tools/list", `{}`); a != `{"jsonrpc":"2.0","id":"mine","result":{"tools":[{"name":"t1"}],"x":1.0}}` {
						t.Errorf("got %s", a)
					}
				})
			}
			wg.Wait()
			if n, st := l.times(), b.Status()[0].Cache; n != 1 || st.Joined != uint64(clients-1) || st.Misses != 1 {
				t.Errorf("%s: the server was asked %d times; %+v", share, n, st)
			}
		})
	}
	modern, asked := hinted(`"tools":[{"name":"t%d"}],"ttlMs":1000,"cacheScope":"private"`)
	run(t, ServerOptions{Adapter: modern}, func(t *testing.T, b *Gateway) {
		var all []*visiting
		for i := range clients {
			all = append(all, visitor{}.ask(t, b, fmt.Sprint(i), "tools/list", ""))
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

// For how long a legacy server's list is kept is for the configuration to say,
// and depends on whether changes are announced.
func TestCacheLegacyTime(t *testing.T) {
	silent := strings.Replace(everything, `"tools":{"listChanged":true}`, `"tools":{}`, 1)
	for _, test := range []struct {
		result string
		lists  time.Duration
		share  Share
		want   time.Duration
	}{
		{everything, 0, "", time.Minute},
		{silent, 0, "", 5 * time.Second},
		{everything, 0, ShareCall, 5 * time.Second}, // nobody is there to hear of changes
		{silent, 10 * time.Minute, "", 10 * time.Minute},
		{everything, time.Second, "", time.Second},
		{everything, 48 * time.Hour, "", 24 * time.Hour},
	} {
		l := newLister()
		l.result = test.result
		run(t, ServerOptions{Adapter: l, Share: test.share, Cache: cache.Options{Lists: test.lists}}, func(t *testing.T, b *Gateway) {
			v := visitor{}
			v.call(t, b, "tools/list", "")
			time.Sleep(test.want - time.Millisecond)
			v.call(t, b, "tools/list", "")
			if n := l.times(); n != 1 {
				t.Errorf("%+v: asked %d times", test, n)
			}
			time.Sleep(time.Millisecond)
			bridgetest.Contains(t, v.call(t, b, "tools/list", ""), `"t2"`, `"ttlMs":0,"cacheScope":"private"`)
		})
	}
}

// B13: a client is told for how long what it gets still holds. What the server
// says of it that makes no sense counts for nothing.
func TestCacheTTL(t *testing.T) {
	for _, test := range []struct {
		ttl  string
		kept time.Duration
	}{
		{`"ttlMs":60000`, time.Minute},
		{`"ttlMs":31536000000000`, 24 * time.Hour},
		{`"ttlMs":0`, 0},
		{`"ttlMs":-60000`, 0},
		{`"ttlMs":6e4`, 0},
		{`"ttlMs":"60000"`, 0},
		{`"ttlMs":99999999999999999999`, 0},
		{`"ttlMs":60000,"ttlMs":60000`, 0},
		{`"no":1`, 0},
	} {
		f, asked := hinted(`"tools":[{"name":"t%d"}],` + test.ttl + `,"cacheScope":"private"`)
		run(t, ServerOptions{Adapter: f}, func(t *testing.T, b *Gateway) {
			visitor{}.call(t, b, "tools/list", "")
			if test.kept == 0 {
				bridgetest.Contains(t, visitor{}.call(t, b, "tools/list", ""), `"t2"`)
				return
			}
			time.Sleep(test.kept - 5*time.Second)
			bridgetest.Contains(t, visitor{}.call(t, b, "tools/list", ""), `"t1"`, `"ttlMs":5000,"cacheScope":"private"`)
			time.Sleep(5 * time.Second)
			bridgetest.Contains(t, visitor{}.call(t, b, "tools/list", ""), `"t2"`)
			if n := asked(); n != 2 {
				t.Errorf("%s: asked %d times", test.ttl, n)
			}
		})
	}
}

// Clients of both eras are given kept lists, each as it understands them. What
// they can do may make a difference to the server.
func TestCacheEras(t *testing.T) {
	f, asked := hinted(`"tools":[{"name":"t%d","inputSchema":{"type":"object"}}],"ttlMs":60000,"cacheScope":"public","x":1e400`)
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, b *Gateway) {
		s, _, _ := beginAs(t, b, able("2025-11-25"))
		for range 3 {
			if a := do(t, s, "1", "tools/list", `{}`); a != `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"t1","inputSchema":{"type":"object"}}],"x":1e400}}` {
				t.Errorf("got %s", a)
			}
			if a := (visitor{}).call(t, b, "tools/list", ""); a != `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","tools":[{"name":"t2","inputSchema":{"type":"object"}}],"ttlMs":60000,"cacheScope":"public","x":1e400}}` {
				t.Errorf("got %s", a)
			}
		}
		if n := asked(); n != 2 {
			t.Errorf("asked %d times", n)
		}
	})
}

// what is private, and what says nothing, is for one principal and one set
// of forwarded headers only. What is public, or the server's is said to be the
// same for all, is for everybody.
func TestCachePrincipals(t *testing.T) {
	for _, test := range []struct {
		name, scope string
		shared      bool
		asked       int
	}{
		{"private", `,"cacheScope":"private"`, false, 2},
		{"silent", ``, false, 2},
		{"public", `,"cacheScope":"public"`, false, 1},
		{"shared", `,"cacheScope":"private"`, true, 1},
	} {
		f, asked := hinted(`"tools":[{"name":"t%d"}],"ttlMs":60000` + test.scope)
		run(t, ServerOptions{Adapter: f, Cache: cache.Options{Shared: test.shared}}, func(t *testing.T, b *Gateway) {
			for range 2 {
				visitor{principal: "a"}.call(t, b, "tools/list", "")
				got := visitor{principal: "b"}.call(t, b, "tools/list", "")
				bridgetest.Contains(t, got, fmt.Sprintf(`"t%d"`, test.asked))
			}
			if n := asked(); n != test.asked {
				t.Errorf("%s: asked %d times, want %d", test.name, n, test.asked)
			}
		})
	}
	for _, shared := range []bool{false, true} {
		l := newLister()
		run(t, ServerOptions{Adapter: l, Share: ShareAll, Cache: cache.Options{Shared: shared}}, func(t *testing.T, b *Gateway) {
			one, _ := begin(t, b, "a")
			two, _ := begin(t, b, "b")
			do(t, one, "1", "tools/list", `{}`)
			do(t, two, "1", "tools/list", `{}`)
			if n := l.times(); n != 1 && shared || n != 2 && !shared {
				t.Errorf("shared %t: asked %d times", shared, n)
			}
		})
	}
}

// What a request says of its own goes to the server, and its answer to nobody
// else. What says how it is to be answered only, does not matter.
func TestCacheOwnWords(t *testing.T) {
	l := newLister()
	run(t, ServerOptions{Adapter: l}, func(t *testing.T, b *Gateway) {
		s, _ := begin(t, b, "")
		do(t, s, "1", "tools/list", `{}`)
		for i, test := range []struct {
			params string
			own    bool
		}{
			{`{"_meta":{"progressToken":1}}`, false},
			{`{ }`, false},
			{`{"_meta":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}`, false},
			{`{"_meta":{}}`, false},
			{`{"_meta":{"com.example/tenant":"a"}}`, true},
			{`{"cursor":"2"}`, true},
			{`{"requestState":"s"}`, true},
			{`{"inputResponses":{}}`, true},
			{`{"x":1}`, true},
		} {
			before := l.times()
			do(t, s, "1", "tools/list", test.params)
			if own := l.times() > before; own != test.own {
				t.Errorf("%d: %s was asked of the server: %t", i, test.params, own)
			}
		}
		bridgetest.Contains(t, strings.Join(l.wire(1).received(), "\n"), `"com.example/tenant":"a"`, `"cursor":"2"`)
	})
}

// an exchange is nobody else's.
func TestCacheExchange(t *testing.T) {
	f, asked := hinted(`"tools":[{"name":"t%d"}],"ttlMs":60000,"cacheScope":"public"`)
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, b *Gateway) {
		for range 2 {
			visitor{}.call(t, b, "resources/read", `"uri":"a:","inputResponses":{"k":{}},"requestState":"s"`)
		}
		if n := asked(); n != 2 {
			t.Errorf("asked %d times", n)
		}
	})
}

// A resource is kept as the modern server says, and until it says that it has
// changed. A legacy server's is not.
func TestCacheRead(t *testing.T) {
	f, asked := hinted(`"contents":[{"uri":"a:","text":"%d"}],"ttlMs":60000,"cacheScope":"private"`)
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, b *Gateway) {
		ear := visitor{}.ask(t, b, "9", era.Listen, `"notifications":{"resourceSubscriptions":["a:"]}`)
		read := func() string { return visitor{}.call(t, b, "resources/read", `"uri":"a:"`) }
		bridgetest.Contains(t, read(), `"text":"1"`)
		bridgetest.Contains(t, read(), `"text":"1"`)
		w := f.wire(1)
		w.tell(w.received(era.Listen)[0].ID, "notifications/resources/updated", "b:")
		ear.take()
		bridgetest.Contains(t, read(), `"text":"1"`)
		w.tell(w.received(era.Listen)[0].ID, "notifications/resources/updated", "a:/part")
		bridgetest.Contains(t, strings.Join(ear.take(), ""), "a:/part")
		bridgetest.Contains(t, read(), `"text":"2"`)
		if n := asked(); n != 2 {
			t.Errorf("asked %d times", n)
		}
		ear.cancel(bridge.ErrCancelled)
		<-ear.done
	})
	l := &fake{}
	run(t, ServerOptions{Adapter: l}, func(t *testing.T, b *Gateway) {
		s, _ := begin(t, b, "")
		for range 3 {
			do(t, s, "1", "resources/read", `{"uri":"a:"}`)
		}
		if n := len(requestsOf(l.wire(1).received(), "resources/read")); n != 3 {
			t.Errorf("read %d times", n)
		}
	})
}

// What a modern server says of itself is kept too: nothing is opened or asked for
// that.
func TestCacheDiscover(t *testing.T) {
	f, _ := hinted(`"x":1`)
	f.discover = strings.Replace(announced, `"ttlMs":60000`, `"ttlMs":120000`, 1)
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, b *Gateway) {
		first := visitor{}.call(t, b, "server/discover", "")
		time.Sleep(time.Minute)
		second := visitor{}.call(t, b, "server/discover", "")
		if want := strings.Replace(first, `"ttlMs":120000`, `"ttlMs":60000`, 1); second != want {
			t.Errorf("got  %s\nwant %s", second, want)
		}
		if n := len(f.wire(1).received("server/discover")); n != 2 { // one is the handshake's
			t.Errorf("asked %d times", n)
		}
	})
}

// A list with nothing in it is kept for a moment, and an error is not: nothing is
// wrong for longer than that.
func TestCacheEmptyAndFailed(t *testing.T) {
	l := newLister()
	l.list = `{"tools":[]}`
	run(t, ServerOptions{Adapter: l, Cache: cache.Options{Lists: time.Hour}}, func(t *testing.T, b *Gateway) {
		s, _ := begin(t, b, "")
		bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"tools":[]`)
		bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"tools":[]`)
		if n := l.times(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		time.Sleep(time.Second)
		l.list, l.fail = "", `{"code":-32603,"message":"not yet"}`
		bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), "not yet")
		l.fail = ""
		bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"t3"`)
		bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"t3"`)
	})
}

// An error answers all who have waited for it, once.
func TestCacheErrorForAll(t *testing.T) {
	l := newLister()
	l.after, l.fail = time.Second, `{"code":-32000,"message":"no","data":{"n":1.0}}`
	run(t, ServerOptions{Adapter: l}, func(t *testing.T, b *Gateway) {
		s, _ := begin(t, b, "")
		calls := []*pendingCall{start(t, s, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`), start(t, s, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)}
		for i, c := range calls {
			<-c.done
			if want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":-32000,"message":"no","data":{"n":1.0}}}`, i+1); c.answer != want {
				t.Errorf("got %s", c.answer)
			}
		}
		if n := l.times(); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

// Who asked first may leave: the others get their list. When all have left, the
// server is told.
func TestCacheLeaderLeaves(t *testing.T) {
	l := newLister()
	l.after = time.Second
	run(t, ServerOptions{Adapter: l, Share: SharePrincipal}, func(t *testing.T, b *Gateway) {
		one, _ := begin(t, b, "")
		two, _ := begin(t, b, "")
		first := start(t, one, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		synctest.Wait()
		second := start(t, two, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
		synctest.Wait()
		one.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`), nil)
		<-first.done
		if !errors.Is(first.err, bridge.ErrCancelled) {
			t.Errorf("the first ended with %v", first.err)
		}
		<-second.done
		bridgetest.Contains(t, second.answer, `"id":2`, `"t1"`)
		bridgetest.Lacks(t, strings.Join(l.wire(1).received(), ""), "cancelled")

		time.Sleep(time.Hour)
		first = start(t, one, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		second = start(t, two, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
		synctest.Wait()
		one.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`), nil)
		two.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`), nil)
		<-first.done
		<-second.done
		bridgetest.Contains(t, strings.Join(l.wire(l.opened()).received(), ""), "notifications/cancelled")
		bridgetest.Contains(t, do(t, one, "3", "tools/list", `{}`), `"t3"`) // and nobody joins what was given up
	})
}

// With share: session the connection that was asked over is another client's. It
// may go, or hang: the own one is there.
func TestCacheOthersConnection(t *testing.T) {
	for _, goes := range []bool{true, false} {
		l := newLister()
		serve := l.serve
		l.serve = func(w *fakeWire, m *jsonrpc.Message) bool {
			return w.n == 1 && m.Method == "tools/list" || serve(w, m)
		}
		run(t, ServerOptions{Adapter: l}, func(t *testing.T, b *Gateway) {
			one, _ := begin(t, b, "")
			two, _ := begin(t, b, "")
			first := start(t, one, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
			synctest.Wait()
			began := time.Now()
			second := start(t, two, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
			synctest.Wait()
			if goes {
				one.End(bridge.ErrEnded)
			}
			<-second.done
			bridgetest.Contains(t, second.answer, `"t1"`)
			if took := time.Since(began); took > time.Second && goes || took != joinPatience && !goes {
				t.Errorf("it took %v", took)
			}
			if !goes {
				one.End(bridge.ErrEnded)
			}
			<-first.done
			if first.err == nil {
				t.Errorf("the first was answered %s", first.answer)
			}
		})
	}
}

// The list of a connection that says, while it is being asked, that its list has
// changed is its own: who waits for it with another connection asks that one.
func TestCacheOwnFromNowOn(t *testing.T) {
	f := &fake{serve: func(w *fakeWire, m *jsonrpc.Message) bool {
		if m.Method != "tools/list" {
			return false
		}
		if w.n == 1 {
			time.AfterFunc(time.Second/2, func() { w.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`) })
		}
		time.AfterFunc(time.Second, func() { w.answer(m, toolList(fmt.Sprint("of", w.n))) })
		return true
	}}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, b *Gateway) {
		one, _ := begin(t, b, "")
		two, _ := begin(t, b, "")
		three, _ := begin(t, b, "")
		first := start(t, one, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		synctest.Wait()
		second := start(t, two, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
		<-first.done
		<-second.done
		bridgetest.Contains(t, second.answer, `"of2"`)
		bridgetest.Contains(t, do(t, one, "3", "tools/list", `{}`), `"of1"`)
		bridgetest.Lacks(t, do(t, three, "3", "tools/list", `{}`), `"of1"`)
	})
}

// A connection that is asleep is not opened for a list; one that is lost is,
// and meanwhile what is kept is given out, for as long as the settings allow.
func TestCacheStale(t *testing.T) {
	l := newLister()
	run(t, ServerOptions{Adapter: l, Share: ShareAll, Process: true, Cache: cache.Options{Stale: 30 * time.Minute}}, func(t *testing.T, b *Gateway) {
		s, _ := begin(t, b, "")
		v := visitor{}
		do(t, s, "1", "tools/list", `{}`)
		bridgetest.Contains(t, v.call(t, b, "tools/list", ""), `"t`)
		opened, asked := l.opened(), l.times()
		time.Sleep(25 * time.Minute) // the idle time is ten
		if n := b.lanes.Open(); n != 0 {
			t.Fatalf("%d connections are open", n)
		}
		bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"t`)
		bridgetest.Contains(t, v.call(t, b, "tools/list", ""), `"t`, `"ttlMs":0`)
		bridgetest.Contains(t, visitor{meta: `,"io.modelcontextprotocol/logLevel":"debug"`}.call(t, b, "tools/list", ""), `"t`)
		if l.opened() != opened || l.times() != asked {
			t.Errorf("the server was started, or asked, for a list")
		}
		if st := b.Status()[0]; !st.Cache.Stale || st.Cache.Served != 3 || st.Cache.Entries == 0 || st.Cache.Oldest < 25*time.Minute || st.Lanes != 0 {
			t.Errorf("the status is %+v", st)
		}
		time.Sleep(6 * time.Minute)
		do(t, s, "1", "tools/list", `{}`)
		if l.opened() == opened {
			t.Error("what is too old was given out")
		}
		if st := b.Status()[0]; st.Cache.Stale {
			t.Errorf("the status is %+v", st)
		}
	})
}

// What is only a connection, and no process, is opened for a list that is not
// fresh any more.
func TestCacheNoProcess(t *testing.T) {
	l := newLister()
	run(t, ServerOptions{Adapter: l, Share: ShareAll}, func(t *testing.T, b *Gateway) {
		s, _ := begin(t, b, "")
		do(t, s, "1", "tools/list", `{}`)
		time.Sleep(25 * time.Minute)
		bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"t2"`)
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
		b := New(Options{Servers: []ServerOptions{{Name: "fake", Adapter: l}}, Log: slog.New(slog.NewTextHandler(log, nil))})
		defer b.Close(context.Background())
		s, st := begin(t, b, "")
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
		if b.Status()[0].Cache.Stale {
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

// What is kept takes no more than it may, and one answer no more than a quarter.
func TestCacheBytes(t *testing.T) {
	const bound = 64 << 10
	l := newLister()
	size := 1000
	serve := l.serve
	l.serve = func(w *fakeWire, m *jsonrpc.Message) bool {
		l.mu.Lock()
		l.list = `{"tools":[{"name":"` + strings.Repeat("x", size) + `"}]}`
		l.mu.Unlock()
		return serve(w, m)
	}
	run(t, ServerOptions{Adapter: l, Cache: cache.Options{Bytes: bound, Lists: time.Hour}}, func(t *testing.T, b *Gateway) {
		s, _ := begin(t, b, "")
		for i := range 500 {
			do(t, s, "1", "tools/list", fmt.Sprintf(`{"cursor":"%d"}`, i))
			if st := b.Status()[0].Cache; st.Bytes > bound || st.Bytes < int64(st.Entries*size) {
				t.Fatalf("%+v", st)
			}
		}
		before := l.times()
		do(t, s, "1", "tools/list", `{"cursor":"499"}`)
		if l.times() != before {
			t.Error("the last one is not kept")
		}
		size = bound / 4
		for range 2 {
			do(t, s, "1", "tools/list", `{"cursor":"large"}`)
		}
		if n := l.times(); n != before+2 {
			t.Errorf("it was asked %d times for what is too large", n-before)
		}
		c := b.table.Load().servers[0].cache
		c.Source(&bridge.Caller{}).Replaced()
		if st := c.Status(); st.Entries != 0 || st.Bytes != 0 {
			t.Errorf("nothing is kept any more, and %+v", st)
		}
	})
}

// A list that has what the server denies is asked for again, but not for each
// call that is wrong.
func TestCacheDoubt(t *testing.T) {
	l := newLister()
	l.list = toolList("gone", "there")
	serve := l.serve
	l.serve = func(w *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "tools/call" {
			w.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"Unknown tool"}}`, m.ID))
			return true
		}
		return serve(w, m)
	}
	run(t, ServerOptions{Adapter: l}, func(t *testing.T, b *Gateway) {
		s, _ := begin(t, b, "")
		list := func() int { do(t, s, "1", "tools/list", `{}`); return l.times() }
		list()
		time.Sleep(2 * time.Second)
		do(t, s, "1", "tools/call", `{"name":"never heard of"}`)
		if n := list(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		for range 3 {
			do(t, s, "1", "tools/call", `{"name":"gone"}`)
			if n := list(); n != 2 {
				t.Errorf("asked %d times", n)
			}
		}
	})
}

// A connection that was opened again after a loss may be one to another version of
// the server.
func TestCacheReopened(t *testing.T) {
	l := newLister()
	run(t, ServerOptions{Adapter: l, Cache: cache.Options{Lists: time.Hour}}, func(t *testing.T, b *Gateway) {
		s, _ := begin(t, b, "")
		other, _ := begin(t, b, "")
		do(t, s, "1", "tools/list", `{}`)
		l.wire(1).die()
		synctest.Wait()
		do(t, s, "1", "tools/call", `{"name":"x"}`)
		bridgetest.Contains(t, do(t, other, "1", "tools/list", `{}`), `"t2"`)
		bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"t2"`)
	})
}

// A new beginning of a list is not followed by pages of the old one.
func TestCachePages(t *testing.T) {
	l := newLister()
	run(t, ServerOptions{Adapter: l}, func(t *testing.T, b *Gateway) {
		s, _ := begin(t, b, "")
		do(t, s, "1", "tools/list", `{}`)
		time.Sleep(50 * time.Second)
		bridgetest.Contains(t, do(t, s, "1", "tools/list", `{"cursor":"2"}`), `"t2"`)
		time.Sleep(15 * time.Second)
		bridgetest.Contains(t, do(t, s, "1", "tools/list", `{"cursor":"2"}`), `"t2"`)
		bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"t3"`)
		bridgetest.Contains(t, do(t, s, "1", "tools/list", `{"cursor":"2"}`), `"t4"`)
		l.fail = `{"code":-32602,"message":"bad cursor"}`
		bridgetest.Contains(t, do(t, s, "1", "tools/list", `{"cursor":"3"}`), `bad cursor`)
		l.fail = ""
		bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"t6"`) // all pages go with a cursor (B13)
	})
}

// Off is off.
func TestCacheOff(t *testing.T) {
	l := newLister()
	run(t, ServerOptions{Adapter: l, Cache: cache.Options{Off: true}}, func(t *testing.T, b *Gateway) {
		s, _ := begin(t, b, "")
		for range 3 {
			do(t, s, "1", "tools/list", `{}`)
		}
		if n := l.times(); n != 3 || b.Status()[0].Cache != (cache.Status{}) {
			t.Errorf("asked %d times, %+v", n, b.Status()[0].Cache)
		}
	})
}

// A bridge that is closed waits for what it asks, and leaves nobody waiting.
func TestCacheClose(t *testing.T) {
	l := newLister()
	l.serve = func(w *fakeWire, m *jsonrpc.Message) bool { return m.Method == "tools/list" }
	run(t, ServerOptions{Adapter: l, Share: SharePrincipal}, func(t *testing.T, b *Gateway) {
		for range 3 {
			s, _ := begin(t, b, "")
			start(t, s, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		}
		v := visitor{}.ask(t, b, "1", "tools/list", "")
		synctest.Wait()
		b.Close(context.Background())
		<-v.done
		if v.err == nil || errors.Is(v.err, context.Canceled) { // the client did not cancel it
			t.Errorf("it was answered %s, for %v", v.answer, v.err)
		}
	})
}

// A server that is left alone because it fails has its lists all the same, at its
// own address and where it is one of several.
func TestCacheBreakerOpen(t *testing.T) {
	bad, good := newLister(), newLister()
	good.list = toolList("fine")
	var dead bool
	bad.before = func(context.Context, int) error {
		if dead {
			return &bridge.Error{Server: "bad", Kind: bridge.ErrUnavailable, Public: "it does not start"}
		}
		return nil
	}
	all(t, []stock{
		{name: "bad", prefix: "bad__", f: bad.fake, o: ServerOptions{Breaker: breaker.Options{Failures: 1}}},
		{name: "good", prefix: "good__", f: good.fake},
	}, func(t *testing.T, b *Gateway) {
		list := func() []string { return names(t, visitor{}.call(t, b, "tools/list", "")) }
		same(t, "at first", list(), []string{"bad__t1", "good__fine"})
		dead = true
		bad.wire(1).die()
		synctest.Wait()
		time.Sleep(2 * time.Minute)
		bridgetest.Contains(t, visitor{}.call(t, b, "tools/call", `"name":"bad__t1"`), `"error"`)
		opened := bad.opened()
		same(t, "then", list(), []string{"bad__t1", "good__fine"})
		same(t, "then", list(), []string{"bad__t1", "good__fine"})
		if st := b.Status()[0]; bad.opened() != opened || !st.Cache.Stale || st.Breaker != "open" {
			t.Errorf("it was opened %d times more; %+v", bad.opened()-opened, st)
		}
	})
}

// Wrong arguments are a reason to ask anew what a tool wants, but not for each
// call; and what is given out again is looked at once.
func TestCacheValidated(t *testing.T) {
	l := newLister()
	l.list = `{"tools":[{"name":"t","inputSchema":{"type":"object","required":["a"]}}]}`
	run(t, ServerOptions{Adapter: l, Validate: true}, func(t *testing.T, b *Gateway) {
		s, _ := begin(t, b, "")
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
