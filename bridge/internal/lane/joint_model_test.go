package lane_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	wire "github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// keepsOne is a server on a wire without streams that keeps one subscription for the connection, as servers by the Go SDK
// do: a newer one takes the place of an older one, and the end of any ends all. It ends one some time after that was taken
// back.
type keepsOne struct {
	*wire.Conn
	lag    func() time.Duration // from the cancellation to the end
	silent bool                 // what was taken back is not answered
	server *bridge.Greeting
	lines  chan string // to the server
	wg     sync.WaitGroup

	mu    sync.Mutex        // guards the rest
	open  map[string]bool   // subscriptions, by id
	most  int               // of them at once
	heard map[string]string // what changes are told -> the id of the subscription
}

func (k *keepsOne) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	k.Conn = wire.New("fake", k, rest, wire.Timeouts{})
	k.wg.Go(func() {
		for line := range k.lines {
			k.read(line)
		}
	})
	var err error
	k.server, _, err = wire.Discover(ctx, k.Conn, from)
	return k, err
}

// Send implements conn.Sender.
func (k *keepsOne) Send(_ context.Context, o wire.Outgoing) error {
	k.lines <- string(o.Line.B)
	o.Line.Free()
	return nil
}

func (k *keepsOne) Server() *bridge.Greeting { return k.server }

func (k *keepsOne) Close(context.Context) error {
	k.Fail(bridge.ErrLost)
	close(k.lines)
	k.wg.Wait()
	return nil
}

func (k *keepsOne) say(text string) {
	m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0",` + text + `}`))
	if err != nil {
		panic(err)
	}
	k.Deliver(m)
}

func (k *keepsOne) read(line string) {
	m := gjson.Parse(line)
	id := m.Get("id").Raw
	switch m.Get("method").Str {
	case "server/discover":
		k.say(`"id":` + id + `,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}},"ttlMs":0,"cacheScope":"private"}`)
	case era.Listen:
		filter := m.Get("params.notifications")
		k.mu.Lock()
		k.open[id] = true
		k.most = max(k.most, len(k.open))
		filter.ForEach(func(name, value gjson.Result) bool {
			for _, uri := range value.Array() {
				k.heard[cmp.Or(uri.Str, name.Str)] = id
			}
			return true
		})
		k.mu.Unlock()
		k.say(`"method":"` + era.Acknowledged + `","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `},"notifications":` + filter.Raw + `}`)
	case "notifications/cancelled":
		id := m.Get("params.requestId").Raw
		time.AfterFunc(k.lag(), func() {
			k.mu.Lock()
			ends := k.open[id]
			delete(k.open, id)
			if ends {
				k.heard = map[string]string{}
			}
			k.mu.Unlock()
			if ends && !k.silent {
				k.say(`"id":` + id + `,"result":{"resultType":"complete"}`)
			}
		})
	}
}

// change has a list or a resource change, and tells whoever is to hear of it.
func (k *keepsOne) change(what string) {
	k.mu.Lock()
	id, ok := k.heard[what]
	k.mu.Unlock()
	method, params := "resources/updated", `,"uri":"`+what+`"`
	if what == "toolsListChanged" {
		method, params = "tools/list_changed", ""
	}
	if ok {
		k.say(`"method":"notifications/` + method + `","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `}` + params + `}`)
	}
}

// listener is a client that listens.
type listener struct {
	bridgetest.Client
	begun  bool
	cancel context.CancelFunc
	done   chan struct{}
}

// Whatever clients come and go, and however slow the server is: who was acknowledged hears of each later change, or that
// there may have been one.
func TestJointNeverDeaf(t *testing.T) {
	for seed := range uint64(scaletest.Of(28, 100)) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex // guards rng
			rng := rand.New(rand.NewPCG(seed, 0))
			k := &keepsOne{open: map[string]bool{}, heard: map[string]string{}, lines: make(chan string, 1<<10), silent: seed%4 == 0, lag: func() time.Duration {
				mu.Lock()
				defer mu.Unlock()
				return time.Duration(rng.IntN(4)) * 70 * time.Millisecond
			}}
			from := bridgetest.Caller(era.LatestModern, "", "{}")
			l := lane.New(options(k), from, lane.Ends{Client: bridge.Nobody{}, Observer: &server{}})
			standing := map[string][]*listener{}
			n := rand.New(rand.NewPCG(seed, 1))
			for range 40 {
				what := []string{"toolsListChanged", "x:a", "x:b"}[n.IntN(3)]
				switch here := standing[what]; {
				case len(here) > 0 && n.IntN(3) == 0:
					here[0].cancel()
					<-here[0].done
					standing[what] = here[1:]
				default:
					filter := `"resourceSubscriptions":["` + what + `"]`
					if what == "toolsListChanged" {
						filter = `"toolsListChanged":true`
					}
					c := &listener{done: make(chan struct{})}
					var ctx context.Context
					ctx, c.cancel = context.WithCancel(t.Context())
					go func() {
						defer close(c.done)
						if _, err := l.Call(ctx, bridgetest.Request(t, from, c, era.Listen, `{"notifications":{`+filter+`}}`)); ctx.Err() == nil {
							t.Errorf("seed %d: a client of %s has ended: %v", seed, what, err)
						}
					}()
					standing[what] = append(here, c)
				}
				const gather = 50 * time.Millisecond // subscriptions come in crowds
				time.Sleep([]time.Duration{0, gather / 2, gather, 2 * gather, time.Second}[n.IntN(5)])
				if n.IntN(3) > 0 {
					continue
				}
				synctest.Wait()
				for _, c := range standing[what] {
					c.begun = len(c.Got()) > 0 || c.begun
				}
				k.change(what)
				time.Sleep(7 * time.Second)
				for i, c := range standing[what] {
					if got := strings.Join(c.Got(), "\n"); c.begun && !strings.Contains(got, "changed") && !strings.Contains(got, "updated") {
						t.Errorf("seed %d: client %d has not heard of a change of %s, only %q", seed, i, what, got)
					}
				}
			}
			for _, all := range standing {
				for _, c := range all {
					c.cancel()
					<-c.done
				}
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if k.most > 1 || len(k.open) > 0 || len(k.heard) > 0 {
				t.Errorf("seed %d: %d subscriptions at once; in the end, %s are open and %v is heard of", seed, k.most, fmt.Sprint(k.open), k.heard)
			}
			_ = l.Close(t.Context())
		})
	}
}
