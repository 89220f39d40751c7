// Package lower lets stateless clients of 2026-07-28 use a legacy server. It lowers their requests to the
// server's revision, and raises its answers (protocol.md D1, D5).
//
// If the server asks something during a call, the questions answer the client's request. The call is parked until a
// request brings the client's answers. Each client gets the log messages and changes that it has requested. A tool
// that must be a task is called as a task, which the package polls to its end.
//
// A question never reaches a client that it cannot be about. A parked call is never repeated: if it is lost, it
// fails. The package opens no connection. Package stateless assigns requests to connections.
package lower

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/tracing"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/seal"
)

// Server holds the state of stateless clients at one legacy server: parked calls, subscriptions, and the server's way
// of asking.
type Server struct {
	o Options
	// unattributed means that the server has asked a question that names no call. ignoresCancel means that the server
	// has asked about a cancelled call.
	unattributed, ignoresCancel atomic.Bool

	mu          sync.Mutex // guards the rest
	warnedAt    time.Time  // when warn last logged
	translators map[*Translator]struct{}
	parked      map[string]*parked                          // resumable calls, by id
	waiting     map[string]int                              // calls that wait for their clients, by principal
	keptBytes   int                                         // of delivered answers
	listens     map[string]map[*subscribe.Listener]struct{} // subscriptions, by group
	closed      bool
}

// Options holds the parts of the bridge that a Server needs.
type Options struct {
	Name     string // of the server
	Log      *slog.Logger
	MaxTask  *atomic.Int64 // time limit for a call made as a task, in nanoseconds; 0 means none
	Lasting  bool          // connections outlive the requests that they are opened for
	Alone    bool          // a call whose client can be asked gets a connection of its own
	Instance string        // the id of this instance of the bridge
	Seals    *seal.Key
	Rewrites *list.Rewrites   // of the server's lists
	Forward  []bridge.Forward // a requestState is valid only for clients of one bridge.IdentityKey
	Tracing  *tracing.Tracing // may be nil
	Queue    Queue
}

// Queue makes the errors of calls that exceed a limit.
type Queue interface {
	Refusal(format string, args ...any) error
}

// New returns a Server.
func New(o Options) *Server {
	return &Server{
		o:           o,
		translators: map[*Translator]struct{}{},
		parked:      map[string]*parked{},
		waiting:     map[string]int{},
		listens:     map[string]map[*subscribe.Listener]struct{}{},
	}
}

// Unattributed reports whether the server has asked a question that names no call.
func (s *Server) Unattributed() bool { return s.unattributed.Load() }

// Status counts the calls and subscriptions of stateless clients at a legacy server.
type Status struct {
	Requests      int // in flight
	Subscriptions int // and subscribed resources
	Waiting       int // calls that wait for their clients
	Kept          int // resumable calls, including answered ones
	Bytes         int // of the answers of these calls
}

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

// Slot is the holder of a Translator. Its methods may be called under the translator's lock, and call no method
// of the translator.
type Slot interface {
	// Hold counts one more call that uses the connection.
	Hold()
	// Release ends what Hold began.
	Release()
	// Suspect reports whether the server may ask about a call that has ended.
	Suspect(bool)
	// Retire keeps further requests from the connection, if other connections are possible.
	Retire()
	// Gone reports that the server has ended for good, or was replaced.
	Gone()
}

// Line is a connection with its guards.
type Line interface {
	bridge.Upstream
	// Caller returns the caller on whose behalf the connection opens.
	Caller() *bridge.Caller
	// Checked returns the connection with the checks of tool calls.
	Checked() bridge.Upstream
	// Keep opens the connection, and keeps it open until release is called.
	Keep(ctx context.Context) (release func(), err error)
	// Go runs f in a goroutine that Close awaits, with a context that Close ends. Go reports false if the connection
	// was closed.
	Go(f func(ctx context.Context)) bool
	// Ping pings the server, if there is a connection. If no answer comes within the time within, Ping returns an
	// ErrTimeout.
	Ping(ctx context.Context, within time.Duration) error
}

// Clients describes the clients of a Translator.
type Clients struct {
	Tools *list.TaskTools // the tools that need a task, by the clients' lists
	Group string          // clients of a group get the same notifications of changes
	Once  bool            // the connection serves one request
	Keyed bool            // the clients share a handle, and count as one
}
