package gateway

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// faulty is a server whose calls of tools end as one says: without an answer
// when it returns an error. It counts what reaches it.
type faulty struct {
	fake
	outcome func(n int) error // of the nth call of a tool; nil means that all are answered
	calls   atomic.Int64
	pings   atomic.Int64
	mute    atomic.Bool // pings are not answered
	closed  atomic.Bool // no connection can be opened
}

// probePatient is how long callers wait for the outcome of a probe.
const probePatient = 5 * time.Second

func newFaulty(outcome func(n int) error) *faulty {
	f := &faulty{outcome: outcome}
	f.before = func(context.Context, int) error {
		if f.closed.Load() {
			return &bridge.Error{Server: "fake", Kind: bridge.ErrUnavailable, Public: "it could not be started"}
		}
		return nil
	}
	f.serve = func(w *fakeWire, m *jsonrpc.Message) bool {
		switch m.Method {
		case "ping":
			f.pings.Add(1)
			return f.mute.Load()
		case "tools/call":
			n := f.calls.Add(1)
			if f.outcome == nil {
				return false
			}
			if err := f.outcome(int(n)); err != nil {
				id, _ := strconv.ParseInt(string(m.ID), 10, 64)
				w.Abort(id, err)
				return true
			}
		}
		return false
	}
	return f
}

func failure(kind error) *bridge.Error {
	return &bridge.Error{Server: "fake", Kind: kind, Public: "it failed"}
}

func always(err error) func(int) error { return func(int) error { return err } }

func state(g *gateway) Status { return g.Status()[0] }

// What counts as a failure, and what does not.
func TestBreakerCounts(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		open bool
	}{
		{"lost", failure(bridge.ErrLost), true},
		{"unavailable", failure(bridge.ErrUnavailable), true},
		{"timeout", failure(bridge.ErrTimeout), true},
		{"no answer and no reason", errors.New("unexpected end of JSON input"), true},
		{"declined", failure(bridge.ErrRejected), false},
		{"credentials refused", failure(bridge.ErrCredentials), false},
		{"overloaded", &bridge.Error{Server: "fake", Kind: bridge.ErrUnavailable, Err: bridge.ErrOverloaded, Public: "full"}, false},
		{"too large", failure(bridge.ErrTooLarge), false},
		{"refused to initialize", &bridge.Error{Server: "fake", Kind: bridge.ErrNoHandshake, Public: "no"}, false},
		{"not sent", failure(bridge.ErrUnsent), false},
		{"cancelled", bridge.ErrCancelled, false},
		{"ended", bridge.ErrEnded, false},
		{"stopping", bridge.ErrShutdown, false},
		{"an answer", nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFaulty(func(int) error { // each its own, as they are of calls
				if e, ok := test.err.(*bridge.Error); ok {
					mine := *e
					return &mine
				}
				return test.err
			})
			run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Breaker: breaker.Options{Failures: 3}}}, func(t *testing.T, g *gateway) {
				s, _ := begin(t, g, "")
				var got string
				for range 10 {
					got = do(t, s, "1", "tools/call", `{"name":"x"}`)
				}
				st := state(g)
				if open := st.Breaker == "open"; open != test.open || open != (st.Trips == 1) || open && f.calls.Load() != 3 {
					t.Errorf("%s after %d calls, opened %d times; the last one got %s", st.Breaker, f.calls.Load(), st.Trips, got)
				}
			})
		})
	}
}

// What clients are told, and when the server is tried again.
func TestBreakerRefusal(t *testing.T) {
	f := newFaulty(always(failure(bridge.ErrLost)))
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Breaker: breaker.Options{Failures: 2, Pause: 7 * time.Second}}}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		other, _ := begin(t, g, "p") // of a principal's
		for range 2 {
			f.outcome = always(&bridge.Error{Server: "fake", Kind: bridge.ErrLost, Public: "HTTP 500: no row 7; whether it acted on the request is unknown"})
			do(t, s, "1", "tools/call", `{"name":"x"}`)
		}
		time.Sleep(500 * time.Millisecond)
		at := time.Now()
		got := do(t, s, "1", "tools/call", `{"name":"x"}`)
		want := `"message":"server fake: it keeps failing (HTTP 500: no row 7); next attempt in 7 s","data":{"bridge":"circuit_open","server":"fake","retryAfterMs":6500}`
		bridgetest.Contains(t, got, want)
		if time.Since(at) != 0 || f.calls.Load() != 2 {
			t.Errorf("refused after %v; %d calls reached the server", time.Since(at), f.calls.Load())
		}
		if st := state(g); st.Usable || st.RetryAt != at.Add(6500*time.Millisecond) || st.State != "failing" || st.Since != at.Add(-500*time.Millisecond) ||
			st.Reason != "server fake: HTTP 500: no row 7" || st.Last != st.Reason || st.LastAt != st.Since {
			t.Errorf("status %+v", st)
		}
		time.Sleep(7 * time.Second)
		f.outcome = nil
		bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"x"}`), `"result"`)
		// Where there are several principals, what one was told is not for others.
		f.outcome = func(int) error {
			return &bridge.Error{Server: "fake", Kind: bridge.ErrLost, Public: "HTTP 500: no row 7"}
		}
		for range 2 {
			do(t, other, "1", "tools/call", `{"name":"x"}`)
		}
		got = do(t, s, "1", "tools/call", `{"name":"x"}`)
		bridgetest.Contains(t, got, "(it fails while it has calls to answer)")
		bridgetest.Lacks(t, got, "row 7")
	})
}

// While the server is left alone no connection is opened either, whoever wants
// one, and however its clients share them (stacklok/toolhive#5861).
func TestBreakerGatesOpenings(t *testing.T) {
	for _, share := range []Share{ShareSession, SharePrincipal, ShareCall, ShareAll} {
		t.Run(string(share), func(t *testing.T) {
			f := newFaulty(nil)
			f.closed.Store(true)
			run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: share, Breaker: breaker.Options{Failures: 3}}}, func(t *testing.T, g *gateway) {
				for i := 0; state(g).Breaker == "closed"; i++ {
					if i > 20 {
						t.Fatal("never opened")
					}
					_, _, _ = initialize(t, g, fmt.Sprint("p", i), bridgetest.InitializeParams)
				}
				if n := f.opened(); n != 3 {
					t.Errorf("opened after %d attempts", n)
				}
				var wg sync.WaitGroup
				for i := range 50 {
					wg.Go(func() {
						switch {
						case i%2 == 0:
							_, a, err := initializeAs(t, g, fmt.Sprint("id", i), fmt.Sprint("p", i))
							if !errors.Is(err, bridge.ErrOpen) || !strings.Contains(a, "circuit_open") {
								t.Errorf("initialize: %s, %v", a, err)
							}
						default:
							if got := (visitor{principal: fmt.Sprint("p", i)}).call(t, g, "tools/call", `"name":"x"`); !strings.Contains(got, "circuit_open") {
								t.Errorf("a client without a session: %s", got)
							}
						}
					})
				}
				wg.Wait()
				if n := f.opened(); n != 3 {
					t.Errorf("%d connections were opened while the server was left alone", n-3)
				}
			})
		})
	}
}

func initializeAs(t testing.TB, g *gateway, id, principal string) (*sitting, string, error) {
	s, m, err := g.initialize(context.Background(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":"init","method":"initialize","params":`+bridgetest.InitializeParams+`}`), SessionOptions{Server: "fake", ID: id, Principal: principal})
	return s, bridgetest.Text(m), err
}

// When the pause is over there is one probe, which is no client's call,
// and all that come wait for it.
func TestBreakerProbe(t *testing.T) {
	f := newFaulty(always(failure(bridge.ErrLost)))
	f.times = conn.Timeouts{Idle: time.Minute}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: ShareAll, Breaker: breaker.Options{Failures: 5}}}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		f.outcome = func(int) error { return failure(bridge.ErrLost) }
		for range 5 {
			do(t, s, "1", "tools/call", `{"name":"x"}`)
		}
		f.outcome = nil
		f.mute.Store(true)
		f.closed.Store(true)
		together := func() (answers []string) {
			var mu sync.Mutex
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					got := do(t, s, "1", "tools/call", `{"name":"x"}`)
					mu.Lock()
					defer mu.Unlock()
					answers = append(answers, got)
				})
			}
			wg.Wait()
			return answers
		}
		for i, pause := range []time.Duration{5, 10, 20, 40, 80, 120, 120} {
			if i > 0 {
				at := state(g).RetryAt
				if left := time.Until(at); left != pause*time.Second {
					t.Fatalf("the pause before probe %d is %v, want %v s", i+1, left, int(pause))
				}
			}
			time.Sleep(pause * time.Second)
			at := time.Now()
			for _, got := range together() {
				bridgetest.Contains(t, got, "circuit_open")
			}
			if took := time.Since(at); took != probePatient {
				t.Errorf("they waited %v, want %v", took, probePatient)
			}
			synctest.Wait()
			if p, c, o := f.pings.Load(), f.calls.Load(), f.opened(); p != int64(i+1) || c != 5 || o != i+2 {
				t.Errorf("after probe %d: %d pings, %d calls, %d connections", i+1, p, c, o)
			}
		}
		f.mute.Store(false)
		f.closed.Store(false)
		time.Sleep(2 * time.Minute)
		for _, got := range together() {
			bridgetest.Contains(t, got, `"result"`)
		}
		if p, st := f.pings.Load(), state(g); p != 8 || st.Breaker != "closed" || !st.Usable || st.State != "ready" {
			t.Errorf("%d pings, %+v", p, st)
		}
		// The pause begins anew after a success.
		f.outcome = func(int) error { return failure(bridge.ErrLost) }
		for range 5 {
			do(t, s, "1", "tools/call", `{"name":"x"}`)
		}
		if left := time.Until(state(g).RetryAt); left != 5*time.Second || state(g).Trips != 2 {
			t.Errorf("the pause is %v", left)
		}
	})
}

// Without a connection of use the probe opens one, and closes it again. Callers
// do not wait for a probe that takes long, and Close stops it.
func TestBreakerProbeOpens(t *testing.T) {
	f := newFaulty(nil)
	f.closed.Store(true)
	var slow atomic.Bool
	refuse := f.before
	f.before = func(ctx context.Context, n int) error {
		if slow.Load() {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return refuse(ctx, n)
	}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Breaker: breaker.Options{Failures: 3}}}, func(t *testing.T, g *gateway) {
		fail := func() {
			t.Helper()
			if _, a, err := initialize(t, g, "", bridgetest.InitializeParams); !errors.Is(err, bridge.ErrUnavailable) {
				t.Fatal(a, err)
			}
		}
		for range 3 {
			fail()
		}
		time.Sleep(5 * time.Second)
		slow.Store(true)
		for i := range 20 {
			at := time.Now()
			fail()
			if took := time.Since(at); took > probePatient || i > 1 && took != 0 {
				t.Fatalf("caller %d waited %v", i, took)
			}
			if st := state(g); st.Breaker != "half-open" {
				t.Fatalf("%s", st.Breaker)
			}
			time.Sleep(time.Second)
		}
		if n := f.opened(); n != 4 {
			t.Errorf("%d connections were opened, want 3 and one probe", n)
		}
		time.Sleep(time.Minute) // the handshake's own limit
		if st := state(g); st.Breaker != "open" {
			t.Fatalf("%s after the probe has timed out", st.Breaker)
		}
		slow.Store(false)
		f.closed.Store(false)
		time.Sleep(time.Minute)
		s, _ := begin(t, g, "")
		synctest.Wait()
		if n, open := f.opened(), state(g).Lanes; n != 6 || open != 1 {
			t.Errorf("%d connections were opened, %d are open; want the probe's closed", n, open)
		}
		s.End(bridge.ErrEnded)
		synctest.Wait()
		f.closed.Store(true)
		for range 3 {
			fail()
		}
		time.Sleep(5 * time.Second)
		slow.Store(true)
		go func() { _, _, _ = initializeAs(t, g, "last", "") }()
		synctest.Wait() // the probe is under way when the bridge is closed
		if st := state(g); st.Breaker != "half-open" {
			t.Errorf("%s", st.Breaker)
		}
	})
}

// A server that fails more often than not is left alone too, from so many calls
// within the window on.
func TestBreakerPercent(t *testing.T) {
	for _, test := range []struct {
		name string
		bad  int // of five calls
		gap  time.Duration
		open int64 // after how many calls; 0 means never
	}{
		{"three of five", 3, 0, 20},
		{"two of five", 2, 0, 0},
		{"three of five, rarely", 3, 2 * time.Second, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFaulty(func(n int) error {
				if (n-1)%5 < test.bad {
					return failure(bridge.ErrLost)
				}
				return nil
			})
			run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
				s, _ := begin(t, g, "")
				time.Sleep(time.Minute) // its handshake does not count any more
				for range 60 {
					do(t, s, "1", "tools/call", `{"name":"x"}`)
					time.Sleep(test.gap)
				}
				if open := state(g).Breaker == "open"; open != (test.open > 0) || open && (f.calls.Load() < test.open || f.calls.Load() > test.open+3) {
					t.Errorf("%s after %d calls", state(g).Breaker, f.calls.Load())
				}
			})
		})
	}
}

// A call that takes long is a failure only with slow, and not when it has shown
// signs of life or somebody was asked. One that times out long after it began
// counts, whatever the window.
func TestBreakerSlow(t *testing.T) {
	const slow = 10 * time.Second
	for _, test := range []struct {
		name string
		slow time.Duration
		say  string // by the server at once; $token and $id are those of the call
		hang bool   // it has no answer
		open bool
	}{
		{"slow counts", slow, "", false, true},
		{"slow does not count by itself", 0, "", false, false},
		{"progress", slow, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$token,"progress":1}}`, false, false},
		{"a question", slow, `{"jsonrpc":"2.0","id":"q$id","method":"roots/list"}`, false, false},
		{"time-outs", 0, "", true, true},
		{"time-outs after progress", 0, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$token,"progress":1}}`, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &fake{times: conn.Timeouts{Idle: 5 * time.Minute}}
			f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
				if m.Method != "tools/call" {
					return m.IsResponse()
				}
				if test.say != "" {
					f.say(strings.NewReplacer("$token", string(m.Token()), "$id", string(m.ID)).Replace(test.say))
				}
				if !test.hang {
					m = m.Clone()
					f.wg.Go(func() {
						select {
						case <-time.After(20 * time.Second):
							f.answer(m, "{}")
						case <-f.done:
						}
					})
				}
				return true
			}
			run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Breaker: breaker.Options{Failures: 3, Slow: test.slow}}}, func(t *testing.T, g *gateway) {
				s, st := begin(t, g, "")
				st.heard = func(line string) {
					if strings.Contains(line, "roots/list") {
						m := bridgetest.Parse(t, line)
						_ = s.Answer(bridgetest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"roots":[]}}`, m.ID)))
					}
				}
				for range 3 {
					p := start(t, s, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":"t"}}}`)
					<-p.done
				}
				if open := state(g).Breaker == "open"; open != test.open {
					t.Errorf("%s, want open: %v", state(g).Breaker, test.open)
				}
			})
		})
	}
}

// One client that makes its own server crash again and again, with
// many calls at once, is no reason to leave those of others alone, as long as
// new ones start.
func TestBreakerCrashLoop(t *testing.T) {
	f := &fake{}
	f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "tools/call" && m.Name() == "crash" {
			if f.Pending() == 20 {
				f.die()
			}
			return true
		}
		return false
	}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{StartsPerMinute: 1000, Breaker: breaker.Options{Failures: 3}}}, func(t *testing.T, g *gateway) {
		bad, _ := begin(t, g, "")
		good, _ := begin(t, g, "")
		for range 50 {
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() { do(t, bad, "1", "tools/call", `{"name":"crash"}`) })
			}
			wg.Wait()
			bridgetest.Contains(t, do(t, good, "1", "tools/call", `{"name":"x"}`), `"result"`)
			time.Sleep(2 * time.Minute)
		}
		for range 50 { // nor without anybody else's
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() { do(t, bad, "1", "tools/call", `{"name":"crash"}`) })
			}
			wg.Wait()
			time.Sleep(2 * time.Minute)
		}
		if st := state(g); st.Trips != 0 || f.opened() < 50 {
			t.Errorf("left alone %d times; %d connections", st.Trips, f.opened())
		}
		bridgetest.Contains(t, do(t, good, "1", "tools/call", `{"name":"x"}`), `"result"`)
	})
}

// A connection that many share and that ends under their calls is one failure.
func TestBreakerOneLoss(t *testing.T) {
	f := &fake{}
	f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "tools/call" {
			if f.Pending() == 50 {
				f.die()
			}
			return true
		}
		return false
	}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: ShareAll, Breaker: breaker.Options{Failures: 3}}}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"x"}`), "upstream_lost") })
		}
		wg.Wait()
		if st := state(g); st.Trips != 0 {
			t.Error("left alone after one loss")
		}
	})
}

// A server that is restarted loses all calls under way: that is one failure in a
// row, whosever they are. Where it is most of what was called, it counts.
func TestBreakerRestart(t *testing.T) {
	for _, n := range []int{15, 30} {
		f := &fake{}
		f.serve = func(_ *fakeWire, m *jsonrpc.Message) bool { return m.Name() == "hang" }
		run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Breaker: breaker.Options{Failures: 3}}}, func(t *testing.T, g *gateway) {
			var calls []*pendingCall
			var all []*sitting
			for range n {
				s, _ := begin(t, g, "")
				all = append(all, s)
				calls = append(calls, start(t, s, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hang"}}`))
			}
			time.Sleep(time.Minute) // their handshakes do not count any more
			for i := range calls {
				f.wire(i + 1).die()
			}
			for _, p := range calls {
				<-p.done
			}
			if st := state(g); (st.Trips == 1) != (n >= 20) {
				t.Errorf("%d calls lost: left alone %d times", n, st.Trips)
			}
			if n < 20 {
				for _, s := range all {
					bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"x"}`), `"result"`)
				}
			}
		})
	}
}
