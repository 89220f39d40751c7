package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/internal/lane/share"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// echo answers slow calls only when told to, with what they said.
func echo(f *fakeWire, m *jsonrpc.Message) bool {
	if m.Method != "tools/call" {
		return false
	}
	f.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, m.Token()))
	f.answer(m, string(m.Params))
	return true
}

// sessions that share a connection may use the same ids and
// tokens, each as it likes.
func TestShareIDs(t *testing.T) {
	for _, share := range []Share{SharePrincipal, ShareAll} {
		t.Run(string(share), func(t *testing.T) {
			f := &fake{serve: echo}
			run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: share}}, func(t *testing.T, g *gateway) {
				var calls []*pendingCall
				for i := range 8 {
					s, _ := begin(t, g, "p")
					for _, id := range []string{`1`, `"1"`, `1`} {
						calls = append(calls, start(t, s, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"who":%d,"_meta":{"progressToken":%s}}}`, id, i, id)))
					}
				}
				for i, p := range calls {
					<-p.done
					id := []string{`1`, `"1"`, `1`}[i%3]
					bridgetest.Contains(t, p.answer, `"id":`+id+`,`, fmt.Sprintf(`"who":%d,`, i/3))
					if got := p.back.take(); len(got) != 1 || !strings.Contains(got[0], `"progressToken":`+id+`,`) {
						t.Errorf("progress %q, want one under %s", got, id)
					}
				}
				if f.opened() != 1 {
					t.Errorf("%d connections, want 1", f.opened())
				}
			})
		})
	}
}

// The server is told of the first subscriber and of the last one's going, and
// its updates reach the subscribers.
func TestShareSubscriptions(t *testing.T) {
	f := &fake{}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: SharePrincipal}}, func(t *testing.T, g *gateway) {
		one, s := begin(t, g, "p")
		two, c := begin(t, g, "p")
		three, d := begin(t, g, "p")
		updated := func() (who string) {
			time.Sleep(changeEvery) // what it was told of before is forgotten then
			time.Sleep(changeEvery)
			f.wire(1).say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:"}}`)
			for i, st := range []*stream{s, c, d} {
				if strings.Contains(fmt.Sprint(st.take()), "updated") {
					who += fmt.Sprint(i + 1)
				}
			}
			return who
		}
		do(t, one, "1", "resources/subscribe", `{"uri":"a:"}`)
		do(t, two, "1", "resources/subscribe", `{"uri":"a:"}`)
		do(t, two, "1", "resources/subscribe", `{"uri":"a:"}`)
		if got := updated(); got != "12" {
			t.Errorf("updates reach %q, want 12", got)
		}
		do(t, one, "1", "resources/unsubscribe", `{"uri":"a:"}`)
		do(t, three, "1", "resources/unsubscribe", `{"uri":"a:"}`)
		if got := updated(); got != "2" {
			t.Errorf("updates reach %q, want 2", got)
		}
		two.End(bridge.ErrEnded)
		if got := updated(); got != "" {
			t.Errorf("updates reach %q, want nobody", got)
		}
		if got := f.wire(1).received(); len(got) != 2 || !strings.Contains(got[0], `resources/subscribe`) || !strings.Contains(got[1], `resources/unsubscribe`) {
			t.Errorf("the server got %q", got)
		}
	})
}

// A server that refuses the end of a subscription does not get it back.
func TestShareUnsubscribeRefused(t *testing.T) {
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "resources/unsubscribe" {
			f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-1,"message":"no"}}`, m.ID))
			return true
		}
		return false
	}}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: SharePrincipal}}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "p")
		do(t, s, "1", "resources/subscribe", `{"uri":"a:"}`)
		bridgetest.Contains(t, do(t, s, "1", "resources/unsubscribe", `{"uri":"a:"}`), `"code":-1`)
		if lane := restored(f); len(lane) != 0 {
			t.Errorf("it is told again of %v", lane)
		}
	})
}

// The server is told the most verbose level, and each session gets what it
// wants (protocol.md D3).
func TestShareLevels(t *testing.T) {
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "logging/setLevel" && strings.Contains(string(m.Params), "refuse") {
			f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-1,"message":"no"}}`, m.ID))
			return true
		}
		return false
	}}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: SharePrincipal}}, func(t *testing.T, g *gateway) {
		one, s := begin(t, g, "p")
		two, c := begin(t, g, "p")
		bridgetest.Contains(t, do(t, one, "1", "logging/setLevel", `{"level":"info","x":"refuse"}`), `"code":-1`)
		bridgetest.Contains(t, do(t, one, "1", "logging/setLevel", `{"level":"loud"}`), `-32602`)
		bridgetest.Contains(t, do(t, one, "1", "logging/setLevel", `{"level":"error"}`), `"result":{}`)
		bridgetest.Contains(t, do(t, two, "1", "logging/setLevel", `{"level":"info"}`), `"result":{}`)
		bridgetest.Contains(t, do(t, one, "1", "logging/setLevel", `{"level":"warning"}`), `"result":{}`)
		got := f.wire(1).received()
		if len(got) != 3 || !strings.Contains(got[1], "error") || !strings.Contains(got[2], "info") {
			t.Errorf("the server was told %q", got)
		}
		for _, level := range []string{"debug", "info", "warning"} {
			f.wire(1).say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"` + level + `","data":1}}`)
		}
		if x, y := s.take(), c.take(); len(x) != 1 || len(y) != 2 {
			t.Errorf("sessions got %q and %q", x, y)
		}
		last := func(n int, want string) {
			t.Helper()
			synctest.Wait()
			if got := f.wire(1).received(); len(got) != n || !strings.Contains(got[n-1], want) {
				t.Errorf("the server was told %q, want %q last", got, want)
			}
		}
		do(t, two, "2", "logging/setLevel", `{"level":"notice"}`) // the most verbose session wants less
		last(4, "notice")
		do(t, two, "3", "logging/setLevel", `{"level":"debug"}`)
		last(5, "debug")
		two.End(bridge.ErrEnded) // or ends
		last(6, "warning")
		three, _ := begin(t, g, "p")
		do(t, three, "1", "logging/setLevel", `{"level":"debug"}`)
		f.wire(1).die()
		synctest.Wait()
		three.End(bridge.ErrEnded)
		synctest.Wait()
		do(t, one, "2", "tools/call", `{}`)
		if got := f.wire(2).received(); len(got) == 0 || !strings.Contains(got[0], "warning") {
			t.Errorf("after a restart the server was told %q", got)
		}
	})
}

// Who gets what the server says, by the mode of sharing and by who is calling.
func TestShareRouting(t *testing.T) {
	const (
		message  = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"m"}}`
		changed  = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
		unknown  = `{"jsonrpc":"2.0","method":"notifications/x"}`
		question = `{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"elicitationId":"e","message":"?"}}`
		complete = `{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"e"}}`
	)
	for _, tc := range []struct {
		name    string
		share   Share
		busy    string // the sessions with a call under way
		say     string
		want    string // who gets it
		refusal string // what the server gets
	}{
		{"principal, log, nobody calls", SharePrincipal, "", message, "12", ""},
		{"principal, log, one calls", SharePrincipal, "2", message, "2", ""},
		{"principal, log, both call", SharePrincipal, "12", message, "12", ""},
		{"all, log, nobody calls", ShareAll, "", message, "", ""},
		{"all, log, one calls", ShareAll, "1", message, "1", ""},
		{"all, log, both call", ShareAll, "12", message, "", ""},
		{"principal, list changed", SharePrincipal, "1", changed, "12", ""},
		{"all, list changed", ShareAll, "1", changed, "12", ""},
		{"principal, unknown, one calls", SharePrincipal, "1", unknown, "1", ""},
		{"principal, unknown, both call", SharePrincipal, "12", unknown, "", ""},
		{"principal, question, nobody calls", SharePrincipal, "", question, "", "-32603"},
		{"principal, question, one calls", SharePrincipal, "2", question, "2", ""},
		{"principal, question, both call", SharePrincipal, "12", question, "", "-32603"},
		{"all, question, one calls", ShareAll, "1", question, "", "-32601"},
		{"principal, completion of nobody's question", SharePrincipal, "1", complete, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &fake{serve: silent("slow")}
			run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: tc.share}}, func(t *testing.T, g *gateway) {
				one, a := begin(t, g, "p")
				two, c := begin(t, g, "p")
				streams := [2][]*stream{{a}, {c}}
				for i, s := range []*sitting{one, two} {
					if strings.Contains(tc.busy, fmt.Sprint(i+1)) {
						streams[i] = append(streams[i], &start(t, s, `{"jsonrpc":"2.0","id":1,"method":"slow"}`).back)
					}
				}
				synctest.Wait()
				heard := func() (who string) {
					for i, all := range streams {
						for _, st := range all {
							if len(st.take()) > 0 {
								who += fmt.Sprint(i + 1)
							}
						}
					}
					return who
				}
				f.wire(1).say(tc.say)
				if got := heard(); got != tc.want {
					t.Errorf("%q got it, want %q", got, tc.want)
				}
				got := strings.Join(f.wire(1).received(), "\n")
				if tc.refusal != "" {
					bridgetest.Contains(t, got, `"id":"q","error":{"code":`+tc.refusal)
				} else {
					bridgetest.Lacks(t, got, `"error"`)
				}
				if tc.say == question && tc.want != "" {
					f.wire(1).say(complete)
					if got := heard(); got != tc.want {
						t.Errorf("%q got the completion, want %q", got, tc.want)
					}
				}
			})
		})
	}
}

// Who gets what the server says on the stream of a call, while two sessions of a
// shared connection are calling: the session of that call, on the call's stream.
func TestShareOnCall(t *testing.T) {
	const (
		unknown  = `{"jsonrpc":"2.0","method":"notifications/x"}`
		changed  = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
		question = `{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"elicitationId":"e","message":"?"}}`
		complete = `{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"e"}}`
	)
	for _, tc := range []struct {
		name  string
		share Share
		asked bool // the first session was asked something
		say   string
		want  string // who gets it: a session's stream, or that of its call
	}{
		{"principal, unknown", SharePrincipal, false, unknown, "call 2"},
		{"all, unknown", ShareAll, false, unknown, "call 2"},
		{"principal, list changed", SharePrincipal, false, changed, "session 1, session 2"},
		{"principal, completion of nobody's question", SharePrincipal, false, complete, "call 2"},
		{"all, completion of nobody's question", ShareAll, false, complete, "call 2"},
		{"principal, completion of the other's question", SharePrincipal, true, complete, "session 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &fake{serve: silent("slow")}
			run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: tc.share}}, func(t *testing.T, g *gateway) {
				one, s := begin(t, g, "p")
				two, c := begin(t, g, "p")
				first := start(t, one, `{"jsonrpc":"2.0","id":1,"method":"slow"}`) // call 2, behind initialize
				synctest.Wait()
				second := start(t, two, `{"jsonrpc":"2.0","id":1,"method":"slow"}`)
				synctest.Wait()
				if tc.asked {
					f.wire(1).sayOn(2, question)
					bridgetest.Contains(t, strings.Join(first.back.take(), ""), `"message":"?"`)
				}
				f.wire(1).sayOn(3, tc.say)
				var got []string
				for i, st := range []*stream{s, c, &first.back, &second.back} {
					for range st.take() {
						got = append(got, []string{"session 1", "session 2", "call 1", "call 2"}[i])
					}
				}
				if got := strings.Join(got, ", "); got != tc.want {
					t.Errorf("%q got it, want %q", got, tc.want)
				}
			})
		})
	}
}

// Clients of another revision, other capabilities or another principal have
// connections of their own; unused ones make room at the limit. Tasks are not
// offered on either side.
func TestShareProfiles(t *testing.T) {
	f := &fake{}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: SharePrincipal}}, func(t *testing.T, g *gateway) {
		profile := func(principal, revision, caps string) error {
			_, a, err := initialize(t, g, principal, `{"protocolVersion":"`+revision+`","capabilities":`+caps+`,"clientInfo":{"name":"c","version":"1"}}`)
			bridgetest.Lacks(t, a, `"tasks"`)
			return err
		}
		first, _ := begin(t, g, "p")
		for _, p := range []struct{ principal, revision, caps string }{
			{"p", "2025-11-25", `{"roots":{},"elicitation":{},"tasks":{"list":{}},"sampling":{}}`}, // as the first
			{"p", "2025-06-18", `{"roots":{},"elicitation":{},"sampling":{}}`},
			{"p", "2025-11-25", `{}`},
			{"q", "2025-11-25", `{}`},
		} {
			if err := profile(p.principal, p.revision, p.caps); err != nil {
				t.Errorf("%v: %v", p, err)
			}
		}
		if f.opened() != 4 {
			t.Errorf("%d connections, want 4", f.opened())
		}
		for n := 4; n <= share.MaxHubs; n++ {
			if err := profile("p", "2025-11-25", fmt.Sprintf(`{"x":%d}`, n)); err != nil {
				t.Errorf("profile %d: %v", n, err)
			}
		}
		if err := profile("p", "2025-11-25", `{"x":"more"}`); !errors.Is(err, bridge.ErrOverloaded) {
			t.Errorf("a profile above the limit = %v", err)
		}
		if err := profile("q", "2025-11-25", `{"x":"more"}`); err != nil {
			t.Errorf("another principal's = %v", err)
		}
		synctest.Wait() // the refused one is gone
		g.mu.Lock()
		var same []*sitting
		for s := range g.sessions {
			if below(s).(*share.View).Lane() == below(first).(*share.View).Lane() {
				same = append(same, s)
			}
		}
		g.mu.Unlock()
		for _, s := range same {
			s.End(bridge.ErrEnded)
		}
		synctest.Wait()
		if err := profile("p", "2025-11-25", `{"x":"more"}`); err != nil {
			t.Errorf("a profile after one was left = %v", err)
		}
	})
}

// A shared server that comes back as another one ends the sessions there are,
// and serves those to come.
func TestShareAnotherServer(t *testing.T) {
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "initialize" && f.n > 1 {
			f.answer(m, strings.Replace(everything, `"logging":{},`, ``, 1))
			return true
		}
		return false
	}}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: SharePrincipal}}, func(t *testing.T, g *gateway) {
		one, _ := begin(t, g, "p")
		two, _ := begin(t, g, "p")
		f.wire(1).die()
		synctest.Wait()
		bridgetest.Contains(t, do(t, one, "1", "x", `{}`), "initialize again")
		synctest.Wait()
		if one.ctx.Err() == nil || two.ctx.Err() == nil {
			t.Error("a session goes on with a server that has lost a capability")
		}
		begin(t, g, "p")
	})
}

// A client that does as it was told, and initializes again at once, is served
// while the connection that the sessions before could not use is still closing.
func TestShareAnotherServerAtOnce(t *testing.T) {
	f := &fake{}
	f.closes = func(_ context.Context, f *fakeWire) {
		if f.n == 2 {
			time.Sleep(5 * time.Second) // of the bubble: a program that is slow to end
		}
	}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: SharePrincipal}}, func(t *testing.T, g *gateway) {
		one, _ := begin(t, g, "p")
		f.result = strings.Replace(everything, `"logging":{},`, ``, 1)
		f.wire(1).die()
		synctest.Wait()
		bridgetest.Contains(t, do(t, one, "1", "x", `{}`), "initialize again")
		began := time.Now()
		if _, a, err := initialize(t, g, "p", bridgetest.InitializeParams); err != nil {
			t.Errorf("initialize again = %s, %v", a, err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// With a connection for each call nothing lives on but the level; what needs a
// connection that lives on is not offered.
func TestSharePerCall(t *testing.T) {
	f := &fake{serve: silent("slow")}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: ShareCall}}, func(t *testing.T, g *gateway) {
		s, a, err := initialize(t, g, "", bridgetest.InitializeParams)
		if err != nil {
			t.Fatal(err)
		}
		bridgetest.Contains(t, a, `"logging"`, `"x-vendor.new"`)
		bridgetest.Lacks(t, a, "listChanged", "subscribe", "tasks")
		bridgetest.Contains(t, do(t, s, "1", "resources/subscribe", `{"uri":"a:"}`), "-32601")
		do(t, s, "2", "logging/setLevel", `{"level":"error"}`)
		do(t, s, "3", "x", `{}`)
		synctest.Wait()
		if f.opened() != 3 || g.lanes.Open() != 0 {
			t.Errorf("%d opened, %d left; want 3 and none", f.opened(), g.lanes.Open())
		}
		if got := f.wire(3).received(); len(got) != 2 || !strings.Contains(got[0], `"level":"error"`) || !strings.Contains(got[1], `"method":"x"`) {
			t.Errorf("the third connection got %q", got)
		}
		slow := start(t, s, `{"jsonrpc":"2.0","id":4,"method":"slow"}`)
		synctest.Wait()
		f.wire(4).say(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
		if got := slow.back.take(); len(got) != 1 {
			t.Errorf("the call's stream got %q", got)
		}
		s.End(bridge.ErrEnded)
		<-slow.done
		bridgetest.Contains(t, slow.answer, "the session has ended")
	})
}

// TestPerCallRevision: a session with a connection for each call ends when the
// server comes back with another revision, before anything is sent to it.
func TestPerCallRevision(t *testing.T) {
	f := &fake{}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: ShareCall}}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		if got := do(t, s, "1", "tools/call", `{"name":"a"}`); strings.Contains(got, "error") {
			t.Fatal(got)
		}
		f.result = strings.Replace(everything, "2025-11-25", "2025-06-18", 1)
		got := do(t, s, "2", "tools/call", `{"name":"a"}`)
		if !strings.Contains(got, "another revision") && !strings.Contains(got, "session has ended") {
			t.Errorf("answered %s", got)
		}
		synctest.Wait()
		if got := f.wire(f.opened()).received(); len(got) != 0 {
			t.Errorf("the server got %q", got)
		}
		if _, err := s.Call(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`), nil, nil); !errors.Is(err, bridge.ErrEnded) && !errors.Is(err, bridge.ErrUnavailable) {
			t.Errorf("the session goes on: %v", err)
		}
	})
}
