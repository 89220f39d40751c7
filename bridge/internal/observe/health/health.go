// Package health records the state of one server: its availability and the start of its failures.
// It also records the results of its handshakes, and events of its connections. Callers can wait
// until a server works again. Until then the package tries the server with growing pauses.
//
// The circuit breaker, not this package, decides which calls go to a failing server.
package health

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/backoff"
)

// Options configure a Server.
type Options struct {
	Log *slog.Logger
	// Shared says that all principals use one connection, so that a greeting holds for all.
	Shared bool
	Life   context.Context // when it ends, the tries end
	Host   Host            // used only by Await
}

// Host tries the server that a Server is about.
type Host interface {
	// Go runs f in a goroutine that is awaited after the end of Life. Go reports false if Life has ended.
	Go(f func()) bool
	// Try opens a connection for a caller and closes it, unless another attempt runs.
	Try(from *bridge.Caller)
	// MaxPause bounds the pauses between tries.
	MaxPause() time.Duration
	// Left returns how long the circuit breaker stays open; 0 if it is not open.
	Left() time.Duration
}

// Server is the state of a server. Its methods may be called concurrently.
type Server struct {
	o            Options
	failing      atomic.Bool  // failure is not nil
	noRoomLogged atomic.Int64 // when a connection without room was last logged; Unix nanoseconds

	opened, restarts, losses atomic.Uint64

	mu        sync.Mutex                                   // guards the rest
	known     *bridge.Greeting                             // of the last handshake; nil before the first
	greetings simplelru.LRUCache[string, *bridge.Greeting] // of the last handshake, by principal
	waiters   map[*waiter]struct{}
	probing   bool      // a goroutine runs probe
	served    bool      // a connection was opened
	failure   error     // the last failure; nil when the server works
	since     time.Time // time of the first failure
	latest    time.Time // time of the last failure
	failures  uint64
	last      error // the last failure or loss, also after a recovery
	lastAt    time.Time
}

// waiter waits until a server works again.
type waiter struct {
	from   *bridge.Caller // the caller for whom the server is tried
	notify func()
}

// maxGreetings bounds the stored greetings, by principal. Beyond the bound, the least recently used greeting is
// dropped, and the server is asked for it again.
const maxGreetings = 4096

// New returns the state of a server that was not used yet.
func New(o Options) *Server {
	greetings, _ := simplelru.NewLRU[string, *bridge.Greeting](maxGreetings, nil) // the size is positive
	return &Server{
		o:         o,
		greetings: greetings,
		waiters:   map[*waiter]struct{}{},
	}
}

// failingFor is how long a server counts as unusable after a failed start. After that, the server counts as usable,
// so that some client tries it: otherwise a readiness probe would keep all clients away for ever.
const failingFor = time.Minute

// Failed records that a connection could not be opened or used.
func (s *Server) Failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing.Store(true)
	level := slog.LevelWarn
	if s.failure != nil && bridge.Brief(s.failure) == bridge.Brief(err) {
		level = slog.LevelDebug // logged before
	}
	s.o.Log.Log(context.Background(), level, "server failed", "err", err)
	now := time.Now()
	if s.failure == nil {
		s.since = now
	}
	s.failure, s.latest = err, now
	s.failures++
	s.last, s.lastAt = err, now
}

// NoRoom logs, at most once in noRoomEvery, that the bridge had no room for a connection. A lack of room is not a
// failure of the server.
func (s *Server) NoRoom(err error) {
	now, said := time.Now().UnixNano(), s.noRoomLogged.Load()
	if now-said >= int64(noRoomEvery) && s.noRoomLogged.CompareAndSwap(said, now) {
		s.o.Log.Warn("connection not opened", "err", err)
	}
}

const noRoomEvery = 10 * time.Second

// CallDone records the outcome of a call: a server may be unreachable although its session is open. A rejected
// request is not a failure. Rejected credentials are a failure if they belong to the bridge, without headers of the
// caller.
func (s *Server) CallDone(err error, headers bool) {
	switch {
	case err == nil:
		if s.failing.Load() {
			s.Works()
		}
	case bridge.Exhausted(err), errors.Is(err, bridge.ErrOverloaded), errors.Is(err, bridge.ErrOpen), errors.Is(err, bridge.ErrRejected) && (headers || !errors.Is(err, bridge.ErrCredentials)):
	case errors.Is(err, bridge.ErrUnavailable) && !s.failing.Load():
		s.Failed(err)
	}
}

// Works records that the server works, and notifies the waiters.
func (s *Server) Works() {
	s.mu.Lock()
	if s.failure != nil {
		s.o.Log.Info("server works again")
	}
	s.served, s.failure = true, nil
	s.failing.Store(false)
	waiters := s.waiters
	s.waiters = map[*waiter]struct{}{}
	s.mu.Unlock()
	for w := range waiters {
		w.notify()
	}
}

// Greeted records the greeting of a handshake for a principal: the server works.
func (s *Server) Greeted(principal string, greeting *bridge.Greeting) {
	s.mu.Lock()
	s.known = greeting
	s.greetings.Add(s.greetingKey(principal), greeting)
	s.mu.Unlock()
	s.Works()
}

// Opened counts an opened connection. Restarted counts an opening after a failure or a loss.
func (s *Server) Opened()    { s.opened.Add(1) }
func (s *Server) Restarted() { s.restarts.Add(1) }

// Lost records that a connection ended by itself.
func (s *Server) Lost(err error) {
	s.losses.Add(1)
	s.RecordFailure(err)
}

// RecordFailure records err as the last failure or loss. RecordFailure counts nothing.
func (s *Server) RecordFailure(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.lastAt = err, time.Now()
}

// Failing returns the failure of the server if it last failed within failingFor, and otherwise nil.
func (s *Server) Failing() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil && time.Since(s.latest) < failingFor {
		return s.failure
	}
	return nil
}

// Greeting returns the last greeting for a principal, or nil. Greeting never returns a greeting for another
// principal, which may contain data about that principal.
func (s *Server) Greeting(principal string) *bridge.Greeting {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, _ := s.greetings.Get(s.greetingKey(principal))
	return g
}

// greetingKey returns the key of the greeting for a principal: empty if all principals share one connection.
func (s *Server) greetingKey(principal string) string {
	if s.o.Shared {
		return ""
	}
	return principal
}

// Speaks returns the revision of the last handshake, or "" before the first.
func (s *Server) Speaks() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		return ""
	}
	return s.known.Revision
}

// Await calls notify once, when the server works: see Works. Until then the package tries the server, because perhaps
// no client does. After stop, notify is not called, unless Works is already calling it.
func (s *Server) Await(from *bridge.Caller, notify func()) (stop func()) {
	w := &waiter{from, notify}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters[w] = struct{}{}
	if !s.probing && s.o.Host.Go(s.probe) {
		s.probing = true
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiters, w)
	}
}

// probe tries the server until it works or has no waiting callers.
func (s *Server) probe() {
	for wait := time.Second; ; wait = min(2*wait, s.o.Host.MaxPause()) {
		if backoff.For(s.o.Life, max(wait, s.o.Host.Left())) != nil {
			return
		}
		from, wanted := s.waiting()
		if !wanted {
			return
		}
		s.o.Host.Try(from)
	}
}

// waiting returns the caller of a waiter. Without waiters, waiting ends the probing and reports false.
func (s *Server) waiting() (*bridge.Caller, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.waiters {
		return w.from, true
	}
	s.probing = false
	return nil, false
}

// Status is the state of a server.
type Status struct {
	Failure  error     // the last failure; nil when the server works
	Since    time.Time // time of the first failure
	Usable   bool      // the server works, or did not fail within failingFor
	Served   bool      // a connection was opened, at any time
	Revision string    // of the last handshake; empty before the first
	// Opened counts opened connections. Failures counts failed openings and calls to an unreachable server. Losses
	// counts connections that ended by themselves, and Restarts the openings after failures and losses.
	Opened, Failures, Losses, Restarts uint64
	// Last is the last failure or loss, also after the server recovered. It may name programs and files.
	Last    error
	LastAt  time.Time
	Awaited int // number of waiters
}

// Status returns the state of the server.
func (s *Server) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{
		Failure:  s.failure,
		Since:    s.since,
		Usable:   s.failure == nil || time.Since(s.latest) > failingFor,
		Served:   s.served,
		Opened:   s.opened.Load(),
		Failures: s.failures,
		Losses:   s.losses.Load(),
		Restarts: s.restarts.Load(),
		Last:     s.last,
		LastAt:   s.lastAt,
		Awaited:  len(s.waiters),
	}
	if s.known != nil {
		st.Revision = s.known.Revision
	}
	return st
}
