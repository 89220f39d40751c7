// Package drain keeps new calls from a server while an operator drains it. Calls in flight go on,
// and requests that belong to them pass.
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

// Order is an operator's order to drain a server.
type Order struct {
	By    string
	Since time.Time
	Until time.Time // zero means until it is withdrawn
}

// Servers holds the servers by name, also those that are gone: an order outlives a change of
// settings. A nil Servers is for a bridge without an operator.
type Servers struct {
	mu sync.Mutex
	of map[string]*Server
}

// New returns an empty Servers, or nil if the bridge has no operator.
func New(operated bool) *Servers {
	if !operated {
		return nil
	}
	return &Servers{of: map[string]*Server{}}
}

// Of returns the server of that name, always the same one.
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

// Server is one server. Its methods may be called concurrently. Those of a nil Server let everything
// pass; Set needs one that is not nil.
type Server struct {
	name  string
	order atomic.Pointer[Order] // nil without an order; changed under mu

	mu      sync.Mutex // guards the rest
	timer   *time.Timer
	waiters waiters
}

// Set puts an order in force, until its end. nil withdraws it.
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

// takeWaiters removes and returns the waiters. The caller holds s.mu, and unlocks s.mu before it calls notify.
func (s *Server) takeWaiters() waiters {
	all := s.waiters
	s.waiters = waiters{}
	return all
}

// waiters are functions that are called when an order ends.
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

// Await calls notify once, when the drain ends. stop cancels that. Without a drain, Await returns otherwise().
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

// Err returns why the server gets no new calls, or nil.
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

// Refuses returns why a client's request must not pass, or nil. A nil request stands for one of the
// bridge's own.
func (s *Server) Refuses(m *jsonrpc.Message, from *bridge.Caller) error {
	if err := s.Err(); err != nil && m != nil && !isContinuation(m, from) {
		return err
	}
	return nil
}

// passing is the key of a context that Passing returns.
type passing struct{}

// Passing returns a context whose requests always pass: they restore what existed before the order.
func Passing(ctx context.Context) context.Context { return context.WithValue(ctx, passing{}, true) }

// Wrap returns an Upstream that refuses new calls while an order is in force.
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

// Call makes a call. During a drain, Call refuses a new call, except with a context of Passing.
func (d *drained) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if err := d.s.Refuses(r.Message, r.From); err != nil && ctx.Value(passing{}) == nil {
		return nil, err
	}
	return d.Upstream.Call(ctx, r)
}

// isContinuation reports whether a request belongs to an earlier one: the request is about a task, ends a subscription,
// or answers the question of a call. Only clients of 2026-07-28 answer by another call. In requests of other clients,
// requestState and inputResponses have no meaning.
func isContinuation(m *jsonrpc.Message, from *bridge.Caller) bool {
	switch {
	case strings.HasPrefix(m.Method, "tasks/") && m.Method != "tasks/list", m.Method == "resources/unsubscribe":
		return true
	}
	p := gjson.GetManyBytes(m.Params, "requestState", "inputResponses")
	return from.Modern() && (p[0].Exists() || p[1].Exists())
}
