package gateway

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// till is a list of tools with one that has a schema, one whose schema cannot be
// used, and one without.
const till = `{"tools":[{"name":"pay","inputSchema":{"type":"object","properties":{"amount":{"type":"integer","minimum":1},"to":{"type":"string"}},"required":["amount","to"]}},` +
	`{"name":"odd","inputSchema":{"type":"nonsense"}},{"name":"bare"}]}`

// faultsOfPay are those of {"amount":"7"}.
const faultsOfPay = `{"content":[{"type":"text","text":"2 things are wrong with the arguments:\n- amount: must be an integer, not \"7\"\n- to: is missing"}],"isError":true}`

// requestsOf returns the requests of a method that the server got, as text.
func requestsOf(lines []string, method string) (got []string) {
	for _, line := range lines {
		if strings.Contains(line, `"method":"`+method+`"`) {
			got = append(got, line)
		}
	}
	return got
}

// Wrong arguments do not reach the server, whoever calls and whatever the
// server speaks. Right ones do, as they are.
func TestValidate(t *testing.T) {
	legacy := &fake{serve: says(map[string]string{"tools/list": till, "tools/call": `{"content":[]}`})}
	tasked := &fake{
		result: `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"f","version":"1"}}`,
		serve: says(map[string]string{
			"tools/list":   strings.Replace(till, `{"name":"pay",`, `{"name":"pay","execution":{"taskSupport":"required"},`, 1),
			"tools/call":   `{"task":{"taskId":"t","status":"completed"}}`,
			"tasks/result": `{"content":[]}`,
		}),
	}
	modern := newPeer()
	serve := modern.serve
	modern.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		switch m.Method {
		case "tools/list":
			f.answer(m, `{"resultType":"complete","ttlMs":0,"cacheScope":"private",`+till[1:])
		case "tools/call":
			f.answer(m, `{"resultType":"complete","content":[]}`)
		default:
			return serve(f, m)
		}
		return true
	}
	for _, tc := range []struct {
		name    string
		adapter bridge.Adapter
		server  *fake
		share   Share
		caps    string // of a client without a session; empty means one with a session
	}{
		{"session, legacy", legacy, legacy, "", ""},
		{"session, legacy, shared", legacy, legacy, SharePrincipal, ""},
		{"session, modern", modern, modern.fake, "", ""},
		{"stateless, legacy", legacy, legacy, "", "{}"},
		{"stateless, legacy, may ask", legacy, legacy, "", ableVisitor},
		{"stateless, legacy, a connection each", legacy, legacy, ShareCall, "{}"},
		{"stateless, tasks", tasked, tasked, "", "{}"},
		{"stateless, modern", modern, modern.fake, "", "{}"},
		{"stateless, modern, a connection each", modern, modern.fake, ShareCall, "{}"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.server.mu.Lock()
			tc.server.wires, tc.server.opens = nil, nil
			tc.server.mu.Unlock()
			run(t, ServerOptions{Adapter: tc.adapter, ServerSettings: ServerSettings{Share: tc.share, Validate: true}}, func(t *testing.T, g *gateway) {
				call := func(params string) string { return visitor{caps: tc.caps}.call(t, g, "tools/call", params) }
				if tc.caps == "" {
					s, _ := begin(t, g, "")
					call = func(params string) string { return do(t, s, "1", "tools/call", "{"+params+"}") }
				}
				if tc.server == tasked { // how its tool is called is known of the list
					visitor{caps: tc.caps}.call(t, g, "tools/list", "")
				}
				for range 2 { // the first one lists the tools
					got := call(`"name":"pay","arguments":{"amount":"7"}`)
					bridgetest.Contains(t, got, faultsOfPay[1:len(faultsOfPay)-1])
					if stateless := tc.caps != ""; strings.Count(got, `"resultType":"complete"`) != map[bool]int{true: 1}[stateless] {
						t.Errorf("got %s", got)
					}
				}
				bridgetest.Contains(t, call(`"arguments":{ "amount": 12345678901234567890, "to":"\u0061" },"name":"pay"`), `"content":[]`)
				var lines []string
				for n := range tc.server.opened() {
					lines = append(lines, tc.server.wire(n+1).received()...)
				}
				calls := requestsOf(lines, "tools/call")
				if len(calls) != 1 || !strings.Contains(calls[0], `{ "amount": 12345678901234567890, "to":"\u0061" }`) {
					t.Errorf("the server got %q", calls)
				}
			})
		})
	}
}

// Of calls about which nothing can be said, the server gets all, and lists its
// tools once.
func TestValidateUnknown(t *testing.T) {
	for _, tc := range []struct {
		name, tool string
		lists      int
		list       string
	}{
		{"unusable schema", "odd", 1, till},
		{"no schema", "bare", 1, till},
		{"not listed", "hidden", 1, till},
		{"no list", "pay", 3, ""}, // it may have one the next time
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
				switch {
				case m.Method != "tools/list":
				case tc.list == "":
					f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"m"}}`, m.ID))
				default:
					f.answer(m, tc.list)
				}
				return m.Method == "tools/list"
			}}
			run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Validate: true}}, func(t *testing.T, g *gateway) {
				s, _ := begin(t, g, "")
				for _, args := range []string{`{"x":1}`, `[]`, `null`} {
					do(t, s, "1", "tools/call", `{"name":"`+tc.tool+`","arguments":`+args+`}`)
				}
				got := f.wire(1).received()
				want := 3
				if tc.tool == "odd" {
					want = 2 // a list can be no arguments
				}
				if n := len(requestsOf(got, "tools/call")); n != want {
					t.Errorf("the server got %d calls: %q", n, got)
				}
				if n := len(requestsOf(got, "tools/list")); n < tc.lists || tc.list != "" && tc.tool != "odd" && n != tc.lists {
					t.Errorf("the tools were listed %d times", n)
				}
			})
		})
	}
}

// A schema that cannot be used is said once, with the tool that has it.
func TestValidateWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := &fake{serve: says(map[string]string{"tools/list": till})}
		g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: f, ServerSettings: ServerSettings{Validate: true}}}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		s, _ := begin(t, g, "")
		for range 3 {
			do(t, s, "1", "tools/call", `{"name":"odd","arguments":{"secret":1}}`)
		}
		g.Close(context.Background())
		if got := log.String(); strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, "server=fake tool=odd") || strings.Contains(got, "secret") {
			t.Errorf("the log has %s", got)
		}
	})
}

// Nothing is refused by a schema that is not true any more; what was refused by
// it is by the new one, or not at all.
func TestValidateChange(t *testing.T) {
	list := till
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		switch m.Method {
		case "tools/list":
			if strings.Contains(string(m.Params), "next") {
				f.answer(m, list)
			} else {
				f.answer(m, `{"tools":[],"nextCursor":"next"}`)
			}
		case "tools/call":
			f.answer(m, `{"content":[]}`)
		}
		return m.Method != "initialize"
	}}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Validate: true, Lists: filter.Lists{Tools: filter.Rules{Rename: map[string]string{"pay": "give"}}}}}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		give := func(args string) string {
			return do(t, s, "1", "tools/call", `{"name":"give","arguments":`+args+`}`)
		}
		bridgetest.Contains(t, give(`{"amount":"7"}`), `"isError":true`)
		list = strings.Replace(till, `"integer"`, `"string"`, 1)
		bridgetest.Contains(t, give(`{"amount":"7"}`), `"isError":true`) // it was asked a moment ago
		time.Sleep(2 * time.Second)
		bridgetest.Contains(t, give(`{"amount":"7","to":"x"}`), `"content":[]`)
		bridgetest.Contains(t, give(`{"amount":7,"to":"x"}`), `amount: must be a string, not 7`)
		bridgetest.Contains(t, do(t, s, "1", "tools/list", `{"cursor":"next"}`), `"give"`)
		list = `{"tools":[]}`
		time.Sleep(2 * time.Second)
		bridgetest.Contains(t, give(`{}`), `"content":[]`) // what has become of it is for the server to say
		bridgetest.Contains(t, give(`{}`), `"content":[]`)
		if n := len(requestsOf(f.wire(1).received(), "tools/list")); n != 2*3 { // pages are kept for a moment
			t.Errorf("%d pages were listed", n)
		}
	})
}

// What could mean one thing to us and another to the server is refused. So is a
// call that is to become a task in a form that its client understands.
func TestValidateRefusals(t *testing.T) {
	f := &fake{serve: says(map[string]string{"tools/list": till})}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Validate: true}}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		for _, params := range []string{
			`{"name":"pay","arguments":{"amount":1,"to":"a"},"arguments":{}}`,
			`{"name":"pay","arguments":{"amount":1,"to":"a"},"Arguments":{}}`,
			`{"name":"pay","argument\u0053":{}}`,
			`{"name":"bare","Name":"pay"}`,
			`{"name":"pay","arguments":{"amount":1},"task":{}}`,
		} {
			bridgetest.Contains(t, do(t, s, "1", "tools/call", params), `"code":-32602`)
		}
		if got := requestsOf(f.wire(1).received(), "tools/call"); len(got) > 0 {
			t.Errorf("the server got %q", got)
		}
	})
}

// Calls that come at once list the tools once, and one that is given up neither
// waits for that nor keeps the others from it.
func TestValidateAtOnce(t *testing.T) {
	var held []func()
	var mu sync.Mutex
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "tools/list" {
			mu.Lock()
			defer mu.Unlock()
			m = m.Clone()
			held = append(held, func() { f.answer(m, till) })
		}
		return m.Method == "tools/list"
	}}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Validate: true}}, func(t *testing.T, g *gateway) {
		var all []*visiting
		for i := range 9 {
			all = append(all, visitor{caps: "{}"}.ask(t, g, fmt.Sprint(i), "tools/call", `"name":"pay"`))
			synctest.Wait()
		}
		for _, v := range []*visiting{all[8], all[0]} { // one that waits, and the one that lists
			if v.cancel(bridge.ErrCancelled); !v.over() {
				t.Error("a call that was given up still waits")
			}
		}
		mu.Lock()
		if len(held) != 2 { // by the first call, and by one of the others
			t.Errorf("the tools were listed %d times", len(held))
		}
		held[len(held)-1]()
		mu.Unlock()
		for _, v := range all[1:8] {
			if !v.over() {
				t.Fatal("a call still waits")
			}
			bridgetest.Contains(t, v.answer, "amount: is missing")
		}
	})
}

// Where several servers are offered as one, each is what it is by itself.
func TestValidateTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		checked := shop("checked", map[string]string{"tools/list": till})
		free := shop("free", map[string]string{"tools/list": till})
		g := newGateway(Options{Log: slog.New(slog.DiscardHandler), Servers: []ServerOptions{
			{Name: "checked", ServerSettings: ServerSettings{Prefix: "c__", Validate: true}, Adapter: checked}, {Name: "free", ServerSettings: ServerSettings{Prefix: "f__"}, Adapter: free},
		}})
		s, _, err := g.initialize(context.Background(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+bridgetest.InitializeParams+`}`), SessionOptions{ID: fmt.Sprint("id", sessions.Add(1))})
		if err != nil {
			t.Fatal(err)
		}
		for who, call := range map[string]func(params string) string{
			"a session": func(params string) string { return do(t, s, "1", "tools/call", "{"+params+"}") },
			"stateless": func(params string) string { return visitor{}.call(t, g, "tools/call", params) },
		} {
			if got := call(`"name":"c__pay","arguments":{"amount":"7"}`); !strings.Contains(got, faultsOfPay[1:len(faultsOfPay)-1]) {
				t.Errorf("%s: %s", who, got)
			}
			if got := call(`"name":"f__pay","arguments":{"amount":"7"}`); !strings.Contains(got, `"by":"free"`) {
				t.Errorf("%s: %s", who, got)
			}
		}
		g.Close(context.Background())
	})
}
