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

// requestsOf returns the requests of a method that the server got, as text.
func requestsOf(lines []string, method string) (got []string) {
	for _, line := range lines {
		if strings.Contains(line, `"method":"`+method+`"`) {
			got = append(got, line)
		}
	}
	return got
}

// till is a list of tools with one that has a schema, one whose schema cannot be
// used, and one without.
const till = `{"tools":[{"name":"pay","inputSchema":{"type":"object","properties":{"amount":{"type":"integer","minimum":1},"to":{"type":"string"}},"required":["amount","to"]}},` +
	`{"name":"odd","inputSchema":{"type":"nonsense"}},{"name":"bare"}]}`

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
