package conn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// wireOf is a Sender that records its messages.
type wireOf struct {
	mu    sync.Mutex // guards lines
	lines []string
	name  string // of the last message
	fail  error
}

func (w *wireOf) Send(_ context.Context, o Outgoing) error {
	line := o.Line
	defer line.Free()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.name = o.Name
	if w.fail != nil {
		return w.fail
	}
	w.lines = append(w.lines, string(line.B))
	return nil
}

func (w *wireOf) take() string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	all := strings.Join(w.lines, "\n")
	w.lines = nil
	return all
}

// asker is a Client that records what it receives.
type asker struct {
	mu        sync.Mutex // guards the rest
	said      []string
	replies   []func(*jsonrpc.Message)
	withdrawn int
	at        func(reply func(*jsonrpc.Message)) // answers at once
}

func (a *asker) Notify(m *jsonrpc.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.said = append(a.said, bridgetest.Text(m))
}

func (a *asker) Ask(m *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	a.Notify(m)
	if a.at != nil {
		a.at(reply)
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.replies = append(a.replies, reply)
	return func(string) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.withdrawn++
	}
}

func (a *asker) Gone(error) {}

func (a *asker) take() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := strings.Join(a.said, "\n")
	a.said = nil
	return all
}

type outcome struct {
	answer string
	err    error
}

// ask starts a call on c.
func ask(t *testing.T, c *Conn, ctx context.Context, back bridge.Client, line string) chan outcome {
	t.Helper()
	m, ch := bridgetest.Parse(t, line), make(chan outcome, 1)
	go func() {
		a, err := c.Call(ctx, &bridge.Request{Message: m, Back: back})
		ch <- outcome{bridgetest.Text(a), err}
	}()
	synctest.Wait()
	return ch
}

func deliver(t *testing.T, c *Conn, line string) {
	t.Helper()
	c.Deliver(bridgetest.Parse(t, line))
	synctest.Wait()
}

// ids and tokens are the connection's own, and the
// client's come back with their JSON type.
func TestConnNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, back, rest := &wireOf{}, &asker{}, &asker{}
		c := New("fake", w, rest, Timeouts{})
		one := ask(t, c, t.Context(), back, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":"1"}}}`)
		two := ask(t, c, t.Context(), back, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":12345678901234567890}}}`)
		got := w.take()
		bridgetest.Contains(t, got, `"id":1,`, `"id":2,`, `"progressToken":1}`, `"progressToken":2}`)
		deliver(t, c, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":1}}`)
		deliver(t, c, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":2}}`)
		deliver(t, c, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"one","progress":3}}`)
		deliver(t, c, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":99,"progress":4}}`)
		got = back.take()
		bridgetest.Contains(t, got, `"progressToken":12345678901234567890,"progress":1`, `"progressToken":"1","progress":2`)
		bridgetest.Lacks(t, got, `"progress":3`, `"progress":4`)
		// What comes on the stream of a call is about the call. A notification of a change is for all clients of the connection.
		c.DeliverOn(1, bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/vendor/x"}`))
		c.DeliverOn(1, bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`))
		if said, changed := back.take(), rest.take(); !strings.HasSuffix(said, `/x"}`) || !strings.HasSuffix(changed, `list_changed"}`) || strings.Contains(said+changed, "\n") {
			t.Errorf("the call's client heard %s, the connection's %s", said, changed)
		}
		for _, nobody := range []string{`{"jsonrpc":"2.0","id":"one","result":{}}`, `{"jsonrpc":"2.0","id":"01","result":{}}`, `{"jsonrpc":"2.0","id":0,"result":{}}`, `{"jsonrpc":"2.0","id":77,"result":{}}`, `{"jsonrpc":"2.0","error":{"code":1,"message":"m"}}`} {
			deliver(t, c, nobody)
		}
		deliver(t, c, `{"jsonrpc":"2.0","id":2,"result":{"two":2}}`)
		deliver(t, c, `{"jsonrpc":"2.0","id":2,"result":{"again":2}}`) // late
		bridgetest.Contains(t, (<-two).answer, `"two":2`)
		deliver(t, c, `{"jsonrpc":"2.0","id":1,"error":{"code":-5,"message":"m"}}`)
		bridgetest.Contains(t, (<-one).answer, `"code":-5`)
		deliver(t, c, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":9}}`)
		if got := back.take(); got != "" {
			t.Errorf("progress after the answer: %s", got)
		}
	})
}

// A modern server ends a subscription by a result or by taking it back, in any order (B10). It takes back nothing else. Log
// messages go to the only call that asks for them (B12, R-153).
func TestConnModern(t *testing.T) {
	const taken, done = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}}`
	for _, ends := range [][]string{{taken}, {taken, done}, {done, taken}} {
		synctest.Test(t, func(t *testing.T) {
			w, back, quiet := &wireOf{}, &asker{}, &asker{}
			c := New("fake", w, &asker{}, Timeouts{})
			c.modern = true
			ctx, cancel := context.WithCancel(t.Context())
			listens := ask(t, c, ctx, back, `{"jsonrpc":"2.0","id":"s","method":"subscriptions/listen","params":{}}`)
			call := ask(t, c, ctx, quiet, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x"}}`)
			for _, id := range []string{"0", "2", "3", `"x1"`} {
				deliver(t, c, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`)
			}
			if len(listens)+len(call) > 0 {
				t.Error("ended too early")
			}
			const log = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":1}}`
			deliver(t, c, log)
			loud := []*asker{{}, {}}
			ask(t, c, ctx, loud[0], `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/logLevel":"error"}}}`)
			deliver(t, c, log)
			bridgetest.Contains(t, loud[0].take(), `"data":1`)
			ask(t, c, ctx, loud[1], `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/logLevel":"error"}}}`)
			deliver(t, c, log) // whose it is, nobody knows
			if got := quiet.take() + back.take() + loud[0].take() + loud[1].take(); got != "" {
				t.Errorf("a client got %s", got)
			}
			for _, line := range ends {
				deliver(t, c, line)
			}
			if len(listens) != 1 || len(call) != 0 {
				t.Fatalf("the subscription is over: %t, the call: %t", len(listens) == 1, len(call) == 1)
			}
			bridgetest.Contains(t, (<-listens).answer, `"result":{"resultType":"complete"}`)
			cancel()
			synctest.Wait()
		})
	}
}

// An answer that is nested too deep fails its call, wherever its id stands; what else is nested so deep is nobody's answer.
func TestTooDeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deep := strings.Repeat(`{"a":`, 100_000)
		c := New("fake", &wireOf{}, &asker{}, Timeouts{})
		call := ask(t, c, t.Context(), &asker{}, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{}}`)
		invalid := func(text string) {
			_, err := jsonrpc.Parse([]byte(text))
			c.Invalid([]byte(text), err)
		}
		invalid(`{"jsonrpc":"2.0","method":"notifications/x","params":` + deep)
		if time.Sleep(time.Minute); len(call) > 0 {
			t.Fatal("the call is over")
		}
		invalid(`{"jsonrpc":"2.0","result":` + deep + `1` + strings.Repeat("}", 100_000) + `,"id":1}`)
		bridgetest.Contains(t, fmt.Sprint(<-call), "its answer is nested too deep at byte", "1000 nested arrays and objects")
	})
}

// R-158, I-212: idle limit and maximum, each alone and together.
func TestConnTimeouts(t *testing.T) {
	const minute = time.Minute
	for _, tc := range []struct {
		name     string
		times    Timeouts
		progress []time.Duration // when the server reports progress
		question [2]time.Duration
		signIn   [2]time.Duration
		want     time.Duration // 0 means never
	}{
		{name: "none"},
		{name: "idle", times: Timeouts{Idle: minute}, want: minute},
		{name: "maximum alone", times: Timeouts{Max: 3 * minute}, want: 3 * minute},
		{name: "maximum below idle", times: Timeouts{Idle: 5 * minute, Max: minute}, want: minute},
		{name: "progress resets idle", times: Timeouts{Idle: minute, Max: time.Hour}, progress: []time.Duration{50 * time.Second, 100 * time.Second}, want: 160 * time.Second},
		{name: "maximum is hard", times: Timeouts{Idle: minute, Max: 90 * time.Second}, progress: []time.Duration{50 * time.Second, 80 * time.Second}, want: 90 * time.Second},
		{name: "idle stands still while a question waits", times: Timeouts{Idle: minute, Max: time.Hour}, question: [2]time.Duration{30 * time.Second, 9*minute + 30*time.Second}, want: 10*minute + 30*time.Second},
		{name: "maximum stands still while a question waits", times: Timeouts{Idle: 20 * minute, Max: 5 * minute}, question: [2]time.Duration{30 * time.Second, 10 * minute}, want: 14*minute + 30*time.Second},
		{name: "maximum alone stands still too", times: Timeouts{Max: minute}, question: [2]time.Duration{59 * time.Second, 10 * minute}, want: 10*minute + time.Second},
		{name: "idle stands still during a sign-in", times: Timeouts{Idle: minute, Max: time.Hour}, signIn: [2]time.Duration{0, 9 * minute}, want: 10 * minute},
		{name: "maximum stands still during a sign-in", times: Timeouts{Max: minute}, signIn: [2]time.Duration{30 * time.Second, 10 * minute}, want: 10*minute + 30*time.Second},
		{name: "a question during a sign-in", times: Timeouts{Max: minute}, question: [2]time.Duration{10 * time.Second, 5 * minute}, signIn: [2]time.Duration{20 * time.Second, 8 * minute}, want: 8*minute + 50*time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, rest := &wireOf{}, &asker{}
				c := New("fake", w, rest, tc.times)
				ctx, cancel := context.WithCancel(t.Context())
				began := time.Now()
				ch := ask(t, c, ctx, &asker{}, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":1}}}`)
				for i, at := range tc.progress {
					time.AfterFunc(at, func() {
						c.Deliver(bridgetest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":%d}}`, i)))
					})
				}
				if tc.question[1] > 0 {
					time.AfterFunc(tc.question[0], func() { c.Deliver(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":7,"method":"roots/list"}`)) })
					time.AfterFunc(tc.question[1], func() { rest.replies[0](bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"result":{}}`)) })
				}
				if tc.signIn[1] > 0 {
					time.AfterFunc(tc.signIn[0], func() { time.AfterFunc(tc.signIn[1]-tc.signIn[0], c.HoldTimeouts()) })
				}
				time.AfterFunc(3*time.Hour, cancel)
				got := <-ch
				took := time.Since(began)
				if tc.want == 0 {
					if took != 3*time.Hour || !errors.Is(got.err, context.Canceled) {
						t.Errorf("ended after %v with %v, want no limit", took, got.err)
					}
					return
				}
				if took != tc.want || !errors.Is(got.err, bridge.ErrTimeout) {
					t.Errorf("ended after %v with %v, want a time-out after %v", took, got.err, tc.want)
				}
				bridgetest.Contains(t, w.take(), `"method":"notifications/cancelled","params":{"requestId":1`)
				time.Sleep(3 * time.Hour)
			})
		})
	}
}

// Time-outs that are exchanged count for calls that begin then, over the same connection.
func TestConnTimeoutsLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times, set := Timeouts{Idle: time.Minute}.Live()
		c := New("fake", &wireOf{}, &asker{}, times)
		began := time.Now()
		call := func() <-chan outcome {
			return ask(t, c, t.Context(), &asker{}, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`)
		}
		first := call()
		synctest.Wait()
		set(Timeouts{Max: 10 * time.Second})
		if got := times.Now(); got != (Timeouts{Max: 10 * time.Second}) {
			t.Errorf("now: %+v", got)
		}
		second := call()
		if got := <-second; !errors.Is(got.err, bridge.ErrTimeout) || time.Since(began) != 10*time.Second {
			t.Errorf("a call that begins then ends after %v with %v", time.Since(began), got.err)
		}
		if got := <-first; !errors.Is(got.err, bridge.ErrTimeout) || time.Since(began) != time.Minute {
			t.Errorf("a call from before ends after %v with %v", time.Since(began), got.err)
		}
	})
}

// A handshake may take as long as its own limit says, which is longer than a
// call may be silent: programs have to start first.
func TestConnTimeoutsOpening(t *testing.T) {
	from := &bridge.Caller{Revision: "2026-07-28", Params: []byte(bridgetest.InitializeParams)}
	for name, open := range map[string]func(context.Context, *Conn) error{
		"initialize": func(ctx context.Context, c *Conn) error { _, err := Handshake(ctx, c, from, ""); return err },
		"discover":   func(ctx context.Context, c *Conn) error { _, _, err := Discover(ctx, c, from); return err },
		"list":       func(ctx context.Context, c *Conn) error { _, err := DiscoverByListing(ctx, c, from); return err },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				why := errors.New("it did not finish its handshake")
				ctx, stop := context.WithTimeoutCause(t.Context(), time.Minute, why)
				defer stop()
				began := time.Now()
				err := open(ctx, New("fake", &wireOf{}, &asker{}, Timeouts{Idle: time.Second, Max: 2 * time.Second}))
				if took := time.Since(began); took != time.Minute || !errors.Is(err, why) {
					t.Errorf("ended after %v with %v", took, err)
				}
			})
		})
	}
}

// a cancelled call is cancelled at the server, with our id; a
// handshake is not. A late answer is dropped.
func TestConnCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wireOf{}
		c := New("fake", w, &asker{}, Timeouts{Idle: time.Minute})
		ctx, cancel := context.WithCancelCause(t.Context())
		a := ask(t, c, ctx, nil, `{"jsonrpc":"2.0","id":"x","method":"tools/call"}`)
		b := ask(t, c, ctx, nil, `{"jsonrpc":"2.0","id":"y","method":"initialize"}`)
		w.take()
		cancel(bridge.ErrCancelled)
		if got := <-a; !errors.Is(got.err, bridge.ErrCancelled) {
			t.Errorf("call = %v", got)
		}
		<-b
		got := w.take()
		bridgetest.Contains(t, got, `"params":{"requestId":1,`)
		bridgetest.Lacks(t, got, `"requestId":2`)
		deliver(t, c, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		w.fail = errors.New("broken pipe")
		if got := <-ask(t, c, t.Context(), nil, `{"jsonrpc":"2.0","id":1,"method":"x"}`); got.err == nil || len(c.calls) != 0 {
			t.Errorf("a call that could not be sent = %v, %d calls left", got, len(c.calls))
		}
	})
}

// Every call has exactly one outcome, whatever races for it.
func TestConnRaces(t *testing.T) {
	for range 50 {
		c := New("fake", &wireOf{}, &asker{}, Timeouts{Idle: time.Hour})
		var wg sync.WaitGroup
		var outcomes atomic.Int32
		for i := range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"x"}`)
			wg.Go(func() {
				a, err := c.Call(ctx, &bridge.Request{Message: m})
				if (a == nil) == (err == nil) {
					t.Errorf("Call = %v, %v", a, err)
				}
				outcomes.Add(1)
			})
			wg.Go(func() { c.Deliver(bridgetest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, i+1))) })
			wg.Go(cancel)
			if i == 10 {
				wg.Go(func() { c.Fail(errors.New("gone")) })
			}
		}
		wg.Wait()
		if n := outcomes.Load(); n != 20 {
			t.Fatalf("%d outcomes of 20 calls", n)
		}
	}
}

// The reason of a cancellation is passed on when it is a text, and cut when it is
// long; no character is cut in two.
func TestCancelReason(t *testing.T) {
	long := strings.Repeat("é", bridge.MaxReason)
	for _, tc := range []struct{ params, want string }{
		{`{"requestId":1}`, ""},
		{`{"requestId":1,"reason":"a\"\u00e9"}`, `a"é`},
		{`{"requestId":1,"reason":{"a":1}}`, ""},
		{`{"requestId":1,"reason":"` + long + `"}`, long[:bridge.MaxReason]},
		{`{"requestId":1,"reason":"x` + long + `"}`, "x" + long[:bridge.MaxReason-2]},
	} {
		m := bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":`+tc.params+`}`)
		if got := bridge.CancelReason(m); got != tc.want {
			t.Errorf("of %.60s: %q, want %q", tc.params, got, tc.want)
		}
		if err := bridge.TakenBack(m); !errors.Is(err, bridge.ErrCancelled) || err.Error() != bridge.ErrCancelled.Error() {
			t.Errorf("of %.60s: %v", tc.params, err)
		}
	}
}

// The server's questions: answered under its own raw id, withdrawn when it
// cancels or the connection fails, refused when an id is used twice.
func TestConnQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, rest := &wireOf{}, &asker{}
		c := New("fake", w, rest, Timeouts{})
		deliver(t, c, `{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
		deliver(t, c, `{"jsonrpc":"2.0","id":"1","method":"roots/list"}`)
		deliver(t, c, `{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
		bridgetest.Contains(t, w.take(), `"id":1,"error":{"code":-32600`)
		deliver(t, c, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		deliver(t, c, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":404}}`)
		answer := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":55,"result":{"roots":[]}}`)
		rest.replies[0](answer) // too late
		if got := w.take(); got != "" || rest.withdrawn != 1 {
			t.Errorf("after the cancellation: sent %q, %d withdrawn", got, rest.withdrawn)
		}
		rest.replies[1](answer)
		if got, want := w.take(), `{"jsonrpc":"2.0","id":"1","result":{"roots":[]}}`; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		deliver(t, c, `{"jsonrpc":"2.0","id":1.50,"method":"roots/list"}`) // a client must not send such an id, and a server may
		rest.replies[2](answer)
		if got, want := w.take(), `{"jsonrpc":"2.0","id":1.50,"result":{"roots":[]}}`; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		deliver(t, c, `{"jsonrpc":"2.0","id":9,"method":"ping"}`)
		bridgetest.Contains(t, w.take(), `"id":9,"result":{}`)
		deliver(t, c, `{"jsonrpc":"2.0","id":5,"method":"roots/list"}`)
		ch := ask(t, c, t.Context(), nil, `{"jsonrpc":"2.0","id":1,"method":"x"}`)
		why := errors.New("gone")
		if !c.Fail(why) || c.Fail(errors.New("again")) || !errors.Is(c.Err(), why) {
			t.Errorf("Err = %v after Fail", c.Err())
		}
		if got := <-ch; !errors.Is(got.err, why) || rest.withdrawn != 2 {
			t.Errorf("call = %v, %d withdrawn", got, rest.withdrawn)
		}
		w.take()
		deliver(t, c, `{"jsonrpc":"2.0","id":6,"method":"roots/list"}`)
		rest.replies[3](answer)
		if got := w.take(); got != "" || len(rest.replies) != 4 {
			t.Errorf("after Fail: sent %q, asked %d", got, len(rest.replies))
		}
		if err := c.Notify(t.Context(), &bridge.Request{Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"x"}`)}); !errors.Is(err, why) {
			t.Errorf("Notify = %v", err)
		}
		rest.at = func(reply func(*jsonrpc.Message)) { reply(answer) }
		c = New("fake", w, rest, Timeouts{})
		deliver(t, c, `{"jsonrpc":"2.0","id":8,"method":"roots/list"}`)
		bridgetest.Contains(t, w.take(), `"id":8,"result"`)
		ch = ask(t, c, t.Context(), nil, `{"jsonrpc":"2.0","id":3,"method":"x"}`)
		c.Unanswerable([]byte("1"), "too large")
		bridgetest.Contains(t, (<-ch).answer, "upstream_too_large")
	})
}

// A server's optional members that are null do not reach clients, and those of clients do not reach servers. A
// payload without them keeps its bytes.
func TestNulls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wireOf{}
		back := &asker{at: func(reply func(*jsonrpc.Message)) {
			reply(jsonrpc.NewResult(nil, []byte(`{"action":"cancel","content":null}`)))
		}}
		c := New("fake", w, back, Timeouts{})
		list := ask(t, c, t.Context(), back, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		call := ask(t, c, t.Context(), back, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a","arguments":{"x":null}}}`)
		bridgetest.Contains(t, w.take(), `"arguments":{"x":null}`)
		deliver(t, c, `{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}`)
		bridgetest.Contains(t, w.take(), `"result":{"action":"cancel"}`)
		deliver(t, c, `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a","annotations":null}],"nextCursor":null}}`)
		bridgetest.Contains(t, (<-list).answer, `"result":{"tools":[{"name":"a"}]}`)
		deliver(t, c, `{"jsonrpc":"2.0","id":2,"result":{ "content":[ ],"structuredContent":{"x":null}}}`)
		bridgetest.Contains(t, (<-call).answer, `"result":{ "content":[ ],"structuredContent":{"x":null}}`)
	})
}

// a client gets a whole greeting of a server that leaves out parts of it. A server of 2024-10-07 is one of 2024-11-05,
// also for its clients.
func TestHandshakeFills(t *testing.T) {
	for _, tc := range []struct{ asked, result, want string }{
		{
			"2025-06-18", `{"capabilities":{"tools":{},"prompts":null},"instructions":null}`,
			`2025-06-18 {"capabilities":{"tools":{}},"protocolVersion":"2025-06-18","serverInfo":{"name":"fake","version":"unknown"}}`,
		},
		{
			"2025-11-25", `{"protocolVersion":"2024-10-07","capabilities":{},"serverInfo":{"name":"old","version":"1"}}`,
			`2024-11-05 {"protocolVersion":"2024-11-05","capabilities":{},"serverInfo":{"name":"old","version":"1"}}`,
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := New("fake", &wireOf{}, &asker{}, Timeouts{})
			done := make(chan string, 1)
			go func() {
				g, err := Handshake(t.Context(), c, &bridge.Caller{Params: []byte(`{"protocolVersion":"` + tc.asked + `"}`)}, "")
				if err != nil {
					done <- err.Error()
					return
				}
				done <- g.Revision + " " + string(g.Result)
			}()
			synctest.Wait()
			deliver(t, c, `{"jsonrpc":"2.0","id":1,"result":`+tc.result+`}`)
			if got := <-done; got != tc.want {
				t.Errorf("greeting %s\nwant     %s", got, tc.want)
			}
		})
	}
}

// A sender waits while the queue is full, until there is room or its context
// ends. What may not wait is taken all the same (Sender).
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(100, func() { t.Error("overfull") })
		send := func(ctx context.Context, size int) error {
			line := jsonrpc.NewBuffer(size)
			line.B = append(line.B, strings.Repeat("x", size)...)
			return q.Send(ctx, Outgoing{Line: line})
		}
		take := func(want int) {
			t.Helper()
			if o, err := q.Take(); err != nil || len(o.Line.B) != want {
				t.Fatalf("Take() = %d bytes, %v, want %d", len(o.Line.B), err, want)
			}
		}
		if err := send(t.Context(), 150); err != nil { // what is larger than the limit passes alone
			t.Fatal(err)
		}
		why := errors.New("no patience")
		ctx, cancel := context.WithCancelCause(t.Context())
		gave, waited := make(chan error), make(chan error)
		go func() { gave <- send(ctx, 20) }()
		synctest.Wait()
		cancel(why)
		if err := <-gave; !errors.Is(err, why) {
			t.Errorf("Send = %v, want the context's cause", err)
		}
		go func() { waited <- send(t.Context(), 30) }()
		synctest.Wait()
		select {
		case err := <-waited:
			t.Fatalf("Send did not wait for room: %v", err)
		default:
		}
		urgent := Outgoing{Line: jsonrpc.NewBuffer(40), Urgent: true}
		urgent.Line.B = append(urgent.Line.B, strings.Repeat("x", 40)...)
		if err := q.Send(t.Context(), urgent); err != nil {
			t.Errorf("Send of what is urgent = %v", err)
		}
		take(150)
		if err := <-waited; err != nil {
			t.Errorf("Send = %v", err)
		}
		take(40)
		take(30)
		end := errors.New("stopped")
		go func() {
			_, err := q.Take()
			waited <- err
		}()
		synctest.Wait()
		q.Stop(errors.New("for senders"), end)
		q.Stop(errors.New("again"), errors.New("again"))
		if err := <-waited; !errors.Is(err, end) {
			t.Errorf("Take() = %v, want %v", err, end)
		}
		if err := send(t.Context(), 1); err == nil || err.Error() != "for senders" {
			t.Errorf("Send to a stopped queue = %v", err)
		}

		q = NewQueue(100, nil)
		if err := send(t.Context(), 150); err != nil {
			t.Fatal(err)
		}
		go func() { waited <- send(t.Context(), 20) }()
		synctest.Wait()
		q.Stop(end, end)
		if err := <-waited; !errors.Is(err, end) {
			t.Errorf("Send that waited for a queue that stopped = %v", err)
		}
	})
}
