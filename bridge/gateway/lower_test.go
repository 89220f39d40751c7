package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lower"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// says makes a server that answers methods with those results.
func says(results map[string]string) func(*fakeWire, *jsonrpc.Message) bool {
	return func(f *fakeWire, m *jsonrpc.Message) bool {
		result, ok := results[m.Method]
		if ok {
			f.answer(m, result)
		}
		return ok
	}
}

// What clients meet of the limits of package lower.
const (
	parkWindow    = 30 * time.Millisecond
	parkTTL       = 10 * time.Minute
	maxParked     = lower.MaxParked
	abandonedFor  = time.Minute
	rootsPatience = 10 * time.Second
	urlPatience   = 5 * time.Second
	maxPoll       = 30 * time.Second
	maxState      = 4 << 10
)

const fakeInfo = `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1"}}`

// D5: results get the envelope, and keep everything else.
func TestLowerResults(t *testing.T) {
	const cache = `"ttlMs":0,"cacheScope":"private"`
	for _, tc := range []struct{ name, method, params, result, want string }{
		{"empty", "tools/call", `"name":"x"`, `{}`, `{"resultType":"complete",` + fakeInfo + `}`},
		{"isError and numbers stay", "tools/call", `"name":"x"`, `{ "isError":true,"n":12345678901234567890}`, `{"resultType":"complete",` + fakeInfo + `, "isError":true,"n":12345678901234567890}`},
		{"a resultType by coincidence", "tools/call", `"name":"x"`, `{"a":1,"resultType":{"x":[2]},"b":2}`, `{` + fakeInfo + `,"a":1,"resultType":"complete","b":2}`},
		{"its own _meta stays", "tools/call", `"name":"x"`, `{"_meta":{"k":1},"content":[]}`,
			`{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1"},"k":1},"content":[]}`},
		{"_meta that is none", "tools/call", `"name":"x"`, `{"_meta":7}`, `{"resultType":"complete",` + fakeInfo + `}`},
		{"a false serverInfo", "tools/call", `"name":"x"`, `{"_meta":{"io.modelcontextprotocol/serverInfo":1}}`, `{"resultType":"complete",` + fakeInfo + `}`},
		{"no hints where there are none", "prompts/get", `"name":"x"`, `{"ttlMs":5}`, `{"resultType":"complete",` + fakeInfo + `,"ttlMs":5}`},
		{"lists", "resources/list", ``, `{"resources":[]}`, `{"resultType":"complete",` + cache + `,` + fakeInfo + `,"resources":[]}`},
		{"hints by coincidence", "resources/list", ``, `{"ttlMs":-1,"resources":[],"cacheScope":"public"}`, `{"resultType":"complete",` + fakeInfo + `,"ttlMs":0,"resources":[],"cacheScope":"private"}`},
		{"templates", "resources/templates/list", ``, `{}`, `{"resultType":"complete",` + cache + `,` + fakeInfo + `}`},
		{"read", "resources/read", `"uri":"a:"`, `{"contents":[]}`, `{"resultType":"complete",` + cache + `,` + fakeInfo + `,"contents":[]}`},
		{"members that stand twice", "tools/call", `"name":"x"`, `{"resultType":1,"a":1,"resultType":2,"_meta":{"k":1},"_meta":{"k":2}}`,
			`{"resultType":"complete","a":1,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1"},"k":1}}`},
		{"tools", "tools/list", ``, `{"tools":[{"name":"a","inputSchema":{"properties":{"x":{"type":"number","x-mcp-header":"X"}}},"execution":{"taskSupport":"optional"}}],"z":1}`,
			`{"resultType":"complete",` + cache + `,` + fakeInfo + `,"tools":[{"name":"a","inputSchema":{"properties":{"x":{"type":"number"}}}}],"z":1}`},
		{"tools without an annotation, and members that are there", "tools/list", ``, `{"_meta":{"k":1},"resultType":"x","tools":[{"name":"a","inputSchema":{"properties":{"x":{"type":"number","x-mcp-header":"X"}}}}]}`,
			`{` + cache + `,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1"},"k":1},"resultType":"complete","tools":[{"name":"a","inputSchema":{"properties":{"x":{"type":"number"}}}}]}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &fake{serve: says(map[string]string{tc.method: tc.result}), result: `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},"resources":{}},"serverInfo":{"name":"fake","version":"1"}}`}
			run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
				want := `{"jsonrpc":"2.0","id":1,"result":` + tc.want + `}`
				for _, caps := range []string{ableVisitor, "{}"} { // with and without questions
					if got := (visitor{caps: caps}).call(t, g, tc.method, tc.params); got != want {
						t.Errorf("got  %s\nwant %s", got, want)
					}
				}
			})
		})
	}
}

// discover is answered from the handshake, without another connection.
// Methods that 2026-07-28 does not have, or that nobody has declared, are not
// passed on.
func TestLowerDiscover(t *testing.T) {
	f := &fake{result: `{"protocolVersion":"2024-11-05","capabilities":{"tools":{"listChanged":true},"tasks":{},"experimental":{"e":{}},"x":1},"serverInfo":{"name":"old","version":"1"},"instructions":"i"}`}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		v := visitor{}
		want := `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"capabilities":{"tools":{"listChanged":true},"experimental":{"e":{}},"x":1},` +
			`"instructions":"i","ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"old","version":"1"}}}}`
		if got := v.call(t, g, "server/discover", ""); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if g.lanes.Open() != 0 {
			t.Error("the connection is still there")
		}
		v.call(t, g, "server/discover", "")
		if f.opened() != 1 {
			t.Error("a connection was opened to say what is known")
		}
		for _, method := range []string{"tasks/get", "x/y", "sampling/createMessage"} {
			bridgetest.Contains(t, v.call(t, g, method, ""), `"code":-32601`)
		}
		bridgetest.Contains(t, visitor{caps: `{"experimental":{"e":{}}}`}.call(t, g, "x/y", ""), `"result"`)
		if got := strings.Join(f.wire(f.opened()).received(), ""); strings.Contains(got, "tasks") || strings.Contains(got, "sampling") {
			t.Errorf("the server got %q", got)
		}
	})
}

// D6: what a list says of a tool holds for all connections of the principal.
func TestLowerTaskOnAnotherConnection(t *testing.T) {
	f := &fake{serve: says(map[string]string{
		"tools/list":   `{"tools":[{"name":"long","execution":{"taskSupport":"required"},"inputSchema":{}}]}`,
		"tools/call":   `{"task":{"taskId":"t","status":"completed"}}`,
		"tasks/result": `{"content":[]}`,
	}), result: `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"f","version":"1"}}`}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		visitor{}.call(t, g, "tools/list", "")
		for i, caps := range []string{ableVisitor, "{}", ableVisitor} {
			bridgetest.Contains(t, visitor{caps: caps}.call(t, g, "tools/call", `"name":"long"`), `"content":[]`)
			got := f.wire(1 + i%2).received()
			if n := len(got); n < 2 || !strings.Contains(got[n-2], `"task":{}`) || !strings.Contains(got[n-1], "tasks/result") {
				t.Errorf("the server got %q", got)
			}
		}
		bridgetest.Contains(t, visitor{caps: "{}"}.call(t, g, "tools/call", `"name":"long"`), `"resultType":"complete"`)
	})
}

// D6: extensions that both sides have are passed on, tasks never are.
func TestLowerExtensions(t *testing.T) {
	f := &fake{result: `{"protocolVersion":"2025-11-25","capabilities":{"extensions":{"x/y":{},"io.modelcontextprotocol/tasks":{}}},"serverInfo":{"name":"f","version":"1"}}`}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		bridgetest.Contains(t, visitor{caps: `{"extensions":{"x/z":{}}}`}.call(t, g, "x/call", ""), `"code":-32601`)
		bridgetest.Contains(t, visitor{caps: `{"extensions":{"x/y":{}}}`}.call(t, g, "x/call", `"p":1`), `"resultType":"complete"`)
		bridgetest.Contains(t, visitor{caps: `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`}.call(t, g, "tasks/get", `"taskId":"1"`), `"code":-32601`)
		bridgetest.Contains(t, visitor{caps: `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`}.call(t, g, "x/call", ""), `"code":-32601`)
	})
}

// A client that went away in the very moment in which its call was parked has
// not heard of it: the call is cancelled.
func TestLowerCancelAgainstParking(t *testing.T) {
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "tools/call" {
			f.say(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
		}
		return m.Method == "tools/call"
	}}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		for range 50 {
			v := visitor{}.ask(t, g, "1", "tools/call", `"name":"x"`)
			time.AfterFunc(parkWindow, func() { v.cancel(bridge.ErrCancelled) })
			<-v.done
			if v.answer != "" { // the answer was first: it is the client's
				again := visitor{}.ask(t, g, "2", "tools/call", `"name":"x","requestState":"`+stateOf(t, v.answer)+`"`)
				again.cancel(bridge.ErrCancelled)
				<-again.done
				if again.answer != "" {
					visitor{}.ask(t, g, "2", "tools/call", `"name":"x","inputResponses":{"r1":{"roots":[]}},"requestState":"`+stateOf(t, again.answer)+`"`).cancel(bridge.ErrCancelled)
				}
			}
		}
		time.Sleep(parkTTL + time.Minute)
		if r := remainsOf(g.table.Load().servers[0].pool); r != (remains{}) {
			t.Errorf("left: %+v", r)
		}
		calls, cancels := 0, 0
		for _, line := range f.all() {
			calls += strings.Count(line, `"tools/call"`)
			cancels += strings.Count(line, `"notifications/cancelled"`)
		}
		if calls == 0 || cancels != calls { // some left before they had a connection
			t.Errorf("%d calls, %d of them cancelled", calls, cancels)
		}
	})
}

// Cancellation and answer at the same moment: the client gets the answer or
// nothing, and the server's next answers are not taken for this one.
func TestLowerCancelAgainstAnswer(t *testing.T) {
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "tools/call" {
			time.AfterFunc(time.Second, func() { f.answer(m, `{"content":[],"by":`+rawjson.Quote(m.Name())+`}`) })
		}
		return m.Method == "tools/call"
	}}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		answered, gone := 0, 0
		for i := range 100 {
			name := fmt.Sprint("n", i)
			v := visitor{}.ask(t, g, "1", "tools/call", `"name":"`+name+`"`)
			if i%2 == 0 {
				synctest.Wait() // so that the one timer or the other is first
			}
			time.AfterFunc(time.Second, func() { v.cancel(bridge.ErrCancelled) })
			<-v.done
			switch {
			case v.answer == "" && v.err != nil:
				gone++
			case strings.Contains(v.answer, `"by":"`+name+`"`):
				answered++
			default:
				t.Errorf("got %s, %v", v.answer, v.err)
			}
			time.Sleep(time.Second)
		}
		if r := remainsOf(g.table.Load().servers[0].pool); r.busy != 0 || answered+gone != 100 {
			t.Errorf("%d answered, %d not; left: %+v", answered, gone, r)
		}
	})
}

// park makes a call that is parked, and returns its requestState.
func park(t testing.TB, g *gateway, c visitor) string {
	t.Helper()
	v := c.ask(t, g, "1", "tools/call", `"name":"x"`)
	<-v.done
	return stateOf(t, v.answer)
}

// asksRoots is a server that asks for roots with each call of a tool, and
// answers when it has got them.
func asksRoots() func(*fakeWire, *jsonrpc.Message) bool {
	return func(f *fakeWire, m *jsonrpc.Message) bool {
		switch {
		case m.Method == "tools/call":
			f.say(`{"jsonrpc":"2.0","id":"for ` + string(m.ID) + `","method":"roots/list"}`)
			return true
		case m.IsResponse():
			id := strings.Trim(strings.TrimPrefix(string(m.ID), `"for `), `"`)
			f.say(`{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[]}}`)
		}
		return false
	}
}

// Where clients have chosen the connection that they share, a question that was
// shown at the wrong call goes on to the right one when the server is done with
// the wrong one: it is not answered in its client's name.
func TestParkedWrongGuess(t *testing.T) {
	f := &fake{}
	f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		switch {
		case m.IsResponse():
			f.say(`{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":` + rawjson.Quote(bridgetest.Text(m)) + `}]}}`)
		case m.Name() == "asks":
		case m.Name() == "quiet":
			f.say(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
		default:
			return false
		}
		return m.IsRequest()
	}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		ours := visitor{meta: `,"dev.mcp-bridge/lane":"ours"`}
		asks := ours.ask(t, g, "1", "tools/call", `"name":"asks"`)
		synctest.Wait()
		bridgetest.Contains(t, ours.call(t, g, "tools/call", `"name":"quiet"`), `"roots/list"`) // a guess, and a wrong one
		f.wire(1).say(`{"jsonrpc":"2.0","id":3,"result":{"content":[]}}`)
		<-asks.done
		bridgetest.Contains(t, asks.answer, `"input_required"`, `"roots/list"`)
		bridgetest.Contains(t, ours.call(t, g, "tools/call", `"name":"asks","inputResponses":{"r1":{"roots":[]}},"requestState":"`+stateOf(t, asks.answer)+`"`), `"complete"`, `roots`)
	})
}

// D1.4.5: while a call is parked the bridge's own limits stand still.
func TestParkedOutlivesTimeouts(t *testing.T) {
	f := &fake{serve: asksRoots(), times: conn.Timeouts{Idle: time.Minute, Max: 2 * time.Minute}}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		state := park(t, g, visitor{})
		time.Sleep(parkTTL - time.Second)
		bridgetest.Contains(t, visitor{}.call(t, g, "tools/call", `"name":"x","inputResponses":{"r1":{"roots":[]}},"requestState":"`+state+`"`), `"resultType":"complete"`)
	})
}

// calls that wait for their clients are bounded for each principal. One
// more is refused, with its questions, and nobody answers in its client's name;
// when nobody has come back to another one for a minute, that gives way.
func TestParkedBound(t *testing.T) {
	for _, told := range []bool{false, true} { // connections of their own, or one of which it is known what questions are about
		f := &fake{serve: asksRoots()}
		if told {
			f = &fake{told: true, serve: func(f *fakeWire, m *jsonrpc.Message) bool {
				if m.Method == "tools/call" {
					n, _ := strconv.ParseInt(string(m.ID), 10, 64)
					f.sayOn(n, `{"jsonrpc":"2.0","id":"for `+string(m.ID)+`","method":"elicitation/create","params":{"message":"m"}}`)
				}
				return m.Method == "tools/call"
			}}
		}
		var log bytes.Buffer
		runLogged(t, slog.New(slog.NewTextHandler(&log, nil)), ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
			v := visitor{principal: "p"}
			first := park(t, g, v)
			for range maxParked - 1 {
				if state := park(t, g, v); len(state) > maxState {
					t.Errorf("requestState has %d bytes", len(state))
				}
			}
			over := v.ask(t, g, "1", "tools/call", `"name":"x"`)
			<-over.done
			bridgetest.Contains(t, over.answer, `"code":-32603`, `"bridge":"overloaded"`)
			if !errors.Is(over.err, bridge.ErrOverloaded) {
				t.Errorf("refused with %v", over.err)
			}
			if got := strings.Join(f.all(), ""); told != strings.Contains(got, `"action":"cancel"`) || told != strings.Contains(got, "notifications/cancelled") {
				t.Errorf("the server got %s", got)
			}
			park(t, g, visitor{principal: "q"})
			time.Sleep(abandonedFor)
			park(t, g, v)
			bridgetest.Contains(t, v.call(t, g, "tools/call", `"name":"x","requestState":"`+first+`"`), "-32602", "it was cancelled")
			if n := g.Status()[0].Parked; n != maxParked+1 {
				t.Errorf("%d calls are parked", n)
			}
		})
		warnings := []string{`parked call evicted for another one" server=fake method=tools/call waited=1m`}
		if told { // or the call got no connection
			warnings = append(warnings, `call refused: the server asks its client a question, and too many calls are parked" server=fake method=tools/call max=`+strconv.Itoa(maxParked))
		}
		for _, warning := range warnings {
			if strings.Count(log.String(), warning) != 1 {
				t.Errorf("the log has not once %s\n%s", warning, log.String())
			}
		}
	}
}

// so are the questions about one call, and those that wait for one.
func TestParkedQuestionsBound(t *testing.T) {
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		for i := 0; m.IsRequest() && m.Method != "initialize" && i < 2*bridge.MaxQuestions; i++ {
			f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":"%s/%d","method":"roots/list"}`, m.ID, i))
		}
		return m.Method == "tools/call"
	}}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		answer := visitor{}.call(t, g, "tools/call", `"name":"x"`)
		if n := strings.Count(answer, "roots/list"); n != bridge.MaxQuestions {
			t.Errorf("%d questions", n)
		}
		if n := strings.Count(strings.Join(f.wire(1).received(), ""), `"error"`); n != bridge.MaxQuestions {
			t.Errorf("%d questions refused", n)
		}
	})
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		visitor{}.call(t, g, "tools/list", "")
		last := f.wire(f.opened())
		if n := strings.Count(strings.Join(last.received(), ""), `"error"`); n != bridge.MaxQuestions {
			t.Errorf("%d questions refused", n)
		}
		time.Sleep(rootsPatience)
		if n := strings.Count(strings.Join(last.received(), ""), `"error"`); n != 2*bridge.MaxQuestions {
			t.Errorf("%d questions refused in the end", n)
		}
	})
}

// D1.5, R-123: a state to go on with after URLs is one principal's only, also
// where all share a connection.
func TestURLStateOfAnother(t *testing.T) {
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "tools/call" {
			f.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32042,"message":"m","data":{"elicitations":[{"url":"https://x","message":"m","elicitationId":"e"}]}}}`)
		}
		return m.Method == "tools/call"
	}}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: ShareAll}}, func(t *testing.T, g *gateway) {
		retry := `"name":"x","inputResponses":{"r1":{"action":"accept"}},"requestState":"` + park(t, g, visitor{principal: "ann"}) + `"`
		bridgetest.Contains(t, visitor{principal: "bob"}.call(t, g, "tools/call", retry), "-32602")
		bridgetest.Contains(t, visitor{principal: "ann"}.call(t, g, "tools/call", retry), "input_required")
		time.Sleep(parkTTL + time.Second)
		bridgetest.Contains(t, visitor{principal: "ann"}.call(t, g, "tools/call", retry), "-32602", "expired")
	})
}

// a request is asked only what it says that it can answer, also when one
// before it has said more.
func TestParkedRetryOfLess(t *testing.T) {
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		switch {
		case m.Method == "tools/call":
			f.say(`{"jsonrpc":"2.0","id":"roots","method":"roots/list"}`)
			f.say(`{"jsonrpc":"2.0","id":"sampling","method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}`)
			return true
		case m.IsResponse() && string(m.ID) == `"sampling"`:
			f.say(`{"jsonrpc":"2.0","id":2,"result":{"content":[]}}`)
		}
		return false
	}}
	for _, caps := range []string{`{"roots":{}}`, `{}`} {
		run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
			v := visitor{}.ask(t, g, "1", "tools/call", `"name":"x"`)
			<-v.done
			bridgetest.Contains(t, v.answer, "roots/list", "sampling/createMessage")
			less := visitor{caps: caps}.ask(t, g, "2", "tools/call", `"name":"x","requestState":"`+stateOf(t, v.answer)+`"`)
			<-less.done
			bridgetest.Lacks(t, less.answer, "sampling/createMessage")
			got := f.wire(f.opened()).received()
			bridgetest.Contains(t, strings.Join(got, ""), `"id":"sampling","error":{"code":-32602`)
			if caps == "{}" {
				bridgetest.Lacks(t, less.answer, "roots/list")
				return
			}
			bridgetest.Contains(t, less.answer, "roots/list") // and the server has answered meanwhile
			bridgetest.Contains(t, visitor{}.call(t, g, "tools/call", `"name":"x","inputResponses":{"r1":{"roots":[]}},"requestState":"`+stateOf(t, less.answer)+`"`), `"resultType":"complete"`)
		})
	}
}

// no requestState but a client's own, unchanged, does anything.
func FuzzRequestState(f *testing.F) {
	f.Add(uint16(0), byte(1), "")
	f.Add(uint16(40), byte(128), "")
	f.Add(uint16(0), byte(0), "AQ")
	f.Fuzz(func(t *testing.T, at uint16, flip byte, other string) {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{serve: asksRoots()}
			g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: f}}})
			defer g.Close(context.Background())
			state := []byte(park(t, g, visitor{}))
			if flip == 0 {
				state = []byte(other)
			} else {
				state[int(at)%len(state)] ^= flip
			}
			got := visitor{}.call(t, g, "tools/call", `"name":"x","inputResponses":{"r1":{"roots":[]}},"requestState":`+rawjson.Quote(string(state)))
			if !strings.Contains(got, "-32602") {
				t.Errorf("got %s", got)
			}
			if n := len(f.wire(1).received()); n != 1 {
				t.Errorf("the server got %d messages", n)
			}
		})
	})
}

// a server that is slow to take note of a subscription is told, too, when
// nobody wants it any more.
func TestLowerListenGivenUp(t *testing.T) {
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "resources/subscribe" && m.URI() == "slow:" {
			time.AfterFunc(15*time.Second, func() { f.answer(m, "{}") })
			return true
		}
		return false
	}}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		for _, leaves := range []time.Duration{time.Second, time.Minute} { // before the acknowledgement, and after it
			v := visitor{}.ask(t, g, "1", era.Listen, `"notifications":{"resourceSubscriptions":["slow:"]}`)
			time.Sleep(leaves)
			v.cancel(bridge.ErrCancelled)
			<-v.done
			time.Sleep(time.Minute)
			bridgetest.Lacks(t, strings.Join(v.take(), ""), "slow:")
			got := f.wire(1).received()
			bridgetest.Contains(t, got[len(got)-1], "resources/unsubscribe", "slow:")
		}
		if r := remainsOf(g.table.Load().servers[0].pool); r.busy != 0 {
			t.Errorf("left: %+v", r)
		}
	})
}
