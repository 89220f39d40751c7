// Package lower lets clients of 2026-07-28, which have no sessions, use a legacy
// server: it lowers their requests to what that understands, and raises its
// answers (protocol.md D1, D5).
//
// What the server asks about a call answers the client's request for it, with
// questions. The call waits, parked, for the request that brings the answers.
// The server is told a log level, and of resources to watch, so that each client
// hears what it wants to. A tool that can only be called as a task is called as
// one, and the task is asked for until it has ended.
//
// A question is never put to a client that it may not be about. A parked call is
// never made again: what is lost ends it. The package opens no connection and
// does not say which request uses which one: package stateless does.
package lower

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/seal"
)

// Server is what is known of one server for the sake of clients without sessions,
// if it is a legacy one: the calls that are parked, who listens, and how it asks.
type Server struct {
	o Options
	// stray is whether the server has asked something of which the wire does not say
	// which call it is about, and heedless whether it has asked when its call had
	// been cancelled.
	stray, heedless atomic.Bool

	mu          sync.Mutex // guards the rest
	noticed     time.Time  // when it was last logged that questions were refused
	translators map[*Translator]struct{}
	parked      map[string]*parked                          // calls that wait for their clients, by id
	waiting     map[string]int                              // how many of them, by principal
	keptBytes   int                                         // of answers that were given and are kept
	listens     map[string]map[*subscribe.Listener]struct{} // subscriptions, by group
	closed      bool
}

// Options is what a Server needs of the bridge.
type Options struct {
	Name     string // of the server
	Log      *slog.Logger
	MaxTask  func() time.Duration // how long a call that is made as a task may take; 0 means for ever
	Lasting  bool                 // connections outlive the requests that they are opened for
	Alone    bool                 // a call whose client can be asked something has its connection to itself
	Instance string               // of the bridge
	Seals    *seal.Key
	Rewrites *list.Rewrites // of its lists
	// Identity says who the client of a request is, as far as it matters to the
	// server: what is sealed for one is of no use to another.
	Identity func(*bridge.Request) string
	// Following returns ctx in the trace of a call, which it outlives.
	Following func(ctx, call context.Context) context.Context
	// Refusal returns the error of a call for which there is no place.
	Refusal func(format string, args ...any) error
}

// New returns what translates for one server.
func New(o Options) *Server {
	return &Server{
		o: o, translators: map[*Translator]struct{}{}, parked: map[string]*parked{}, waiting: map[string]int{},
		listens: map[string]map[*subscribe.Listener]struct{}{},
	}
}

// Strays reports whether the server has asked something of which its wire did not
// say which call it is about.
func (s *Server) Strays() bool { return s.stray.Load() }

// Status says what clients without sessions have at a legacy server.
type Status struct {
	Requests      int // under way
	Subscriptions int // and resources that the server is to tell of
	Waiting       int // calls that wait for their clients to come back
	Kept          int // calls that a request can go on with: also those whose answers are kept
	Bytes         int // of these answers
}

// Status returns what there is.
func (s *Server) Status() Status {
	s.mu.Lock()
	st := Status{Kept: len(s.parked), Bytes: s.keptBytes}
	for _, n := range s.waiting {
		st.Waiting += n
	}
	for _, of := range s.listens {
		st.Subscriptions += len(of)
	}
	all := maps.Clone(s.translators)
	s.mu.Unlock()
	for t := range all {
		t.mu.Lock()
		st.Requests += len(t.asking) + len(t.requests)
		t.mu.Unlock()
		st.Subscriptions += t.watched.Len()
	}
	return st
}

// Slot is what holds a Translator. Its methods may be called under the
// translator's lock, and call none of the translator's.
type Slot interface {
	// Hold counts one more call that uses the connection.
	Hold()
	// Leave ends what Hold began.
	Leave()
	// Doubted says whether the server may ask something about a call that has ended.
	Doubted(bool)
	// Part lets no more requests use it, if that may be chosen.
	Part()
	// Gone says that the server has ended for good, or came back another.
	Gone()
}

// Line is a connection with its guards, as a Translator uses it.
type Line interface {
	bridge.Upstream
	// Caller is on whose behalf it is opened.
	Caller() *bridge.Caller
	// Checked returns it with what the tools ask of calls.
	Checked() bridge.Upstream
	// Keep opens it, and keeps it open until release is called.
	Keep(ctx context.Context) (release func(), err error)
	// Go runs f in a goroutine that Close waits for, with a context that Close ends.
	// It reports false when the connection was closed.
	Go(f func(ctx context.Context)) bool
	// Ping asks for a sign of life, if there is a connection. The error is an
	// ErrTimeout when there is none in time.
	Ping(ctx context.Context, within time.Duration) error
}

// Clients says whose requests a Translator takes.
type Clients struct {
	Tools *list.TaskTools // what they know of tools
	Group string          // of those who hear of the same changes
	Once  bool            // there is one request
	Keyed bool            // they have chosen the connection, and are as one
}
