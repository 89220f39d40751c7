package stateless_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lower"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/stateless"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/seal"
)

// able are the capabilities of a client that can be asked something.
const able = `{"roots":{}}`

// connection is a connection to a server that the test plays.
type connection struct {
	*bridgetest.Upstream
	s    *stage
	n    int
	from *bridge.Caller
	rest bridge.Client
}

func (c *connection) Caller() *bridge.Caller                    { return c.from }
func (c *connection) Checked() bridge.Upstream                  { return c.Upstream }
func (c *connection) Go(func(context.Context)) bool             { return false }
func (c *connection) Keep(context.Context) (func(), error)      { return func() {}, nil }
func (c *connection) Ping(context.Context, time.Duration) error { return c.s.mute }
func (c *connection) Known(ctx context.Context) (*bridge.Greeting, bool, error) {
	c.s.greetings++
	if c.s.full > 0 && c.n > c.s.full {
		return nil, false, bridge.ErrOverloaded
	}
	if c.s.opens != nil {
		if err := c.s.opens(ctx, c); err != nil {
			return nil, false, err
		}
	}
	return c.Server(), c.s.attributes, nil
}
func (c *connection) Holds(r *bridge.Request, _ *bridge.Greeting, err error) bool {
	return r.Method == c.s.held || err != nil && r.Method == c.s.stale
}

// stage is a pool of connections that the test plays.
type stage struct {
	t    *testing.T
	pool *stateless.Pool

	revision, capabilities string // of the server
	// The rest is set before the calls that it is for.
	all        []*connection
	serve      func(r *bridge.Request) *jsonrpc.Message       // nil leaves calls to the test
	attributes bool                                           // the wire attributes questions
	opens      func(ctx context.Context, c *connection) error // before a greeting is known
	mute       error                                          // what comes of pings
	held       string                                         // the method whose answers are cached
	stale      string                                         // the method whose old answers serve without a connection
	full       int                                            // how many connections can be opened; 0 means any number
	greetings  int
	heard      []string // changes that may have been missed, and notifications about calls
}

// queue is a Queue with these limits.
type queue struct {
	wait   time.Duration
	length int
}

func (q queue) Wait() time.Duration { return q.wait }
func (q queue) Length() int         { return q.length }
func (q queue) Refusal(format string, args ...any) error {
	return fmt.Errorf("refused: "+format, args...)
}
func (q queue) TimedOut(format string, args ...any) error {
	return fmt.Errorf("lapsed: "+format, args...)
}

// play starts a pool for a server of that revision with these capabilities.
func play(t *testing.T, revision, capabilities string, o stateless.Options) *stage {
	s := &stage{t: t, revision: revision, capabilities: capabilities}
	s.pool = newPool(t, s, o)
	return s
}

// newPool returns a pool of connections to s.
func newPool(t *testing.T, s stateless.Server, o stateless.Options) *stateless.Pool {
	key, err := seal.New("a secret that the instances share")
	if err != nil {
		t.Fatal(err)
	}
	o.Legacy = lower.Options{
		Name: "fake", Log: slog.New(slog.DiscardHandler), Seals: key, Rewrites: &list.Rewrites{}, Instance: o.Legacy.Instance,
		MaxTask: new(atomic.Int64),
	}
	if o.Queue == nil {
		o.Queue = queue{time.Minute, 10}
	}
	if o.Budget == nil {
		o.Budget = budget(10)
	}
	if o.Shares == nil {
		o.Shares = limits.NewShares(100, 0)
	}
	o.Server, o.Force = s, context.Background()
	return stateless.New(o)
}

func (s *stage) Misheaded(r *bridge.Request) *jsonrpc.Message {
	if r.Name() == "contradiction" {
		return jsonrpc.InvalidParams("contradiction")
	}
	return nil
}

func (s *stage) Heard(m *jsonrpc.Message) { s.heard = append(s.heard, m.Method) }

func (s *stage) Line(from *bridge.Caller, rest bridge.Client) stateless.Line {
	c := &connection{Upstream: bridgetest.NewUpstream(s.revision, s.capabilities), s: s, n: len(s.all) + 1, from: from, rest: rest}
	c.Serve = func(r *bridge.Request) *jsonrpc.Message {
		if s.serve == nil {
			return nil
		}
		return s.serve(r)
	}
	s.all = append(s.all, c)
	return c
}

// visit is a request of a client.
type visit struct {
	bridgetest.Client
	cancel context.CancelCauseFunc
	done   chan struct{}
	text   string
}

// ask makes a request in a goroutine.
func (s *stage) ask(principal, caps, method, params string) *visit {
	s.t.Helper()
	v := &visit{done: make(chan struct{})}
	r := bridgetest.Request(s.t, bridgetest.Caller(era.LatestModern, principal, caps), &v.Client, method, params)
	ctx, cancel := context.WithCancelCause(context.Background())
	v.cancel = cancel
	go func() {
		defer close(v.done)
		m, err := s.pool.Call(ctx, r)
		if v.text = bridgetest.Text(m); err != nil {
			v.text = "error: " + err.Error()
		}
	}()
	return v
}

func (v *visit) answer() string {
	<-v.done
	return v.text
}

func (s *stage) call(principal, method, params string) string {
	s.t.Helper()
	return s.ask(principal, `{}`, method, params).answer()
}

func (s *stage) end() {
	s.t.Helper()
	if err := s.pool.Close(s.t.Context()); err != nil {
		s.t.Error(err)
	}
	synctest.Wait()
	for _, c := range s.all {
		if c.Closed() != 1 {
			s.t.Errorf("connection %d was closed %d times", c.n, c.Closed())
		}
	}
	if st := s.pool.Status(); st != (stateless.Status{}) {
		s.t.Errorf("left: %+v", st)
	}
	if got := s.call("", "tools/list", `{}`); got != "error: the bridge is stopping" {
		s.t.Errorf("after the end: %s", got)
	}
}

func same(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\ngot  %s\nwant %s", what, got, want)
	}
}

// Requests to a modern server pass unchanged but for the client's handle, and results get what each must have.
func TestRelay(t *testing.T) {
	const discover = `"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]`
	for _, tc := range []struct{ name, method, params, answer, want string }{
		{"call", "tools/call", `{"name":"x"}`, `"result":{"resultType":"complete","content":[]}`, `"result":{"resultType":"complete","content":[]}`},
		{"without a kind", "tools/call", `{"name":"x"}`, `"result":{"content":[]}`, `"result":{"resultType":"complete","content":[]}`},
		{"with a handle of the bridge", "tools/call", `{"name":"x","_meta":{"dev.mcp-bridge/lane":"l"}}`, `"result":{}`, `"result":{"resultType":"complete"}`},
		{"invalid handle", "tools/call", `{"name":"x","_meta":{"dev.mcp-bridge/lane":5}}`, "", `dev.mcp-bridge/lane must be a string`},
		{"empty handle", "tools/call", `{"name":"x","_meta":{"dev.mcp-bridge/lane":""}}`, "", `"code":-32602`},
		{"endless handle", "tools/call", `{"name":"x","_meta":{"dev.mcp-bridge\/lane":"` + strings.Repeat("x", 257) + `"}}`, "", `"code":-32602`},
		{"contradiction", "tools/call", `{"name":"contradiction"}`, "", `"message":"contradiction"`},
		{"legacy error code", "resources/read", `{"uri":"a:b"}`, `"error":{"code":-32002,"message":"no"}`, `"code":-32602,"message":"no","data":{"uri":"a:b"}`},
		{"discover", "server/discover", `{}`, `"result":{"supportedVersions":["x"],"capabilities":{"tools":{}}}`, discover},
		{"discover that lacks fields", "server/discover", `{}`, `"result":{"supportedVersions":["x"]}`, `"cacheScope":"private","ttlMs":0,"capabilities":{},"resultType":"complete"`},
		{"discover fails", "server/discover", `{}`, `"error":{"code":-32601,"message":"no"}`, discover},
		{"state of the server, without principals", "tools/call", `{"name":"x","requestState":"s"}`, `"result":{"resultType":"input_required","requestState":"t"}`, `"requestState":"t"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := play(t, era.LatestModern, `{"tools":{}}`, stateless.Options{})
				s.serve = func(r *bridge.Request) *jsonrpc.Message {
					if want := "dev.mcp-bridge/lane"; strings.Contains(string(r.Whole()), want) {
						t.Errorf("the server got %s", r.Whole())
					}
					r.Back.Notify(bridgetest.Notification(t, "notifications/vendor", `{}`))
					r.Back.Notify(bridgetest.Notification(t, "notifications/message", `{"level":"error","data":"not wanted"}`))
					r.Back.Gone(nil)
					return bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,`+tc.answer+`}`)
				}
				v := s.ask("", `{}`, tc.method, tc.params)
				bridgetest.Contains(t, v.answer(), tc.want)
				if tc.answer != "" {
					same(t, "the client got", strings.Join(v.Got(), "\n"), "notifications/vendor {}")
					same(t, "the cache heard", strings.Join(s.heard, "\n"), "notifications/vendor\nnotifications/message")
				}
				if g := s.pool.Server(); g != nil || s.pool.Notify(t.Context(), nil) != nil {
					t.Error("a pool has a greeting")
				}
				s.end()
			})
		})
	}
}

var statePattern = regexp.MustCompile(`"requestState":"[^"]*"`)

// What a modern server gives to one client is of no use to another.
func TestHandles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.LatestModern, `{"tools":{}}`, stateless.Options{})
		answer := `{"resultType":"input_required","requestState":"own","inputRequests":{}}`
		var got string
		s.serve = func(r *bridge.Request) *jsonrpc.Message {
			if got = string(r.Whole()); r.Method == era.Listen {
				r.Back.Notify(bridgetest.Notification(t, era.Acknowledged, `{"notifications":{"taskIds":["T","other"]}}`))
				r.Back.Notify(bridgetest.Notification(t, "notifications/tasks", `{"taskId":"T","status":"working"}`))
				r.Back.Notify(bridgetest.Notification(t, "notifications/tasks", `{"taskId":"other"}`))
			}
			return bridgetest.Result(t, answer)
		}
		asked := s.call("p", "tools/call", `{"name":"x"}`)
		bridgetest.Lacks(t, asked, `"own"`)
		state := statePattern.FindString(asked)
		bridgetest.Contains(t, s.call("p", "tools/call", `{"name":"x",`+state+`,"inputResponses":{}}`), "input_required")
		bridgetest.Contains(t, got, `"requestState":"own"`)
		for principal, params := range map[string]string{"q": `{"name":"x",` + state + `}`, "p": `{"name":"x","requestState":"own"}`} {
			bridgetest.Contains(t, s.call(principal, "tools/call", params), "was not given to this client")
		}
		for _, like := range []string{"RequestState", `reque\u017ftState`, `request\u017ftate`, "requeststate"} {
			bridgetest.Contains(t, s.call("p", "tools/call", `{"name":"x","`+like+`":"own"}`), "-32602", "in case only")
			bridgetest.Contains(t, s.call("p", "tools/call", `{"name":"x",`+state+`,"`+like+`":"own"}`), "-32602", "in case only")
		}
		bridgetest.Contains(t, s.call("p", "tools/call", `{"name":"x",`+state+`,"requestState":"own"}`), "-32602")

		answer = `{"resultType":"task","taskId":"T","status":"working"}`
		task := gjson.Get(s.call("p", "tools/call", `{"name":"x"}`), "result.taskId").Str
		answer = `{"resultType":"complete","taskId":"T","status":"completed"}`
		bridgetest.Contains(t, s.call("p", "tasks/get", `{"taskId":"`+task+`","TaskId":"z"}`), `"taskId":"`+task+`"`)
		bridgetest.Contains(t, got, `"taskId":"T"`)
		bridgetest.Lacks(t, got, "TaskId")
		s.call("p", "tasks/cancel", `{"taskId":"`+task+`","taskId":"other"}`)
		bridgetest.Lacks(t, got, "other")
		bridgetest.Contains(t, s.call("p", "tasks/get", `{}`), "-32602")
		for principal, id := range map[string]string{"q": task, "p": "T"} {
			for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
				bridgetest.Contains(t, s.call(principal, method, `{"taskId":"`+id+`"}`), "there is no such task")
			}
			bridgetest.Contains(t, s.call(principal, era.Listen, `{"notifications":{"taskIds":["`+id+`"]}}`), "there is no such task")
		}
		for _, others := range []string{`"notifications":{"TaskIds":["T"]}`, `"notifications":{"taskIds":["` + task + `"]},"Notifications":{"taskIds":["T"]}`, `"notifications":{"ta\u0073kId\u017f":["T"]}`} {
			bridgetest.Contains(t, s.call("p", era.Listen, `{`+others+`}`), "-32602")
		}
		v := s.ask("p", `{}`, era.Listen, `{"notifications":{"taskIds":["`+task+`"]}}`)
		v.answer()
		same(t, "the client got", strings.Join(v.Got(), "\n"), era.Acknowledged+` {"notifications":{"taskIds":["`+task+`"]}}`+"\n"+`notifications/tasks {"taskId":"`+task+`","status":"working"}`)
		for _, unusable := range []string{`{"resultType":"task","taskId":5}`, `{"resultType":"task","taskId":"a","taskId":"b"}`} {
			answer = unusable
			bridgetest.Contains(t, s.call("p", "tools/call", `{"name":"x"}`), "the server's taskId is not usable")
		}
		s.end()
	})
}

// Calls whose clients can be asked have a legacy connection each, and wait for one where there are no more.
func TestClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lanes := 2
		s := play(t, era.Rev20251125, `{}`, stateless.Options{Budget: budget(lanes), Queue: queue{10 * time.Second, 1}})
		began := time.Now()
		one := s.ask("", able, "tools/call", `{"name":"1"}`)
		a := s.all0().Next()
		two := s.ask("", able, "tools/call", `{"name":"2"}`)
		synctest.Wait()
		if len(s.all) != 1 || s.pool.Status().Queued != 1 {
			t.Errorf("%d connections, %+v", len(s.all), s.pool.Status())
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		b := s.all[1].Next()
		if waited := time.Since(began); waited != 100*time.Millisecond {
			t.Errorf("another connection was opened after %v", waited)
		}
		three := s.ask("", able, "tools/call", `{"name":"3"}`)
		synctest.Wait()
		same(t, "one too many", s.ask("", able, "tools/call", `{"name":"4"}`).answer(), "error: refused: all its connections serve calls with possible questions, and 1 more calls wait (limits: queue)")
		bridgetest.Contains(t, s.call("", "tools/call", `{"name":"x"}`), "error: server fake: it has too many connections") // for other capabilities
		a.Answer(t, `{}`)
		one.answer()
		synctest.Wait()
		c := s.all[0].Next() // the free one
		four := s.ask("", able, "tools/call", `{"name":"4"}`)
		bridgetest.Contains(t, four.answer(), "error: lapsed: all its connections serve calls with possible questions")
		five := s.ask("", able, "tools/call", `{"name":"5"}`)
		synctest.Wait()
		five.cancel(bridge.ErrCancelled)
		same(t, "cancelled", five.answer(), "error: cancelled by the client")
		b.Answer(t, `{}`)
		c.Answer(t, `{}`)
		two.answer()
		three.answer()

		// There is no room for another one although the limit allows it: the call waits as well.
		lanes, s.full = 3, 2
		one = s.ask("", able, "tools/call", `{"name":"1"}`)
		a = s.all[0].Next()
		two = s.ask("", able, "tools/call", `{"name":"2"}`)
		b = s.all[1].Next()
		three = s.ask("", able, "tools/call", `{"name":"3"}`)
		time.Sleep(3 * time.Second)
		a.Answer(t, `{}`)
		one.answer()
		s.all[0].Next().Answer(t, `{}`)
		bridgetest.Contains(t, three.answer(), `"resultType":"complete"`)
		b.Answer(t, `{}`)
		two.answer()

		// On a wire that attributes questions, calls share a connection.
		s.attributes, s.full = true, 0
		s.serve = func(*bridge.Request) *jsonrpc.Message { return bridgetest.Result(t, `{}`) }
		s.call("", "tools/list", `{}`)
		s.serve = nil
		one, two = s.ask("", able, "tools/call", `{"name":"1"}`), s.ask("", able, "tools/call", `{"name":"2"}`)
		for range 2 {
			s.all[0].Next().Answer(t, `{}`)
		}
		bridgetest.Contains(t, one.answer()+two.answer(), `"resultType":"complete"`)
		s.end()
	})
}

// A question that comes after a call was cancelled may be about that one: no other client is shown it, and a server that
// has asked so gets no further call over that connection. Where the wire attributes questions, calls share a connection
// until the server asks beside its calls.
func TestSuspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, stateless.Options{})
		s.mute = bridge.ErrTimeout
		refused := make(chan string, 1)
		beside := func(c *connection) {
			c.rest.Ask(bridgetest.Question(t, "elicitation/create", `{"message":"secret"}`), func(m *jsonrpc.Message) { refused <- string(m.Error) })
			bridgetest.Contains(t, <-refused, `"code":-32603`)
		}
		gone := s.ask("", able, "tools/call", `{"name":"x"}`)
		s.all0().Next()
		gone.cancel(bridge.ErrCancelled)
		gone.answer()
		other := s.ask("", able, "tools/call", `{"name":"y"}`) // over the same one: the server has never asked anything
		c := s.all[0].Next()
		beside(s.all[0])
		c.Answer(t, `{}`)
		bridgetest.Contains(t, other.answer(), `"complete"`)
		last := s.ask("", able, "tools/call", `{"name":"z"}`)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if len(s.all) != 2 {
			t.Fatalf("%d connections", len(s.all))
		}
		s.all[1].Next().Answer(t, `{}`)
		last.answer()
		s.end()

		s = play(t, era.Rev20251125, `{}`, stateless.Options{})
		s.attributes = true
		calls := func(connections ...int) {
			var visits []*visit
			for range connections {
				visits = append(visits, s.ask("", able, "tools/call", `{"name":"x"}`))
				synctest.Wait()
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			var open []*bridgetest.Call
			for _, n := range connections {
				open = append(open, s.all[n].Next())
			}
			if len(connections) > 1 && connections[1] == 0 {
				beside(s.all[0])
			}
			for i, c := range open {
				c.Answer(t, `{}`)
				visits[i].answer()
			}
		}
		calls(0, 0)
		calls(1, 2)
		s.end()
	})
}

// A principal has so many connections. The one that was not used for longest makes room, but none that is in use.
func TestProfiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, stateless.Options{Budget: budget(100)})
		s.serve = func(r *bridge.Request) *jsonrpc.Message {
			if r.Name() == "slow" {
				return nil
			}
			return bridgetest.Result(t, `{}`)
		}
		caps := func(n int) string { return fmt.Sprintf(`{"experimental":{"e%d":{}}}`, n) }
		quick := func(n int) { s.ask("", caps(n), "tools/call", `{"name":"x"}`).answer() }
		slow := func(principal string, n int) *visit {
			v := s.ask(principal, caps(n), "tools/call", `{"name":"slow"}`)
			synctest.Wait()
			return v
		}
		const most = 8
		busy := []*visit{slow("", 0)}
		for n := range most {
			quick(n)
		}
		quick(100)
		synctest.Wait()
		if open := s.pool.Status().Open; open != most || len(s.all) != most+1 {
			t.Errorf("%d connections of %d, want %d", open, len(s.all), most)
		}
		quick(0) // the first is still there, and the third, but not the second
		if quick(2); len(s.all) != most+1 {
			t.Errorf("%d connections were opened", len(s.all))
		}
		for n := range most {
			busy = append(busy, slow("", n))
		}
		bridgetest.Contains(t, slow("", most).answer(), "it has too many connections for clients of different capabilities")
		for _, v := range busy {
			v.cancel(bridge.ErrCancelled)
			v.answer()
		}
		s.end()

		s = play(t, era.Rev20251125, `{}`, stateless.Options{Budget: budget(100)})
		busy = nil
		for range lower.MaxParked + 1 {
			busy = append(busy, s.ask("p", able, "tools/call", `{"name":"slow"}`))
			time.Sleep(200 * time.Millisecond)
		}
		if open, queued := s.pool.Status().Open, s.pool.Status().Queued; open != lower.MaxParked || queued != 1 {
			t.Errorf("%d connections of one caller, and %d calls wait", open, queued)
		}
		for _, v := range busy {
			v.cancel(bridge.ErrCancelled)
			v.answer()
		}
		s.end()

		s = play(t, era.Rev20251125, `{}`, stateless.Options{Shares: limits.NewShares(4, 2)})
		s.serve = func(r *bridge.Request) *jsonrpc.Message { return nil }
		for n := range 3 {
			busy = append(busy, slow("p", n))
		}
		bridgetest.Contains(t, slow("p", 3).answer(), "one caller has too many connections to it: the limit is 3")
		for _, v := range busy {
			v.cancel(bridge.ErrCancelled)
			v.answer()
		}
		s.end()
	})
}

// all0 waits for the first connection.
func (s *stage) all0() *connection {
	synctest.Wait()
	if len(s.all) == 0 {
		s.t.Fatal("no connection was opened")
	}
	return s.all[0]
}

// A server that came back as another, or not at all, has its connection dropped.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, stateless.Options{})
		s.serve = func(*bridge.Request) *jsonrpc.Message { return bridgetest.Result(t, `{}`) }
		s.call("", "tools/call", `{"name":"x"}`)
		bridgetest.Contains(t, s.call("", "tools/call", `{"name":"x","requestState":"s"}`), "not from this instance")
		s.all[0].rest.Gone(bridge.ErrReplaced)
		synctest.Wait()
		s.call("", "tools/call", `{"name":"x"}`)
		if len(s.all) != 2 || s.all[0].Closed() != 1 {
			t.Errorf("%d connections; the first was closed %d times", len(s.all), s.all[0].Closed())
		}
		// A server that is found to be another one when a call comes: the call is made once, over a new connection.
		s.opens = func(_ context.Context, c *connection) error {
			if c.n > 2 {
				return nil
			}
			c.rest.Gone(bridge.ErrReplaced)
			return bridge.ErrReplaced
		}
		bridgetest.Contains(t, s.call("", "tools/call", `{"name":"again"}`), `"complete"`)
		if got := strings.Join(s.all[len(s.all)-1].Got(), "\n"); strings.Count(got, "again") != 1 {
			t.Errorf("the server got %s", got)
		}
		s.opens = func(context.Context, *connection) error { return bridge.ErrUnavailable }
		s.stale = "tools/list" // an old list is better than none
		bridgetest.Contains(t, s.call("", "tools/list", `{}`), `"complete"`)
		bridgetest.Contains(t, s.call("", "prompts/list", `{}`), "error: ")
		s.opens = nil
		// Cached lists and what is known of the server need no connection.
		n := s.greetings
		s.held = "tools/list"
		s.call("", "tools/list", `{}`)
		bridgetest.Contains(t, s.call("", "server/discover", `{}`), `"supportedVersions"`)
		if s.greetings != n {
			t.Errorf("%d more handshakes", s.greetings-n)
		}
		s.end()

		// Calls with processes of their own share the first handshake.
		s = play(t, era.Rev20251125, `{}`, stateless.Options{Sharing: stateless.EachCall})
		s.serve = func(*bridge.Request) *jsonrpc.Message { return bridgetest.Result(t, `{}`) }
		for range 3 {
			bridgetest.Contains(t, s.call("", "tools/call", `{"name":"x"}`), "complete")
		}
		if s.greetings != 1 || len(s.all) != 3 {
			t.Errorf("%d handshakes of %d connections", s.greetings, len(s.all))
		}
		s.all[2].rest.Gone(bridge.ErrReplaced)
		if s.call("", "tools/call", `{"name":"x"}`); s.greetings != 2 {
			t.Errorf("%d handshakes with another server", s.greetings-1)
		}
		s.end()

		// So do those that come meanwhile, unless the client whose call makes the handshake leaves.
		s = play(t, era.Rev20251125, `{}`, stateless.Options{Sharing: stateless.EachCall, Budget: budget(100)})
		s.serve = func(*bridge.Request) *jsonrpc.Message { return bridgetest.Result(t, `{}`) }
		var fails error
		s.opens = func(ctx context.Context, _ *connection) error {
			select {
			case <-time.After(time.Second):
				return fails
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		fails = bridge.ErrUnavailable
		crowd := func() (all []*visit) {
			for range 20 {
				all = append(all, s.ask("", `{}`, "tools/call", `{"name":"x"}`))
				synctest.Wait()
			}
			return all
		}
		for _, v := range crowd() {
			bridgetest.Contains(t, v.answer(), "error: ")
		}
		fails = nil
		before := s.greetings
		all := crowd()
		all[0].cancel(bridge.ErrCancelled)
		for i, v := range all {
			if got := v.answer(); strings.Contains(got, "complete") != (i > 0) {
				t.Errorf("call %d: %s", i, got)
			}
		}
		if before != 1 || s.greetings != 3 {
			t.Errorf("%d handshakes that fail, then %d", before, s.greetings-before)
		}
		s.end()
	})
}

// A parked call is found again, gives way to others, and ends with its principal's key.
func TestParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, stateless.Options{})
		park := func() (string, *bridgetest.Call) {
			v := s.ask("p", able, "tools/call", `{"name":"x"}`)
			synctest.Wait()
			c := s.all[len(s.all)-1].Next()
			c.Back.Ask(bridgetest.Question(t, "roots/list", `{}`), func(*jsonrpc.Message) {})
			return statePattern.FindString(v.answer()), c
		}
		state, c := park()
		v := s.ask("p", able, "tools/call", `{"name":"x",`+state+`,"inputResponses":{"r1":{"roots":[]}}}`)
		synctest.Wait()
		c.Answer(t, `{"content":[]}`)
		bridgetest.Contains(t, v.answer(), `"content":[]`)
		state, c = park()
		s.pool.Revoke("p", bridge.ErrRevoked)
		if <-c.Ctx.Done(); !errors.Is(context.Cause(c.Ctx), bridge.ErrRevoked) {
			t.Error(context.Cause(c.Ctx))
		}
		bridgetest.Contains(t, s.ask("p", able, "tools/call", `{"name":"x",`+state+`}`).answer(), "no longer exists")
		s.end()

		// A call that waits for a connection gets that of a parked call whose client has stayed away for a minute.
		s = play(t, era.Rev20251125, `{}`, stateless.Options{Budget: budget(1)})
		_, c = park()
		time.Sleep(time.Minute)
		v = s.ask("p", able, "tools/call", `{"name":"y"}`)
		<-c.Ctx.Done()
		s.all[0].Next().Answer(t, `{}`)
		bridgetest.Contains(t, v.answer(), `"complete"`)
		s.end()
	})
}

// A connection is not idle while a call is in flight.
func TestIdleAfterUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.LatestModern, `{}`, stateless.Options{Idle: time.Minute})
		for n, after := range []time.Duration{0, 2 * time.Minute} {
			v := s.ask("", `{}`, "tools/call", `{"name":"x"}`)
			c := s.all0().Next()
			time.Sleep(after)
			c.Answer(t, `{}`)
			v.answer()
			if synctest.Wait(); s.all0().Closed() != 0 {
				t.Errorf("the connection is closed after call %d", n)
			}
		}
		time.Sleep(61 * time.Second)
		if synctest.Wait(); s.all0().Closed() != 1 {
			t.Error("the connection stays open")
		}
		s.end()
	})
}

// A subscription at a modern server outlives its connection, up to five minutes.
func TestRelisten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.LatestModern, `{}`, stateless.Options{})
		const wants = `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:1"]}}`
		v := s.ask("", `{}`, era.Listen, wants)
		c := s.all0().Next()
		for _, method := range []string{"notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/progress", "notifications/vendor"} {
			c.Back.Notify(bridgetest.Notification(t, method, `{}`))
		}
		same(t, "before the acknowledgement", strings.Join(v.Got(), "\n"), "")
		c.Back.Notify(bridgetest.Notification(t, era.Acknowledged, wants))
		same(t, "after it", strings.Join(v.Got(), "\n"), era.Acknowledged+" "+wants+"\nnotifications/tools/list_changed {}\nnotifications/vendor {}")
		time.Sleep(time.Hour) // it lasts
		c.Fail(bridge.ErrLost)
		c = s.all[0].Next()
		c.Back.Notify(bridgetest.Notification(t, era.Acknowledged, wants))
		same(t, "after a loss", strings.Join(v.Got(), "\n"), "notifications/tools/list_changed \nnotifications/resources/updated {\"uri\":\"a:1\"}")
		same(t, "the cache heard", strings.Join(s.heard, "\n"), "notifications/tools/list_changed\nnotifications/resources/updated")
		began := time.Now()
		c.Fail(bridge.ErrUnavailable)
		for range 8 {
			s.all[0].Next().Fail(bridge.ErrUnavailable)
		}
		for {
			synctest.Wait()
			select {
			case <-v.done:
			case <-time.After(time.Minute):
				s.all[0].Next().Fail(bridge.ErrUnavailable)
				continue
			}
			break
		}
		if away := time.Since(began); away < 5*time.Minute || away > 8*time.Minute {
			t.Errorf("the subscription ended after %v", away)
		}
		same(t, "the end", v.answer(), `{"jsonrpc":"2.0","result":{}}`)

		// A refusal is the answer, as is another error after the acknowledgement, and the end of the server.
		v = s.ask("", `{}`, era.Listen, wants)
		s.all[0].Next().Refuse(t, `{"code":-5,"message":"no"}`)
		bridgetest.Contains(t, v.answer(), `"code":-5`)
		v = s.ask("", `{}`, era.Listen, wants)
		c = s.all[0].Next()
		c.Back.Notify(bridgetest.Notification(t, era.Acknowledged, wants))
		c.Fail(bridge.ErrTimeout)
		same(t, "the end", v.answer(), `{"jsonrpc":"2.0","result":{}}`)
		v = s.ask("", `{}`, era.Listen, wants)
		c = s.all[0].Next()
		c.Back.Notify(bridgetest.Notification(t, era.Acknowledged, wants))
		c.Fail(bridge.ErrLost)
		synctest.Wait()
		s.all[0].rest.Gone(bridge.ErrLost)
		same(t, "the end", v.answer(), `{"jsonrpc":"2.0","result":{}}`)
		s.end()

		// Without an acknowledgement, the server is away for as long as its connections last, too.
		s = play(t, era.LatestModern, `{}`, stateless.Options{})
		v = s.ask("", `{}`, era.Listen, wants)
		c = s.all0().Next()
		c.Back.Notify(bridgetest.Notification(t, era.Acknowledged, wants))
		c.Fail(bridge.ErrLost)
		for range 3 {
			c = s.all[0].Next()
			time.Sleep(2 * time.Minute)
			c.Fail(bridge.ErrLost)
		}
		synctest.Wait()
		select {
		case <-v.done:
			same(t, "the end", v.answer(), `{"jsonrpc":"2.0","result":{}}`)
		default:
			t.Error("a subscription that is not acknowledged any more goes on")
		}
		s.end()
	})
}

// places is a cluster in which this instance owns nothing.
type places struct {
	bridge.Places
	keys []string
	gone bool
}

type elsewhere string

func (e elsewhere) Call(context.Context, *bridge.Request) (*jsonrpc.Message, error) {
	return jsonrpc.NewResult([]byte("1"), []byte(`{"at":"`+string(e)+`"}`)), nil
}

func (p *places) Home(_, key string, _ bridge.Away) bridge.Away {
	p.keys = append(p.keys, key)
	return elsewhere("the owner")
}

func (p *places) Instance(_ context.Context, _, id string) (bridge.Away, error) {
	if p.gone {
		return nil, nil
	}
	return elsewhere(id), nil
}

// With several instances, calls to a legacy server are made at the owner of their connections.
func TestPlaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := &places{}
		s := play(t, era.Rev20251125, `{}`, stateless.Options{Places: at, Owned: true})
		for range 2 {
			bridgetest.Contains(t, s.call("p", "tools/call", `{"name":"x"}`), `{"at":"the owner"}`)
		}
		bridgetest.Contains(t, s.call("p", era.Listen, `{"notifications":{}}`), `{"at":"the owner"}`)
		if synctest.Wait(); len(s.all) != 1 || s.all[0].Closed() != 1 || len(s.all[0].Got()) != 0 {
			t.Errorf("%d connections were made to find out what the server is", len(s.all))
		}
		// The owner makes them over its own connections, and gives these up with the ownership.
		r := bridgetest.Request(t, bridgetest.Caller(era.LatestModern, "p", able), bridge.Nobody{}, "tools/call", `{"name":"x"}`)
		done := make(chan string)
		here := func(r *bridge.Request) {
			m, err := s.pool.Here(context.Background(), r)
			done <- fmt.Sprint(bridgetest.Text(m), err)
		}
		go here(r)
		synctest.Wait()
		c := s.all[1].Next()
		c.Back.Ask(bridgetest.Question(t, "roots/list", `{}`), func(*jsonrpc.Message) {})
		state := statePattern.FindString(<-done)
		s.pool.ReleaseOwner("session key")
		if s.pool.Status().Found != 1 {
			t.Error("a connection was given up for a key that is not its own")
		}
		s.pool.ReleaseOwner(at.keys[0])
		if s.pool.Status().Found != 0 || s.pool.Status().Waiting != 1 {
			t.Errorf("Status() = %+v", s.pool.Status())
		}
		v := s.ask("p", able, "tools/call", `{"name":"x",`+state+`,"inputResponses":{"r1":{"roots":[]}}}`)
		synctest.Wait()
		c.Answer(t, `{"content":[]}`)
		bridgetest.Contains(t, v.answer(), `"content":[]`)
		s.end()

		// A modern server over HTTP is served where the request arrives.
		at.keys = nil
		s = play(t, era.LatestModern, `{}`, stateless.Options{Places: at, Owned: true})
		s.serve = func(*bridge.Request) *jsonrpc.Message { return bridgetest.Result(t, `{"here":1}`) }
		bridgetest.Contains(t, s.call("p", "tools/call", `{"name":"x"}`), `"here":1`)
		if len(at.keys) > 0 {
			t.Errorf("the owner of %q was asked", at.keys)
		}
		s.end()
	})
}

// A requestState of another instance is passed to it, if it is still there.
func TestPlacedResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := play(t, era.Rev20251125, `{}`, stateless.Options{Legacy: lower.Options{Instance: "first"}})
		v := first.ask("p", able, "tools/call", `{"name":"x"}`)
		c := first.all0().Next()
		c.Back.Ask(bridgetest.Question(t, "roots/list", `{}`), func(*jsonrpc.Message) {})
		params := `{"name":"x",` + statePattern.FindString(v.answer()) + `,"inputResponses":{"r1":{"roots":[]}}}`
		at := &places{}
		s := play(t, era.Rev20251125, `{}`, stateless.Options{Places: at, Owned: true, Legacy: lower.Options{Instance: "second"}})
		bridgetest.Contains(t, s.call("p", "tools/call", params), `{"at":"first"}`)
		at.gone = true
		bridgetest.Contains(t, s.call("p", "tools/call", params), "its instance of the bridge has ended")
		s.end()
		first.end()
	})
}
