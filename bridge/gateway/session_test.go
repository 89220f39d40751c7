package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
)

// protocol.md D3: which revision the server
// is offered and the client is answered, and that all else is relayed.
func TestInitialize(t *testing.T) {
	for _, tc := range []struct{ name, asked, server, offered, want string }{
		{"2024-11-05", "2024-11-05", "2024-11-05", "2024-11-05", "2024-11-05"},
		{"2025-03-26", "2025-03-26", "2025-03-26", "2025-03-26", "2025-03-26"},
		{"2025-06-18", "2025-06-18", "2025-06-18", "2025-06-18", "2025-06-18"},
		{"2025-11-25", "2025-11-25", "2025-11-25", "2025-11-25", "2025-11-25"},
		{"unknown", "1999-01-01", "2025-11-25", "2025-11-25", "2025-11-25"},
		{"modern", "2026-07-28", "2025-11-25", "2025-11-25", "2025-11-25"},
		{"of the future", "2099-01-01", "2025-11-25", "2025-11-25", "2025-11-25"},
		{"server is older", "2025-11-25", "2024-11-05", "2025-11-25", "2025-11-25"},
		{"server is newer", "2024-11-05", "2025-11-25", "2024-11-05", "2024-11-05"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &fake{result: strings.Replace(everything, "2025-11-25", tc.server, 1)}
			run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
				s, a, err := initialize(t, g, "", `{"protocolVersion":"`+tc.asked+`","capabilities":{"x-vendor":{"n":12345678901234567890}},"clientInfo":{"name":"c","version":"1"},"extra":[1.50],"_meta":{"progressToken":"mine"}}`)
				if err != nil {
					t.Fatal(err)
				}
				want := `{"jsonrpc":"2.0","id":"init","result":` + strings.Replace(f.result, tc.server, tc.want, 1) + `}`
				if tc.server != tc.want { // tasks are between equals
					want = strings.Replace(want, `"tasks":{"list":{}},`, "", 1)
				}
				if a != want || s.Revision() != tc.want {
					t.Errorf("revision %s, got %s\nwant %s", s.Revision(), a, want)
				}
				got := strings.Join(f.wire(1).log(), "\n")
				bridgetest.Contains(t, got, `"protocolVersion":"`+tc.offered+`"`, `{"x-vendor":{"n":12345678901234567890}}`, `"extra":[1.50]`, "\n"+`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
				bridgetest.Lacks(t, got, "mine")
			})
		})
	}
}

// What a client gets when there is no session to be had.
func TestInitializeFails(t *testing.T) {
	answers := func(text string) func(*fakeWire, *jsonrpc.Message) bool {
		return func(f *fakeWire, m *jsonrpc.Message) bool {
			if m.Method == "initialize" {
				f.say(text)
			}
			return m.Method == "initialize"
		}
	}
	for _, tc := range []struct {
		name, params string
		f            *fake
		want         []string
	}{
		{"no params", `{}`, &fake{}, []string{`"code":-32602`, "protocolVersion is missing"}},
		{"version is a number", `{"protocolVersion":1}`, &fake{}, []string{`"code":-32602`}},
		{"capabilities are null", `{"protocolVersion":"2025-11-25","capabilities":null}`, &fake{}, []string{`"code":-32602`}},
		{"cannot be started", bridgetest.InitializeParams, &fake{before: func(context.Context, int) error {
			return &bridge.Error{Server: "fake", Kind: bridge.ErrUnavailable, Public: "it could not be started", Err: errors.New("secret")}
		}}, []string{"could not be started", "upstream_unavailable"}},
		{"fault of the bridge", bridgetest.InitializeParams, &fake{before: func(context.Context, int) error { return errors.New("secret") }}, []string{"internal error of the bridge"}},
		{"server refuses", bridgetest.InitializeParams, &fake{serve: answers(`{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"too old"}}`)}, []string{"refused to initialize: too old", "upstream_unavailable"}},
		{"server answers a modern revision", bridgetest.InitializeParams, &fake{serve: answers(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2026-07-28"}}`)}, []string{"2026-07-28", "upstream_unavailable"}},
		{"server answers nothing useful", bridgetest.InitializeParams, &fake{serve: answers(`{"jsonrpc":"2.0","id":1,"result":null}`)}, []string{"upstream_unavailable"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run(t, ServerOptions{Adapter: tc.f}, func(t *testing.T, g *gateway) {
				s, a, err := initialize(t, g, "", tc.params)
				if s != nil || err == nil {
					t.Errorf("Initialize = %v, %v", s, err)
				}
				bridgetest.Contains(t, a, append(tc.want, `"id":"init"`)...)
				bridgetest.Lacks(t, a, "secret")
				synctest.Wait()
				if n := g.Status()[0].Sessions; n != 0 {
					t.Errorf("%d sessions are left", n)
				}
			})
		})
	}
}

// ping and a second initialize are answered here (R-154, A2).
func TestSessionLocalAnswers(t *testing.T) {
	f := &fake{}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		if got := do(t, s, `"p"`, "ping", `{}`); got != `{"jsonrpc":"2.0","id":"p","result":{}}` {
			t.Errorf("ping = %s", got)
		}
		bridgetest.Contains(t, do(t, s, "2", "initialize", bridgetest.InitializeParams), `"id":2,`, `"code":-32600`)
		if got := f.wire(1).received(); len(got) != 0 {
			t.Errorf("the server got %q", got)
		}
	})
}

// What the server says before the client is ready waits, in order; so does
// what it says while no stream is open, within bounds.
func TestSessionPending(t *testing.T) {
	f := &fake{}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, _, err := initialize(t, g, "", bridgetest.InitializeParams)
		if err != nil {
			t.Fatal(err)
		}
		w := f.wire(1)
		w.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
		w.say(`{"jsonrpc":"2.0","id":"r","method":"roots/list"}`)
		w.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":2}}`)
		early := &stream{}
		detach := s.Attach(early)
		if got := early.take(); len(got) != 0 {
			t.Errorf("before initialized: %q", got)
		}
		s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`), nil)
		got := early.take()
		if len(got) != 3 || !strings.Contains(got[0], `"data":1`) || !strings.Contains(got[1], "roots/list") || !strings.Contains(got[2], `"data":2`) {
			t.Errorf("after initialized: %q", got)
		}
		detach()
		for i := range 1000 {
			w.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:%d"}}`, i%10))
			w.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":%d}}`, i))
		}
		synctest.Wait()
		closed, late := &stream{closed: true}, &stream{}
		s.Attach(closed)
		if got := closed.take(); len(got) != 0 {
			t.Errorf("a closed stream got %q", got)
		}
		s.Attach(late)
		got = late.take()
		all := strings.Join(got, "\n")
		if len(got) != pendingLimits.Events {
			t.Errorf("%d messages waited, want %d", len(got), pendingLimits.Events)
		}
		bridgetest.Contains(t, all, `"data":999`)
		for i := range 10 {
			bridgetest.Contains(t, all, fmt.Sprintf(`"a:%d"`, i))
		}
	})
}

// a cancellation means the call with that very id; with two of them it
// means none.
func TestSessionCancel(t *testing.T) {
	f := &fake{serve: silent("slow")}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		number := start(t, s, `{"jsonrpc":"2.0","id":1,"method":"slow"}`)
		synctest.Wait()
		letter := start(t, s, `{"jsonrpc":"2.0","id":"1","method":"slow"}`)
		twice := [2]*pendingCall{start(t, s, `{"jsonrpc":"2.0","id":2,"method":"slow"}`), start(t, s, `{"jsonrpc":"2.0","id":2,"method":"slow"}`)}
		synctest.Wait()
		cancel := func(params string) {
			s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":`+params+`}`), nil)
			synctest.Wait()
		}
		for _, nothing := range []string{`{"requestId":2}`, `{"requestId":404}`, `{"requestId":1.0}`, `{}`} {
			cancel(nothing)
		}
		if number.over() || letter.over() || twice[0].over() || twice[1].over() {
			t.Error("a call ended that was not meant")
		}
		cancel(`{"requestId":1}`)
		if !number.over() || letter.over() || number.answer != "" || !errors.Is(number.err, bridge.ErrCancelled) {
			t.Errorf("cancelled call = %s, %v", number.answer, number.err)
		}
		got := f.wire(1).received()
		bridgetest.Contains(t, got[len(got)-1], `notifications/cancelled`, `"requestId":2`) // our id; 1 was initialize
		s.End(bridge.ErrEnded)
		<-letter.done
		bridgetest.Contains(t, letter.answer, `"id":"1"`, "the session has ended")
	})
}

// Limits on calls and sessions, and that their end makes room.
func TestSessionLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{serve: silent("slow")}
		g := newGateway(Options{Sessions: session.NewMemory(2), Servers: []ServerOptions{{Name: "fake", Adapter: f}}})
		defer g.Close(context.Background())
		s, _ := begin(t, g, "")
		other, _ := begin(t, g, "")
		if _, a, err := initialize(t, g, "", bridgetest.InitializeParams); !errors.Is(err, bridge.ErrOverloaded) {
			t.Errorf("third session = %s, %v", a, err)
		}
		for i := range maxCallsPerClient {
			start(t, s, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"slow"}`, i))
		}
		synctest.Wait()
		bridgetest.Contains(t, do(t, s, "1000", "x", `{}`), `"id":1000`, `"bridge":"overloaded"`)
		bridgetest.Contains(t, do(t, s, "1001", "ping", `{}`), `"result"`)
		bridgetest.Contains(t, do(t, other, "1", "x", `{}`), `"result"`)
		s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`), nil)
		synctest.Wait()
		bridgetest.Contains(t, do(t, s, "1002", "x", `{}`), `"result"`)
		s.End(bridge.ErrEnded)
		synctest.Wait()
		begin(t, g, "")
		if !g.Room("").Reserve(512<<20) || g.Room("").Reserve(1) {
			t.Error("Reserve does not hold the limit")
		}
		g.Room("").Return(512 << 20)
	})
}

// An unused session ends after 5 minutes, an idle one after SessionIdle; a
// call under way and an open stream are use.
func TestSessionIdle(t *testing.T) {
	f := &fake{serve: silent("slow")}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		unused, _, _ := initialize(t, g, "", bridgetest.InitializeParams)
		idle, _, _ := initialize(t, g, "", bridgetest.InitializeParams)
		do(t, idle, "1", "x", `{}`)
		calling, _, _ := initialize(t, g, "", bridgetest.InitializeParams)
		start(t, calling, `{"jsonrpc":"2.0","id":1,"method":"slow"}`)
		listening, _ := begin(t, g, "")
		alive := func(want ...bool) {
			t.Helper()
			for i, s := range []*sitting{unused, idle, calling, listening} {
				if got := s.ctx.Err() == nil; got != want[i] {
					t.Errorf("session %d lives: %t, want %t", i, got, want[i])
				}
			}
		}
		time.Sleep(unusedTTL - time.Second)
		alive(true, true, true, true)
		time.Sleep(time.Minute)
		alive(false, true, true, true)
		time.Sleep(30 * time.Minute)
		alive(false, false, true, true)
		time.Sleep(24 * time.Hour)
		alive(false, false, true, true)
		store := g.store.(session.Store)
		if _, err := store.Find(t.Context(), listening.id); err != nil {
			t.Errorf("the store has lost a live session: %v", err)
		}
		if _, err := store.Find(t.Context(), idle.id); !errors.Is(err, session.ErrNotFound) {
			t.Errorf("the store keeps an ended session: %v", err)
		}
	})
}

// A session whose client has closed its stream and said nothing since ends sooner, if it has a
// process to itself: clients leave without a word. One that is silent, or is used without a
// stream, does not.
func TestSessionLeft(t *testing.T) {
	for _, test := range []struct {
		name    string
		process bool
		share   Share
		sooner  bool
	}{{"a process", true, ShareSession, true}, {"a shared process", true, SharePrincipal, false}, {"no process", false, ShareSession, false}} {
		t.Run(test.name, func(t *testing.T) {
			f := &fake{serve: silent("slow")}
			run(t, ServerOptions{Adapter: f, Process: test.process, ServerSettings: ServerSettings{Share: test.share}}, func(t *testing.T, g *gateway) {
				open := func() (*sitting, func()) {
					s, _, _ := initialize(t, g, "", bridgetest.InitializeParams)
					do(t, s, "1", "x", `{}`)
					return s, s.Attach(&stream{})
				}
				left, leave := open()
				again, leaveAgain := open()
				back, leaveBack := open()
				calling, leaveCalling := open()
				listening, _ := open()
				silent, _, _ := initialize(t, g, "", bridgetest.InitializeParams)
				do(t, silent, "1", "x", `{}`)
				start(t, calling, `{"jsonrpc":"2.0","id":1,"method":"slow"}`)
				leave()
				leaveAgain()
				leaveBack()
				leaveCalling()
				do(t, again, "2", "x", `{}`)
				back.Seen()
				back.Attach(&stream{})
				synctest.Wait()
				for i, s := range []*sitting{left, again, back, calling, listening, silent} {
					if st := s.status(); st.Left != (i == 0) {
						t.Errorf("session %d: its client has left: %t", i, st.Left)
					}
				}
				time.Sleep(6 * time.Minute)
				for i, s := range []*sitting{left, again, back, calling, listening, silent} {
					if lives := s.ctx.Err() == nil; lives != (i > 0 || !test.sooner) {
						t.Errorf("session %d lives: %t", i, lives)
					}
				}
			})
		})
	}
}

// Drain lets calls finish and refuses new ones; Close ends what is
// left, with an answer for each. Only what did not reach the server is said to be
// for another try.
func TestDrainAndClose(t *testing.T) {
	f := &fake{serve: silent("slow")}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		slow := start(t, s, `{"jsonrpc":"2.0","id":7,"method":"slow"}`)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) || !g.Draining() {
			t.Errorf("Drain = %v", err)
		}
		bridgetest.Contains(t, do(t, s, "8", "x", `{}`), `"bridge":"stopping"`)
		_, a, err := initialize(t, g, "", bridgetest.InitializeParams)
		if !errors.Is(err, bridge.ErrShutdown) {
			t.Errorf("Initialize while draining = %s, %v", a, err)
		}
		var ended bool
		s.OnEnd(func() { ended = true })
		drained := make(chan error, 2)
		for range 2 {
			go func() { drained <- g.Drain(t.Context()) }()
		}
		synctest.Wait()
		go g.Close(context.Background())
		<-slow.done
		if errors.Is(slow.err, bridge.ErrShutdown) { // which adapters answer with 503
			t.Errorf("a call under way: %v", slow.err)
		}
		bridgetest.Contains(t, slow.answer, `"id":7`, "the bridge is stopping; whether the server acted on the request is unknown", `"bridge":"upstream_lost"`)
		for range 2 {
			if err := <-drained; err != nil {
				t.Errorf("Drain = %v", err)
			}
		}
		synctest.Wait()
		s.OnEnd(func() { ended = ended && true })
		if !ended || s.Go(func() {}) {
			t.Error("the session goes on")
		}
		select {
		case <-s.Done():
		default:
			t.Error("Done is open")
		}
	})
}

// A cancellation right behind its request finds it, although nobody has begun
// to work on it yet.
func TestCancelAtOnce(t *testing.T) {
	f := &fake{}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		call := s.Enter(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"x"}}`), nil, nil)
		s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`), nil)
		if m, err := call.Do(); m != nil || !errors.Is(err, bridge.ErrCancelled) {
			t.Errorf("the call ended with %s, %v, want no answer", bridgetest.Text(m), err)
		}
		if n, _ := g.Activity(); n != 0 {
			t.Errorf("%d calls are under way", n)
		}
	})
}

// A call that was entered before its session has ended, and is to be made after
// that, is refused and leaves nothing behind.
func TestCallEnded(t *testing.T) {
	f := &fake{}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		call := s.Enter(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"x"}}`), nil, nil)
		if n, _ := g.Activity(); n != 1 {
			t.Errorf("%d calls are under way, want 1", n)
		}
		s.End(bridge.ErrEnded)
		if call.Go(func(*jsonrpc.Message, error) { t.Error("the call was made") }) {
			t.Error("the call is made")
		}
		if n, _ := g.Activity(); n != 0 || s.onlyCall() != nil {
			t.Errorf("%d calls are under way", n)
		}
		if m, err := call.Do(); !errors.Is(err, bridge.ErrEnded) || m.Error == nil {
			t.Errorf("the call ended with %s, %v", bridgetest.Text(m), err)
		}
	})
}

// A session that is idle ends soon after its time, however short that is, and
// not before.
func TestSessionIdleSoon(t *testing.T) {
	for _, idle := range []time.Duration{2 * time.Second, 5 * time.Second, time.Minute, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			g := newGateway(Options{Common: Common{SessionIdle: idle}, Servers: []ServerOptions{{Name: "fake", Adapter: &fake{}}}, Log: slog.New(slog.DiscardHandler)})
			defer g.Close(context.Background())
			time.Sleep(idle / 3)
			s, _, err := initialize(t, g, "", bridgetest.InitializeParams)
			if err != nil {
				t.Fatal(err)
			}
			do(t, s, "1", "x", `{}`)
			began := time.Now()
			<-s.Done()
			if took := time.Since(began); took < idle || took > idle+min(idle/4, 30*time.Second) {
				t.Errorf("idle for %v: ended after %v", idle, took)
			}
		})
	}
}

// A client that goes during initialize is no fault of the server's.
func TestLaneClosedWhileOpening(t *testing.T) {
	f := &fake{serve: silent("initialize")}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s, _, err := g.initialize(ctx, bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+bridgetest.InitializeParams+`}`), SessionOptions{Server: "fake", ID: "x"})
		if s != nil || err == nil {
			t.Errorf("Initialize = %v, %v", s, err)
		}
		synctest.Wait()
		if st := g.Status()[0]; !st.Usable || st.Lanes != 0 || st.Sessions != 0 {
			t.Errorf("Status = %+v", st)
		}
	})
}

// The end of Close's context cuts the polite part short, also of sessions that
// had ended before.
func TestLaneCloseHurries(t *testing.T) {
	polite := func(ctx context.Context, _ *fakeWire) {
		select {
		case <-ctx.Done():
		case <-time.After(time.Hour):
		}
	}
	for _, share := range []Share{ShareSession, SharePrincipal, ShareCall} {
		t.Run(string(share), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: &fake{closes: polite}, ServerSettings: ServerSettings{Share: share}}}})
				s, _ := begin(t, g, "")
				begin(t, g, "")
				s.End(bridge.ErrEnded)
				synctest.Wait()
				at := time.Now()
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				g.Close(ctx)
				if took := time.Since(at); took != time.Second {
					t.Errorf("Close took %v, want 1s", took)
				}
			})
		})
	}
}

// Close returns although a connection does not close.
func TestCloseGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: &fake{closes: func(context.Context, *fakeWire) { <-free }}}}})
		begin(t, g, "")
		at := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		g.Close(ctx)
		if took := time.Since(at); took != time.Second+lastWait {
			t.Errorf("Close took %v, want %v", took, time.Second+lastWait)
		}
		close(free)
	})
}

// heads is a server that notes with which headers its connections and calls come.
type heads struct {
	fake
	f     string     // whose it is
	mu    sync.Mutex // guards the rest
	wrong string
	opens []http.Header
	sent  []http.Header
}

func (h *heads) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	h.mu.Lock()
	h.opens = append(h.opens, from.Header)
	h.mu.Unlock()
	up, err := h.fake.Open(ctx, from, rest)
	if err != nil {
		return nil, err
	}
	return &headsWire{up, h}, nil
}

type headsWire struct {
	bridge.Upstream
	h *heads
}

func (h *headsWire) note(r *bridge.Request) {
	if strings.HasSuffix(r.Name(), "bare") && h.h.f == "one" && (r.Header == nil || len(r.Header) > 0) {
		h.h.wrong = fmt.Sprintf("a request without headers came with %#v, want an empty one: nil would be somebody else's", r.Header)
	}
	h.h.mu.Lock()
	defer h.h.mu.Unlock()
	h.h.sent = append(h.h.sent, r.Header)
}

func (h *headsWire) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	h.note(r)
	return h.Upstream.Call(ctx, r)
}

func (h *headsWire) Notify(ctx context.Context, r *bridge.Request) error {
	h.note(r)
	return h.Upstream.Notify(ctx, r)
}

// The stored record of a session has the claims of its caller, but not its token: each request brings its own.
func TestRecordWithoutToken(t *testing.T) {
	g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: &fake{}}}})
	defer g.Close(context.Background())
	id := identity.New(map[string][]string{"tenant": {"t1"}}, &identity.Subject{Token: "s3cr3t"})
	s, a, err := join(t, g, SessionOptions{Envelope: &Envelope{Identity: id}})
	if err != nil {
		t.Fatalf("%s, %v", a, err)
	}
	if got := fmt.Sprint(s.held.Record); strings.Contains(got, "s3cr3t") || !strings.Contains(got, "t1") {
		t.Errorf("the record is %s", got)
	}
}

// A server gets what its own allow-list names, under the names of its own, and
// nothing else (D0.9).
func TestForward(t *testing.T) {
	sent := http.Header{"X-Tenant": {"t1"}, "X-Token": {"secret"}, "Authorization": {"Bearer mine"}, "X-Other": {"o"}}
	one, two, none := &heads{f: "one"}, &heads{}, &heads{}
	all(t, []stock{
		{name: "one", prefix: "one__", f: one, o: ServerOptions{Forward: []bridge.Forward{{From: "X-Tenant", To: "X-Tenant"}, {From: "X-Token", To: "Authorization"}}}},
		{name: "two", prefix: "two__", f: two, o: ServerOptions{Forward: []bridge.Forward{{From: "X-Other", To: "TENANT"}}, ServerSettings: ServerSettings{Share: SharePrincipal}}},
		{name: "none", prefix: "none__", f: none},
	}, func(t *testing.T, g *gateway) {
		for _, name := range []string{"", "one", "two", "none"} {
			s, a, err := join(t, g, SessionOptions{Server: name, ID: "x" + name, Envelope: &Envelope{Header: sent}})
			if err != nil {
				t.Fatal(a)
			}
			later := http.Header{"X-Token": {"newer"}}
			none := http.Header{"X-Odd": {"1"}}
			for i, tool := range []string{"one__x", "two__x", "none__x"} {
				m := bridgetest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q}}`, i, tool))
				_, _ = s.Call(m, &Envelope{Header: later}, nil)
			}
			s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`), &Envelope{Header: sent})
			_, _ = s.Call(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"one__bare"}}`), &Envelope{Header: none}, nil)
			synctest.Wait()
		}
		if one.wrong != "" {
			t.Error(one.wrong)
		}
		for _, test := range []struct {
			name  string
			h     *heads
			opens http.Header
			may   map[string]string
		}{
			{"one", one, http.Header{"X-Tenant": {"t1"}, "Authorization": {"secret"}}, map[string]string{"X-Tenant": "t1", "Authorization": "secret newer"}},
			{"two", two, http.Header{"TENANT": {"o"}}, map[string]string{"TENANT": "o"}},
			{"none", none, nil, nil},
		} {
			if len(test.h.opens) == 0 || len(test.h.sent) == 0 {
				t.Errorf("%s was not used", test.name)
			}
			for _, h := range test.h.opens {
				if fmt.Sprint(h) != fmt.Sprint(test.opens) {
					t.Errorf("%s was opened with %v, want %v", test.name, h, test.opens)
				}
			}
			newer := false
			for _, h := range test.h.sent {
				for name, values := range h {
					newer = newer || values[0] == "newer"
					if may := test.may[name]; may == "" || len(values) != 1 || !strings.Contains(may, values[0]) {
						t.Errorf("%s got %s: %v", test.name, name, values)
					}
				}
			}
			if test.name == "one" && !newer {
				t.Error("a call did not bring its own header")
			}
		}
	})
}

// Sessions with other values of what is forwarded do not share a connection.
func TestForwardShare(t *testing.T) {
	f := &heads{}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: SharePrincipal}, Forward: []bridge.Forward{{From: "X-Token", To: "TOKEN"}}}, func(t *testing.T, g *gateway) {
		for i, token := range []string{"a", "b", "a", ""} {
			h := http.Header{"X-Token": {token}, "X-Odd": {fmt.Sprint(i)}}
			if token == "" {
				h = nil
			}
			if _, m, err := join(t, g, SessionOptions{Server: "fake", ID: fmt.Sprint("s", i), Envelope: &Envelope{Header: h}}); err != nil {
				t.Fatal(m)
			}
		}
		if got := fmt.Sprint(f.opens); got != "[map[TOKEN:[a]] map[TOKEN:[b]] map[]]" {
			t.Errorf("opened with %v", got)
		}
	})
}
