package gateway

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// stormy is a legacy server whose connections die, each of which lists whose it
// is and its own edition, in one page or two.
type stormy struct {
	mu  sync.Mutex // guards the rest
	rng *rand.Rand
	at  map[*fakeWire]int
}

func (s *stormy) serve(f *fakeWire, m *jsonrpc.Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !m.IsRequest() || m.Method == "initialize" {
		return false
	}
	after := time.Duration(s.rng.IntN(5)) * 700 * time.Millisecond
	switch {
	case s.rng.IntN(12) == 0:
		f.die()
	case s.rng.IntN(20) == 0: // never
	case m.Method == "tools/call":
		s.at[f]++
		f.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		f.answer(m, fmt.Sprintf(`{"content":[],"edition":%d,"wire":%d}`, s.at[f], f.n))
	case s.rng.IntN(12) == 0:
		time.AfterFunc(after, func() {
			f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"of %s"}}`, m.ID, f.from.Principal))
		})
	default:
		list := fmt.Sprintf(`{"tools":[{"name":"%s.%d.%d"}]}`, f.from.Principal, f.n, s.at[f])
		if s.rng.IntN(8) == 0 {
			list = strings.TrimSuffix(list, "}") + fmt.Sprintf(`,"nextCursor":"%d"}`, f.n)
		}
		time.AfterFunc(after, func() { f.answer(m, list) })
	}
	return true
}

// Whatever happens to connections and clients, every list is answered or ends, no
// principal sees anything of another's, who was told of a change does not see what
// was before, and the books are right in the end.
func TestCacheStorm(t *testing.T) {
	for i, share := range []Share{ShareSession, SharePrincipal, ShareCall} {
		for n := range scaletest.Of(4, 12) {
			seed := uint64(4*i+n) % 12 // what they set is different for each of 12
			server := &stormy{rng: rand.New(rand.NewPCG(seed, 1)), at: map[*fakeWire]int{}}
			f := &fake{serve: server.serve, times: conn.Timeouts{Idle: 20 * time.Second}}
			o := ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: share, StartsPerMinute: 1000, Breaker: breaker.Options{Off: seed%3 == 0}, Cache: cache.Options{Lists: time.Duration(seed%4) * time.Second, Bytes: 8 << 10}}, Process: seed%2 == 0}
			run(t, o, func(t *testing.T, g *gateway) {
				var wg sync.WaitGroup
				for c := range 8 {
					principal := []string{"a", "b"}[c%2]
					rng := rand.New(rand.NewPCG(seed, uint64(c+2)))
					check := func(answer string) string {
						whose := gjson.Get(answer, "result.tools.0.name").Str
						if message, refused := strings.CutPrefix(gjson.Get(answer, "error.message").Str, "of "); refused {
							whose = message + "."
						}
						if whose != "" && !strings.HasPrefix(whose, principal+".") {
							t.Errorf("%s, seed %d: %s was given %s", share, seed, principal, answer)
						}
						return answer
					}
					wg.Go(func() {
						for i := range scaletest.Of(3, 6) {
							time.Sleep(time.Duration(rng.IntN(10)) * time.Second)
							if c >= 6 { // a client without a session
								v := visitor{principal: principal}.ask(t, g, "1", "tools/list", "")
								if rng.IntN(3) == 0 {
									time.Sleep(time.Second)
									v.cancel(bridge.ErrCancelled)
								}
								<-v.done
								check(v.answer)
								continue
							}
							s, _, err := g.initialize(context.Background(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":`+bridgetest.InitializeParams+`}`), SessionOptions{ID: fmt.Sprint("storm ", c, i), Principal: principal})
							if err != nil {
								continue
							}
							var told, wire int64
							for range 8 {
								switch rng.IntN(5) {
								case 0:
									a := do(t, s, "1", "tools/call", `{"name":"x"}`)
									if e := gjson.Get(a, "result.edition").Int(); e > 0 {
										told, wire = e, gjson.Get(a, "result.wire").Int()
									}
								case 1:
									p := start(t, s, `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`)
									time.Sleep(time.Duration(rng.IntN(3)) * time.Second)
									s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`), nil)
									<-p.done
									check(p.answer)
								default:
									a := check(do(t, s, "1", "tools/list", `{}`))
									name := strings.Split(gjson.Get(a, "result.tools.0.name").Str, ".")
									if len(name) == 3 && share == ShareSession && told > 0 && name[1] == fmt.Sprint(wire) && gjson.Parse(name[2]).Int() < told {
										t.Errorf("seed %d: after edition %d of connection %d came %q", seed, told, wire, name)
									}
									if next := gjson.Get(a, "result.nextCursor"); next.Exists() && share == ShareSession {
										check(do(t, s, "1", "tools/list", `{"cursor":`+next.Raw+`}`))
									}
								}
								time.Sleep(time.Duration(rng.IntN(4)) * time.Second)
							}
							s.End(bridge.ErrEnded)
						}
					})
				}
				wg.Wait()
				time.Sleep(maxFetch)
				c := g.table.Load().servers[0].cache
				c.Source(&bridge.Caller{}).Replaced()
				if st := c.Status(); st.Entries != 0 || st.Bytes != 0 {
					t.Errorf("%s, seed %d: nothing is kept any more, and %+v", share, seed, st)
				}
			})
			if t.Failed() {
				return
			}
		}
	}
}
