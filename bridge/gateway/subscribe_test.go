package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// changing is a server whose list of tools, or whose resource x:a, changes at one
// moment. It tells those who are to hear of it then, and nobody later.
type changing struct {
	bridge.Adapter
	modern   bool
	what     string // "tools" or "x:a"
	moment   string
	steps    int // between the beginning of the subscription and the change, at the moment "steps"
	mu       sync.Mutex
	armed    bool                 // the change is still to come
	version  int                  // of what changes
	told     map[string]*fakeWire // who hears of it, by wire and the id of the subscription
	listened []func()             // subscriptions that are acknowledged late
}

// newChanging returns a server. streams says that its wire has a stream for each call.
func newChanging(modern, streams bool, what, moment string, steps int) *changing {
	c := &changing{modern: modern, what: what, moment: moment, steps: steps, told: map[string]*fakeWire{}}
	if modern {
		p := modernShop("fake", nil)
		p.fake.told, p.fake.result = streams, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}},"ttlMs":60000,"cacheScope":"private"}`
		p.serve, c.Adapter = c.serve, p
		return c
	}
	c.Adapter = &fake{serve: c.serve}
	return c
}

// arm has the change come at the next such moment.
func (c *changing) arm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = true
}

// at is called where the server is at a moment. It makes the change, if it is the one.
func (c *changing) at(moment string) {
	if moment == c.moment && c.armed {
		c.armed = false
		c.change()
	}
}

// begun is called where a subscription, or a legacy server's session, has begun.
func (c *changing) begun() {
	c.at("in the same write")
	if c.moment == "steps" && c.armed {
		c.armed = false
		go func() {
			for range c.steps {
				runtime.Gosched()
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.change()
		}()
	}
}

// change makes the change, and tells of it.
func (c *changing) change() {
	c.version++
	for id, f := range c.told {
		about, meta := "tools/list_changed", ""
		if c.what != "tools" {
			about, meta = "resources/updated", `"uri":"x:a"`
		}
		if _, id, ok := strings.Cut(id, " "); ok {
			meta = strings.TrimSuffix(`"_meta":{"io.modelcontextprotocol/subscriptionId":`+id+`},`+meta, ",")
		}
		f.say(`{"jsonrpc":"2.0","method":"notifications/` + about + `","params":{` + meta + `}}`)
	}
}

func (c *changing) serve(f *fakeWire, m *jsonrpc.Message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch m.Method {
	case "server/discover":
		f.answer(m, f.f.result)
	case "initialize":
		f.answer(m, everything)
		if c.what == "tools" {
			c.told[fmt.Sprint(f.n)] = f
			c.begun()
		}
	case "notifications/initialized":
		c.at("when it is ready")
	case era.Listen:
		c.at("before")
		id, filter := string(m.ID), gjson.GetBytes(m.Params, "notifications").Raw
		ack := func() {
			if strings.Contains(filter, c.what) {
				c.told[fmt.Sprint(f.n, " ", id)] = f
			}
			f.say(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `},"notifications":` + filter + `}}`)
			if c.told[fmt.Sprint(f.n, " ", id)] != nil {
				c.begun()
			}
		}
		if c.moment == "behind the list" && c.armed && c.what == "tools" {
			c.listened = append(c.listened, ack)
			return true
		}
		ack()
	case "notifications/cancelled":
		id := string(m.RequestID())
		if key := fmt.Sprint(f.n, " ", id); c.told[key] != nil {
			delete(c.told, key)
			f.say(`{"jsonrpc":"2.0","id":` + id + `,"result":{"resultType":"complete"}}`)
		}
	case "resources/subscribe":
		c.told[fmt.Sprint(f.n)] = f
		f.answer(m, "{}")
		c.begun()
	case "resources/unsubscribe":
		delete(c.told, fmt.Sprint(f.n))
		f.answer(m, "{}")
	case "tools/list":
		result := fmt.Sprintf(`{"tools":[{"name":"v%d","inputSchema":{"type":"object"}}]}`, c.version)
		if c.modern {
			result = `{"resultType":"complete","ttlMs":60000,"cacheScope":"private",` + result[1:]
		}
		f.answer(m, result)
		c.at("behind the list")
		for _, ack := range c.listened {
			ack()
		}
		c.listened = nil
	case "resources/list":
		f.answer(m, `{"resultType":"complete","ttlMs":60000,"cacheScope":"private","resources":[{"uri":"x:a","name":"a"}]}`)
	default:
		if m.IsRequest() {
			f.answer(m, `{"resultType":"complete"}`)
		}
	}
	return true
}

// late acknowledges what nobody has listed before.
func (c *changing) late() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ack := range c.listened {
		ack()
	}
	c.listened = nil
}

// aware is a client that has something from a server, and gets it anew when it is
// told of a change.
type aware struct {
	t    *testing.T
	g    *gateway
	name string // of the server; empty for all as one
	s    *sitting
	back *stream
	v    *visiting
	has  string // what it has listed last
	told int
}

// begins has a client begin that wants to hear of what changes, and list what
// there is as soon as it may count on being told.
func begins(t *testing.T, g *gateway, name string, session bool, c *changing) *aware {
	t.Helper()
	a := &aware{t: t, g: g, name: name}
	filter := `"toolsListChanged":true`
	if c.what != "tools" {
		filter = `"resourceSubscriptions":["x:a"]`
	}
	if session {
		s, first, err := join(t, g, SessionOptions{Server: name, ID: fmt.Sprint("id", sessions.Add(1)), Principal: "p"})
		if err != nil {
			t.Fatal(err)
		}
		bridgetest.Contains(t, first, `"listChanged":true`)
		a.s, a.back = s, &stream{}
		s.Attach(a.back)
		s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`), nil)
		if c.what != "tools" {
			bridgetest.Contains(t, do(t, s, "1", "resources/subscribe", `{"uri":"x:a"}`), `"result":{}`)
		}
	} else {
		begun := make(chan struct{})
		var once sync.Once
		a.v = visitor{server: name, principal: "p"}.ask(t, g, "1", era.Listen, `"notifications":{`+filter+`}`)
		a.back = &a.v.stream
		a.back.mu.Lock()
		heard := func(string) { once.Do(func() { close(begun) }) }
		if a.back.heard = heard; len(a.back.lines) > 0 {
			heard("")
		}
		a.back.mu.Unlock()
		select {
		case <-begun:
		case <-time.After(time.Second): // it is to be late
			c.late()
			<-begun
		}
		bridgetest.Contains(t, a.back.first(), era.Acknowledged, filter)
	}
	a.list()
	return a
}

// first is the first thing that came, which stays there.
func (s *stream) first() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines[0]
}

func (a *aware) list() {
	if a.s != nil {
		a.has = do(a.t, a.s, "2", "tools/list", "{}")
		return
	}
	a.has = visitor{server: a.name, principal: "p"}.call(a.t, a.g, "tools/list", "")
}

// settles returns when there is no more news. It does with each what clients do.
func (a *aware) settles() {
	for news := true; news; {
		time.Sleep(time.Minute)
		news = slices.ContainsFunc(a.back.take(), func(line string) bool {
			return strings.Contains(line, "list_changed") || strings.Contains(line, `"uri":"x:a"`)
		})
		if news {
			a.told++
			a.list()
		}
	}
}

// has checks that the client has what there is, and was told if it had to be.
func (a *aware) knows(c *changing, surely bool) {
	a.t.Helper()
	a.settles()
	c.mu.Lock()
	version, armed := c.version, c.armed
	c.mu.Unlock()
	if armed {
		a.t.Error("the moment has not come")
	}
	if want := fmt.Sprintf(`"name":"v%d"`, version); c.what == "tools" && !strings.Contains(strings.ReplaceAll(a.has, `"fake_`, `"`), want) {
		a.t.Errorf("the client has %s, and there is %s", a.has, want)
	}
	if surely && a.told == 0 {
		a.t.Error("the client was not told")
	}
}

func (a *aware) leave() {
	if a.s != nil {
		a.s.End(bridge.ErrEnded)
		return
	}
	a.v.cancel(nil)
	<-a.v.done
}

// moments are when a server's list changes that a client has begun to listen to: by
// whether the client has to be told, since it has begun before.
var moments = []struct {
	name   string
	steps  int
	modern bool // there is such a moment before modern servers only
	surely bool
}{
	{name: "before", modern: true}, {name: "in the same write", surely: true}, {name: "when it is ready"}, {name: "behind the list"}, {name: "quiet", surely: true},
	{name: "steps"}, {name: "steps", steps: 1}, {name: "steps", steps: 2}, {name: "steps", steps: 3}, {name: "steps", steps: 5}, {name: "steps", steps: 8},
	{name: "steps", steps: 13}, {name: "steps", steps: 21}, {name: "steps", steps: 34}, {name: "steps", steps: 55},
}

// whoever has begun to listen is told of each change from then
// on, however close behind the beginning it comes: whatever the server is, over what
// wire, and however many clients share it.
func TestChangeBehindBeginning(t *testing.T) {
	turn := 0
	for _, what := range []string{"tools", "x:a"} {
		for _, server := range []struct {
			name            string
			modern, streams bool
		}{{"modern", true, true}, {"modern without streams", true, false}, {"legacy", false, false}} {
			for _, share := range []Share{ShareSession, SharePrincipal, ShareAll} {
				for _, session := range []bool{true, false} {
					for _, merged := range []bool{false, true} {
						for _, others := range []bool{false, true} {
							t.Run(fmt.Sprintf("%s/%s/share %s/session %t/merged %t/others %t", what, server.name, share, session, merged, others), func(t *testing.T) {
								turn++
								for i, m := range moments {
									if turns := map[bool]int{false: 4, true: 12}[m.name == "steps"]; !scaletest.Whole && (i+turn)%turns > 0 {
										continue // there are many
									}
									t.Run(fmt.Sprint(m.name, m.steps), func(t *testing.T) {
										synctest.Test(t, func(t *testing.T) {
											changeBehindBeginning(t, newChanging(server.modern, server.streams, what, m.name, m.steps), share, session, merged, others, m.surely)
										})
									})
								}
							})
						}
					}
				}
			}
		}
	}
}

func changeBehindBeginning(t *testing.T, c *changing, share Share, session, merged, others, surely bool) {
	o := Options{Servers: []ServerOptions{{Name: "fake", Adapter: c, ServerSettings: ServerSettings{Share: share, Prefix: "fake_"}}}, Log: slog.New(slog.DiscardHandler), Grants: map[string]filter.Grant{"p": {}}}
	name := "fake"
	if merged {
		name = ""
		o.Servers = append(o.Servers, ServerOptions{Name: "other", Adapter: &fake{}, ServerSettings: ServerSettings{Prefix: "other_"}})
	}
	g := newGateway(o)
	defer g.Close(context.Background())
	if others {
		for _, session := range []bool{true, false} {
			a := begins(t, g, name, session, c)
			defer a.leave()
			a.settles()
		}
	}
	c.arm()
	a := begins(t, g, name, session, c)
	defer a.leave()
	synctest.Wait()
	c.mu.Lock()
	happened := !c.armed
	if c.armed { // there is no such moment for this client: what it needs stands already
		c.armed = false
		c.change()
	}
	c.mu.Unlock()
	// What comes with a legacy server's handshake is older than the acknowledgement.
	surely = surely && (session || c.modern || c.what != "tools")
	a.knows(c, surely || !happened)
}

// A server may acknowledge when the client has long been told that all servers
// together listen. What changed before is told then.
func TestChangeBeforeLateAcknowledgement(t *testing.T) {
	for _, streams := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newChanging(true, streams, "tools", "behind the list", 0) // the acknowledgement, too
			g := newGateway(Options{Log: slog.New(slog.DiscardHandler), Servers: []ServerOptions{{Name: "fake", Adapter: c, ServerSettings: ServerSettings{Prefix: "fake_"}}, {Name: "other", Adapter: &fake{}}}})
			defer g.Close(context.Background())
			c.arm()
			a := &aware{t: t, g: g, v: visitor{principal: "p"}.ask(t, g, "1", era.Listen, `"notifications":{"toolsListChanged":true}`)}
			defer a.leave()
			a.back = &a.v.stream
			time.Sleep(ackPatience)
			if got := a.back.take(); len(got) != 1 || !strings.Contains(got[0], `"notifications":{"toolsListChanged":true}`) {
				t.Fatalf("the client was told %q", got)
			}
			a.list()
			a.knows(c, true)
		})
	}
}
