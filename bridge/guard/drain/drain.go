// Package drain refuses new calls to a server while an operator drains it. Calls in flight continue, and requests that
// belong to them pass.
package drain

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

type Order struct {
	By    string
	Since time.Time
	Until time.Time // zero means until an operator withdraws the order
}

// Servers holds the servers by name. A server that is removed stays in it, so that an order outlives a change of
// settings. A nil Servers means that the bridge has no operator.
type Servers struct {
	mu sync.Mutex
	of map[string]*Server
}

// New returns an empty Servers, or nil if operated is false.
func New(operated bool) *Servers {
	if !operated {
		return nil
	}
	return &Servers{of: map[string]*Server{}}
}

// Of returns the server of that name, the same one each time. A nil Servers returns nil.
func (s *Servers) Of(name string) *Server {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[name] == nil {
		s.of[name] = &Server{name: name, waiters: waiters{}}
	}
	return s.of[name]
}

// Server is what is drained. Its methods may be called concurrently. A nil Server is never drained, and has no Set.
type Server struct {
	name  string
	order atomic.Pointer[Order] // nil without an order; changed with mu held

	mu      sync.Mutex // guards the rest
	timer   *time.Timer
	waiters waiters
}

// Set puts an order in force until o.Until, in place of an earlier order. nil withdraws the order.
func (s *Server) Set(o *Order) { s.set(o).notify() }

func (s *Server) set(o *Order) waiters {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	s.order.Store(o)
	if o == nil {
		return s.takeWaiters()
	}
	if !o.Until.IsZero() {
		s.timer = time.AfterFunc(time.Until(o.Until), func() { s.expire(o).notify() })
	}
	return nil
}

func (s *Server) expire(o *Order) waiters {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.order.CompareAndSwap(o, nil) {
		return nil
	}
	return s.takeWaiters()
}

// takeWaiters removes and returns the waiters. The caller holds s.mu, and calls notify after it unlocked s.mu.
func (s *Server) takeWaiters() waiters {
	all := s.waiters
	s.waiters = waiters{}
	return all
}

// waiters are the functions to call when the order ends.
type waiters map[*func()]struct{}

func (w waiters) notify() {
	for told := range w {
		(*told)()
	}
}

// Now returns the order in force, or nil.
func (s *Server) Now() *Order {
	if s == nil {
		return nil
	}
	return s.order.Load()
}

// Await registers notify, which is called once, when the drain ends. stop removes notify. If the server is not drained,
// Await calls otherwise instead and returns its result.
func (s *Server) Await(notify func(), otherwise func() (stop func())) (stop func()) {
	if s == nil {
		return otherwise()
	}
	s.mu.Lock()
	if s.Now() == nil {
		s.mu.Unlock()
		return otherwise()
	}
	defer s.mu.Unlock()
	key := &notify
	s.waiters[key] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiters, key)
	}
}

// Err returns the error for new calls, or nil if the server takes them.
func (s *Server) Err() error {
	o := s.Now()
	if o == nil {
		return nil
	}
	e := &bridge.Error{
		Server: s.name,
		Kind:   bridge.ErrDrained,
		Public: "an operator has drained it: it takes no new calls",
	}
	if !o.Until.IsZero() {
		e.After = max(time.Second, time.Until(o.Until))
	}
	return e
}

// Refuses returns the error for the request m of a client, or nil if m may pass. A nil m stands for a request of the
// bridge itself, which always passes.
func (s *Server) Refuses(m *jsonrpc.Message, from *bridge.Caller) error {
	if err := s.Err(); err != nil && m != nil && !isContinuation(m, from) {
		return err
	}
	return nil
}

// passing is the key of the context value that Passing sets.
type passing struct{}

// Passing returns a context whose requests pass during a drain. It is for requests that restore what existed before the
// order.
func Passing(ctx context.Context) context.Context { return context.WithValue(ctx, passing{}, true) }

// Wrap returns up with new calls refused while an order is in force. A nil Server returns up.
func (s *Server) Wrap(up bridge.Upstream) bridge.Upstream {
	if s == nil {
		return up
	}
	return &drained{up, s}
}

type drained struct {
	bridge.Upstream
	s *Server
}

// Call makes a call, unless the server is drained and the call is a new one without a context of Passing.
func (d *drained) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if err := d.s.Refuses(r.Message, r.From); err != nil && ctx.Value(passing{}) == nil {
		return nil, err
	}
	return d.Upstream.Call(ctx, r)
}

// isContinuation reports whether a request belongs to an earlier request: it is about a task, ends a subscription, or
// answers the questions of a call. Only clients of 2026-07-28 answer questions by another call. In requests of other
// clients, requestState and inputResponses have no meaning.
func isContinuation(m *jsonrpc.Message, from *bridge.Caller) bool {
	switch {
	case strings.HasPrefix(m.Method, "tasks/") && m.Method != "tasks/list", m.Method == "resources/unsubscribe":
		return true
	}
	p := gjson.GetManyBytes(m.Params, "requestState", "inputResponses")
	return from.Modern() && (p[0].Exists() || p[1].Exists())
}
