// Package drain keeps new calls from a server while an operator wants it so: those under way
// end, and what belongs to them passes.
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

// Order is what an operator has decided about a server.
type Order struct {
	By    string
	Since time.Time
	Until time.Time // zero: until it is taken back
}

// Servers are all that there are, or were, by name: an order outlives a change of settings.
// nil are those that nobody operates.
type Servers struct {
	mu sync.Mutex
	of map[string]*Server
}

// New returns the servers that somebody operates, or nil.
func New(operated bool) *Servers {
	if !operated {
		return nil
	}
	return &Servers{of: map[string]*Server{}}
}

// Of returns the server of that name, always the same.
func (s *Servers) Of(name string) *Server {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[name] == nil {
		s.of[name] = &Server{name: name, waiters: map[*func()]struct{}{}}
	}
	return s.of[name]
}

// Server is one of them. Its methods may be called concurrently; but for Set, those of nil
// let everything pass.
type Server struct {
	name  string
	order atomic.Pointer[Order] // nil if there is none; changed under mu

	mu      sync.Mutex // guards the rest
	timer   *time.Timer
	waiters map[*func()]struct{}
}

// Set has an order count, or with nil none. One that has no end counts until then.
func (s *Server) Set(o *Order) {
	s.mu.Lock()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	s.order.Store(o)
	if o == nil {
		s.over()
		return
	}
	defer s.mu.Unlock()
	if !o.Until.IsZero() {
		s.timer = time.AfterFunc(time.Until(o.Until), func() {
			s.mu.Lock()
			if s.order.CompareAndSwap(o, nil) {
				s.over()
			} else {
				s.mu.Unlock()
			}
		})
	}
}

// over tells those who wait. The caller holds s.mu, which over gives back.
func (s *Server) over() {
	waiters := s.waiters
	s.waiters = map[*func()]struct{}{}
	s.mu.Unlock()
	for told := range waiters {
		(*told)()
	}
}

// Now returns the order that counts; nil if none does.
func (s *Server) Now() *Order {
	if s == nil {
		return nil
	}
	return s.order.Load()
}

// Await has told called once when an order that counts has ended, unless stop is called
// before. Without an order it does what otherwise does.
func (s *Server) Await(told func(), otherwise func() (stop func())) (stop func()) {
	if s == nil {
		return otherwise()
	}
	s.mu.Lock()
	if s.Now() == nil {
		s.mu.Unlock()
		return otherwise()
	}
	defer s.mu.Unlock()
	key := &told
	s.waiters[key] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiters, key)
	}
}

// Err returns why the server gets no new calls; nil if it does.
func (s *Server) Err() error {
	o := s.Now()
	if o == nil {
		return nil
	}
	e := &bridge.Error{Server: s.name, Kind: bridge.ErrDrained, Public: "an operator has drained it: it takes no new calls"}
	if !o.Until.IsZero() {
		e.After = max(time.Second, time.Until(o.Until))
	}
	return e
}

// Refuses returns why a request of a client is not passed on; nil if it is. No request at all
// is one of the bridge's own.
func (s *Server) Refuses(m *jsonrpc.Message, from *bridge.Caller) error {
	if err := s.Err(); err != nil && m != nil && !goesOn(m, from) {
		return err
	}
	return nil
}

// passing marks what Passing has made.
type passing struct{}

// Passing returns a context whose requests pass whatever an operator wants: they bring back
// what was there when the order came.
func Passing(ctx context.Context) context.Context { return context.WithValue(ctx, passing{}, true) }

// Wrap returns an Upstream that refuses new calls while an order counts.
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

// Call makes a call, unless it would be a new one that is not to be made.
func (d *drained) Call(ctx context.Context, q *bridge.Request) (*jsonrpc.Message, error) {
	if err := d.s.Refuses(q.Message, q.From); err != nil && ctx.Value(passing{}) == nil {
		return nil, err
	}
	return d.Upstream.Call(ctx, q)
}

// goesOn reports whether a request belongs to what has begun before: a task, a subscription
// that ends, a call whose question is answered now. Only clients of 2026-07-28 make their call
// again for that, which a server of an older revision does not know.
func goesOn(m *jsonrpc.Message, from *bridge.Caller) bool {
	switch {
	case strings.HasPrefix(m.Method, "tasks/") && m.Method != "tasks/list", m.Method == "resources/unsubscribe":
		return true
	}
	p := gjson.GetManyBytes(m.Params, "requestState", "inputResponses")
	return from.Modern() && (p[0].Exists() || p[1].Exists())
}
