package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/guard/approve"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// decided collects decisions.
type decided struct {
	mu  sync.Mutex
	all []approve.Decision
}

func (d *decided) Decided(one approve.Decision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, one)
}

// take returns the outcomes since the last take.
func (d *decided) take() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var words []string
	for _, one := range d.all {
		words = append(words, string(one.Outcome))
	}
	d.all = nil
	return strings.Join(words, " ")
}

const dropArgs = `"arguments":{"id":"1"}`

// asking calls a tool in a session, and answers the question about it. It returns the question and the answer of the
// call.
func asking(t *testing.T, s *sitting, mode ToolsMode, params, answer string) (question, got string) {
	t.Helper()
	call := &pendingCall{done: make(chan struct{})}
	s.Go(func() {
		defer close(call.done)
		a, _ := s.Call(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{`+params+`}}`), &Envelope{Tools: mode}, &call.back)
		call.answer = bridgetest.Text(a)
	})
	if call.over() {
		return "", call.answer
	}
	asked := call.back.take()
	if len(asked) == 0 {
		t.Fatalf("%s: no question", params)
	}
	question = asked[len(asked)-1]
	if err := s.Answer(bridgetest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, bridgetest.Parse(t, question).ID, answer))); err != nil {
		t.Fatal(err)
	}
	<-call.done
	return question, call.answer
}

// again returns the params of a stateless client's call that brings the answer to the question in first.
func again(t *testing.T, params, first, answer string) string {
	t.Helper()
	key := gjson.Get(first, "result.inputRequests.@keys.0").Str
	return params + `,"requestState":"` + stateOf(t, first) + `","inputResponses":{"` + key + `":` + answer + `}`
}

func chosen(answer string) string { return `{"action":"accept","content":{"answer":"` + answer + `"}}` }

// Both kinds of clients are asked before a call of a tool that destroys, at servers of both eras, at each address and
// through call_tool. Only a yes makes the call, once (C-080, C-081).
func TestApprovals(t *testing.T) {
	stock := stores()[:2]
	for i := range stock {
		stock[i].o.Approve = []approve.Rule{{Tools: []string{approve.Destructive}}}
	}
	all(t, stock, func(t *testing.T, g *gateway) {
		if err := g.Apply(Change{Names: []string{"one", "two"}, Settings: &Settings{Common: Common{SessionIdle: 1e15, SessionLeft: 1e15, ListWait: 1e15}, Groups: []Group{{Name: "dev", Servers: []string{"one", "two"}}}}}); err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			at   string
			mode ToolsMode
			by   string
			call string
		}{
			{"one", "", "one", `"name":"drop",` + dropArgs},
			{"two", "", "two", `"name":"drop",` + dropArgs},
			{"", "", "one", `"name":"one__drop",` + dropArgs},
			{"", "", "two", `"name":"two__drop",` + dropArgs},
			{"dev", "", "one", `"name":"one__drop",` + dropArgs},
			{"dev", "", "two", `"name":"two__drop",` + dropArgs},
			{"", ToolsSearch, "one", `"name":"call_tool","arguments":{"name":"one__drop","arguments":"{\"id\":\"1\"}"}`},
			{"two", ToolsSearch, "two", `"name":"call_tool","arguments":{"name":"drop",` + dropArgs + `}`},
		} {
			where := fmt.Sprintf("%q, tools=%s, %s", tc.at, tc.mode, tc.by)
			s := sessionAt(t, g, tc.at, "", tc.mode)
			for answer, made := range map[string]bool{
				chosen("Yes, this once"):        true,
				chosen("Yes, for this session"): true, // although it was not offered: once
				chosen("No"):                    false,
				chosen("yes"):                   false,
				`{"action":"accept"}`:           false,
				`{"action":"accept","content":{"answer":["Yes, this once"]}}`: false,
				`{"action":"decline"}`: false,
				`{"action":"cancel"}`:  false,
			} {
				question, got := asking(t, s, tc.mode, tc.call, answer)
				bridgetest.Contains(t, question, `"method":"elicitation/create"`, `Server: `+tc.by, `Tool: \"drop\"`, `{\"id\":\"1\"}`)
				if strings.Contains(got, `"by":"`+tc.by+`"`) != made {
					t.Errorf("%s: a session answered %s: %s", where, answer, got)
				}
				v := visitor{server: tc.at, mode: tc.mode}
				first := v.call(t, g, "tools/call", tc.call)
				bridgetest.Contains(t, first, `"input_required"`, `Tool: \"drop\"`)
				got = v.call(t, g, "tools/call", again(t, tc.call, first, answer))
				if strings.Contains(got, `"by":"`+tc.by+`"`) != made {
					t.Errorf("%s: a stateless client answered %s: %s", where, answer, got)
				}
			}
			reads := strings.ReplaceAll(tc.call, "drop", "look")
			if question, got := asking(t, s, tc.mode, reads, ""); question != "" || !strings.Contains(got, `"by"`) {
				t.Errorf("%s: look: asked %q, and got %s", where, question, got)
			}
		}
	})
}

// drops is a server of one era with rules for drop, whose decisions are collected.
func drops(t *testing.T, modern bool, rule approve.Rule, f func(t *testing.T, g *gateway, d *decided, list *atomic.Pointer[string])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		text := lookAndDrop
		if modern {
			text = `{"resultType":"complete",` + lookAndDrop[1:len(lookAndDrop)-1] + `,"ttlMs":0,"cacheScope":"private"}`
		}
		var list atomic.Pointer[string]
		list.Store(&text)
		changing := func(serve func(f *fakeWire, m *jsonrpc.Message) bool) func(f *fakeWire, m *jsonrpc.Message) bool {
			return func(f *fakeWire, m *jsonrpc.Message) bool {
				if m.Method == "tools/list" {
					f.answer(m, *list.Load())
					return true
				}
				return serve(f, m)
			}
		}
		one := shop("one", nil)
		one.serve = changing(one.serve)
		o := ServerOptions{Name: "one", Adapter: one, ServerSettings: ServerSettings{Cache: cache.Options{Off: true}, Approve: []approve.Rule{rule}}}
		if modern {
			two := modernShop("one", nil)
			two.serve = changing(two.serve)
			o.Adapter = two
		}
		d := &decided{}
		g := newGateway(Options{Servers: []ServerOptions{o}, Log: slog.New(slog.DiscardHandler), Decisions: d})
		defer g.Close(context.Background())
		f(t, g, d, &list)
	})
}

// A yes for the session counts for that tool in that session, until the tool's definition changes (C-081).
func TestApprovalRemembered(t *testing.T) {
	for _, modern := range []bool{false, true} {
		rule := approve.Rule{Tools: []string{"*"}, Remember: approve.RememberSession}
		drops(t, modern, rule, func(t *testing.T, g *gateway, d *decided, list *atomic.Pointer[string]) {
			s, other := sessionAt(t, g, "one", "", ""), sessionAt(t, g, "one", "", "")
			const drop, look = `"name":"drop",` + dropArgs, `"name":"look"`
			yes := chosen("Yes, for this session")
			for _, step := range []struct {
				s    *sitting
				call string
				want string // what is recorded
			}{
				{s, drop, "session"},
				{s, drop, "remembered"},
				{s, `"name":"drop","arguments":{"id":"2"}`, "remembered"},
				{s, look, "session"}, // another tool
				{other, drop, "session"},
			} {
				_, got := asking(t, step.s, "", step.call, yes)
				bridgetest.Contains(t, got, `"by":"one"`)
				if was := d.take(); was != step.want {
					t.Errorf("modern=%t: %s: %s, want %s", modern, step.call, was, step.want)
				}
			}
			text := strings.ReplaceAll(*list.Load(), "Deletes a thing.", "Deletes all things.")
			list.Store(&text)
			if question, got := asking(t, s, "", drop, chosen("No")); question == "" || strings.Contains(got, `"by"`) {
				t.Errorf("modern=%t: after a change: %s, %s", modern, question, got)
			}
			// A yes is for the definition of the question, not for one that comes before the answer.
			changing := strings.ReplaceAll(text, "all things", "everything")
			late := sessionAt(t, g, "one", "", "")
			call := start(t, late, `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{`+drop+`}}`)
			if call.over() {
				t.Fatal(call.answer)
			}
			list.Store(&changing)
			asked := call.back.take()
			if err := late.Answer(bridgetest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, bridgetest.Parse(t, asked[0]).ID, yes))); err != nil {
				t.Fatal(err)
			}
			<-call.done
			bridgetest.Contains(t, call.answer, `"by":"one"`)
			if question, _ := asking(t, late, "", drop, chosen("No")); question == "" {
				t.Errorf("modern=%t: the yes counts for a definition that nobody was asked about", modern)
			}
			v := visitor{server: "one"} // without a session, each call is asked about
			first := v.call(t, g, "tools/call", drop)
			bridgetest.Contains(t, v.call(t, g, "tools/call", again(t, drop, first, yes)), `"by":"one"`)
			bridgetest.Contains(t, v.call(t, g, "tools/call", drop), `"input_required"`)
		})
	}
}

// The state of a stateless client's call belongs to that call, and counts once.
func TestApprovalState(t *testing.T) {
	for _, modern := range []bool{false, true} {
		drops(t, modern, approve.Rule{Tools: []string{"*"}}, func(t *testing.T, g *gateway, d *decided, _ *atomic.Pointer[string]) {
			const drop = `"name":"drop",` + dropArgs
			yes := chosen("Yes, this once")
			v := visitor{server: "one"}
			first := v.call(t, g, "tools/call", drop)
			retry := again(t, drop, first, yes)
			for name, call := range map[string]string{
				"other arguments": strings.Replace(retry, `"1"`, `"2"`, 1),
				"another tool":    strings.Replace(retry, `"drop"`, `"look"`, 1),
				"forged":          again(t, drop, `{"result":{"inputRequests":{"bridge_approval":1},"requestState":"x"}}`, yes),
				"twice":           strings.Replace(retry, `"arguments"`, `"arguments":{"id":"2"},"arguments"`, 1),
				"by case":         strings.Replace(retry, `"arguments"`, `"Arguments":{"id":"2"},"arguments"`, 1),
			} {
				got := v.call(t, g, "tools/call", call)
				if strings.Contains(got, `"by"`) && (modern || !strings.Contains(got, `"arguments":{"id":"1"}}`)) { // a parked legacy call has its own arguments
					t.Errorf("modern=%t: %s: the call was made: %s", modern, name, got)
				}
			}
			bridgetest.Contains(t, v.call(t, g, "tools/call", retry), `"by":"one"`)
			if modern { // a legacy call keeps its answer for a client that lost it
				refusal := v.call(t, g, "tools/call", retry)
				bridgetest.Contains(t, refusal, "was used before", `"isError":true`)
				if strings.Count(refusal, `"resultType"`) != 1 {
					t.Errorf("a refusal has no type, or two: %s", refusal)
				}
			}
			first = v.call(t, g, "tools/call", drop)
			time.Sleep(6 * time.Minute)
			got := v.call(t, g, "tools/call", again(t, drop, first, yes))
			if strings.Contains(got, `"by"`) {
				t.Errorf("modern=%t: after the time: %s", modern, got)
			}
		})
	}
}

// A client that offers no elicitation waits for an operator, as does one whose rule asks the console only. The end of the
// time, a cancellation and the end of the bridge are a no.
func TestApprovalConsole(t *testing.T) {
	for _, modern := range []bool{false, true} {
		rule := approve.Rule{Tools: []string{"drop"}, Timeout: time.Minute, Remember: approve.RememberSession}
		drops(t, modern, rule, func(t *testing.T, g *gateway, d *decided, _ *atomic.Pointer[string]) {
			const drop = `"name":"drop",` + dropArgs
			v := visitor{server: "one", caps: "{}"}
			q := g.Approvals()
			for _, tc := range []struct {
				outcome approve.Outcome
				want    string
			}{{approve.Once, `"by":"one"`}, {approve.Denied, "did not allow it"}, {"", "nobody allowed it within 1m0s"}} {
				call := v.ask(t, g, "1", "tools/call", drop)
				if call.over() {
					t.Fatalf("modern=%t: the call did not wait: %s", modern, call.answer)
				}
				w := q.Waiting()
				if len(w) != 1 || w[0].Tool != "drop" || string(w[0].Arguments) != `{"id":"1"}` || w[0].Remembers {
					t.Fatalf("modern=%t: waiting: %+v", modern, w)
				}
				if tc.outcome != "" {
					if err := q.Decide(w[0].ID, approve.ForSession, "ops"); err == nil {
						t.Error("a call without a session was allowed for the session")
					}
					if err := q.Decide(w[0].ID, tc.outcome, "ops"); err != nil {
						t.Error(err)
					}
				}
				<-call.done
				bridgetest.Contains(t, call.answer, tc.want)
				if err := q.Decide(w[0].ID, approve.Once, "ops"); err == nil {
					t.Error("a second decision was taken")
				}
			}
			if got := d.take(); got != "once no timeout" {
				t.Errorf("modern=%t: decisions %s", modern, got)
			}
			call := v.ask(t, g, "1", "tools/call", drop)
			synctest.Wait()
			call.cancel(bridge.ErrCancelled)
			<-call.done
			synctest.Wait()
			if w := q.Waiting(); len(w) != 0 {
				t.Errorf("modern=%t: a cancelled call waits: %+v", modern, w)
			}
			call = v.ask(t, g, "1", "tools/call", drop)
			synctest.Wait()
			g.Close(context.Background())
			<-call.done
			if strings.Contains(call.answer, `"by"`) {
				t.Errorf("modern=%t: the end of the bridge made the call: %s", modern, call.answer)
			}
		})
	}
	drops(t, false, approve.Rule{Tools: []string{"*"}, Ask: []string{approve.AskClient}}, func(t *testing.T, g *gateway, d *decided, _ *atomic.Pointer[string]) {
		bridgetest.Contains(t, visitor{server: "one", caps: "{}"}.call(t, g, "tools/call", `"name":"look"`), "nobody can be asked", "add console to ask", `"isError":true`)
	})
}

// A modern server asks its own question after an operator's yes. The answer continues the same call: the operator is not
// asked again. Answers that come without such a question are refused, since nobody has seen them.
func TestApprovalBeforeQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		two := modernShop("one", map[string]string{"tools/list": `{"resultType":"complete",` + lookAndDrop[1:len(lookAndDrop)-1] + `,"ttlMs":0,"cacheScope":"private"}`})
		serve := two.serve
		two.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
			state, answers := gjson.GetBytes(m.Params, "requestState"), gjson.GetBytes(m.Params, "inputResponses")
			switch {
			case m.Method == "tools/call" && !answers.Exists():
				f.answer(m, `{"resultType":"input_required","inputRequests":{"sure":{"method":"elicitation/create","params":{"message":"Sure?","requestedSchema":{"type":"object","properties":{}}}}},"requestState":"mine"}`)
				return true
			case m.Method == "tools/call" && (state.Str != "mine" || answers.Get("sure.action").Str != "accept"):
				f.answer(m, `{"resultType":"complete","content":[{"type":"text","text":"wrong state"}]}`)
				return true
			}
			return serve(f, m)
		}
		d := &decided{}
		g := newGateway(Options{
			Servers: []ServerOptions{{Name: "one", Adapter: two, ServerSettings: ServerSettings{
				Cache:   cache.Options{Off: true},
				Approve: []approve.Rule{{Tools: []string{"drop"}, Ask: []string{approve.AskConsole}}},
			}}},
			Log:       slog.New(slog.DiscardHandler),
			Decisions: d,
		})
		defer g.Close(context.Background())
		const drop = `"name":"drop",` + dropArgs
		allow := func() {
			synctest.Wait()
			for _, w := range g.Approvals().Waiting() {
				if err := g.Approvals().Decide(w.ID, approve.Once, ""); err != nil {
					t.Error(err)
				}
			}
		}
		v := visitor{server: "one"}
		call := v.ask(t, g, "1", "tools/call", drop)
		allow()
		<-call.done
		bridgetest.Contains(t, call.answer, `"input_required"`, `Sure?`)
		retry := again(t, drop, call.answer, `{"action":"accept"}`)
		if got := v.call(t, g, "tools/call", strings.Replace(retry, `"id":"1"`, `"id":"2"`, 1)); strings.Contains(got, `"by"`) {
			t.Errorf("other arguments: %s", got)
		}
		bridgetest.Contains(t, v.call(t, g, "tools/call", retry), `"by":"one"`)
		bridgetest.Contains(t, v.call(t, g, "tools/call", drop+`,"inputResponses":{"sure":{"action":"accept"}}`), "its approval has ended")

		s, asked := sessionAt(t, g, "one", "", ""), &pendingCall{done: make(chan struct{})}
		s.Go(func() {
			defer close(asked.done)
			a, _ := s.Call(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{`+drop+`}}`), &Envelope{}, &asked.back)
			asked.answer = bridgetest.Text(a)
		})
		allow()
		synctest.Wait()
		question := strings.Join(asked.back.take(), "")
		bridgetest.Contains(t, question, "Sure?")
		if err := s.Answer(bridgetest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept"}}`, bridgetest.Parse(t, question).ID))); err != nil {
			t.Fatal(err)
		}
		<-asked.done
		bridgetest.Contains(t, asked.answer, `"by":"one"`)
		if got := d.take(); got != "once once" {
			t.Errorf("decisions %s", got)
		}
	})
}

// Stateless clients are asked however connections are shared, and only the caller that was asked can answer. If all clients
// share a connection to a legacy server, that connection carries no questions: an operator decides.
func TestApprovalShared(t *testing.T) {
	for _, modern := range []bool{false, true} {
		for _, share := range []Share{ShareSession, SharePrincipal, ShareAll, ShareCall} {
			synctest.Test(t, func(t *testing.T) {
				o := ServerOptions{
					Name:    "one",
					Adapter: shop("one", map[string]string{"tools/list": lookAndDrop}),
					ServerSettings: ServerSettings{
						Share:   share,
						Approve: []approve.Rule{{Tools: []string{"drop"}}},
					},
				}
				if modern {
					o.Adapter = modernShop("one", map[string]string{"tools/list": `{"resultType":"complete",` + lookAndDrop[1:len(lookAndDrop)-1] + `,"ttlMs":0,"cacheScope":"private"}`})
				}
				g := newGateway(Options{Servers: []ServerOptions{o}, Log: slog.New(slog.DiscardHandler), Grants: grants("p", "q")})
				defer g.Close(context.Background())
				const drop = `"name":"drop",` + dropArgs
				p, q := visitor{server: "one", principal: "p"}, visitor{server: "one", principal: "q"}
				call := p.ask(t, g, "1", "tools/call", drop)
				if !modern && share == ShareAll {
					if call.over() || len(g.Approvals().Waiting()) != 1 {
						t.Errorf("no operator is asked: %s", call.answer)
					}
					call.cancel(bridge.ErrCancelled)
					<-call.done
					return
				}
				<-call.done
				retry := again(t, drop, call.answer, chosen("Yes, this once"))
				if got := q.call(t, g, "tools/call", retry); strings.Contains(got, `"by"`) {
					t.Errorf("modern=%t, share=%s: another caller answered: %s", modern, share, got)
				}
				bridgetest.Contains(t, p.call(t, g, "tools/call", retry), `"by":"one"`)
			})
		}
	}
}
