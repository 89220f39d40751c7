package lift_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lift"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// stage is a session with a lift in front of a server that the test plays.
type stage struct {
	*bridgetest.Upstream
	t      *testing.T
	client *bridgetest.Client
	own    bridge.Client // of the connection
	up     bridge.Upstream
	from   *bridge.Caller
	missed int
}

// play starts a session of one revision before a server of another, without its handshake.
func play(t *testing.T, session, server, clientCaps, serverCaps string) *stage {
	s := &stage{Upstream: bridgetest.NewUpstream(server, serverCaps), t: t, client: &bridgetest.Client{}, from: bridgetest.Caller(session, "", clientCaps)}
	s.Serve = func(r *bridge.Request) *jsonrpc.Message {
		if r.Method == "initialize" {
			return bridgetest.Result(t, string(s.Server().Result))
		}
		return nil
	}
	l := lift.New(s.from, s.client, &lift.Options{
		Server: "fake", Handshake: time.Minute, Log: slog.New(slog.DiscardHandler), Rewrites: &list.Rewrites{},
		Cache: s,
	})
	s.own, s.up = l.Client(), l.Wrap(s.Upstream)
	return s
}

// Heard implements lift.Cache.
func (s *stage) Heard(*jsonrpc.Message) { s.missed++ }

// begin calls initialize and returns the result.
func (s *stage) begin() string {
	s.t.Helper()
	a := s.call("initialize", bridgetest.InitializeParams)
	s.Got()
	return a
}

// call makes a call that Serve answers, or that a goroutine of the test takes.
func (s *stage) call(method, params string) string {
	s.t.Helper()
	m, err := s.up.Call(s.t.Context(), bridgetest.Request(s.t, s.from, s.client, method, params))
	if err != nil {
		return "error: " + err.Error()
	}
	return bridgetest.Text(m)
}

// ask makes a call in a goroutine.
func (s *stage) ask(method, params string) <-chan string {
	done := make(chan string, 1)
	go func() { done <- s.call(method, params) }()
	return done
}

func (s *stage) end() {
	s.t.Helper()
	if err := s.up.Close(s.t.Context()); err != nil || s.Closed() != 1 {
		s.t.Errorf("Close() = %v, and the connection was closed %d times", err, s.Closed())
	}
}

func same(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\ngot  %s\nwant %s", what, got, want)
	}
}

// Calls between legacy revisions are translated where one of them does not know what the other says.
func TestGrade(t *testing.T) {
	for _, tc := range []struct {
		name, session, server, method, params string
		sent, answer, want                    string
	}{
		{"schema of results", era.Rev20241105, era.Rev20251125, "tools/list", `{}`, `{}`,
			`"result":{"tools":[{"name":"x","outputSchema":{"type":"object"}}]}`, `"result":{"tools":[{"name":"x"}]}`},
		{"structured content", era.Rev20241105, era.Rev20251125, "tools/call", `{"name":"x"}`, `{"name":"x"}`,
			`"result":{"structuredContent":{"a":1}}`, `"content":[{"type":"text","text":"{\"a\":1}"}]`},
		{"context of a completion", era.Rev20250618, era.Rev20250326, "completion/complete", `{"ref":{},"context":{}}`, `{"ref":{}}`, `"result":{"a":1}`, `"result":{"a":1}`},
		{"URLs to visit", era.Rev20250618, era.Rev20251125, "tools/call", `{"name":"x"}`, `{"name":"x"}`,
			`"error":{"code":-32042,"message":"m","data":{"elicitations":[{"url":"https://a.example"}]}}`, `"code":-32603,"message":"m: https://a.example"`},
		{"newer client", era.Rev20251125, era.Rev20241105, "tools/call", `{"name":"x"}`, `{"name":"x"}`, `"result":{"structuredContent":{"a":1}}`, `"result":{"structuredContent":{"a":1}}`},
		{"task of a newer client", era.Rev20251125, era.Rev20250618, "tools/call", `{"name":"x","task":{"ttl":1},"n":1.0}`, `{"name":"x","n":1.0}`, `"result":{"content":[]}`, `"result":{"content":[]}`},
		{"tasks", era.Rev20250618, era.Rev20251125, "initialize", bridgetest.InitializeParams, bridgetest.InitializeParams, `"result":{"capabilities":{"tasks":{},"tools":{}}}`, `"result":{"capabilities":{"tools":{}}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := play(t, tc.session, tc.server, `{}`, `{}`)
			s.Serve = func(*bridge.Request) *jsonrpc.Message {
				return bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,`+tc.answer+`}`)
			}
			bridgetest.Contains(t, s.call(tc.method, tc.params), tc.want)
			same(t, "the server got", strings.Join(s.Got(), "\n"), tc.method+" "+tc.sent)
			s.end()
		})
	}
}

// Messages of a server of another legacy revision are translated too, about a call and by themselves.
func TestGradeBack(t *testing.T) {
	s := play(t, era.Rev20241105, era.Rev20251125, `{"sampling":{},"roots":{}}`, `{}`)
	s.client.Reply = func(m *jsonrpc.Message) *jsonrpc.Message {
		return bridgetest.Result(t, `{"role":"user","model":"m","content":{"type":"text","text":"x"}}`)
	}
	got := make(chan string, 1)
	take := func(m *jsonrpc.Message) { got <- string(m.Result) + string(m.Error) }
	s.Serve = func(r *bridge.Request) *jsonrpc.Message {
		r.Back.Notify(bridgetest.Notification(t, "notifications/progress", `{"progressToken":1,"progress":1,"message":"m"}`))
		r.Back.Ask(bridgetest.Question(t, "sampling/createMessage", `{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]}`), take)
		return bridgetest.Result(t, `{}`)
	}
	s.call("tools/call", `{"name":"x"}`)
	same(t, "the client got", strings.Join(s.client.Got(), "\n"), "notifications/progress {\"progressToken\":1,\"progress\":1}\n"+
		`asked sampling/createMessage {"messages":[{"role":"user","content":{"type":"text","text":"a"}}]}`)
	bridgetest.Contains(t, <-got, `"role":"user"`)
	s.own.Ask(bridgetest.Question(t, "elicitation/create", `{}`), take)
	bridgetest.Contains(t, <-got, "the client does not have the capability elicitation")
	s.own.Notify(bridgetest.Notification(t, "notifications/progress", `{"progressToken":1,"progress":1,"message":"m"}`))
	s.own.Gone(bridge.ErrLost)
	same(t, "the client got", strings.Join(s.client.Got(), "\n"), "notifications/progress {\"progressToken\":1,\"progress\":1}\ngone")
	if err := s.up.Notify(t.Context(), bridgetest.Request(t, s.from, nil, "notifications/roots/list_changed", `{}`)); err != nil {
		t.Error(err)
	}
	bridgetest.Contains(t, strings.Join(s.Got(), "\n"), "roots/list_changed")
}

// Answers to questions are translated for an older server. A server that asks before its revision is known asks only what
// the client's revision can express.
func TestGradeAnswers(t *testing.T) {
	s := play(t, era.Rev20251125, era.Rev20250618, `{"sampling":{}}`, `{}`)
	content := ""
	s.client.Reply = func(*jsonrpc.Message) *jsonrpc.Message {
		return bridgetest.Result(t, `{"role":"assistant","model":"m","content":`+content+`}`)
	}
	var got string
	s.Serve = func(r *bridge.Request) *jsonrpc.Message {
		r.Back.Ask(bridgetest.Question(t, "sampling/createMessage", `{"messages":[],"maxTokens":1}`), func(m *jsonrpc.Message) { got = string(m.Result) + string(m.Error) })
		return bridgetest.Result(t, `{}`)
	}
	for given, want := range map[string]string{
		`[{"type":"text","text":"a"},{"type":"text","text":"b"}]`: `"content":{"type":"text","text":"a\nb"}`,
		`[{"type":"image"},{"type":"text","text":"b"}]`:           `"code":-32603`,
	} {
		content = given
		s.call("tools/call", `{"name":"x"}`)
		bridgetest.Contains(t, got, want)
	}
	s.end()
	early := lift.New(bridgetest.Caller(era.Rev20250618, "", `{"elicitation":{},"roots":{}}`), s.client, &lift.Options{}).Client()
	s.client.Got()
	for method, params := range map[string]string{
		"elicitation/create": `{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"array","items":{"type":"string","enum":["x"]}}}}}`,
		"roots/list":         `{}`,
	} {
		early.Ask(bridgetest.Question(t, method, params), func(m *jsonrpc.Message) {
			if method == "elicitation/create" {
				bridgetest.Contains(t, string(m.Error), `"code":-32602`)
			}
		})
	}
	same(t, "the client got", strings.Join(s.client.Got(), "\n"), "asked roots/list {}")
}

// sent is what goes with each request of a session of 2025-11-25 to a modern server.
const sent = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"}}`

// A modern server learns with each request who asks, and its results lose what only modern clients read.
func TestModern(t *testing.T) {
	const caps = `{"tools":{},"logging":{},"experimental":{"vendor":{}}}`
	for _, tc := range []struct {
		name, method, params, sent, answer, want string
	}{
		{"without params", "tools/list", `{}`, `{` + sent + `}`, `"result":{"resultType":"complete","ttlMs":5,"cacheScope":"public","tools":[]}`, `"result":{"tools":[]}`},
		{"with params", "tools/call", `{"name":"x"}`, `{` + sent + `,"name":"x"}`, `"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{}},"content":[]}`, `"result":{"content":[]}`},
		{"with _meta", "tools/call", `{"_meta":{"k":1},"name":"x"}`, `{` + strings.TrimSuffix(sent, "}") + `,"k":1},"name":"x"}`, `"result":{"_meta":{"k":1}}`, `"result":{"_meta":{"k":1}}`},
		{"members without meaning in sessions", "tools/call", `{"name":"x","requestState":"s","inputResponses":{}}`, `{` + sent + `,"name":"x"}`, `"result":{}`, `"result":{}`},
		{"reserved members of the client", "tools/call", `{"name":"x","_meta":{"io.modelcontextprotocol/logLevel":"debug"}}`, `{"name":"x",` + sent + `}`, `"result":{}`, `"result":{}`},
		{"members that appear twice", "tools/call", `{"name":"x"}`, `{` + sent + `,"name":"x"}`, `"result":{"ttlMs":1,"a":1,"ttlMs":2,"_meta":{"io.modelcontextprotocol/serverInfo":{},"k":1}}`, `"result":{"_meta":{"k":1},"a":1}`},
		{"type that appears twice", "tools/call", `{"name":"x"}`, `{` + sent + `,"name":"x"}`, `"result":{"resultType":"x","content":[],"resultType":"complete","n":1.0}`, `"result":{"content":[],"n":1.0}`},
		{"members between others", "tools/list", `{}`, `{` + sent + `}`, `"result":{"tools":[],"resultType":"complete","ttlMs":1,"nextCursor":"","cacheScope":"public"}`, `"result":{"tools":[],"nextCursor":""}`},
		{"a part of _meta", "tools/call", `{"name":"x"}`, `{` + sent + `,"name":"x"}`, `"result":{"content":[],"_meta":{"a":1e3,"io.modelcontextprotocol\/serverInfo":{"name":"s"},"b":2}}`, `"result":{"content":[],"_meta":{"a":1e3,"b":2}}`},
		{"content over several lines", "tools/call", `{"name":"x"}`, `{` + sent + `,"name":"x"}`, "\"result\":{\n\"content\":[],\"structuredContent\":[1,\n2.0]}", `"result":{ "content":[{"type":"text","text":"[1,\n2.0]"}]}`},
		{"type that is no text", "tools/call", `{"name":"x"}`, `{` + sent + `,"name":"x"}`, `"result":{"resultType":5}`, `"code":-32603`},
		{"question of a list", "tools/list", `{}`, `{` + sent + `}`, `"result":{"resultType":"input_required","requestState":"s"}`, `"code":-32603`},
		{"unsupported version", "tools/call", `{"name":"x"}`, `{` + sent + `,"name":"x"}`, `"error":{"code":-32022,"message":"m"}`, `"code":-32603`},
		{"resource that does not exist", "resources/read", `{"uri":"a:b"}`, `{` + sent + `,"uri":"a:b"}`, `"error":{"code":-32602,"message":"no","data":{"uri":"a:b"}}`, `"code":-32002`},
		{"unknown kind of result", "tools/call", `{"name":"x"}`, `{` + sent + `,"name":"x"}`, `"result":{"resultType":"task"}`, `"message":"server fake: its answer has an unknown resultType: \"task\"","data":{"bridge":"upstream_invalid"}`},
		{"method of a task", "tasks/get", `{"taskId":"t"}`, "", "", `"code":-32601,"message":"server fake has no method tasks/get"`},
		{"method of the modern era", era.Listen, `{}`, "", "", `"code":-32601`},
		{"unknown capability", "resources/subscribe", `{"uri":"a"}`, "", "", `"code":-32601`},
		{"unknown log level", "logging/setLevel", `{"level":"loud"}`, "", "", `"code":-32602`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := play(t, era.Rev20251125, era.Rev20260728, `{}`, caps)
			bridgetest.Contains(t, s.begin(), `"protocolVersion":"2025-11-25"`, `"serverInfo":{"name":"fake","version":"unknown"}`)
			s.Serve = func(*bridge.Request) *jsonrpc.Message {
				return bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,`+tc.answer+`}`)
			}
			bridgetest.Contains(t, s.call(tc.method, tc.params), tc.want)
			want := ""
			if tc.sent != "" {
				want = tc.method + " " + tc.sent
			}
			same(t, "the server got", strings.Join(s.Got(), "\n"), want)
			s.end()
		})
	}
}

// A call before initialize, as of an aggregate, makes the handshake first. Methods of a shared extension pass.
func TestModernUnasked(t *testing.T) {
	s := play(t, era.Rev20251125, era.Rev20260728, `{"experimental":{"vendor":{}}}`, `{"experimental":{"vendor":{}}}`)
	s.Serve = func(r *bridge.Request) *jsonrpc.Message {
		if r.Method == "initialize" {
			return bridgetest.Result(t, string(s.Server().Result))
		}
		return bridgetest.Result(t, `{"resultType":"complete","by":"vendor"}`)
	}
	bridgetest.Contains(t, s.call("vendor/x", `{}`), `"result":{"by":"vendor"}`)
	got := s.Got()
	if len(got) != 2 || !strings.HasPrefix(got[0], "initialize") {
		t.Errorf("the server got %q", got)
	}
	if err := s.up.Notify(t.Context(), bridgetest.Request(t, s.from, nil, "notifications/initialized", `{}`)); err != nil || len(s.Got()) > 0 {
		t.Error("a modern server got a notification of a session")
	}
	s.own.Ask(bridgetest.Question(t, "roots/list", `{}`), func(m *jsonrpc.Message) {
		bridgetest.Contains(t, bridgetest.Text(m), "roots")
	})
	s.end()
}

// The session's log level goes with each call, and only its messages come back.
func TestModernLog(t *testing.T) {
	s := play(t, era.Rev20251125, era.Rev20260728, `{}`, `{"logging":{}}`)
	s.begin()
	s.Serve = func(r *bridge.Request) *jsonrpc.Message {
		if r.Back != nil {
			r.Back.Notify(bridgetest.Notification(t, "notifications/message", `{"level":"info","data":"less"}`))
			r.Back.Notify(bridgetest.Notification(t, "notifications/message", `{"level":"error","data":"more"}`))
			r.Back.Notify(bridgetest.Notification(t, "notifications/tools/list_changed", ``))
		}
		return bridgetest.Result(t, `{}`)
	}
	s.call("tools/call", `{"name":"x"}`)
	bridgetest.Lacks(t, strings.Join(s.Got(), "\n"), "logLevel")
	bridgetest.Contains(t, s.call("logging/setLevel", `{"level":"warning"}`), `"result":{}`)
	s.call("tools/call", `{"name":"x"}`)
	bridgetest.Contains(t, strings.Join(s.Got(), "\n"), `"io.modelcontextprotocol/logLevel":"warning"`)
	same(t, "the client got", strings.Join(s.client.Got(), "\n"), `notifications/message {"level":"error","data":"more"}`)
	s.end()
}

// A server that needs input: the client is asked, and the call is made again with the answers.
func TestConverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, era.Rev20260728, `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}`, `{"tools":{}}`)
		s.begin()
		s.client.Reply = func(m *jsonrpc.Message) *jsonrpc.Message {
			if m.Method == "roots/list" {
				return bridgetest.Result(t, `{"roots":[]}`)
			}
			return jsonrpc.NewError(nil, -1, "no", nil)
		}
		done := s.ask("tools/call", `{"name":"x","_meta":{"progressToken":"p"}}`)
		c := s.Next()
		c.Back.Notify(bridgetest.Notification(t, "notifications/progress", `{"progressToken":"p","progress":5}`))
		c.Answer(t, `{"resultType":"input_required","requestState":"s1","inputRequests":{"a":{"method":"roots/list"},"b":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}}}`)
		c = s.Next()
		bridgetest.Contains(t, string(c.Whole()), `{"inputResponses":{"a":{"roots":[]},"b":{"action":"cancel"}},"requestState":"s1",`, `"name":"x"`)
		c.Back.Notify(bridgetest.Notification(t, "notifications/progress", `{"progressToken":"p","progress":2}`))
		c.Back.Notify(bridgetest.Notification(t, "notifications/progress", `{"progressToken":"p","progress":6}`))
		// A state without a question: the call is made again after a pause.
		began := time.Now()
		c.Answer(t, `{"resultType":"input_required","requestState":"s2"}`)
		c = s.Next()
		bridgetest.Contains(t, string(c.Whole()), `{"requestState":"s2","name":"x",`)
		if wait := time.Since(began); wait != 250*time.Millisecond {
			t.Errorf("the call was repeated after %v", wait)
		}
		c.Answer(t, `{"content":[]}`)
		same(t, "the answer", <-done, `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
		got := strings.Join(s.client.Got(), "\n")
		bridgetest.Contains(t, got, `"progress":5}`, `"progress":6}`, "asked roots/list", "asked elicitation/create")
		bridgetest.Lacks(t, got, `"progress":2}`)

		// URLs: the client is asked once, and hears when the server does not need the visit any more.
		s.client.Reply = func(*jsonrpc.Message) *jsonrpc.Message { return bridgetest.Result(t, `{"action":"accept"}`) }
		done = s.ask("tools/call", `{"name":"x"}`)
		for range 2 {
			s.Next().Answer(t, `{"resultType":"input_required","inputRequests":{"u":{"method":"elicitation/create","params":{"mode":"url","url":"https://a.example/","message":"m"}}}}`)
		}
		s.Next().Answer(t, `{"content":[]}`)
		bridgetest.Contains(t, <-done, `"content":[]`)
		got = strings.Join(s.client.Got(), "\n")
		bridgetest.Contains(t, got, `"elicitationId":"`, "notifications/elicitation/complete")
		if n := strings.Count(got, "asked "); n != 1 {
			t.Errorf("the client was asked %d times", n)
		}
		s.end()
	})
}

// What ends a call that needs input: the client's refusal, or a server that asks for what cannot be.
func TestConverseRefused(t *testing.T) {
	for _, tc := range []struct{ name, method, caps, answer, want string }{
		{"client fails, tool", "tools/call", `{"sampling":{}}`, `"inputRequests":{"a":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}}`, `"text":"the server asked the client for sampling/createMessage, which failed: no"}],"isError":true`},
		{"client fails, prompt", "prompts/get", `{"roots":{}}`, `"inputRequests":{"a":{"method":"roots/list"}}`, `"data":{"bridge":"client_refused","originalCode":-1}`},
		{"undeclared capability", "tools/call", `{}`, `"inputRequests":{"a":{"method":"roots/list"}}`, "it asks roots/list: the client does not have the capability roots"},
		{"state of another type", "tools/call", `{}`, `"requestState":5`, "its requestState is not a string"},
		{"endless state", "tools/call", `{}`, `"requestState":"` + strings.Repeat("x", 256<<10) + `"`, "its requestState is too long"},
		{"questions of another type", "tools/call", `{}`, `"inputRequests":[]`, "its inputRequests is not an object"},
		{"two questions of a key", "tools/call", `{"roots":{}}`, `"inputRequests":{"a":{"method":"roots/list"},"a":{"method":"roots/list"}}`, "two of its inputRequests have the same key"},
		{"no question and no state", "tools/call", `{}`, `"inputRequests":null`, "without inputRequests and requestState"},
		{"unknown question", "tools/call", `{}`, `"inputRequests":{"a":{"method":"vendor/ask"}}`, `which is no question of the protocol`},
		{"params that are no object", "tools/call", `{"roots":{}}`, `"inputRequests":{"a":{"method":"roots/list","params":5}}`, "with params that are not an object"},
		{"too many questions", "tools/call", `{"roots":{}}`, `"inputRequests":{` + strings.TrimSuffix(strings.Repeat(`"#":{"method":"roots/list"},`, bridge.MaxQuestions+1), ",") + `}`, "it asks too many questions at once"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := play(t, era.Rev20251125, era.Rev20260728, tc.caps, `{"tools":{}}`)
			s.begin()
			s.client.Reply = func(*jsonrpc.Message) *jsonrpc.Message { return jsonrpc.NewError(nil, -1, "no", nil) }
			answer := tc.answer
			for i := 0; strings.Contains(answer, "#"); i++ { // keys that differ
				answer = strings.Replace(answer, "#", strings.Repeat("k", i+1), 1)
			}
			s.Serve = func(*bridge.Request) *jsonrpc.Message {
				return bridgetest.Result(t, `{"resultType":"input_required",`+answer+`}`)
			}
			bridgetest.Contains(t, s.call(tc.method, `{"name":"x"}`), tc.want)
			if n := len(s.Got()); n != 1 {
				t.Errorf("the call was made %d times", n)
			}
			s.end()
		})
	}
	synctest.Test(t, func(t *testing.T) { // and one that never ends
		s := play(t, era.Rev20251125, era.Rev20260728, `{}`, `{"tools":{}}`)
		s.begin()
		s.Serve = func(*bridge.Request) *jsonrpc.Message {
			return bridgetest.Result(t, `{"resultType":"input_required","requestState":"s"}`)
		}
		bridgetest.Contains(t, s.call("tools/call", `{"name":"x"}`), "it keeps asking for input (the limit is 10)")
		s.end()

		// A URL that is asked for again and again ends after an hour.
		s = play(t, era.Rev20251125, era.Rev20260728, `{"elicitation":{"url":{}}}`, `{"tools":{}}`)
		s.begin()
		s.client.Reply = func(*jsonrpc.Message) *jsonrpc.Message { return bridgetest.Result(t, `{"action":"accept"}`) }
		s.Serve = func(*bridge.Request) *jsonrpc.Message {
			return bridgetest.Result(t, `{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"mode":"url","message":"m","url":"https://x.example"}}}}`)
		}
		began := time.Now()
		bridgetest.Contains(t, s.call("tools/call", `{"name":"x"}`), "was not done within 1h0m0s of questions and answers")
		if took, n := time.Since(began), len(s.Got()); took != time.Hour || n < 100 || n > 130 {
			t.Errorf("it ended after %v and %d attempts", took, n)
		}
		bridgetest.Lacks(t, strings.Join(s.client.Got()[1:], "\n"), "asked")
		s.end()
	})
}

// acknowledge begins the subscription of a listen call.
func acknowledge(t *testing.T, c *bridgetest.Call, what string) {
	t.Helper()
	if c.Method != era.Listen {
		t.Fatalf("the server got %s", c.Method)
	}
	c.Back.Notify(bridgetest.Notification(t, era.Acknowledged, `{"notifications":`+what+`}`))
	synctest.Wait()
}

// A session's subscriptions at a modern server are one request to listen, which is replaced when they change.
func TestSubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, era.Rev20260728, `{}`, `{"tools":{"listChanged":true},"resources":{"subscribe":true}}`)
		s.begin()
		c := s.Next()
		bridgetest.Contains(t, string(c.Whole()), `"notifications":{"toolsListChanged":true}`)
		acknowledge(t, c, `{"toolsListChanged":true}`)
		c.Back.Notify(bridgetest.Notification(t, "notifications/tools/list_changed", `{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}`))
		c.Back.Notify(bridgetest.Notification(t, "notifications/vendor", `{}`))
		same(t, "the client got", strings.Join(s.client.Got(), "\n"), "notifications/tools/list_changed {}")

		bridgetest.Contains(t, s.call("resources/subscribe", `{}`), "params.uri must be a string")
		one, two := s.ask("resources/subscribe", `{"uri":"a:1"}`), s.ask("resources/subscribe", `{"uri":"a:2"}`)
		d := s.Next()
		bridgetest.Contains(t, string(d.Whole()), `"resourceSubscriptions":["a:1","a:2"]`)
		acknowledge(t, d, `{"toolsListChanged":true,"resourceSubscriptions":["a:1"]}`)
		bridgetest.Contains(t, <-one, `"result":{}`)
		bridgetest.Contains(t, <-two, `"code":-32602`, "does not report changes")
		if c.Ctx.Err() == nil || d.Ctx.Err() != nil {
			t.Error("the new subscription did not replace the old one")
		}
		bridgetest.Contains(t, s.call("resources/subscribe", `{"uri":"a:1"}`), `"result":{}`) // it is there
		d.Back.Notify(bridgetest.Notification(t, "notifications/resources/updated", `{"uri":"a:1"}`))
		same(t, "the client got", strings.Join(s.client.Got(), "\n"), `notifications/resources/updated {"uri":"a:1"}`)

		// The server ends it: it is opened again, and the client looks at everything again.
		d.Answer(t, `{}`)
		e := s.Next()
		acknowledge(t, e, `{"toolsListChanged":true,"resourceSubscriptions":["a:1"]}`)
		same(t, "the client got", strings.Join(s.client.Got(), "\n"), "notifications/tools/list_changed \nnotifications/resources/updated {\"uri\":\"a:1\"}")
		if s.missed != 2 {
			t.Errorf("%d missed changes", s.missed)
		}
		// The lane has opened its connection again: the same, after the next acknowledgement.
		s.own.Notify(bridgetest.Notification(t, "notifications/tools/list_changed", ""))
		same(t, "the client got", strings.Join(s.client.Got(), "\n"), "")
		e.Fail(bridge.ErrLost)
		e = s.Next()
		acknowledge(t, e, `{"toolsListChanged":true,"resourceSubscriptions":["a:1"]}`)
		bridgetest.Contains(t, strings.Join(s.client.Got(), "\n"), "notifications/tools/list_changed", "a:1")

		// Without the resource, a smaller one follows; what comes of the old one is not passed on.
		bridgetest.Contains(t, s.call("resources/unsubscribe", `{"uri":"a:1"}`), `"result":{}`)
		e.Back.Notify(bridgetest.Notification(t, "notifications/resources/updated", `{"uri":"a:1"}`))
		same(t, "the client got", strings.Join(s.client.Got(), "\n"), "")
		f := s.Next()
		bridgetest.Lacks(t, string(f.Whole()), "resourceSubscriptions")
		acknowledge(t, f, `{"toolsListChanged":true}`)

		// One that the server refuses is the client's, and the others stay.
		one = s.ask("resources/subscribe", `{"uri":"a:3"}`)
		s.Next().Refuse(t, "{\n\"code\":-5,\n\"message\":\"not that one\"}")
		bridgetest.Contains(t, <-one, `"error":{ "code":-5, "message":"not that one"}`) // on one line
		two = s.ask("resources/subscribe", `{"uri":"a:4"}`)
		s.Next()
		bridgetest.Contains(t, <-two, "error: server fake: it did not acknowledge a subscription within 10s")
		if f.Ctx.Err() != nil {
			t.Error("the earlier subscription has ended")
		}
		s.end()
		bridgetest.Contains(t, s.call("resources/subscribe", `{"uri":"a:5"}`), "error: session was ended")
	})
}

// A server without subscriptions is asked three times. A list that the client read meanwhile may have changed.
func TestSubscribeRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, era.Rev20260728, `{}`, `{"tools":{"listChanged":true}}`)
		s.begin()
		c := s.Next()
		done := s.ask("tools/list", `{}`) // waits for the subscription a moment
		s.Next().Answer(t, `{"tools":[]}`)
		<-done
		acknowledge(t, c, `{"toolsListChanged":true}`)
		same(t, "the client got", strings.Join(s.client.Got(), "\n"), "notifications/tools/list_changed ")
		s.end()

		s = play(t, era.Rev20251125, era.Rev20260728, `{}`, `{"tools":{"listChanged":true}}`)
		s.call("initialize", bridgetest.InitializeParams)
		for range 3 {
			s.Next().Refuse(t, `{"code":-32601,"message":"unknown"}`)
		}
		time.Sleep(time.Hour)
		if got := s.Got(); len(got) != 4 { // with the handshake
			t.Errorf("the server got %d requests: %q", len(got), got)
		}
		s.end()
	})
}
