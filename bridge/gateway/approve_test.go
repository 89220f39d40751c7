package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/guard/approve"
)

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
				chosen("Yes, this once"): true,
				chosen("No"):             false,
				`{"action":"decline"}`:   false,
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
					g.Close(context.Background()) // which is a no
					<-call.done
					bridgetest.Lacks(t, call.answer, `"by"`)
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
