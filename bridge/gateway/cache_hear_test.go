package gateway

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
)

// A list of a server that announces changes is kept for a minute only as long as
// somebody would hear of them: when the last connection has been closed, it is
// fresh for no longer than one whose changes are not announced.
func TestCacheUnheard(t *testing.T) {
	l := newLister()
	run(t, ServerOptions{Adapter: l, Idle: 10 * time.Second}, func(t *testing.T, b *Gateway) {
		v := visitor{}
		bridgetest.Contains(t, v.call(t, b, "tools/list", ""), `"t1"`)
		time.Sleep(12 * time.Second)
		synctest.Wait()
		if n := b.lanes.Open(); n != 0 {
			t.Fatalf("%d connections are open", n)
		}
		bridgetest.Contains(t, v.call(t, b, "tools/list", ""), `"t1"`)
		time.Sleep(4 * time.Second)
		bridgetest.Contains(t, v.call(t, b, "tools/list", ""), `"t2"`)
	})
}

// A child process that sleeps is not started for a list, also if its changes
// would not be heard: it has none.
func TestCacheUnheardAsleep(t *testing.T) {
	l := newLister()
	run(t, ServerOptions{Adapter: l, Idle: 10 * time.Second, Process: true}, func(t *testing.T, b *Gateway) {
		v := visitor{}
		bridgetest.Contains(t, v.call(t, b, "tools/list", ""), `"t1"`)
		time.Sleep(time.Minute)
		bridgetest.Contains(t, v.call(t, b, "tools/list", ""), `"t1"`)
		if n := l.opened(); n != 1 {
			t.Errorf("%d processes were started", n)
		}
		v.call(t, b, "tools/call", `"name":"x"`) // now it runs, and may have changed while nobody listened
		bridgetest.Contains(t, v.call(t, b, "tools/list", ""), `"t2"`)
	})
}

// Any connection over which the change would be announced is enough, and others
// are not.
func TestCacheHeardBy(t *testing.T) {
	for _, test := range []struct {
		name   string
		o      ServerOptions
		others string // the principal of a session that stays
		want   int    // how often the server is asked within a minute
	}{
		{"another session", ServerOptions{}, "p", 1},
		{"another session of a shared connection", ServerOptions{Share: SharePrincipal}, "p", 1},
		{"another caller", ServerOptions{}, "q", 2},
		{"another caller, and the list is for all", ServerOptions{Cache: cache.Options{Shared: true}}, "q", 1},
		{"another caller of a connection for all", ServerOptions{Share: ShareAll}, "q", 1},
		{"nobody, and the configuration says for how long", ServerOptions{Cache: cache.Options{Lists: time.Minute}}, "q", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLister()
			test.o.Adapter = l
			run(t, test.o, func(t *testing.T, b *Gateway) {
				begin(t, b, test.others)
				for range 3 {
					s, _ := begin(t, b, "p")
					bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"t1"`)
					s.close(context.Background(), bridge.ErrEnded)
				}
				time.Sleep(6 * time.Second)
				s, _ := begin(t, b, "p")
				do(t, s, "1", "tools/list", `{}`)
				time.Sleep(50 * time.Second)
				do(t, s, "1", "tools/list", `{}`)
				if n := l.times(); n != test.want {
					t.Errorf("asked %d times, want %d", n, test.want)
				}
			})
		})
	}
}

// A connection whose list is its own is the only one that hears of it.
func TestCacheHeardByOwn(t *testing.T) {
	l := newLister()
	run(t, ServerOptions{Adapter: l, Idle: 10 * time.Second}, func(t *testing.T, b *Gateway) {
		one, _ := begin(t, b, "")
		begin(t, b, "")
		l.wire(1).say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		synctest.Wait()
		bridgetest.Contains(t, do(t, one, "1", "tools/list", `{}`), `"t1"`)
		time.Sleep(20 * time.Second)
		bridgetest.Contains(t, do(t, one, "1", "tools/list", `{}`), `"t2"`)
	})
}

// hardOfHearing is a server that announces changes, and cannot say anything by
// itself.
type hardOfHearing struct{ *lister }

type deafWire struct{ bridge.Upstream }

func (deafWire) ListensToChanges() bool { return false }

func (h hardOfHearing) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	up, err := h.lister.Open(ctx, from, rest)
	if err != nil {
		return nil, err
	}
	return deafWire{up}, nil
}

// A connection that is open and hears nothing counts for nothing.
func TestCacheDeaf(t *testing.T) {
	l := newLister()
	run(t, ServerOptions{Adapter: hardOfHearing{l}}, func(t *testing.T, b *Gateway) {
		v := visitor{}
		bridgetest.Contains(t, v.call(t, b, "tools/list", ""), `"t1"`)
		time.Sleep(4 * time.Second)
		bridgetest.Contains(t, v.call(t, b, "tools/list", ""), `"t1"`)
		time.Sleep(2 * time.Second)
		bridgetest.Contains(t, v.call(t, b, "tools/list", ""), `"t2"`)
	})
}

// A connection that ceases to hear counts for nothing from then on, and counts
// again when it hears again.
func TestCacheDeafened(t *testing.T) {
	for _, share := range []Share{ShareSession, ShareAll} {
		l := newLister()
		run(t, ServerOptions{Adapter: l, Share: share}, func(t *testing.T, b *Gateway) {
			v := visitor{}
			bridgetest.Contains(t, v.call(t, b, "tools/list", ""), `"t1"`)
			time.Sleep(20 * time.Second)
			bridgetest.Contains(t, v.call(t, b, "tools/list", ""), `"t1"`)
			l.wire(1).rest.(bridge.MissesChanges).MissesChanges()
			bridgetest.Contains(t, v.call(t, b, "tools/list", ""), `"t1"`)
			time.Sleep(6 * time.Second)
			bridgetest.Contains(t, v.call(t, b, "tools/list", ""), `"t2"`)
			time.Sleep(50 * time.Second)
			bridgetest.Contains(t, v.call(t, b, "tools/list", ""), `"t2"`)
		})
	}
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

// What an adapter says by itself is seen by the next list, also when nobody is
// connected, and so lists are fresh for as long as when somebody is.
func TestCacheAnnounced(t *testing.T) {
	for _, share := range []Share{ShareSession, ShareCall} {
		k := &knowing{lister: newLister()}
		synctest.Test(t, func(t *testing.T) {
			b := New(Options{Servers: []ServerOptions{{Name: "fake", Adapter: k, Idle: 10 * time.Second, Share: share}}, Log: slog.New(slog.DiscardHandler)})
			v := visitor{}
			bridgetest.Contains(t, v.call(t, b, "tools/list", ""), `"t1"`)
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if n := b.lanes.Open(); n != 0 {
				t.Fatalf("%d connections are open", n)
			}
			bridgetest.Contains(t, v.call(t, b, "tools/list", ""), `"t1"`)
			k.changed("notifications/resources/list_changed")
			bridgetest.Contains(t, v.call(t, b, "tools/list", ""), `"t1"`)
			k.changed("notifications/tools/list_changed")
			bridgetest.Contains(t, v.call(t, b, "tools/list", ""), `"t2"`)

			s, _ := begin(t, b, "")
			if share == ShareSession { // a list that is a sleeping connection's own is dropped, too
				k.wire(k.open()).say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
				synctest.Wait()
				bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"t3"`)
				time.Sleep(20 * time.Second)
				bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"t3"`)
				k.changed("notifications/tools/list_changed")
				bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"t4"`)
			}
			b.Close(context.Background())
			if !k.stopped {
				t.Error("the adapter was not told that nobody wants to know any more")
			}
		})
	}
}
