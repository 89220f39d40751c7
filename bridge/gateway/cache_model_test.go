package gateway

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// wavering is a legacy server each of whose connections has a list of its own, which
// the tool bump changes. It takes its time to answer.
type wavering struct {
	mu   sync.Mutex // guards the rest
	rng  *rand.Rand
	at   map[*fakeWire]int // the edition of the list
	lies []string          // what clients were wrongly given
}

func (w *wavering) serve(one *fakeWire, m *jsonrpc.Message) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch m.Method {
	case "tools/list":
		list := fmt.Sprintf(`{"tools":[{"name":"w%d.%d"}]}`, one.n, w.at[one])
		time.AfterFunc(time.Duration(w.rng.IntN(4))*10*time.Millisecond, func() { one.answer(m, list) })
	case "tools/call":
		if w.rng.IntN(2) == 0 {
			one.answer(m, `{"content":[]}`)
			m = nil
		}
		w.at[one]++
		one.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"edition":%d,"wire":%d}}}`, w.at[one], one.n))
		if m != nil {
			one.answer(m, `{"content":[]}`)
		}
	default:
		return false
	}
	return true
}

// check looks at the list that a client has got, who was told of that edition of
// its own connection's; 0 means that it was told of none.
func (w *wavering) check(answer string, wire, edition int64) {
	name := gjson.Get(answer, "result.tools.0.name").Str
	var count, e int64
	_, err := fmt.Sscanf(name, "w%d.%d", &count, &e)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil:
		w.lies = append(w.lies, "no list: "+answer)
	case edition > 0 && (count != wire || e < edition):
		w.lies = append(w.lies, fmt.Sprintf("after edition %d of connection %d: %s", edition, wire, name))
	case edition == 0 && e > 0 && wire != 0 && count != wire:
		w.lies = append(w.lies, fmt.Sprintf("connection %d was given %s", wire, name))
	}
}

// what a connection says has changed, its client sees in its very next
// list, whoever else lists meanwhile; and what is one connection's own, no other
// client sees.
func TestCacheChangeIsSeenByTheNextList(t *testing.T) {
	for _, share := range []Share{ShareSession, SharePrincipal, ShareAll} {
		for seed := range uint64(scaletest.Of(10, 30)) {
			server := &wavering{rng: rand.New(rand.NewPCG(seed, 0)), at: map[*fakeWire]int{}}
			f := &fake{serve: server.serve}
			run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: share}}, func(t *testing.T, g *gateway) {
				var wg sync.WaitGroup
				for c := range 5 {
					s, st := begin(t, g, "")
					wire := int64(0)
					if share == ShareSession {
						wire = int64(c + 1)
					}
					rng := rand.New(rand.NewPCG(seed, uint64(c+1)))
					var told sync.Mutex
					last := int64(0)
					st.mu.Lock()
					st.heard = func(line string) {
						if !strings.Contains(line, "list_changed") {
							return
						}
						e, w := gjson.Get(line, "params._meta.edition").Int(), gjson.Get(line, "params._meta.wire").Int()
						told.Lock()
						last = max(last, e)
						told.Unlock()
						server.check(do(t, s, "1", "tools/list", `{}`), w, e)
					}
					st.mu.Unlock()
					wg.Go(func() {
						for range 20 {
							told.Lock()
							known := last
							told.Unlock()
							if rng.IntN(4) == 0 && c < 3 {
								do(t, s, "2", "tools/call", `{"name":"bump"}`)
							} else if share == ShareSession {
								server.check(do(t, s, "3", "tools/list", `{}`), wire, known)
							} else {
								server.check(do(t, s, "3", "tools/list", `{}`), 1, known)
							}
							time.Sleep(time.Duration(rng.IntN(5)) * 7 * time.Millisecond)
						}
					})
				}
				wg.Wait()
				time.Sleep(time.Minute)
				server.mu.Lock()
				defer server.mu.Unlock()
				if len(server.lies) > 0 {
					t.Errorf("%s, seed %d: %q", share, seed, server.lies[:min(3, len(server.lies))])
				}
			})
			if t.Failed() {
				return
			}
		}
	}
}

// fickle is a modern server with one list, whose editions it tells all that
// listen.
type fickle struct {
	mu      sync.Mutex // guards the rest
	rng     *rand.Rand
	edition int
	listens map[string]bool
	lies    []string
}

func (f *fickle) serve(s *statelessWire, m *jsonrpc.Message) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch m.Method {
	case era.Listen:
		f.listens[string(m.ID)] = true
		s.acknowledge(m)
	case "notifications/cancelled":
		delete(f.listens, string(m.RequestID()))
	case "tools/list":
		list := fmt.Sprintf(`{"resultType":"complete","tools":[{"name":"e%d"}],"ttlMs":600000,"cacheScope":"public"}`, f.edition)
		time.AfterFunc(time.Duration(f.rng.IntN(4))*10*time.Millisecond, func() { s.reply(m, list) })
	case "tools/call":
		f.edition++
		for id := range f.listens {
			s.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s,"edition":%d}}}`, id, f.edition))
		}
		s.reply(m, `{"resultType":"complete","content":[]}`)
	}
	return true
}

func (f *fickle) check(answer string, edition int64) {
	var e int64
	_, err := fmt.Sscanf(gjson.Get(answer, "result.tools.0.name").Str, "e%d", &e)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil || e < edition {
		f.lies = append(f.lies, fmt.Sprintf("after edition %d: %s", edition, answer))
	}
}

// The same of a modern server, whose changes come over subscriptions, for clients
// of both eras.
func TestCacheModernChangeIsSeenByTheNextList(t *testing.T) {
	for seed := range uint64(scaletest.Of(10, 30)) {
		server := &fickle{rng: rand.New(rand.NewPCG(seed, 0)), listens: map[string]bool{}}
		run(t, ServerOptions{Adapter: &statelessFake{serve: server.serve}}, func(t *testing.T, g *gateway) {
			var wg sync.WaitGroup
			for c := range 6 {
				rng := rand.New(rand.NewPCG(seed, uint64(c+1)))
				list, bump := func() string { return visitor{}.call(t, g, "tools/list", "") }, func() { visitor{}.call(t, g, "tools/call", `"name":"bump"`) }
				var st *stream
				var ear *visiting
				if c%2 == 0 {
					var s *sitting
					s, st, _ = beginAs(t, g, able("2025-11-25"))
					list, bump = func() string { return do(t, s, "1", "tools/list", `{}`) }, func() { do(t, s, "2", "tools/call", `{"name":"bump"}`) }
				} else {
					ear = visitor{}.ask(t, g, "9", era.Listen, `"notifications":{"toolsListChanged":true}`)
					st = &ear.stream
				}
				st.mu.Lock()
				st.heard = func(line string) {
					if strings.Contains(line, "list_changed") {
						server.check(list(), gjson.Get(line, "params._meta.edition").Int())
					}
				}
				st.mu.Unlock()
				wg.Go(func() {
					for range 20 {
						if rng.IntN(4) == 0 {
							bump()
						} else {
							server.check(list(), 0)
						}
						time.Sleep(time.Duration(rng.IntN(5)) * 7 * time.Millisecond)
					}
					time.Sleep(time.Minute)
					if ear != nil {
						ear.cancel(bridge.ErrCancelled)
						<-ear.done
					}
				})
			}
			wg.Wait()
			server.mu.Lock()
			defer server.mu.Unlock()
			if len(server.lies) > 0 {
				t.Errorf("seed %d: %q", seed, server.lies[:min(3, len(server.lies))])
			}
			if server.edition == 0 {
				t.Error("nothing has changed")
			}
		})
		if t.Failed() {
			return
		}
	}
}
