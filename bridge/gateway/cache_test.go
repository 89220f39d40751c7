package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// lister is a legacy server that counts how often it is asked for its list, which has that number.
type lister struct {
	*fake
	asked int
}

func newLister() *lister {
	l := &lister{fake: &fake{}}
	l.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method != "tools/list" {
			return false
		}
		l.asked++
		f.answer(m, fmt.Sprintf(`{"tools":[{"name":"t%d"}],"x":1.0}`, l.asked))
		return true
	}
	return l
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
