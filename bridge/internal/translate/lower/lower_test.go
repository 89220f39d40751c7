package lower_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lower"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/seal"
)

// able are the capabilities of a client that can be asked everything.
const able = `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}`

// stage is a translator between clients and a server that the test plays. It is the translator's Line and Slot.
type stage struct {
	*bridgetest.Upstream
	t    *testing.T
	s    *lower.Server
	tr   *lower.Translator
	from *bridge.Caller
	ping func() error // nil answers each ping

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	log    bytes.Buffer

	mu     sync.Mutex // guards the rest
	events []string   // of Line and Slot
}

// limit is a Queue.
type limit struct{}

func (limit) Refusal(format string, args ...any) error { return fmt.Errorf(format, args...) }

// play starts a translator for a server of that revision. Close it at the end of the bubble.
func play(t *testing.T, revision, capabilities string, of lower.Clients) *stage {
	t.Helper()
	key, err := seal.New()
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{Upstream: bridgetest.NewUpstream(revision, capabilities), t: t, from: bridgetest.Caller(era.LatestModern, "", able)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	o := lower.Options{
		Name: "fake", Log: slog.New(slog.NewTextHandler(&s.log, nil)), MaxTask: new(atomic.Int64),
		Lasting: true, Alone: true, Instance: "here", Seals: key, Rewrites: &list.Rewrites{},
		Queue: limit{},
	}
	o.MaxTask.Store(int64(time.Minute))
	s.s = lower.New(o)
	if of.Tools == nil {
		of.Tools = &list.TaskTools{}
	}
	s.tr = s.s.Translator(of, s, func(bridge.Client) lower.Line { return s })
	return s
}

// end closes the translator and checks that nothing is left.
func (s *stage) end() {
	s.t.Helper()
	s.tr.Close(s.t.Context())
	s.s.Close()
	synctest.Wait()
	if st := s.s.Status(); st != (lower.Status{}) {
		s.t.Errorf("left: %+v", st)
	}
}

func (s *stage) Caller() *bridge.Caller   { return s.from }
func (s *stage) Checked() bridge.Upstream { return s.Upstream }
func (s *stage) Hold()                    { s.event("hold") }
func (s *stage) Release()                 { s.event("leave") }
func (s *stage) Suspect(yes bool)         { s.event(fmt.Sprint("suspect ", yes)) }
func (s *stage) Retire()                  { s.event("retire") }
func (s *stage) Gone()                    { s.event("gone") }
func (s *stage) Close(context.Context) error {
	s.cancel()
	s.wg.Wait()
	return nil
}

func (s *stage) Keep(context.Context) (func(), error) {
	s.event("keep")
	return func() { s.event("release") }, nil
}

func (s *stage) Go(f func(context.Context)) bool {
	s.wg.Go(func() { f(s.ctx) })
	return true
}

func (s *stage) Ping(ctx context.Context, within time.Duration) error {
	if s.ping == nil {
		return nil
	}
	select {
	case <-time.After(within):
	case <-ctx.Done():
	}
	return s.ping()
}

func (s *stage) event(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, what)
}

// seen returns the events of Line and Slot since the last seen.
func (s *stage) seen() string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	got := strings.Join(s.events, ", ")
	s.events = nil
	return got
}

// visit is one request of a client.
type visit struct {
	bridgetest.Client
	cancel context.CancelCauseFunc
	done   chan struct{}
	text   string // of the answer
	err    error
}

// ask makes a request in a goroutine, as package stateless does.
func (s *stage) ask(from *bridge.Caller, method, params string) *visit {
	s.t.Helper()
	v := &visit{done: make(chan struct{})}
	r := bridgetest.Request(s.t, from, &v.Client, method, params)
	ctx, cancel := context.WithCancelCause(context.Background())
	v.cancel = cancel
	go func() {
		defer close(v.done)
		m, err := s.call(ctx, r)
		v.text, v.err = bridgetest.Text(m), err
	}()
	return v
}

func (s *stage) call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	round, no := s.s.Round(r)
	if no != nil {
		return no, nil
	}
	if round.Parked() {
		return s.s.Resume(ctx, r, round)
	}
	if no := round.Unknown(); no != nil {
		return no, nil
	}
	return s.tr.Call(ctx, r, s.Server(), false, round)
}

// answer waits for the answer of the request.
func (v *visit) answer() string {
	<-v.done
	if v.err != nil {
		return "error: " + v.err.Error()
	}
	return v.text
}

// pending reports whether the request has no answer when all is quiet.
func (v *visit) pending() bool {
	synctest.Wait()
	select {
	case <-v.done:
		return false
	default:
		return true
	}
}

var statePattern = regexp.MustCompile(`"requestState":"([^"]*)"`)

// state returns the requestState member of an answer.
func state(t *testing.T, answer string) string {
	t.Helper()
	found := statePattern.FindString(answer)
	if found == "" {
		t.Fatalf("no requestState in %s", answer)
	}
	return found
}

// replies collects the replies to the server's questions.
type replies chan string

func (r replies) take(m *jsonrpc.Message) {
	b := *m
	b.ID = []byte("1")
	r <- bridgetest.Text(&b)
}

func same(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\ngot  %s\nwant %s", what, got, want)
	}
}

const envelope = `"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1"}}`

// Requests reach a legacy server without what only 2026-07-28 knows, and results get what it demands.
func TestCall(t *testing.T) {
	const cached = `"resultType":"complete","ttlMs":0,"cacheScope":"private",` + `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1"}}`
	for _, tc := range []struct {
		name, revision, method, params string
		sent                           string // to the server; empty for nothing
		answer                         string // of the server: its member with its value
		want                           string // in the client's answer
	}{
		{"tool", era.Rev20251125, "tools/call", `{"name":"x","arguments":{"a":1.0},"_meta":{"k":1}}`,
			`{"name":"x","arguments":{"a":1.0},"_meta":{"k":1}}`, `"result":{"content":[]}`, `"result":{` + envelope + `,"content":[]}`},
		{"task and answers without questions are dropped", era.Rev20251125, "tools/call", `{"name":"x","task":{},"inputResponses":{"mine":{}}}`,
			`{"name":"x"}`, `"result":{}`, `"result":{` + envelope + `}`},
		{"members that appear twice", era.Rev20251125, "tools/call", `{"name":"x"}`, `{"name":"x"}`, `"result":{"resultType":1,"a":1,"resultType":2,"_meta":{"k":1},"_meta":{"k":2}}`,
			`"result":{"resultType":"complete","a":1,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1"},"k":1}}`},
		{"large numbers", era.Rev20251125, "tools/call", `{"name":"x"}`, `{"name":"x"}`, `"result":{ "isError":true,"n":12345678901234567890}`, `"result":{` + envelope + `, "isError":true,"n":12345678901234567890}`},
		{"tools of a list", era.Rev20251125, "tools/list", `{}`, `{}`, `"result":{"_meta":{"k":1},"resultType":"x","tools":[{"name":"a","execution":{"taskSupport":"optional"}}]}`,
			`"result":{"ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1"},"k":1},"resultType":"complete","tools":[{"name":"a"}]}`},
		{"list", era.Rev20250618, "tools/list", `{}`, `{}`, `"result":{"tools":[]}`, `"result":{` + cached + `,"tools":[]}`},
		{"empty list with lifetime", era.Rev20250618, "prompts/list", `{}`, `{}`, `"result":{"ttlMs":5,"prompts":[]}`, `"ttlMs":0,`},
		{"_meta of the server stays", era.Rev20250618, "tools/call", `{"name":"x"}`, `{"name":"x"}`, `"result":{"_meta":{"k":1}}`, `"k":1`},
		{"_meta that is no object is replaced", era.Rev20250618, "tools/call", `{"name":"x"}`, `{"name":"x"}`, `"result":{"_meta":5}`, `"_meta":{"io.modelcontextprotocol/serverInfo"`},
		{"a legacy resultType means nothing", era.Rev20250618, "tools/call", `{"name":"x"}`, `{"name":"x"}`, `"result":{"resultType":"other"}`, `"resultType":"complete"`},
		{"resource that does not exist", era.Rev20250618, "resources/read", `{"uri":"a:b"}`, `{"uri":"a:b"}`, `"error":{"code":-32002,"message":"no"}`, `"error":{"code":-32602,"message":"no","data":{"uri":"a:b"}}`},
		{"other error", era.Rev20250618, "tools/call", `{"name":"x"}`, `{"name":"x"}`, `"error":{"code":-5,"message":"no"}`, `"error":{"code":-5,"message":"no"}`},
		{"result that is no object", era.Rev20250618, "tools/call", `{"name":"x"}`, `{"name":"x"}`, `"result":[]`, `"data":{"bridge":"upstream_invalid"}`},
		{"context of a completion", era.Rev20250326, "completion/complete", `{"ref":{},"context":{}}`, `{"ref":{}}`, `"result":{}`, envelope},
		{"method of legacy revisions", era.Rev20251125, "resources/subscribe", `{"uri":"a"}`, "", "", `"error":{"code":-32601,"message":"the server has no method resources/subscribe"}`},
		{"task of 2026-07-28", era.Rev20251125, "tasks/get", `{"taskId":"a"}`, "", "", `-32601`},
		{"method of a shared extension", era.Rev20251125, "vendor/x", `{}`, `{}`, `"result":{}`, envelope},
		{"discover", era.Rev20251125, "server/discover", `{}`, "", "", `"supportedVersions":["2026-07-28","2025-11-25"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := play(t, tc.revision, `{"experimental":{"vendor":{}}}`, lower.Clients{})
				from := bridgetest.Caller(era.LatestModern, "", `{"experimental":{"vendor":{}}}`)
				s.Serve = func(*bridge.Request) *jsonrpc.Message {
					return bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,`+tc.answer+`}`)
				}
				bridgetest.Contains(t, s.ask(from, tc.method, tc.params).answer(), tc.want)
				want := ""
				if tc.sent != "" {
					want = tc.method + " " + tc.sent
				}
				same(t, "the server got", strings.Join(s.Got(), "\n"), want)
				s.end()
			})
		})
	}
}

// A question parks the call. A request with the answers resumes it, and its answer stays for a client that lost it.
func TestParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, lower.Clients{})
		first := s.ask(s.from, "tools/call", `{"name":"x","arguments":{"a":1,"b":2},"_meta":{"progressToken":"one"}}`)
		c := s.Next()
		c.Back.Notify(bridgetest.Notification(t, "notifications/progress", `{"progressToken":"one","progress":1}`))
		c.Back.Notify(bridgetest.Notification(t, "notifications/message", `{"level":"error","data":"not wanted"}`))
		c.Back.Notify(bridgetest.Notification(t, "notifications/tools/list_changed", ``))
		got := make(replies, 4)
		form := `{"message":"who?","requestedSchema":{"type":"object","properties":{}}}`
		c.Back.Ask(bridgetest.Question(t, "elicitation/create", form), got.take)
		c.Back.Ask(bridgetest.Question(t, "roots/list", `{}`), got.take)
		asked := first.answer()
		bridgetest.Contains(t, asked, `"resultType":"input_required"`, `"inputRequests":{"r1":{"method":"elicitation/create","params":`+form+`},"r2":{"method":"roots/list","params":{}}}`)
		same(t, "the client got", strings.Join(first.Got(), "\n"), `notifications/progress {"progressToken":"one","progress":1}`)
		if st := s.s.Status(); st.Waiting != 1 || st.Kept != 1 || st.Requests != 1 {
			t.Errorf("Status() = %+v", st)
		}
		c.Back.Notify(bridgetest.Notification(t, "notifications/progress", `{"progressToken":"one","progress":2}`))

		// A request without any answer is asked again, one with an invalid answer is refused.
		same(t, "asked again", statePattern.ReplaceAllString(s.ask(s.from, "tools/call", `{"name":"x","arguments":{"b":2,"a":1},`+state(t, asked)+`}`).answer(), ""), statePattern.ReplaceAllString(asked, ""))
		bridgetest.Contains(t, s.ask(s.from, "tools/call", `{"name":"x","arguments":{"b":2,"a":1},`+state(t, asked)+`,"inputResponses":{"r1":{"action":"maybe"}}}`).answer(), "requestState")
		again := s.ask(s.from, "tools/call", `{"name":"x","arguments":{"b":2,"a":1},`+state(t, asked)+`}`).answer()
		bridgetest.Contains(t, s.ask(s.from, "tools/call", `{"name":"x","arguments":{"b":2,"a":1},`+state(t, again)+`,"inputResponses":{"r1":{"action":"maybe"}}}`).answer(), `inputResponses.r1: action`)

		params := `{"name":"x","arguments":{"b":2,"a":1},"_meta":{"progressToken":"two"},` + state(t, again) + `,"inputResponses":{"r1":{"action":"decline"},"r2":{"roots":[]}}}`
		second := s.ask(s.from, "tools/call", params)
		same(t, "the server got", <-got+<-got, `{"jsonrpc":"2.0","id":1,"result":{"action":"decline"}}{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}`)
		synctest.Wait()
		bridgetest.Contains(t, s.ask(s.from, "tools/call", params).answer(), "another request")
		c.Answer(t, `{"content":[]}`)
		same(t, "the answer", second.answer(), `{"jsonrpc":"2.0","id":1,"result":{`+envelope+`,"content":[]}}`)
		same(t, "the client got", strings.Join(second.Got(), "\n"), `notifications/progress {"progressToken":"two","progress":2}`)
		same(t, "the answer once more", s.ask(s.from, "tools/call", params).answer(), second.answer())
		if st := s.s.Status(); st.Waiting != 0 || st.Kept != 1 || st.Bytes == 0 {
			t.Errorf("Status() = %+v", st)
		}
		same(t, "uses of the connection", s.seen(), "hold, leave")
		time.Sleep(11 * time.Minute)
		bridgetest.Contains(t, s.ask(s.from, "tools/call", params).answer(), "-32602")
		s.end()
	})
}

// The round before the last is answered by what the client lost; older ones are refused.
func TestLostRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, lower.Clients{})
		first := s.ask(s.from, "tools/call", `{"name":"x"}`)
		c := s.Next()
		got := make(replies, 2)
		c.Back.Ask(bridgetest.Question(t, "roots/list", `{}`), got.take)
		one := state(t, first.answer())
		second := s.ask(s.from, "tools/call", `{"name":"x",`+one+`,"inputResponses":{"r1":{"roots":[]}}}`)
		<-got
		c.Back.Ask(bridgetest.Question(t, "roots/list", `{}`), got.take)
		two := second.answer()
		lost := s.ask(s.from, "tools/call", `{"name":"x",`+one+`,"inputResponses":{"r1":{"roots":[]}}}`).answer()
		same(t, "the questions once more", statePattern.ReplaceAllString(lost, ""), statePattern.ReplaceAllString(two, ""))
		third := s.ask(s.from, "tools/call", `{"name":"x",`+state(t, two)+`,"inputResponses":{"r2":{"roots":[]}}}`)
		<-got
		withdraw := c.Back.Ask(bridgetest.Question(t, "roots/list", `{}`), got.take)
		c.Back.Ask(bridgetest.Question(t, "roots/list", `{}`), got.take)
		withdraw("")
		three := third.answer()
		bridgetest.Contains(t, three, `"r4"`)
		bridgetest.Lacks(t, three, `"r3"`)
		bridgetest.Contains(t, s.ask(s.from, "tools/call", `{"name":"x",`+one+`}`).answer(), "not the last one")
		// The client comes back without the capability: the server learns that, and the call goes on.
		weak := s.ask(bridgetest.Caller(era.LatestModern, "", `{}`), "tools/call", `{"name":"x",`+state(t, three)+`}`)
		bridgetest.Contains(t, <-got, `"code":-32602`)
		c.Answer(t, `{}`)
		bridgetest.Contains(t, weak.answer(), envelope)
		s.end()
	})
}

// A requestState is good for its own request only, and answers are checked before they reach the server.
func TestRoundRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, lower.Clients{})
		v := s.ask(s.from, "tools/call", `{"name":"x","arguments":{"a":1}}`)
		c := s.Next()
		c.Back.Ask(bridgetest.Question(t, "roots/list", `{}`), func(*jsonrpc.Message) {})
		st := state(t, v.answer())
		for _, tc := range []struct{ name, principal, method, params, want string }{
			{"unknown state", "", "tools/call", `{"name":"x","requestState":"abc"}`, "not from this instance"},
			{"state of another type", "", "tools/call", `{"name":"x","requestState":5}`, "requestState must be a string"},
			{"endless state", "", "tools/call", `{"name":"x","requestState":"` + strings.Repeat("x", seal.MaxToken+1) + `"}`, "requestState is too long"},
			{"two states", "", "tools/call", `{"name":"x","requestState":"a","requestState":"b"}`, "must not appear twice"},
			{"answers of another type", "", "tools/call", `{"name":"x","inputResponses":[],` + st + `}`, "inputResponses must be an object"},
			{"answers without state", "", "tools/call", `{"name":"x","inputResponses":{"r1":{}}}`, "without their requestState"},
			{"other arguments", "", "tools/call", `{"name":"x","arguments":{"a":2},` + st + `}`, "other params"},
			{"other tool", "", "tools/call", `{"name":"y","arguments":{"a":1},` + st + `}`, "other params"},
			{"other method", "", "prompts/get", `{"name":"x","arguments":{"a":1},` + st + `}`, "another request"},
			{"other principal", "eve", "tools/call", `{"name":"x","arguments":{"a":1},` + st + `}`, "another request"},
		} {
			from := bridgetest.Caller(era.LatestModern, tc.principal, able)
			got := s.ask(from, tc.method, tc.params).answer()
			if !strings.Contains(got, tc.want) || !strings.Contains(got, "-32602") {
				t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
			}
		}
		time.Sleep(10*time.Minute + time.Second)
		bridgetest.Contains(t, s.ask(s.from, "tools/call", `{"name":"x","arguments":{"a":1},`+st+`}`).answer(), "this requestState has expired")
		same(t, "the server got", strings.Join(s.Got(), "\n"), `tools/call {"name":"x","arguments":{"a":1}}`+"\ncancelled tools/call")
		s.end()
	})
}

// Questions that nobody answers get a reply when the call is dropped: it expires, is revoked, or the bridge stops.
func TestUnanswered(t *testing.T) {
	for name, drop := range map[string]func(s *stage){
		"expired": func(*stage) { time.Sleep(10*time.Minute + time.Second) },
		"revoked": func(s *stage) { s.s.Revoke("", bridge.ErrRevoked) },
		"stopped": func(s *stage) { s.s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := play(t, era.Rev20251125, `{}`, lower.Clients{})
				v := s.ask(s.from, "tools/call", `{"name":"x"}`)
				c := s.Next()
				got := make(replies, 3)
				c.Back.Ask(bridgetest.Question(t, "elicitation/create", `{"message":"m","requestedSchema":{}}`), got.take)
				c.Back.Ask(bridgetest.Question(t, "sampling/createMessage", `{"messages":[],"maxTokens":1}`), got.take)
				c.Back.Ask(bridgetest.Question(t, "roots/list", `{}`), got.take)
				st := state(t, v.answer())
				drop(s)
				same(t, "elicitation", <-got, `{"jsonrpc":"2.0","id":1,"result":{"action":"cancel"}}`)
				bridgetest.Contains(t, <-got, `"code":-1,`)
				bridgetest.Contains(t, <-got, `"code":-32603,`)
				synctest.Wait()
				bridgetest.Contains(t, strings.Join(s.Got(), "\n"), "cancelled tools/call")
				bridgetest.Contains(t, s.ask(s.from, "tools/call", `{"name":"x",`+st+`}`).answer(), "-32602")
				s.end()
			})
		})
	}
}

// Questions that this client cannot be asked are refused, and the call goes on.
func TestQuestionRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, lower.Clients{})
		v := s.ask(bridgetest.Caller(era.LatestModern, "", `{"roots":{}}`), "tools/call", `{"name":"x"}`)
		c := s.Next()
		got := make(replies, 1)
		for method, want := range map[string]string{"elicitation/create": `"code":-32602`, "vendor/ask": `"code":-32601`} {
			c.Back.Ask(bridgetest.Question(t, method, `{}`), got.take)
			bridgetest.Contains(t, <-got, want)
		}
		for range bridge.MaxQuestions {
			c.Back.Ask(bridgetest.Question(t, "roots/list", `{}`), func(*jsonrpc.Message) {})
		}
		c.Back.Ask(bridgetest.Question(t, "roots/list", `{}`), got.take)
		bridgetest.Contains(t, <-got, "too many unanswered questions")
		bridgetest.Contains(t, v.answer(), `"r64"`)
		s.end()

		// A client that can be asked nothing has calls that carry no question.
		s = play(t, era.Rev20251125, `{}`, lower.Clients{})
		s.from.Capabilities = []byte(`{}`)
		s.tr = s.s.Translator(lower.Clients{Tools: &list.TaskTools{}}, s, func(bridge.Client) lower.Line { return s })
		v = s.ask(s.from, "tools/call", `{"name":"x"}`)
		c = s.Next()
		c.Back.Ask(bridgetest.Question(t, "sampling/createMessage", `{}`), got.take)
		bridgetest.Contains(t, <-got, "no client request to attach to")
		c.Answer(t, `{}`)
		bridgetest.Contains(t, v.answer(), envelope)
	})
}

// Questions that name no call go to the only one there is; the server hears why others are refused.
func TestUnattributed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, lower.Clients{})
		got := make(replies, 4)
		s.tr.Ask(bridgetest.Question(t, "vendor/ask", `{}`), got.take)
		bridgetest.Contains(t, <-got, "unknown method")
		if s.s.Unattributed() {
			t.Error("a method that is no question counts as one")
		}
		s.tr.Ask(bridgetest.Question(t, "sampling/createMessage", `{}`), got.take)
		bridgetest.Contains(t, <-got, "no client request to attach to")
		if !s.s.Unattributed() {
			t.Error("the question does not count")
		}
		// Roots wait for a call: one question is taken up, one withdrawn, one too old. Only so many wait.
		var refused atomic.Int64
		for range 2 * bridge.MaxQuestions {
			s.tr.Ask(bridgetest.Question(t, "roots/list", `{}`), func(*jsonrpc.Message) { refused.Add(1) })
		}
		if refused.Load() != bridge.MaxQuestions {
			t.Errorf("%d questions were refused at once", refused.Load())
		}
		time.Sleep(10*time.Second + time.Millisecond)
		if synctest.Wait(); refused.Load() != 2*bridge.MaxQuestions {
			t.Errorf("%d questions were refused in the end", refused.Load())
		}
		s.tr.Ask(bridgetest.Question(t, "roots/list", `{}`), got.take)
		time.Sleep(11 * time.Second)
		bridgetest.Contains(t, <-got, "no request of a client is in flight")
		s.tr.Ask(bridgetest.Question(t, "roots/list", `{}`), got.take)("")
		s.tr.Ask(bridgetest.Question(t, "roots/list", `{}`), got.take)
		v := s.ask(s.from, "tools/call", `{"name":"x"}`)
		c := s.Next()
		asked := v.answer()
		bridgetest.Contains(t, asked, `"inputRequests":{"r1":{"method":"roots/list","params":{}}}`)
		next := s.ask(s.from, "tools/call", `{"name":"x",`+state(t, asked)+`,"inputResponses":{"r1":{"roots":[]}}}`)
		bridgetest.Contains(t, <-got, `"roots":[]`)
		synctest.Wait()

		// Two calls: neither client may see the question.
		other := s.ask(s.from, "tools/call", `{"name":"y"}`)
		d := s.Next()
		s.seen()
		s.tr.Ask(bridgetest.Question(t, "roots/list", `{}`), got.take)
		bridgetest.Contains(t, <-got, "the question names no call")
		same(t, "the connection", s.seen(), "retire")
		c.Answer(t, `{}`)
		bridgetest.Contains(t, next.answer(), envelope)
		d.Answer(t, `{}`)
		bridgetest.Contains(t, other.answer(), envelope)
		s.tr.Ask(bridgetest.Question(t, "roots/list", `{}`), got.take) // waits until the end
		s.end()
		bridgetest.Contains(t, <-got, `"error"`)
	})
}

// A question that names no call is about a call that waits for its client only while no other request is in flight
// that may be its cause.
func TestQuestionBesideParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, lower.Clients{})
		v := s.ask(s.from, "tools/call", `{"name":"x"}`)
		c := s.Next()
		got := make(replies, 3)
		list := s.ask(s.from, "tools/list", `{}`)
		l := s.Next()
		s.tr.Ask(bridgetest.Question(t, "roots/list", `{}`), got.take)
		asked := v.answer()
		s.tr.Ask(bridgetest.Question(t, "sampling/createMessage", `{}`), got.take)
		bridgetest.Contains(t, <-got, "no client request to attach to")
		l.Answer(t, `{"tools":[]}`)
		list.answer()
		s.tr.Ask(bridgetest.Question(t, "sampling/createMessage", `{"messages":[],"maxTokens":1}`), got.take)
		s.tr.Ask(bridgetest.Question(t, "elicitation/create", `{"message":"who?","requestedSchema":{"type":"object","properties":{}}}`), got.take)

		// The client comes back with fewer capabilities: what it has answered counts, and the rest of what it cannot
		// be asked any more is refused.
		less := bridgetest.Caller(era.LatestModern, "", `{"elicitation":{"form":{}}}`)
		next := s.ask(less, "tools/call", `{"name":"x",`+state(t, asked)+`,"inputResponses":{"r1":{"roots":[]}}}`)
		synctest.Wait()
		same(t, "the server got", <-got+<-got, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"the client no longer has the capability for this question"}}{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}`)
		bridgetest.Contains(t, next.answer(), `"inputRequests":{"r3":{"method":"elicitation/create"`)
		last := s.ask(less, "tools/call", `{"name":"x",`+state(t, next.answer())+`,"inputResponses":{"r3":{"action":"decline"}}}`)
		bridgetest.Contains(t, <-got, "decline")
		c.Answer(t, `{}`)
		bridgetest.Contains(t, last.answer(), envelope)
		s.end()
	})
}

// With a handle, a guessed question moves to another call when its own ends first.
func TestGuessed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, lower.Clients{Keyed: true})
		one, c := s.ask(s.from, "tools/call", `{"name":"x"}`), s.Next()
		two, d := s.ask(s.from, "tools/call", `{"name":"y"}`), s.Next()
		got := make(replies, 1)
		s.tr.Ask(bridgetest.Question(t, "roots/list", `{}`), got.take) // about the last call, it seems
		d.Answer(t, `{}`)
		bridgetest.Contains(t, two.answer(), envelope)
		asked := one.answer()
		bridgetest.Contains(t, asked, `"roots/list"`)
		third := s.ask(s.from, "tools/call", `{"name":"x",`+state(t, asked)+`,"inputResponses":{"r1":{"roots":[]}}}`)
		bridgetest.Contains(t, <-got, `"roots":[]`)
		c.Answer(t, `{}`)
		bridgetest.Contains(t, third.answer(), envelope)
		s.end()
	})
}

// After a cancelled call, the connection is suspect until a ping shows that the server knows of it.
func TestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, lower.Clients{})
		why := bridge.TakenBack(bridgetest.Notification(t, "notifications/cancelled", `{"requestId":1,"reason":"bored"}`))
		cancelOne := func() {
			v := s.ask(s.from, "tools/call", `{"name":"x"}`)
			c := s.Next()
			v.cancel(why)
			if <-v.done; !errors.Is(v.err, bridge.ErrCancelled) {
				t.Errorf("the client got %s, %v", v.text, v.err)
			}
			<-c.Ctx.Done()
			if reason, given := bridge.ReasonOf(context.Cause(c.Ctx)); reason != "bored" || !given {
				t.Errorf("the server hears %q", reason)
			}
			synctest.Wait()
		}
		cancelOne()
		bridgetest.Contains(t, s.seen(), "suspect true, ", "suspect false")
		s.ping = func() error { return bridge.ErrTimeout }
		cancelOne()
		cancelOne() // while the first ping has no answer
		bridgetest.Lacks(t, s.seen(), "suspect false")
		got := make(replies, 1)
		s.tr.Ask(bridgetest.Question(t, "sampling/createMessage", `{}`), got.take) // perhaps about the cancelled call
		<-got
		time.Sleep(time.Minute)
		bridgetest.Contains(t, s.seen(), "retire")
		s.end()
	})
}

// A server that asks about cancelled calls gets no more requests on their connection for a moment.
func TestIgnoresCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, lower.Clients{})
		cancelOne := func() {
			v := s.ask(s.from, "tools/call", `{"name":"x"}`)
			s.Next()
			v.cancel(bridge.ErrCancelled)
			<-v.done
			synctest.Wait()
		}
		beside := func() {
			s.tr.Ask(bridgetest.Question(t, "elicitation/create", `{}`), func(*jsonrpc.Message) {}) // although the call was cancelled
			s.seen()
		}
		cancelOne()
		list := s.ask(s.from, "tools/list", `{}`)
		l := s.Next()
		beside() // perhaps about the list
		l.Answer(t, `{"tools":[]}`)
		list.answer()
		cancelOne()
		same(t, "the connection", s.seen(), "hold, suspect true, leave, suspect false")
		beside()
		cancelOne()
		same(t, "the connection", s.seen(), "hold, suspect true, hold, retire, leave")
		time.Sleep(6 * time.Second)
		same(t, "the connection later", s.seen(), "leave")
		s.end()
	})
}

// Too many parked calls refuse further questions, and give way when nobody has come back to them for a minute.
func TestMaxParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, lower.Clients{})
		from := bridgetest.Caller(era.LatestModern, "p", able)
		park := func() string {
			v := s.ask(from, "tools/call", `{"name":"x"}`)
			c := s.Next()
			c.Back.Ask(bridgetest.Question(t, "roots/list", `{}`), func(*jsonrpc.Message) {})
			return v.answer()
		}
		for range lower.MaxParked {
			bridgetest.Contains(t, park(), "input_required")
		}
		v := s.ask(from, "tools/call", `{"name":"x"}`)
		c, got := s.Next(), make(replies, 1)
		c.Back.Ask(bridgetest.Question(t, "elicitation/create", `{"message":"m","requestedSchema":{}}`), got.take)
		same(t, "one too many", v.answer(), "error: the server asks its client a question, and too many calls are parked (the limit is 32)")
		same(t, "the server got", <-got, `{"jsonrpc":"2.0","id":1,"result":{"action":"cancel"}}`) // nobody answers in the client's name
		<-c.Ctx.Done()
		if s.s.EvictStale("p", true) {
			t.Error("a call gives way at once")
		}
		time.Sleep(61 * time.Second)
		bridgetest.Contains(t, park(), "input_required")
		if !s.s.EvictStale("p", true) || s.s.EvictStale("q", true) || s.s.Status().Waiting != lower.MaxParked-1 {
			t.Errorf("Status() = %+v", s.s.Status())
		}
		s.end()
		for _, line := range []string{"too many calls are parked\" method=tools/call max=32\n", `parked call evicted for another one" method=tools/call waited=1m2s`} {
			if strings.Count(s.log.String(), line) != 1 { // at most one warning a minute
				t.Errorf("the log has not once %s\n%s", line, s.log.String())
			}
		}
	})
}

// A client that leaves in the very moment in which its call is parked has not heard of it: the call is cancelled.
func TestCancelAgainstParking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, lower.Clients{})
		const calls = 50
		for range calls {
			v := s.ask(s.from, "tools/call", `{"name":"x"}`)
			s.Next().Back.Ask(bridgetest.Question(t, "roots/list", `{}`), func(*jsonrpc.Message) {})
			time.AfterFunc(30*time.Millisecond, func() { v.cancel(bridge.ErrCancelled) }) // the window for questions
			if got := v.answer(); v.err == nil {
				again := s.ask(s.from, "tools/call", `{"name":"x",`+state(t, got)+`}`)
				again.cancel(bridge.ErrCancelled)
				again.answer()
			}
		}
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if n := strings.Count(strings.Join(s.Got(), "\n"), "cancelled tools/call"); n != calls {
			t.Errorf("%d of %d calls were cancelled", n, calls)
		}
		if st := s.s.Status(); st != (lower.Status{}) {
			t.Errorf("left: %+v", st)
		}
		s.end()
	})
}

// no requestState but a client's own, unchanged, does anything.
func FuzzRequestState(f *testing.F) {
	f.Add(uint16(0), byte(1), "")
	f.Add(uint16(40), byte(128), "")
	f.Add(uint16(0), byte(0), "AQ")
	f.Fuzz(func(t *testing.T, at uint16, flip byte, other string) {
		synctest.Test(t, func(t *testing.T) {
			s := play(t, era.Rev20251125, `{}`, lower.Clients{})
			v := s.ask(s.from, "tools/call", `{"name":"x"}`)
			s.Next().Back.Ask(bridgetest.Question(t, "roots/list", `{}`), func(*jsonrpc.Message) {})
			changed := []byte(statePattern.FindStringSubmatch(v.answer())[1])
			if flip == 0 {
				changed = []byte(other)
			} else {
				changed[int(at)%len(changed)] ^= flip
			}
			params := `{"name":"x","inputResponses":{"r1":{"roots":[]}},"requestState":` + rawjson.Quote(string(changed)) + `}`
			bridgetest.Contains(t, s.ask(s.from, "tools/call", params).answer(), "-32602")
			if n := len(s.Got()); n != 1 {
				t.Errorf("the server got %d messages", n)
			}
			s.end()
		})
	})
}

// A parked call that the server has ended meanwhile gives way too, before one that still waits. It needs no
// connection, so it does not give way for one.
func TestMaxParkedEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, lower.Clients{})
		from := bridgetest.Caller(era.LatestModern, "p", able)
		park := func() (string, *bridgetest.Call) {
			v := s.ask(from, "tools/call", `{"name":"x"}`)
			c := s.Next()
			c.Back.Ask(bridgetest.Question(t, "roots/list", `{}`), func(*jsonrpc.Message) {})
			return v.answer(), c
		}
		waits, _ := park()
		other, _ := park()
		for range lower.MaxParked - 2 {
			_, c := park()
			c.Answer(t, `{"content":[],"isError":true}`)
		}
		time.Sleep(61 * time.Second)
		if s.s.EvictStale("q", false) || !s.s.EvictStale("p", true) {
			t.Error("the call that waits does not give way for a connection")
		}
		bridgetest.Contains(t, s.ask(from, "tools/call", `{"name":"x",`+state(t, waits)+`}`).answer(), "no longer exists")
		for range lower.MaxParked - 3 {
			if !s.s.EvictStale("p", false) {
				t.Error("a call that has ended does not give way")
			}
		}
		bridgetest.Contains(t, s.ask(from, "tools/call", `{"name":"x",`+state(t, other)+`}`).answer(), "input_required")
		if s.s.EvictStale("p", true) {
			t.Error("a call that has ended gives way for a connection")
		}
		for range 2 {
			got, _ := park()
			bridgetest.Contains(t, got, "input_required")
		}
		s.end()
	})
}

// A server that wants URLs visited first: the client is asked, and the call is made again.
func TestURL(t *testing.T) {
	const needed = `{"code":-32042,"message":"visit","data":{"elicitations":[{"mode":"url","url":"https://a.example/","elicitationId":"e1","message":"m"}]}}`
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, lower.Clients{})
		v := s.ask(s.from, "tools/call", `{"name":"x"}`)
		s.Next().Refuse(t, needed)
		asked := v.answer()
		bridgetest.Contains(t, asked, `"r1":{"method":"elicitation/create","params":{"mode":"url","url":"https://a.example/"`)
		bridgetest.Lacks(t, asked, "elicitationId")
		st := state(t, asked)
		next := s.ask(s.from, "tools/call", `{"name":"x",`+st+`,"inputResponses":{"r1":{"action":"accept"}}}`)
		if !next.pending() {
			t.Fatal("nobody waits for the completion")
		}
		s.tr.Notify(bridgetest.Notification(t, "notifications/elicitation/complete", `{"elicitationId":"e1"}`))
		s.Next().Answer(t, `{}`)
		bridgetest.Contains(t, next.answer(), envelope)

		declined := `,` + st + `,"inputResponses":{"r1":{"action":"decline"}}}`
		bridgetest.Contains(t, s.ask(s.from, "tools/call", `{"name":"x"`+declined).answer(), `"isError":true`, "was declined")
		bridgetest.Contains(t, s.ask(s.from, "tools/call", `{"name":"x",`+st+`,"inputResponses":{"r1":{}}}`).answer(), "inputResponses.r1")
		v = s.ask(s.from, "prompts/get", `{"name":"x"}`)
		s.Next().Refuse(t, needed)
		prompt := state(t, v.answer())
		bridgetest.Contains(t, s.ask(s.from, "prompts/get", `{"name":"x",`+prompt+`,"inputResponses":{"r1":{"action":"cancel"}}}`).answer(), `"error":{"code":-32603`, "was cancelled")

		// The server is patient for some rounds only, and the client must be able to.
		for range 4 {
			v = s.ask(s.from, "prompts/get", `{"name":"x",`+prompt+`,"inputResponses":{"r1":{"action":"accept"}}}`)
			s.Next().Refuse(t, needed)
			prompt = state(t, v.answer())
		}
		v = s.ask(s.from, "prompts/get", `{"name":"x",`+prompt+`,"inputResponses":{"r1":{"action":"accept"}}}`)
		s.Next().Refuse(t, needed)
		bridgetest.Contains(t, v.answer(), "too often (the limit is 5)")
		v = s.ask(bridgetest.Caller(era.LatestModern, "", `{"elicitation":{}}`), "tools/call", `{"name":"x"}`)
		s.Next().Refuse(t, needed)
		bridgetest.Contains(t, v.answer(), `"code":-32021`, `"requiredCapabilities":{"elicitation":{"url":{}}}`)
		for _, broken := range []string{`{"code":-32042,"message":"m"}`, `{"code":-32042,"message":"m","data":{"elicitations":[5]}}`} {
			v = s.ask(s.from, "tools/call", `{"name":"x"}`)
			s.Next().Refuse(t, broken)
			bridgetest.Contains(t, v.answer(), `"code":-32603,"message":"m"`)
		}
		s.end()
	})
}

// A tool that must be called as a task is called as one, and polled to its end.
func TestTask(t *testing.T) {
	const tasks = `{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}}`
	const tools = `{"tools":[{"name":"x","execution":{"taskSupport":"required"}},{"name":"y"}]}`
	for _, tc := range []struct {
		name string
		rest func(s *stage)
		want string
	}{
		{"completed", func(s *stage) {
			s.Next().Answer(s.t, `{"taskId":"T","status":"working","pollInterval":1}`)
			s.Next().Answer(s.t, `{"taskId":"T","status":"completed"}`)
			s.Next().Answer(s.t, `{"content":[]}`)
		}, envelope},
		{"asks the client", func(s *stage) {
			s.Next().Answer(s.t, `{"taskId":"T","status":"input_required"}`)
			c := s.Next()
			m := bridgetest.Question(s.t, "roots/list", `{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"T"}}}`)
			s.tr.Ask(m, func(*jsonrpc.Message) { c.Answer(s.t, `{}`) })
		}, "input_required"},
		{"cancelled by the server", func(s *stage) { s.Next().Answer(s.t, `{"taskId":"T","status":"cancelled"}`) }, "the server has cancelled the task"},
		{"unknown to the server", func(s *stage) { s.Next().Refuse(s.t, `{"code":-5,"message":"no task"}`) }, "no task"},
		{"too slow", func(s *stage) {
			for range 60 {
				s.Next().Answer(s.t, `{"taskId":"T","status":"working"}`)
			}
			if c := s.Next(); c.Method != "tasks/cancel" {
				s.t.Errorf("the server got %s", c.Method)
			} else {
				c.Answer(s.t, `{}`)
			}
		}, "error: server fake: tools/call had no answer within 1m0s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := play(t, era.Rev20251125, tasks, lower.Clients{})
				v := s.ask(s.from, "tools/call", `{"name":"x","arguments":{}}`)
				s.Next().Answer(t, tools)
				c := s.Next()
				same(t, "the call", string(c.Whole()), `{"task":{},"name":"x","arguments":{}}`)
				c.Answer(t, `{"task":{"taskId":"T","status":"working"}}`)
				tc.rest(s)
				got := v.answer()
				if v.err != nil {
					got = "error: " + v.err.(*bridge.Error).Told()
				}
				bridgetest.Contains(t, got, tc.want)
				s.end()
			})
		})
	}
	t.Run("not needed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := play(t, era.Rev20251125, tasks, lower.Clients{})
			v := s.ask(s.from, "tools/call", `{"name":"y"}`)
			s.Next().Answer(t, tools)
			s.Next().Answer(t, `{"content":[]}`)
			bridgetest.Contains(t, v.answer(), envelope)
			// A tool that is not listed fails as it fails.
			v = s.ask(s.from, "tools/call", `{"name":"z"}`)
			for c := s.Next(); ; c = s.Next() {
				if c.Method == "tools/call" {
					c.Refuse(t, `{"code":-32601,"message":"no z"}`)
					break
				}
				c.Answer(t, tools)
			}
			for v.pending() {
				s.Next().Answer(t, tools)
			}
			bridgetest.Contains(t, v.answer(), "no z")
			// A task that is done at once has its result.
			v = s.ask(s.from, "tools/call", `{"name":"x"}`)
			s.Next().Answer(t, `{"content":[]}`)
			bridgetest.Contains(t, v.answer(), envelope)
			s.end()
		})
	})
}

// A subscription lasts until its client or the server leaves. It reports what the server accepted.
func TestListen(t *testing.T) {
	const all = `{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["a:x","a:y"]}}`
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true}}`, lower.Clients{Group: "g"})
		s.Serve = func(r *bridge.Request) *jsonrpc.Message {
			if r.URI() == "a:y" {
				return jsonrpc.NewError([]byte("1"), -5, "no", nil)
			}
			return bridgetest.Result(t, `{}`)
		}
		bridgetest.Contains(t, s.ask(s.from, era.Listen, `{"notifications":5}`).answer(), "-32602")
		v, w := s.ask(s.from, era.Listen, all), s.ask(s.from, era.Listen, `{"notifications":{"resourceSubscriptions":["a:x"]}}`)
		synctest.Wait()
		bridgetest.Contains(t, strings.Join(v.Got(), "\n"), `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:x"]}}`)
		w.Got()
		if st := s.s.Status(); st.Subscriptions != 3 {
			t.Errorf("Status() = %+v", st)
		}
		if n := strings.Count(strings.Join(s.Got(), "\n"), `subscribe {"uri":"a:x"}`); n != 1 {
			t.Errorf("%d requests for one resource", n)
		}
		s.tr.Notify(bridgetest.Notification(t, "notifications/tools/list_changed", ""))
		s.tr.Notify(bridgetest.Notification(t, "notifications/prompts/list_changed", ""))
		s.tr.Notify(bridgetest.Notification(t, "notifications/resources/updated", `{"uri":"a:x/part"}`))
		same(t, "one client got", strings.Join(v.Got(), "\n"), "notifications/tools/list_changed \nnotifications/resources/updated {\"uri\":\"a:x/part\"}")
		same(t, "the other got", strings.Join(w.Got(), "\n"), "notifications/resources/updated {\"uri\":\"a:x/part\"}")
		w.cancel(bridge.ErrCancelled)
		bridgetest.Contains(t, w.answer(), "error: cancelled")
		synctest.Wait()
		same(t, "the server got", strings.Join(s.Got(), "\n"), "")
		s.tr.Gone(nil)
		same(t, "the end", v.answer(), `{"jsonrpc":"2.0","result":{}}`)
		synctest.Wait()
		same(t, "the server got", strings.Join(s.Got(), "\n"), `resources/unsubscribe {"uri":"a:x"}`)
		bridgetest.Contains(t, s.seen(), "keep", "release", "gone")
		s.end()

		// A server that does not answer: the subscription begins without its resources.
		s = play(t, era.Rev20251125, `{"resources":{"subscribe":true}}`, lower.Clients{})
		v = s.ask(s.from, era.Listen, all)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		bridgetest.Contains(t, strings.Join(v.Got(), "\n"), `{"notifications":{}}`)
		v.cancel(bridge.ErrCancelled)
		<-v.done
		s.end()

		// Where each request has a connection of its own, there is nothing to report.
		s = play(t, era.Rev20251125, `{"tools":{"listChanged":true}}`, lower.Clients{Once: true})
		v = s.ask(s.from, era.Listen, all)
		synctest.Wait()
		bridgetest.Contains(t, strings.Join(v.Got(), "\n"), `{"notifications":{}}`)
		v.cancel(bridge.ErrCancelled)
		<-v.done
		s.end()
	})
}

// The server gets the most verbose level that any client wants, and each client its own.
func TestLogLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{"logging":{}}`, lower.Clients{})
		at := func(level string) (*visit, *bridgetest.Call) {
			v := s.ask(s.from, "tools/call", `{"name":"x","_meta":{"`+era.KeyLogLevel+`":"`+level+`"}}`)
			c := s.Next()
			for c.Method == "logging/setLevel" {
				c.Answer(t, `{}`)
				c = s.Next()
			}
			return v, c
		}
		v, c := at("warning")
		same(t, "the server got", s.Got()[0], `logging/setLevel {"level":"warning"}`)
		s.tr.Notify(bridgetest.Notification(t, "notifications/message", `{"level":"error","data":"mine"}`))
		w, d := at("info")
		same(t, "the server got", s.Got()[0], `logging/setLevel {"level":"info"}`)
		s.tr.Notify(bridgetest.Notification(t, "notifications/message", `{"level":"error","data":"whose?"}`))
		for _, call := range []*bridgetest.Call{c, d} {
			call.Back.Notify(bridgetest.Notification(t, "notifications/message", `{"level":"info","data":"detail"}`))
			call.Answer(t, `{}`)
		}
		v.answer()
		w.answer()
		same(t, "the first got", strings.Join(v.Got(), "\n"), `notifications/message {"level":"error","data":"mine"}`)
		same(t, "the second got", strings.Join(w.Got(), "\n"), `notifications/message {"level":"info","data":"detail"}`)
		v, c = at("error")
		same(t, "the server got", strings.Join(s.Got(), "\n"), `tools/call {"name":"x"}`)
		c.Answer(t, `{}`)
		v.answer()

		// A server that refuses the level, or does not answer, is used all the same.
		for _, refuse := range []bool{true, false} {
			s.end()
			s = play(t, era.Rev20251125, `{"logging":{}}`, lower.Clients{})
			v = s.ask(s.from, "tools/call", `{"name":"x","_meta":{"`+era.KeyLogLevel+`":"debug"}}`)
			if c := s.Next(); refuse {
				c.Refuse(t, `{"code":-5,"message":"no"}`)
			}
			s.Next().Answer(t, `{}`)
			bridgetest.Contains(t, v.answer(), envelope)
		}
		s.end()
	})
}
