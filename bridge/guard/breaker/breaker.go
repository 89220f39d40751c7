// Package breaker is the circuit breaker: a server that keeps failing gets no calls until a probe succeeds.
//
// A Circuit is the core: a limit on failures, a pause that doubles, and one probe at a time. A Circuit alone suffices
// if the user makes single calls, such as to the host of an HTTP API. A Breaker protects an MCP server: it is between a
// lane and its connections, counts calls and openings, and makes its own probes.
//
// The state machine is github.com/sony/gobreaker. Its two-step breakers have the rolling window, open, let one probe
// pass after the pause, and ignore attempts that began before they opened. This package adds the rest. It counts calls
// apart from openings, and decides which failures are in a row. It counts the outcome of an attempt that lasts longer
// than the window. It makes the probes, doubles the pauses (each pause is another gobreaker), and obeys operators.
//
// An answer of the server is never a failure, even if it is an error. An attempt that did not reach the server because
// of the bridge or of a client is not a failure either.
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

// Breaker protects a server that fails again and again. While its circuit is open, the server gets no calls, and the
// bridge opens no connection to it.
//
// The Breaker counts calls and openings of connections apart, each by a gate. Failing calls stop calls and openings.
// Failing openings stop only openings, since an open connection does not need them.
//
// The Breaker is below the lane, where calls and openings pass, and where an error shows whether the server was
// reached. A connection that cannot be opened is one failure, however many calls wait for it. The probe is a call of
// the bridge itself, because a call of a client may wait for a person.
//
// The methods of a nil Breaker let everything pass.
type Breaker struct {
	circuit *Circuit
	s       Server
	conns   connections
}

// Server describes the server of a Breaker.
type Server struct {
	Name   string
	Log    *slog.Logger
	Shared bool            // all clients share one connection
	Within time.Duration   // time limit of a probe
	Life   context.Context // its end ends all probes
	Host   Host
	Health Health
}

// Host opens connections and starts goroutines for probes.
type Host interface {
	// Go runs f in a goroutine that the owner of Life awaits. If Life has ended, Go reports false and does not call f.
	Go(f func()) bool
	// Open opens a connection although the circuit is open. done closes the connection; it is not nil, even after an
	// error.
	Open(ctx context.Context, from *bridge.Caller) (done func(), err error)
}

// Health records what the circuit reveals about the server.
type Health interface {
	// RecordFailure records why the circuit opened, or why it stays open after a probe.
	RecordFailure(why error)
	// Works records that a probe has closed the circuit.
	Works()
}

// patience is how long a call waits for a probe, from the start of the probe. It also bounds a ping.
const patience = 5 * time.Second

// New returns the breaker of a server, or nil if o switches the breaker off.
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

// Pass returns an error if the bridge must not open a connection now. If the pause is over, Pass first starts a probe
// on behalf of from, or joins the one in flight, and waits up to patience for its outcome.
func (b *Breaker) Pass(ctx context.Context, from *bridge.Caller) error {
	if b == nil {
		return nil
	}
	a, err := b.pass(ctx, from, openings)
	if err == nil {
		a.Void() // Opening begins another attempt, whose outcome counts
	}
	return err
}

// pass begins an attempt, or returns the error that refuses it. Like Pass, it may start a probe and wait for it.
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

// now is pass without probe and wait.
func (b *Breaker) now(k kind) (Attempt, error) {
	a, ok := b.circuit.begin(k)
	if !ok {
		return a, b.refusal()
	}
	return a, nil
}

// refusal returns the error for an attempt that the circuit does not let begin.
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
	text := "it keeps failing (%s); next attempt %s"
	if used {
		text = "it is down: %s; next attempt %s"
	}
	return &bridge.Error{
		Server: b.s.Name,
		Kind:   bridge.ErrOpen,
		After:  left,
		Public: fmt.Sprintf(text, why, when),
	}
}

// Shut reports whether the circuit stops openings.
func (b *Breaker) Shut() bool { return b.Status().Why != nil }

// Left returns how long the circuit still stops openings. It is 0 while a probe is in flight: Pass waits for the probe.
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

// Opening begins to open a connection on behalf of from, or returns the error that refuses it. Opening does not wait,
// because the caller holds resources that a probe may need. ctx ends when no caller needs the connection any more. own
// says that the connection serves one client only. The caller calls opened once, with the outcome. opened returns the
// connection with its calls guarded and counted, or nil after an error.
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
		default: // the error says nothing about the server, or no caller needs the connection
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

// opened records that a connection opened, which also counts as a successful call. So a client that crashes its own
// connections does not stop the others while new connections open.
func (b *Breaker) opened() {
	if a, ok := b.circuit.begin(calls); ok {
		a.Good()
	}
}

// failed records that an attempt on behalf of a principal failed with err. If that opens the circuit, failed logs text.
func (b *Breaker) failed(a Attempt, err error, principal, text string) {
	why := reason(err, principal)
	if pause := a.Bad(errors.Is(err, bridge.ErrTimeout), why); pause > 0 {
		b.s.Health.RecordFailure(b.statusError(why))
		b.s.Log.Warn(text, "for", pause.String(), "err", err)
	}
}

// statusError returns the error that Status and Health show for the reason why.
func (b *Breaker) statusError(why string) error {
	return &bridge.Error{
		Server: b.s.Name,
		Kind:   bridge.ErrOpen,
		Public: why,
	}
}

// errSlow is the failure of a call that had an answer after more than Options.Slow.
var errSlow = errors.New("an answer took too long")

// reason returns the reason of a failure for clients. The text of err may describe the call of one principal, so if
// there are principals, the reason names only the kind of failure.
func reason(err error, principal string) string {
	if e, ok := errors.AsType[*bridge.Error](err); ok && principal == "" {
		public, _, _ := strings.Cut(e.Public, "; whether ") // the rest describes one call
		return strings.TrimPrefix(public, "handshake: ")
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

// judgement is what an outcome says about the server.
type judgement int

const (
	nothing judgement = iota
	works
	fails
)

// judge returns what the outcome of a call or of an opening says about the server. An answer is no failure, even if it
// is an error. An attempt is no failure either if it was not sent, or ended because of its caller, its session or the
// bridge. If ctx has ended, judge takes its cause instead of err: the end of a session also closes the connection, so
// that err may be about the closed connection.
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
		return fails // also if ctx ended by a time limit of the bridge
	case ctx.Err() != nil:
		return nothing
	}
	return fails // the server gave no answer
}

// Status is the state of a breaker.
type Status struct {
	// State is one of four:
	// "closed": the server is used;
	// "open": the server gets no calls, or no openings;
	// "half-open": a probe is in flight;
	// "off".
	State string
	Trips uint64    // how often the circuit opened, since the start
	Why   error     // why the circuit is open; nil if it is closed or off, and then the rest is zero
	Since time.Time // when the circuit opened
	Again time.Time // when the pause ends, so that a probe may begin
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
