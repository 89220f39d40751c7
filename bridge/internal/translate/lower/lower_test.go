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
