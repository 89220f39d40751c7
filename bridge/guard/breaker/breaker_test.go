package breaker

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// stage is a Breaker with the server that it protects. The stage is also the Breaker's Host and Health, and the server's
// connections.
type stage struct {
	t *testing.T
	b *Breaker

	stopped bool          // Host.Go refuses
	hold    chan struct{} // until it is closed, an opening waits; nil means not at all
	broken  error         // of openings
	fault   error         // of calls
	took    time.Duration // by each call
	asks    bool          // each call makes the server ask something that names no call
	talks   func(bridge.Client)
	silent  map[*link]bool // those that answer no ping

	wg sync.WaitGroup
	mu sync.Mutex // guards counted
	counted
}

// counted is what has happened so far.
type counted struct {
	opened, closed, calls, pings, gone int
	health                             []string
}

// n returns what has happened, when all is quiet.
func (s *stage) n() counted {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counted
}

// sleep lets time pass, and waits for all that happens meanwhile.
func (s *stage) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// link is a connection.
type link struct {
	bridge.Upstream
	*stage
	asked   int64
	working bool // it has a call in flight
	over    bool // its session has ended
}

func (l *link) Idle() (open, idle bool) { return !l.over, !l.working }
func (l *link) Asked() int64            { return l.asked }

func (l *link) Notify(context.Context, *bridge.Request) error { return nil }
func (l *link) Close(context.Context) error                   { return nil }

func (l *link) Gone(error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone++
}

func (l *link) Ping(ctx context.Context, within time.Duration) error {
	l.mu.Lock()
	l.pings++
	mute := l.silent[l]
	l.mu.Unlock()
	if !mute {
		return nil
	}
	select {
	case <-time.After(within):
		return failure(bridge.ErrTimeout)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *link) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	l.mu.Lock()
	l.calls++
	l.mu.Unlock()
	if l.asks {
		l.asked++
	}
	if l.talks != nil && r.Back != nil {
		l.talks(r.Back)
	}
	select {
	case <-time.After(l.took):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return bridgetest.Result(l.t, "{}"), own(l.fault)
}

// own returns an error that is not that of another call.
func own(err error) error {
	if e, ok := err.(*bridge.Error); ok {
		mine := *e
		return &mine
	}
	return err
}

func failure(kind error) error {
	return &bridge.Error{Server: "fake", Kind: kind, Public: "it failed"}
}

// Go implements Host.
func (s *stage) Go(f func()) bool {
	if !s.stopped {
		s.wg.Go(f)
	}
	return !s.stopped
}

// Open implements Host.
func (s *stage) Open(ctx context.Context, _ *bridge.Caller) (func(), error) {
	s.mu.Lock()
	s.opened++
	s.mu.Unlock()
	if s.hold != nil {
		select {
		case <-s.hold:
		case <-ctx.Done():
			return s.close, context.Cause(ctx)
		}
	}
	return s.close, s.broken
}

func (s *stage) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
}

// RecordFailure and Works implement Health.
func (s *stage) RecordFailure(why error) { s.note(why.Error()) }
func (s *stage) Works()                  { s.note("works") }

func (s *stage) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.health = append(s.health, what)
}

// play runs f in a bubble with a breaker.
func play(t *testing.T, o Options, server Server, f func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, silent: map[*link]bool{}}
		life, stop := context.WithCancelCause(context.Background())
		server.Name, server.Log, server.Life, server.Host, server.Health = "fake", slog.New(slog.DiscardHandler), life, s, s
		server.Within = time.Minute
		s.b = New(o, server)
		f(s)
		stop(bridge.ErrShutdown)
		s.wg.Wait()
	})
}

// connect opens a connection on behalf of a principal.
func (s *stage) connect(principal string, own bool) (*link, bridge.Upstream, error) {
	s.t.Helper()
	opened, err := s.b.Opening(s.t.Context(), &bridge.Caller{Principal: principal}, own)
	if err != nil {
		return nil, nil, err
	}
	l := &link{stage: s}
	return l, opened(l, l, s.broken), s.broken
}

// reach is connect with an opening that must succeed.
func (s *stage) reach(own bool) (*link, bridge.Upstream) {
	s.t.Helper()
	l, up, err := s.connect("", own)
	if err != nil {
		s.t.Fatal(err)
	}
	return l, up
}

func (s *stage) call(up bridge.Upstream) error {
	from := bridgetest.Caller("2025-11-25", "", "{}")
	_, err := up.Call(s.t.Context(), bridgetest.Request(s.t, from, &bridgetest.Client{}, "tools/call", `{"name":"x"}`))
	return err
}

func (s *stage) is(state string, trips uint64) {
	s.t.Helper()
	if st := s.b.Status(); st.State != state || st.Trips != trips {
		s.t.Errorf("%s after %d trips (%v), want %s after %d", st.State, st.Trips, st.Why, state, trips)
	}
}

func TestBreakerOff(t *testing.T) {
	b := New(Options{Off: true}, Server{})
	b.Set(Options{})
	opened, err := b.Opening(t.Context(), nil, false)
	if up := bridge.Upstream(&link{}); err != nil || opened(nil, up, nil) != up || b.Pass(t.Context(), nil) != nil || b.Force(nil) || b.Forced() != nil || b.Shut() {
		t.Error("a breaker that is off does something")
	}
	if st := b.Status(); st.State != "off" {
		t.Errorf("it is %s", st.State)
	}
}

// Some errors of calls and of openings count as failures, and others do not.
func TestBreakerCounts(t *testing.T) {
	for _, tc := range []struct {
		name            string
		err             error
		calls, openings bool
	}{
		{"lost", failure(bridge.ErrLost), true, true},
		{"unavailable", failure(bridge.ErrUnavailable), true, true},
		{"timeout", failure(bridge.ErrTimeout), true, true},
		{"no answer and no reason", errors.New("unexpected end of JSON input"), true, true},
		{"declined", failure(bridge.ErrRejected), false, false},
		{"credentials refused", failure(bridge.ErrCredentials), false, false},
		{"overloaded", &bridge.Error{Kind: bridge.ErrUnavailable, Err: bridge.ErrOverloaded}, false, false},
		{"the bridge lacks files", &bridge.Error{Kind: bridge.ErrUnavailable, Err: syscall.EMFILE}, false, false},
		{"too large", failure(bridge.ErrTooLarge), false, false},
		{"refused to initialize", failure(bridge.ErrNoHandshake), false, false},
		{"not sent", failure(bridge.ErrUnsent), false, false},
		{"cancelled", bridge.ErrCancelled, false, false},
		{"an answer", nil, false, false},
	} {
		play(t, Options{Failures: 3}, Server{}, func(s *stage) {
			_, up := s.reach(true)
			s.fault = tc.err
			for range 10 {
				_ = s.call(up)
			}
			if open := s.b.Shut(); open != tc.calls || open && s.n().calls != 3 {
				s.t.Errorf("%s: open: %v after %d calls", tc.name, open, s.n().calls)
			}
		})
		play(t, Options{Failures: 3}, Server{}, func(s *stage) {
			s.broken = tc.err
			n := 0
			for ; n < 10 && !s.b.Shut(); n++ {
				_, _, _ = s.connect("", true)
			}
			if open := s.b.Shut(); open != tc.openings || open && n != 3 {
				s.t.Errorf("%s: open: %v after %d openings", tc.name, open, n)
			}
		})
	}
}

// What clients are told, and when. Where there are principals, the text of one is not for others.
func TestBreakerRefusal(t *testing.T) {
	for _, tc := range []struct {
		principal string
		err       error
		want      string
	}{
		{"", &bridge.Error{Kind: bridge.ErrLost, Public: "HTTP 500: no row 7; whether it acted on the request is unknown"}, "(HTTP 500: no row 7)"},
		{"", errors.New("secret"), "(it fails while it has calls to answer)"},
		{"p", &bridge.Error{Kind: bridge.ErrLost, Public: "HTTP 500: no row 7"}, "(it fails while it has calls to answer)"},
		{"p", failure(bridge.ErrTimeout), "(it does not answer in time)"},
		{"p", failure(bridge.ErrUnavailable), "(it is not available)"},
	} {
		play(t, Options{Failures: 1, Pause: 7 * time.Second}, Server{}, func(s *stage) {
			_, up, _ := s.connect(tc.principal, true)
			s.fault = tc.err
			from := &bridge.Caller{Principal: tc.principal}
			_, _ = up.Call(s.t.Context(), &bridge.Request{Message: jsonrpc.NewRequest("tools/call", nil), From: from})
			s.sleep(500 * time.Millisecond)
			_, err := up.Call(s.t.Context(), &bridge.Request{Message: jsonrpc.NewRequest("tools/call", nil), From: from})
			e, ok := errors.AsType[*bridge.Error](err)
			if !ok || !errors.Is(err, bridge.ErrOpen) || e.After != 6500*time.Millisecond || e.Server != "fake" {
				s.t.Fatalf("refused with %#v", err)
			}
			if want := "it keeps failing " + tc.want + "; next attempt in 7 s"; e.Public != want {
				s.t.Errorf("refused with %q, want %q", e.Public, want)
			}
			if st := s.b.Status(); st.Again.Sub(st.Since) != 7*time.Second || len(s.n().health) != 1 || s.b.Left() != e.After {
				s.t.Errorf("%+v, health %q", st, s.n().health)
			}
			if err := up.Notify(s.t.Context(), nil); err != nil {
				s.t.Errorf("a notification is refused: %v", err)
			}
		})
	}
}

// Failing openings stop openings only. Failing calls stop both, also while no connection can be opened.
func TestBreakerKinds(t *testing.T) {
	play(t, Options{Failures: 3}, Server{}, func(s *stage) {
		_, up := s.reach(true)
		s.broken = failure(bridge.ErrUnavailable)
		for range 5 {
			_, _, _ = s.connect("", true)
		}
		s.is("open", 1)
		_, _, err := s.connect("", true)
		if e, ok := errors.AsType[*bridge.Error](err); !ok || !strings.HasPrefix(e.Public, "it is down: it failed; next") {
			s.t.Errorf("an opening: %v", err)
		}
		if err := s.call(up); err != nil {
			s.t.Errorf("a call: %v", err)
		}
		s.fault = failure(bridge.ErrLost)
		for range 3 {
			_ = s.call(up)
		}
		s.is("open", 2)
		if err := s.call(up); !errors.Is(err, bridge.ErrOpen) {
			s.t.Errorf("a call: %v", err)
		}
		s.fault = nil
		s.sleep(5 * time.Second)
		if err := s.call(up); err != nil || s.n().pings != 1 {
			s.t.Errorf("after the pause: %v, %d pings", err, s.n().pings)
		}
		s.is("closed", 2)
		if got := s.n().health[len(s.n().health)-1]; got != "works" {
			s.t.Errorf("health %q", s.n().health)
		}
	})
}

// When the pause is over there is one probe, for which all calls wait, but not for long. It is a ping where there is a
// connection, and otherwise an opening, which is closed again.
func TestBreakerProbe(t *testing.T) {
	play(t, Options{Failures: 1}, Server{}, func(s *stage) {
		l, up := s.reach(true)
		s.fault = failure(bridge.ErrLost)
		_ = s.call(up)
		s.fault, s.silent[l], s.broken = nil, true, failure(bridge.ErrUnavailable)
		for i, pause := range []time.Duration{5, 10, 20, 40, 80, 120, 120} {
			if left := s.b.Left(); left != pause*time.Second {
				s.t.Fatalf("probe %d: %v are left", i, left)
			}
			s.sleep(pause * time.Second)
			began := time.Now()
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					if err := s.call(up); !errors.Is(err, bridge.ErrOpen) {
						s.t.Errorf("probe %d: %v", i, err)
					}
				})
			}
			s.sleep(time.Second)
			s.is("half-open", 1)
			if s.b.Left() != 0 {
				s.t.Errorf("%v are left during a probe", s.b.Left())
			}
			wg.Wait()
			synctest.Wait()
			if took := time.Since(began); took != patience || s.n().pings != i+1 || s.n().opened != i+1 || s.n().closed != i+1 || s.n().calls != 1 {
				s.t.Errorf("probe %d took %v: %d pings, %d opened, %d closed, %d calls", i, took, s.n().pings, s.n().opened, s.n().closed, s.n().calls)
			}
		}
		s.silent[l] = false
		s.sleep(2 * time.Minute)
		if err := s.call(up); err != nil || s.n().opened != 7 {
			s.t.Errorf("after a ping that was answered: %v, %d opened", err, s.n().opened)
		}
	})
}

// Callers do not wait for an opening that takes long. Its time is limited, and the end of the bridge ends it.
func TestBreakerProbeOpens(t *testing.T) {
	play(t, Options{Failures: 1}, Server{}, func(s *stage) {
		s.broken, s.hold = failure(bridge.ErrUnavailable), make(chan struct{})
		_, _, _ = s.connect("", true)
		from := &bridge.Caller{}
		if err := s.b.Pass(s.t.Context(), from); !errors.Is(err, bridge.ErrOpen) {
			s.t.Errorf("before the pause is over: %v", err)
		}
		s.sleep(5 * time.Second)
		for i := range 20 {
			began := time.Now()
			err := s.b.Pass(s.t.Context(), from)
			if took := time.Since(began); !errors.Is(err, bridge.ErrOpen) || took != max(0, patience-time.Duration(i)*6*time.Second) {
				s.t.Fatalf("caller %d waited %v: %v", i, took, err)
			}
			if e, _ := errors.AsType[*bridge.Error](err); i < 9 && !strings.HasSuffix(e.Public, "next attempt right now") {
				s.t.Errorf("caller %d: %v", i, err)
			}
			if i == 8 {
				break
			}
			s.sleep(time.Second)
		}
		gone, cancel := context.WithCancelCause(s.t.Context())
		cancel(bridge.ErrCancelled)
		if err := s.b.Pass(gone, from); err == nil || s.n().opened != 1 {
			s.t.Errorf("a caller that left: %v, %d probes", err, s.n().opened)
		}
		s.sleep(time.Minute)
		s.is("open", 1)
		close(s.hold)
		s.hold, s.broken = nil, nil
		s.sleep(10 * time.Second)
		if err := s.b.Pass(s.t.Context(), from); err != nil || s.n().closed != 2 {
			s.t.Errorf("an opening that succeeds: %v; %d closed", err, s.n().closed)
		}
		s.is("closed", 1)
		s.broken = failure(bridge.ErrUnavailable)
		_, _, _ = s.connect("", true)
		s.sleep(5 * time.Second)
		s.stopped = true
		if err := s.b.Pass(s.t.Context(), from); !errors.Is(err, bridge.ErrShutdown) {
			s.t.Errorf("while the bridge stops: %v", err)
		}
		s.stopped, s.broken = false, bridge.ErrOverloaded
		if err := s.b.Pass(s.t.Context(), from); !errors.Is(err, bridge.ErrOpen) || s.b.Left() != 5*time.Second {
			s.t.Errorf("a probe that says nothing: %v, %v are left", err, s.b.Left())
		}
		s.sleep(5 * time.Second)
		s.broken = failure(bridge.ErrRejected)
		if err := s.b.Pass(s.t.Context(), from); err != nil {
			s.t.Errorf("a server that refuses the probe works: %v", err)
		}
	})
}

// A connection that answers no ping while others can be opened hangs: it is given up if several clients share it and it
// has nothing to do. Where all share one that has calls in flight, none is opened: the server may only be slow.
func TestBreakerHung(t *testing.T) {
	for _, tc := range []struct {
		name               string
		all, own, busy     bool
		broken             error
		opened, gone, ping int
		state              string
	}{
		{"shared", false, false, false, nil, 1, 1, 2, "closed"},
		{"its client's own", false, true, false, nil, 1, 0, 1, "closed"},
		{"shared by all", true, false, false, nil, 1, 1, 2, "closed"},
		{"shared by all, busy", true, false, true, nil, 0, 0, 1, "open"},
		{"shared, busy", false, false, true, nil, 1, 0, 1, "closed"},
		{"no room for another", true, false, false, bridge.ErrOverloaded, 1, 1, 2, "open"},
		{"another cannot be opened", false, false, false, failure(bridge.ErrUnavailable), 1, 0, 1, "open"},
	} {
		play(t, Options{Failures: 1}, Server{Shared: tc.all}, func(s *stage) {
			l, up := s.reach(tc.own)
			done := make(chan struct{})
			if s.took = 0; tc.busy {
				s.took = time.Hour
				go func() { defer close(done); _ = s.call(up) }()
				synctest.Wait()
				s.took = 0
			} else {
				close(done)
			}
			s.fault = failure(bridge.ErrTimeout)
			_ = s.call(up)
			s.fault, s.silent[l], s.broken = nil, true, tc.broken
			s.sleep(5 * time.Second)
			_ = s.b.Pass(s.t.Context(), &bridge.Caller{})
			s.sleep(10 * time.Second)
			if st := s.b.Status(); st.State != tc.state || s.n().opened != tc.opened || s.n().gone != tc.gone || s.n().pings != tc.ping {
				s.t.Errorf("%s: %s, %d opened, %d given up, %d pings", tc.name, st.State, s.n().opened, s.n().gone, s.n().pings)
			}
			<-done
		})
	}
}

// A probe prefers a connection that is idle, and takes none that is over or closed.
func TestBreakerPings(t *testing.T) {
	play(t, Options{Failures: 1}, Server{}, func(s *stage) {
		over, _ := s.reach(true)
		over.over = true
		closed, up := s.reach(true)
		_ = up.Close(s.t.Context())
		busy, up := s.reach(true)
		busy.working = true
		idle, _ := s.reach(true)
		s.silent[over], s.silent[closed], s.silent[busy] = true, true, true
		s.fault = failure(bridge.ErrLost)
		_ = s.call(up)
		s.sleep(5 * time.Second)
		if s.fault = nil; s.call(up) != nil || s.n().pings != 1 {
			s.t.Errorf("%d pings", s.n().pings)
		}
		s.silent[idle], s.silent[busy], idle.over = true, false, true
		s.fault = failure(bridge.ErrLost)
		_ = s.call(up)
		s.sleep(5 * time.Second)
		if s.fault = nil; s.call(up) != nil || s.n().pings != 2 || s.n().opened != 0 {
			s.t.Errorf("%d pings, %d opened", s.n().pings, s.n().opened)
		}
	})
}

// A call that takes long is a failure only with slow, and not when the server has said something about it or has asked
// somebody.
func TestBreakerSlow(t *testing.T) {
	notify := func(c bridge.Client) { c.Notify(bridgetest.Notification(t, "notifications/progress", "{}")) }
	ask := func(c bridge.Client) { c.Ask(bridgetest.Question(t, "roots/list", "{}"), nil) }
	for _, tc := range []struct {
		name  string
		slow  time.Duration
		talks func(bridge.Client)
		asks  bool
		fault error
		open  bool
	}{
		{"slow", 10 * time.Second, nil, false, nil, true},
		{"slow does not count by itself", 0, nil, false, nil, false},
		{"quick enough", time.Minute, nil, false, nil, false},
		{"progress", 10 * time.Second, notify, false, nil, false},
		{"a question", 10 * time.Second, ask, false, nil, false},
		{"a question that names no call", 10 * time.Second, nil, true, nil, false},
		{"time-outs", 0, nil, false, failure(bridge.ErrTimeout), true},
		{"time-outs after progress", 0, notify, false, failure(bridge.ErrTimeout), false},
		{"time-outs, but somebody was asked", 0, nil, true, failure(bridge.ErrTimeout), false},
	} {
		play(t, Options{Failures: 3, Slow: tc.slow}, Server{}, func(s *stage) {
			_, up := s.reach(true)
			s.took, s.talks, s.asks, s.fault = 20*time.Second, tc.talks, tc.asks, tc.fault
			for range 3 {
				_ = s.call(up)
			}
			if s.b.Shut() != tc.open {
				s.t.Errorf("%s: %+v", tc.name, s.b.Status())
			}
			if tc.slow > 0 && tc.open && s.b.Status().Why.Error() != "server fake: it answers too slowly" {
				s.t.Errorf("%s: %v", tc.name, s.b.Status().Why)
			}
		})
	}
}

// The end of a connection is one failure, however many calls it ends. On a connection of one client, failures of calls
// that overlap count once; on a shared one each counts.
func TestBreakerOneLoss(t *testing.T) {
	for _, tc := range []struct {
		name string
		own  bool
		same bool // all calls end with one error
		open bool
	}{
		{"a shared connection ends", false, true, false},
		{"calls of several clients fail", false, false, true},
		{"calls of one client fail together", true, false, false},
	} {
		play(t, Options{Failures: 1000, Calls: 10, Percent: 60}, Server{}, func(s *stage) {
			_, up := s.reach(tc.own)
			s.took, s.fault = time.Second, failure(bridge.ErrLost)
			if tc.same {
				s.fault = &sameError{s.fault}
			}
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() { _ = s.call(up) })
			}
			wg.Wait()
			if s.b.Shut() != tc.open {
				s.t.Errorf("%s: %+v", tc.name, s.b.Status())
			}
		})
	}
}

// sameError hides an error from own.
type sameError struct{ error }

func (s *sameError) Unwrap() error { return s.error }

// A success ends a row of failures.
func TestBreakerSuccess(t *testing.T) {
	play(t, Options{Failures: 3, Percent: 90}, Server{}, func(s *stage) {
		_, up := s.reach(true)
		for range 10 {
			for _, s.fault = range []error{failure(bridge.ErrLost), failure(bridge.ErrLost), nil} {
				_ = s.call(up)
			}
		}
		s.is("closed", 0)
	})
}

// A client that crashes its own connections does not stop the others, while new connections open.
func TestBreakerCrashLoop(t *testing.T) {
	play(t, Options{Failures: 3}, Server{}, func(s *stage) {
		for range 50 {
			_, up := s.reach(true)
			s.fault = failure(bridge.ErrLost)
			_ = s.call(up)
		}
		s.is("closed", 0)
	})
}

// An opening whose caller has left says nothing, and options can change.
func TestBreakerSet(t *testing.T) {
	play(t, Options{Failures: 1}, Server{}, func(s *stage) {
		ctx, leave := context.WithCancelCause(s.t.Context())
		opened, err := s.b.Opening(ctx, &bridge.Caller{}, true)
		if err != nil {
			s.t.Fatal(err)
		}
		leave(bridge.ErrCancelled)
		if up := opened(nil, nil, failure(bridge.ErrTimeout)); up != nil {
			s.t.Error("there is a connection")
		}
		s.is("closed", 0)
		s.b.Set(Options{Failures: 2})
		s.broken = failure(bridge.ErrUnavailable)
		_, _, _ = s.connect("", true)
		s.is("closed", 0)
		_, _, _ = s.connect("", true)
		s.is("open", 1)
		s.b.Set(Options{Off: true})
		s.is("off", 1)
		if err := s.b.Pass(s.t.Context(), &bridge.Caller{}); err != nil || s.b.Force(&Force{Open: true}) {
			s.t.Errorf("off: %v", err)
		}
		s.b.Set(Options{})
		s.b.Force(&Force{Open: true, Since: time.Now(), Until: time.Now().Add(time.Hour)})
		if err := s.b.Pass(s.t.Context(), &bridge.Caller{}); s.b.Forced() == nil || !strings.Contains(err.Error(), "an operator has stopped calls to it; next attempt in 3600 s") {
			s.t.Errorf("forced: %v", err)
		}
	})
}
