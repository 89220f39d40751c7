package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"go.opentelemetry.io/otel/trace"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/tracing"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// call is a Call. It receives the server's messages about the request as a bridge.Client.
type call struct {
	s          *sitting
	binding    *binding
	m          *jsonrpc.Message
	through    string // the bridge.Request.Through
	with       Envelope
	id         []byte        // the client's raw id
	back       bridge.Stream // takes messages of the server before the answer; may be nil
	ctx        context.Context
	cancel     context.CancelCauseFunc
	span       trace.Span // nil without tracing
	prev, next *call      // in the session's list
	arrival    report.Arrival
	answer     *jsonrpc.Message // nil until the bridge refuses the call, or answers it itself
	err        error            // reason why the bridge refused the call
}

func (s *sitting) Call(m *jsonrpc.Message, e *Envelope, back bridge.Stream) (*jsonrpc.Message, error) {
	return s.Enter(m, e, back).Do()
}

func (s *sitting) Enter(m *jsonrpc.Message, e *Envelope, back bridge.Stream) Call {
	s.Seen()
	c := &call{
		s:    s,
		m:    m,
		with: e.open(),
		id:   bytes.Clone(m.ID),
		back: back,
	} // the answer outlives the request
	switch m.Method {
	case "ping":
		c.answer = jsonrpc.NewResult(c.id, []byte("{}"))
		return c
	case "initialize":
		c.answer = jsonrpc.NewError(c.id, jsonrpc.CodeInvalidRequest, "this session is initialized already", nil)
		s.g.reports.Reject(s.shortID(), s.caller, m, c.answer, nil)
		return c
	}
	if e != nil && *s.tools.Load() != e.Tools {
		s.tools.Store(&e.Tools)
	}
	if c.m, c.through, c.answer = s.g.unwrapped(m, s.caller, s.address(s.bindings.Current(), c.with.Tools)); c.answer != nil {
		s.g.reports.Reject(s.shortID(), s.caller, m, c.answer, nil)
		return c
	}
	m = c.m
	c.ctx, c.span = s.g.tracing.Received(s.ctx, m, c.with.Header, s.server, s.caller, s.shortID(), c.with.Remote)
	if err := s.g.enter(s.caller, m); err != nil {
		return c.reject(err)
	}
	c.ctx, c.cancel = context.WithCancelCause(c.ctx)
	c.arrival.Cancel = c.cancel
	c.binding = s.bindings.Enter()
	if err := s.enter(c); err != nil {
		c.end()
		return c.reject(err)
	}
	return c
}

func (c *call) reject(err error) *call {
	c.answer, c.err = c.s.g.reject(c.s.shortID(), c.s.caller, c.m, err), err
	tracing.End(c.span, c.m.Method, nil, err)
	return c
}

// end reverses Enter.
func (c *call) end() {
	c.binding.Leave()
	c.cancel(nil)
	c.s.g.leave(c.s.caller)
}

func (c *call) Go(done func(*jsonrpc.Message, error)) bool {
	ok := c.s.Go(func() { done(c.Do()) })
	if !ok && c.answer == nil {
		c.s.leave(c)
		c.end()
		c.reject(cmp.Or(context.Cause(c.s.ctx), bridge.ErrEnded))
	}
	return ok
}

func (c *call) Do() (m *jsonrpc.Message, err error) {
	if c.answer != nil {
		return c.answer, c.err
	}
	defer c.end()
	defer func() { tracing.End(c.span, c.m.Method, m, err) }()
	s := c.s
	came := s.g.reports.Arrive(&c.arrival, s.wire, s.server, s.shortID(), c.with.Header, c.with.Remote, c.span)
	for err = s.resume(c.ctx, c.binding, c.m); err != nil && !c.binding.Current() && c.ctx.Err() == nil; err = s.resume(c.ctx, c.binding, c.m) {
		c.binding.Leave() // resume failed before the call was sent, so the call can use the new binding
		c.binding = s.bindings.Enter()
	}
	if err == nil {
		if c.binding.Server == nil { // the binding counts the calls of a single server
			s.g.reports.Look(&c.arrival)
			defer c.arrival.Found()
		}
		m, err = s.g.offered(c.binding.Chain, c.m, c.through, s.address(c.binding, c.with.Tools)).Call(c.ctx, &bridge.Request{
			Message:  c.m,
			From:     s.caller,
			Back:     c,
			Header:   s.g.forwarded(c.with.Header),
			Identity: c.with.Identity,
			Through:  c.through,
			Call:     came.Call(),
		})
	}
	if err == nil && m.Error == nil {
		if change := recordOf(c.m); change != nil {
			if s.keep(change); !c.binding.Current() {
				s.repeat(c.ctx, c.m)
			}
		}
	}
	s.leave(c)
	err = s.g.reports.Conclude(came, s.server, s.caller, c.m, m, err)
	switch {
	case err == nil:
		m.ID = c.id
		return m, nil
	case byOperator(c.ctx):
		err = context.Cause(c.ctx)
	case errors.Is(context.Cause(c.ctx), bridge.ErrCancelled):
		return nil, bridge.ErrCancelled
	}
	if cause := context.Cause(s.ctx); cause != nil {
		if errors.Is(cause, bridge.ErrShutdown) && errors.Is(err, bridge.ErrLost) { // ErrShutdown alone would let the client retry a call that the server may have run
			cause = &bridge.Error{
				Server: s.server,
				Kind:   bridge.ErrLost,
				Public: bridge.Stopped,
			}
		}
		err = cause
	}
	s.g.callFailed(s.log, s.bindings.Current().Server == nil, c.m.Method, err, c.span)
	return Refusal(c.id, err), err
}

// byOperator reports whether an operator cancelled the call of ctx. The client of such a call still waits for an
// answer, which is the cause of ctx.
func byOperator(ctx context.Context) bool {
	e, told := errors.AsType[*bridge.Error](context.Cause(ctx))
	return told && e.Kind == bridge.ErrCancelled
}

// callFailed logs a call without an answer: at most one line a second at info, the others at debug. unnamed says that
// log lacks the name of the server, as the log of the aggregate does. Then the name comes from err.
func (g *gateway) callFailed(log *slog.Logger, unnamed bool, method string, err error, span trace.Span) {
	level := slog.LevelDebug
	g.failures.Do(func() { level = slog.LevelInfo })
	if e, ok := errors.AsType[*bridge.Error](err); ok && unnamed && e.Server != "" {
		log = log.With("server", e.Server)
	}
	log.Log(context.Background(), level, "call failed", "method", fmt.Sprintf("%.64s", method), "err", bridge.Brief(err), tracing.ID(span))
}

// reject reports a refused request to Options.Watch, and returns the error message for the client.
func (g *gateway) reject(session string, from *bridge.Caller, m *jsonrpc.Message, err error) *jsonrpc.Message {
	g.reports.Reject(session, from, m, nil, err)
	return Refusal(bytes.Clone(m.ID), err)
}

func (s *sitting) enter(c *call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch at := c.binding.Server; {
	case s.ending:
		return bridge.ErrEnded
	case at != nil && at.removed.Err() != nil:
		return context.Cause(at.removed)
	case s.callCount >= s.g.maxCalls:
		return &bridge.Error{
			Kind:   bridge.ErrOverloaded,
			After:  limits.Again,
			Public: bridge.OverLimit("the session has too many calls in flight", s.g.maxCalls),
		}
	}
	if c.next = s.calls; c.next != nil {
		c.next.prev = c
	}
	s.calls = c
	s.callCount++
	s.callTotal++
	s.used = true
	if !s.ready {
		s.begin() // some clients omit notifications/initialized
	}
	return nil
}

func (s *sitting) leave(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		s.calls = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	}
	s.callCount--
	s.touch()
}

// cancelCall cancels the call whose id the notification has. If several calls have that id, which the protocol forbids,
// it cancels none.
func (s *sitting) cancelCall(m *jsonrpc.Message) {
	id := m.RequestID()
	s.mu.Lock()
	var found *call
	for c := s.calls; c != nil; c = c.next {
		if !bytes.Equal(c.id, id) {
			continue
		}
		if found != nil {
			s.mu.Unlock()
			return
		}
		found = c
	}
	s.mu.Unlock()
	if found != nil {
		found.cancel(bridge.TakenBack(m))
	}
}

// Notify sends a notification about the call on the call's stream. If the stream takes no more, Notify drops progress
// and log messages. Other notifications go to a standing stream.
func (c *call) Notify(m *jsonrpc.Message) {
	if c.back != nil && c.back.Send(NotificationEvent(m)) {
		return
	}
	if m.Method != "notifications/progress" && m.Method != "notifications/message" {
		receiver{c.s, nil}.Notify(m)
	}
}

// Ask puts a question about this call to the client.
func (c *call) Ask(m *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	return c.s.ask(m, reply, c)
}

// Gone does nothing: Call of the chain returns the error.
func (c *call) Gone(error) {}
