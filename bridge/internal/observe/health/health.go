// Package health notes the state of one server: whether it is available, since when
// it is not, what its handshakes said, and what has happened to its connections.
// Callers that wait for a server are told when it works again; until then it is
// tried, with growing pauses.
//
// It decides nothing: which calls go to a server that fails is for the circuit
// breaker to say.
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

// Options say what the notes need of the rest.
type Options struct {
	Log *slog.Logger
	// Shared says that all principals use one connection, so that what a handshake
	// said holds for all of them.
	Shared bool
	// MaxPause bounds the pauses between tries.
	MaxPause func() time.Duration
	// Life ends with the gateway, and Go runs a function in a goroutine that the
	// gateway awaits: it reports false when it has ended.
	Life context.Context
	Go   func(func()) bool
	// Try opens a connection on behalf of a caller and closes it, unless somebody
	// else is trying. Left returns how long the server is left alone for.
	Try  func(from *bridge.Caller)
	Left func() time.Duration
}

// Server is the state of a server. Its methods may be called concurrently.
type Server struct {
	o      Options
	ill    atomic.Bool  // failure is not nil
	lacked atomic.Int64 // when Lacked last said so; Unix nanoseconds

	opened, restarts, losses atomic.Uint64

	mu        sync.Mutex                               // guards the rest
	known     *bridge.Greeting                         // what the last handshake said; nil before the first
	greetings *simplelru.LRU[string, *bridge.Greeting] // the same, by principal
	waiters   map[*waiter]struct{}
	probing   bool      // a goroutine tries whether the server works again
	served    bool      // a connection was opened
	failure   error     // the last one; nil when the server works
	since     time.Time // the first one of these
	latest    time.Time // the last one
	failures  uint64
	last      error // the last failure or loss, also after that
	lastAt    time.Time
}

// waiter is somebody who wants to know when a server works again.
type waiter struct {
	from *bridge.Caller // on whose behalf the server is tried
	tell func()
}

// maxGreetings bounds of how many principals it is kept what was said: users are many.
// Of those beyond, the server is asked again.
const maxGreetings = 4096

// New returns the notes of a server of which nothing is known yet.
func New(o Options) *Server {
	greetings, _ := simplelru.NewLRU[string, *bridge.Greeting](maxGreetings, nil) // the size is positive
	return &Server{o: o, greetings: greetings, waiters: map[*waiter]struct{}{}}
}

// failingFor is how long a server counts as useless after it could not be
// started. It is started when it is needed, so somebody has to try again: a
// readiness probe that kept everybody away would keep it failing for ever.
const failingFor = time.Minute

// Failed notes that a connection could not be opened, or not be used.
func (s *Server) Failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ill.Store(true)
	level := slog.LevelWarn
	if s.failure != nil && bridge.Brief(s.failure) == bridge.Brief(err) {
		level = slog.LevelDebug // said before
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

// Lacked says that the bridge itself had no room for a connection: that is no
// failure of the server's. It says so once in a while.
func (s *Server) Lacked(err error) {
	now, said := time.Now().UnixNano(), s.lacked.Load()
	if now-said >= int64(lackedEvery) && s.lacked.CompareAndSwap(said, now) {
		s.o.Log.Warn("connection not opened", "err", err)
	}
}

const lackedEvery = 10 * time.Second

// Fared notes how a call went: a server may be out of reach although its
// session lives on. One that does not take a request is not; that it refuses who
// the bridge says it is concerns all calls, unless the caller said who it is.
func (s *Server) Fared(err error, headers bool) {
	switch {
	case err == nil:
		if s.ill.Load() {
			s.Works()
		}
	case bridge.Exhausted(err), errors.Is(err, bridge.ErrOverloaded), errors.Is(err, bridge.ErrOpen), errors.Is(err, bridge.ErrRejected) && (headers || !errors.Is(err, bridge.ErrCredentials)):
	case errors.Is(err, bridge.ErrUnavailable) && !s.ill.Load():
		s.Failed(err)
	}
}

// Works notes that the server can be used. Whoever waits for that is told.
func (s *Server) Works() {
	s.mu.Lock()
	if s.failure != nil {
		s.o.Log.Info("server works again")
	}
	s.served, s.failure = true, nil
	s.ill.Store(false)
	waiters := s.waiters
	s.waiters = map[*waiter]struct{}{}
	s.mu.Unlock()
	for w := range waiters {
		w.tell()
	}
}

// Learned notes what a handshake on behalf of a principal said: the server works.
func (s *Server) Learned(principal string, greeting *bridge.Greeting) {
	s.mu.Lock()
	s.known = greeting
	s.greetings.Add(s.whose(principal), greeting)
	s.mu.Unlock()
	s.Works()
}

// Opened counts a connection that can be used, and Restarted one that is about to
// be opened after another has failed or was lost.
func (s *Server) Opened()    { s.opened.Add(1) }
func (s *Server) Restarted() { s.restarts.Add(1) }

// Lost notes that a connection has ended by itself.
func (s *Server) Lost(err error) {
	s.losses.Add(1)
	s.Noted(err)
}

// Noted notes what went wrong last.
func (s *Server) Noted(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.lastAt = err, time.Now()
}

// Failing returns why the server cannot be had, if that was so a moment ago.
func (s *Server) Failing() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil && time.Since(s.latest) < failingFor {
		return s.failure
	}
	return nil
}

// Greeting returns what the last handshake on behalf of a principal said, or nil.
// What others were told may be about them.
func (s *Server) Greeting(principal string) *bridge.Greeting {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, _ := s.greetings.Get(s.whose(principal))
	return g
}

// whose returns whom the server takes a principal for: where all share one
// connection, for nobody in particular.
func (s *Server) whose(principal string) string {
	if s.o.Shared {
		return ""
	}
	return principal
}

// Speaks returns the revision that the last handshake agreed on; empty before
// the first.
func (s *Server) Speaks() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		return ""
	}
	return s.known.Revision
}

// Await has tell called once, when a connection to the server has been opened,
// by whomever. Until then the server is tried again and again: nobody may need
// it before it is seen. stop ends the waiting.
func (s *Server) Await(from *bridge.Caller, tell func()) (stop func()) {
	w := &waiter{from, tell}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters[w] = struct{}{}
	if !s.probing && s.o.Go(s.probe) {
		s.probing = true
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiters, w)
	}
}

// probe tries the server until it works or nobody waits for it.
func (s *Server) probe() {
	for wait := time.Second; ; wait = min(2*wait, s.o.MaxPause()) {
		if backoff.For(s.o.Life, max(wait, s.o.Left())) != nil {
			return
		}
		from, wanted := s.waiting()
		if !wanted {
			return
		}
		s.o.Try(from)
	}
}

// waiting returns one of those who wait. When there is none it ends the probing.
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
	Failure  error     // the last one; nil when the server works
	Since    time.Time // it is failing
	Usable   bool      // it works, or has not failed for so long that somebody should try it
	Served   bool      // a connection was opened, at any time
	Revision string    // what the last handshake agreed on; empty before the first
	// Opened counts the connections that were opened, Failures those that could not
	// be, or whose server was out of reach, Losses those that ended by themselves,
	// and Restarts the openings after that.
	Opened, Failures, Losses, Restarts uint64
	// Last is the last failure or loss, also after the server has recovered from
	// it. It may name programs and files.
	Last    error
	LastAt  time.Time
	Awaited int // by how many
}

// Status returns the state of the server.
func (s *Server) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{
		Failure: s.failure, Since: s.since, Usable: s.failure == nil || time.Since(s.latest) > failingFor, Served: s.served,
		Opened: s.opened.Load(), Failures: s.failures, Losses: s.losses.Load(), Restarts: s.restarts.Load(),
		Last: s.last, LastAt: s.lastAt, Awaited: len(s.waiters),
	}
	if s.known != nil {
		st.Revision = s.known.Revision
	}
	return st
}
