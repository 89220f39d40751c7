// Package breaker is the circuit breaker: a server that keeps failing gets no calls until a probe
// succeeds.
//
// A Circuit is the core: a limit on failures, a pause that doubles, and one probe at a time. A Circuit suffices if a
// use is one call, as for the host of an HTTP API. A Breaker serves an MCP server: it stands between a lane and its
// connections, counts calls and openings, and probes by itself.
//
// The state machine is github.com/sony/gobreaker. Its two-step breakers have the rolling window, open, and let one
// probe pass after the pause. They ignore attempts that began before the opening. This package adds the rest. It counts
// calls apart from openings, and decides which failures are in a row. It counts outcomes of attempts that outlast the
// window. It makes the probe, lets the pauses grow (each is another gobreaker), and obeys an operator.
//
// An answer of the server is never a failure, even a refusal. Nor is an attempt that did not reach
// the server because of the bridge or of a client.
package breaker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
)

// Breaker protects a server that fails again and again. While its circuit is open, the server gets
// no calls, and no connection to it is opened.
//
// Calls and openings of connections are counted apart, each by a gate. Failing calls stop
// everything. Failing openings stop further openings only: an open connection does not need them.
//
// The Breaker stands below the lane. Calls and openings both pass there, and the outcome shows what
// reached the server. A connection that cannot be opened is one failure, however many calls wait for
// it. The probe is the bridge's own call, because a client's call may wait for a person.
//
// All methods of a nil Breaker let everything pass.
type Breaker struct {
	circuit *Circuit
	s       Server
	conns   connections
}

// Server describes a Breaker's server.
type Server struct {
	Name   string
	Log    *slog.Logger
	Shared bool            // all clients use one connection
	Within time.Duration   // how long a probe may take
	Life   context.Context // ends all probes
	Host   Host
	Health Health
}

// Host makes the probes of a Breaker.
type Host interface {
	// Go runs f in a goroutine that is awaited after the end of Life. It reports false if Life has
	// ended.
	Go(f func()) bool
	// Open opens a connection without asking the breaker. done closes it, also after an error.
	Open(ctx context.Context, from *bridge.Caller) (done func(), err error)
}

// Health follows the state of the circuit.
type Health interface {
	// RecordFailure records why the circuit opened, or stays open after a probe.
	RecordFailure(why error)
	// Works records that the circuit closed again.
	Works()
}

// patience is how long callers wait for the outcome of a probe, counted from its start.
const patience = 5 * time.Second

// New returns the breaker of a server, or nil if o switches it off.
func New(o Options, s Server) *Breaker {
	if o.Off {
		return nil
	}
	return &Breaker{
		circuit: NewCircuit(o),
		s:       s,
		conns:   connections{open: map[*guarded]struct{}{}},
	}
}

// Set replaces the options. A nil Breaker stays off.
func (b *Breaker) Set(o Options) {
	if b != nil {
		b.circuit.set(o)
	}
}

// Pass returns an error if no connection may be opened. After the pause it starts a probe on behalf
// of from, and waits a moment for its outcome.
func (b *Breaker) Pass(ctx context.Context, from *bridge.Caller) error {
	if b == nil {
		return nil
	}
	a, err := b.pass(ctx, from, openings)
	if err == nil {
		a.Void() // Opening begins the attempt that counts
	}
	return err
}

// pass begins an attempt, or returns why it must not begin.
func (b *Breaker) pass(ctx context.Context, from *bridge.Caller, k kind) (Attempt, error) {
	if a, ok := b.circuit.begin(k); ok {
		return a, nil
	}
	p, mine := b.circuit.try(k)
	if p == nil {
		return b.now(k)
	}
	if mine && !b.s.Host.Go(func() { b.probe(p, from) }) {
		p.Dropped()
		return Attempt{}, bridge.ErrShutdown
	}
	select {
	case <-p.done:
	case <-time.After(patience - time.Since(p.began)):
	case <-ctx.Done():
		return Attempt{}, context.Cause(ctx)
	}
	return b.now(k)
}

// now is pass without a probe and without waiting.
func (b *Breaker) now(k kind) (Attempt, error) {
	a, ok := b.circuit.begin(k)
	if !ok {
		return a, b.refusal()
	}
	return a, nil
}

// refusal returns the error for a call or an opening that must not begin.
func (b *Breaker) refusal() error {
	left, probed := b.circuit.Left()
	when := "right now"
	if !probed {
		when = fmt.Sprintf("in %d s", int(math.Ceil(left.Seconds())))
	}
	if b.Forced() != nil {
		return &bridge.Error{
			Server: b.s.Name,
			Kind:   bridge.ErrOpen,
			After:  left,
			Public: "an operator has stopped calls to it; next attempt " + when,
		}
	}
	why, used := b.circuit.reason()
	text := "it keeps failing (%s): its circuit breaker is open; next attempt %s"
	if used {
		text = "connections to it keep failing (%s): its circuit breaker is open; next attempt %s"
	}
	return &bridge.Error{
		Server: b.s.Name,
		Kind:   bridge.ErrOpen,
		After:  left,
		Public: fmt.Sprintf(text, why, when),
	}
}

// Shut reports whether openings are stopped.
func (b *Breaker) Shut() bool { return b.Status().Why != nil }

// Left returns how long it is still pointless to open a connection.
func (b *Breaker) Left() time.Duration {
	if !b.Shut() {
		return 0
	}
	left, probed := b.circuit.Left()
	if probed {
		return 0
	}
	return left
}

// Opening begins the opening of a connection on behalf of from, or returns why it must not begin. It does not wait: the
// caller holds resources that a probe may need. ctx ends when the connection is no longer needed. own says that the
// connection serves one client only. opened takes the outcome. It returns the connection with its calls guarded and
// counted.
func (b *Breaker) Opening(ctx context.Context, from *bridge.Caller, own bool) (opened func(Conn, bridge.Upstream, error) bridge.Upstream, err error) {
	if b == nil {
		return func(_ Conn, up bridge.Upstream, _ error) bridge.Upstream { return up }, nil
	}
	a, err := b.now(openings)
	if err != nil {
		return nil, err
	}
	return func(c Conn, up bridge.Upstream, err error) bridge.Upstream {
		switch j := judge(ctx, err); {
		case j == works:
			a.Good()
			b.opened()
		case j == fails && ctx.Err() == nil:
			b.failed(a, err, from.Principal, "circuit breaker open: connections to the server keep failing")
		default: // no statement about the server, or the connection is no longer needed
			a.Void()
		}
		if err != nil {
			return nil
		}
		g := &guarded{
			Upstream: up,
			b:        b,
			conn:     c,
			from:     from,
			own:      own,
		}
		b.conns.mu.Lock()
		defer b.conns.mu.Unlock()
		b.conns.open[g] = struct{}{}
		return g
	}, nil
}

// opened records that a connection was opened. That counts as a success of calls, too. While new
// connections open, a client that crashes its own connections must not stop the others.
func (b *Breaker) opened() {
	if a, ok := b.circuit.begin(calls); ok {
		a.Good()
	}
}

// failed records the failure err of an attempt on behalf of a principal. It logs text if the circuit
// opens.
func (b *Breaker) failed(a Attempt, err error, principal, text string) {
	why := reason(err, principal)
	if pause := a.Bad(errors.Is(err, bridge.ErrTimeout), why); pause > 0 {
		b.s.Health.RecordFailure(b.statusError(why))
		b.s.Log.Warn(text, "for", pause.String(), "err", err)
	}
}

// statusError returns the reason for the server's status.
func (b *Breaker) statusError(why string) error {
	return &bridge.Error{
		Server: b.s.Name,
		Kind:   bridge.ErrOpen,
		Public: why,
	}
}

// errSlow is the failure of a call whose answer came late.
var errSlow = errors.New("an answer took too long")

// reason returns the reason of a failure for clients. The text of an error may describe one
// principal's call. So if there are principals, they see only the kind of failure.
func reason(err error, principal string) string {
	if e, ok := errors.AsType[*bridge.Error](err); ok && principal == "" {
		public, _, _ := strings.Cut(e.Public, "; whether ") // the rest describes that call
		return public
	}
	switch {
	case errors.Is(err, errSlow):
		return "it answers too slowly"
	case errors.Is(err, bridge.ErrTimeout):
		return "it does not answer in time"
	case errors.Is(err, bridge.ErrUnavailable):
		return "it is not available"
	}
	return "it fails while it has calls to answer"
}

// judgement is the meaning of an outcome for the server.
type judgement int

const (
	nothing judgement = iota
	works
	fails
)

// judge judges the outcome of a call or of an opening. An answer of the server is no failure, even a refusal. An
// attempt is no failure either if it was not sent, or ended with its caller, session or bridge. If ctx has ended,
// judge takes its cause. The end of a session also closes its connection, and the call may get either error first.
func judge(ctx context.Context, err error) judgement {
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	switch {
	case err == nil, errors.Is(err, bridge.ErrTooLarge), errors.Is(err, bridge.ErrReplaced):
		return works
	case bridge.Exhausted(err), errors.Is(err, bridge.ErrOpen), errors.Is(err, bridge.ErrRejected), errors.Is(err, bridge.ErrNoHandshake), errors.Is(err, bridge.ErrUnsent), errors.Is(err, bridge.ErrWorkerLost),
		errors.Is(err, bridge.ErrOverloaded), errors.Is(err, bridge.ErrLimited), errors.Is(err, bridge.ErrDenied),
		errors.Is(err, bridge.ErrShutdown), errors.Is(err, bridge.ErrEnded), errors.Is(err, bridge.ErrIdle), errors.Is(err, bridge.ErrCancelled):
		return nothing
	case errors.Is(err, bridge.ErrUnavailable), errors.Is(err, bridge.ErrLost), errors.Is(err, bridge.ErrTimeout):
		return fails // also for a deadline of the bridge
	case ctx.Err() != nil:
		return nothing
	}
	return fails // there was no answer
}

// Status describes a breaker.
type Status struct {
	// State is one of four:
	// "closed": the server is used;
	// "open": the server gets no calls, or no openings;
	// "half-open": a probe is in flight;
	// "off".
	State string
	Trips uint64    // how often the circuit opened
	Why   error     // why it is open; if it is nil, the circuit is closed or off, and the rest is zero
	Since time.Time // when it opened
	Again time.Time // when the pause ends
}

func (b *Breaker) Status() Status {
	if b == nil {
		return Status{State: "off"}
	}
	c := b.circuit
	c.mu.Lock()
	defer c.mu.Unlock()
	st := Status{State: "closed", Trips: c.trips}
	if c.o.Off {
		st.State = "off"
	}
	if !c.at(openings).open {
		return st
	}
	if st.State = "open"; c.probe != nil {
		st.State = "half-open"
	}
	st.Why, st.Since, st.Again = b.statusError(c.why), c.since, c.again
	return st
}
