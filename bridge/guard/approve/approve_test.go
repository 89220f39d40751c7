package approve

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/seal"
)

// stage is a server of one era whose calls are approved.
type stage struct {
	t      *testing.T
	up     *bridgetest.Upstream
	wrap   bridge.Upstream
	queue  *Queue
	from   *bridge.Caller
	client bridgetest.Client
	list   string // of the server's tools
	answer string // to calls

	mu      sync.Mutex // guards decided
	decided []string
}

// Decided implements Recorder.
func (s *stage) Decided(d Decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decided = append(s.decided, string(d.Outcome))
}

// take returns the outcomes since the last take.
func (s *stage) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := strings.Join(s.decided, " ")
	s.decided = nil
	return got
}

// play runs f in a bubble with a server of each era that has the rule.
func play(t *testing.T, rule Rule, f func(t *testing.T, s *stage, modern bool)) {
	for _, revision := range []string{era.LatestLegacy, era.LatestModern} {
		t.Run(revision, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				key, err := seal.New()
				if err != nil {
					t.Fatal(err)
				}
				s := &stage{t: t, up: bridgetest.NewUpstream(revision, `{"tools":{}}`), from: bridgetest.Caller(revision, "p", `{"elicitation":{}}`), answer: `{"resultType":"complete","made":1}`,
					list: `{"resultType":"complete","tools":[{"name":"look","annotations":{"readOnlyHint":true}},{"name":"drop","description":"Deletes a thing."}]}`}
				s.up.Serve = func(r *bridge.Request) *jsonrpc.Message {
					if r.Method == "tools/list" {
						return bridgetest.Result(t, s.list)
					}
					return bridgetest.Result(t, s.answer)
				}
				s.queue = NewQueue(s)
				a := New(Server{Name: "one", Log: slog.New(slog.DiscardHandler), Seals: key, Queue: s.queue})
				a.Set(Options{Rules: []Rule{rule}})
				s.wrap = a.Wrap(s.up)
				f(t, s, revision == era.LatestModern)
			})
		})
	}
}

const drop = `"name":"drop","arguments":{"id":"1"}`

func (s *stage) call(ctx context.Context, params string) string {
	s.t.Helper()
	m, err := s.wrap.Call(ctx, bridgetest.Request(s.t, s.from, &s.client, "tools/call", `{`+params+`}`))
	if err != nil {
		return "error: " + err.Error()
	}
	return bridgetest.Text(m)
}

// asked makes a call, and answers the question about it, which it returns with what comes of the call.
func (s *stage) asked(params, answer string) (question, got string) {
	s.t.Helper()
	if !s.from.Modern() {
		s.client.Reply = func(*jsonrpc.Message) *jsonrpc.Message { return bridgetest.Result(s.t, answer) }
		got = s.call(s.t.Context(), params)
		return strings.Join(s.client.Got(), ""), got
	}
	question = s.call(s.t.Context(), params)
	if state := gjson.Get(question, "result.requestState"); state.Exists() {
		return question, s.call(s.t.Context(), params+again(question, answer))
	}
	return "", question
}

// again returns the params that bring the answer to a question of a call to a modern server.
func again(question, answer string) string {
	r := gjson.Get(question, "result")
	return `,"requestState":"` + r.Get("requestState").Str + `","inputResponses":{"` + r.Get("inputRequests.@keys.0").Str + `":` + answer + `}`
}

func chosen(answer string) string { return `{"action":"accept","content":{"answer":"` + answer + `"}}` }

// Only a yes makes the call, once (C-080, C-081).
func TestAnswers(t *testing.T) {
	play(t, Rule{Tools: []string{Destructive}}, func(t *testing.T, s *stage, _ bool) {
		for answer, made := range map[string]bool{
			chosen(yesOnce):       true,
			chosen(yesSession):    true, // although it was not offered: once
			chosen(denied):        false,
			chosen("yes"):         false,
			`{"action":"accept"}`: false,
			`{"action":"accept","content":{"answer":["Yes, this once"]}}`: false,
			`{"action":"decline"}`: false,
			`{"action":"cancel"}`:  false,
		} {
			question, got := s.asked(drop, answer)
			bridgetest.Contains(t, question, "elicitation/create", `Server: one`, `Tool: \"drop\"`, `{\"id\":\"1\"}`)
			if n := strings.Count(strings.Join(s.up.Got(), "\n"), "tools/call"); strings.Contains(got, `"made"`) != made || (n == 1) != made {
				t.Errorf("%s: %d calls, %s", answer, n, got)
			}
		}
		if question, got := s.asked(`"name":"look"`, ""); question != "" || !strings.Contains(got, `"made"`) {
			t.Errorf("look: asked %q, and got %s", question, got)
		}
	})
}

// A yes for the session counts for that tool in that session, until the tool's definition changes (C-081).
func TestRemembered(t *testing.T) {
	play(t, Rule{Tools: []string{"*"}, Remember: RememberSession}, func(t *testing.T, s *stage, _ bool) {
		yes := chosen(yesSession)
		for _, step := range []struct{ session, call, want string }{
			{"1", drop, "session"},
			{"1", drop, "remembered"},
			{"1", `"name":"drop","arguments":{"id":"2"}`, "remembered"},
			{"1", `"name":"look"`, "session"}, // another tool
			{"2", drop, "session"},
			{"", drop, "once"},
			{"", drop, "once"},
		} {
			s.from.Session = step.session
			_, got := s.asked(step.call, yes)
			if bridgetest.Contains(t, got, `"made"`); s.take() != step.want {
				t.Errorf("%q: %s: not %s", step.session, step.call, step.want)
			}
		}
		s.from.Session = "1"
		s.list = strings.ReplaceAll(s.list, "a thing", "all things")
		if question, got := s.asked(drop, chosen(denied)); question == "" || strings.Contains(got, `"made"`) {
			t.Errorf("after a change: %s, %s", question, got)
		}
		// A yes is for the definition of the question, not for one that comes before the answer.
		change := func() { s.list = strings.ReplaceAll(s.list, "all things", "everything") }
		if s.from.Modern() {
			question := s.call(t.Context(), drop)
			change()
			bridgetest.Contains(t, s.call(t.Context(), drop+again(question, yes)), `"made"`)
		} else {
			s.client.Reply = func(*jsonrpc.Message) *jsonrpc.Message { change(); return bridgetest.Result(t, yes) }
			bridgetest.Contains(t, s.call(t.Context(), drop), `"made"`)
			s.client.Got()
		}
		if question, _ := s.asked(drop, chosen(denied)); question == "" {
			t.Error("the yes counts for a definition that nobody was asked about")
		}
	})
}

// The state of a call belongs to that call and its caller, and counts once, for a while. What could be read in two ways is
// refused.
func TestState(t *testing.T) {
	play(t, Rule{Tools: []string{"*"}}, func(t *testing.T, s *stage, modern bool) {
		for _, doubtful := range []string{`"arguments":{"id":"2"},`, `"Arguments":{"id":"2"},`} {
			bridgetest.Contains(t, s.call(t.Context(), doubtful+drop), "-32602")
		}
		if !modern {
			return
		}
		first := s.call(t.Context(), drop)
		retry := drop + again(first, chosen(yesOnce))
		for name, params := range map[string]string{
			"other arguments": strings.Replace(retry, `"1"`, `"2"`, 1),
			"another tool":    strings.Replace(retry, `"drop"`, `"look"`, 1),
			"forged":          drop + again(`{"result":{"inputRequests":{"bridge_approval":1},"requestState":"x"}}`, chosen(yesOnce)),
			"without a state": drop + `,"inputResponses":{"bridge_approval":` + chosen(yesOnce) + `}`,
		} {
			if got := s.call(t.Context(), params); strings.Contains(got, `"made"`) {
				t.Errorf("%s: %s", name, got)
			}
		}
		s.from.Principal = "q"
		bridgetest.Lacks(t, s.call(t.Context(), retry), `"made"`)
		s.from.Principal = "p"
		bridgetest.Contains(t, s.call(t.Context(), retry), `"made"`)
		refusal := s.call(t.Context(), retry)
		if bridgetest.Contains(t, refusal, "was used before", `"isError":true`); strings.Count(refusal, `"resultType"`) != 1 {
			t.Errorf("a refusal has no type, or two: %s", refusal)
		}
		first = s.call(t.Context(), drop)
		time.Sleep(6 * time.Minute)
		bridgetest.Lacks(t, s.call(t.Context(), drop+again(first, chosen(yesOnce))), `"made"`)

		// The server has a question of its own: the answer continues the same call, and nobody is asked again.
		s.answer = `{"resultType":"input_required","inputRequests":{"sure":{"method":"elicitation/create","params":{}}},"requestState":"mine"}`
		question, own := s.asked(drop, chosen(yesOnce))
		bridgetest.Contains(t, question, "Allow this call?")
		if bridgetest.Contains(t, own, `"sure"`); gjson.Get(own, "result.requestState").Str == "mine" {
			t.Errorf("the server's state is passed on alone: %s", own)
		}
		s.answer = `{"resultType":"complete","made":1}`
		s.up.Got()
		s.take()
		bridgetest.Lacks(t, s.call(t.Context(), strings.Replace(drop, "1", "2", 1)+again(own, `{"action":"accept"}`)), `"made"`)
		bridgetest.Contains(t, s.call(t.Context(), drop+again(own, `{"action":"accept"}`)), `"made"`)
		bridgetest.Contains(t, strings.Join(s.up.Got(), "\n"), `"requestState":"mine"`, `"sure":{"action":"accept"}`)
		if got := s.take(); got != "" {
			t.Errorf("decisions %s", got)
		}
		bridgetest.Contains(t, s.call(t.Context(), drop+`,"inputResponses":{"sure":{"action":"accept"}}`), "its approval has ended")
		s.answer = `{"resultType":"input_required","requestState":"` + strings.Repeat("x", maxState) + `"}`
		_, got := s.asked(drop, chosen(yesOnce))
		bridgetest.Contains(t, got, "the server's requestState is too long")
	})
}

// A client that offers no elicitation waits for an operator, as does one whose rule asks the console only. The end of the
// time and a cancellation are a no.
func TestConsole(t *testing.T) {
	play(t, Rule{Tools: []string{"drop"}, Timeout: time.Minute, Remember: RememberSession}, func(t *testing.T, s *stage, _ bool) {
		s.from.Capabilities = []byte("{}")
		s.client.Reply = func(*jsonrpc.Message) *jsonrpc.Message { return jsonrpc.NewError(nil, -32601, "no", nil) }
		start := func() (done chan string, cancel context.CancelCauseFunc) {
			ctx, cancel := context.WithCancelCause(t.Context())
			done = make(chan string, 1)
			go func() { done <- s.call(ctx, drop) }()
			synctest.Wait()
			return done, cancel
		}
		for _, tc := range []struct {
			session string
			outcome Outcome
			want    string
		}{{"", Once, `"made"`}, {"", Denied, "did not allow it"}, {"", "", "nobody allowed it within 1m0s"}, {"1", ForSession, `"made"`}} {
			s.from.Session = tc.session
			done, _ := start()
			w := s.queue.Waiting()
			if len(w) != 1 || w[0].Tool != "drop" || string(w[0].Arguments) != `{"id":"1"}` || w[0].Remembers != (tc.session != "") || len(done) > 0 {
				t.Fatalf("waiting: %+v", w)
			}
			if err := s.queue.Decide(w[0].ID, ForSession, "ops"); (err == nil) != (tc.session != "") {
				t.Errorf("allowed for the session %q: %v", tc.session, err)
			}
			if tc.outcome == Once || tc.outcome == Denied {
				if err := s.queue.Decide(w[0].ID, tc.outcome, "ops"); err != nil {
					t.Error(err)
				}
			}
			bridgetest.Contains(t, <-done, tc.want)
			if err := s.queue.Decide(w[0].ID, Once, "ops"); err == nil {
				t.Error("a second decision was taken")
			}
		}
		if got := s.take(); got != "once no timeout session" {
			t.Errorf("decisions %s", got)
		}
		s.from.Session = ""
		done, cancel := start()
		cancel(bridge.ErrCancelled)
		if got := <-done; !strings.HasPrefix(got, "error: ") || len(s.queue.Waiting()) != 0 || s.take() != "cancelled" {
			t.Errorf("a cancelled call: %s; waiting: %+v", got, s.queue.Waiting())
		}
	})
	play(t, Rule{Tools: []string{"*"}, Ask: []string{AskClient}}, func(t *testing.T, s *stage, _ bool) {
		s.from.Capabilities = []byte("{}")
		s.client.Reply = func(*jsonrpc.Message) *jsonrpc.Message { return jsonrpc.NewError(nil, -32601, "no", nil) }
		bridgetest.Contains(t, s.call(t.Context(), drop), "nobody can be asked", "add console to ask", `"isError":true`)
	})
	play(t, Rule{Tools: []string{"*"}, Timeout: time.Minute}, func(t *testing.T, s *stage, modern bool) {
		if modern {
			return
		}
		bridgetest.Contains(t, s.call(t.Context(), drop), "nobody allowed it within 1m0s") // the client does not answer
		bridgetest.Contains(t, strings.Join(s.client.Got(), "\n"), "withdrawn elicitation/create nobody answered in time")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, bridge.ErrCancelled)
		defer cancel()
		bridgetest.Contains(t, s.call(ctx, drop), "error: cancelled by the client")
		bridgetest.Contains(t, strings.Join(s.client.Got(), "\n"), "withdrawn elicitation/create the call was cancelled")
		if got := s.take(); got != "timeout cancelled" {
			t.Errorf("decisions %s", got)
		}
	})
}
