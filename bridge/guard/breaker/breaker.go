// Package breaker is the circuit breaker: a server that keeps failing gets no calls
// until a probe succeeds.
//
// A Circuit is the core of it: how many failures are too many, a pause that doubles,
// and one probe at a time. That is all that is needed where a use is one call, as of
// an HTTP API's host. A Breaker is that of an MCP server: it stands between a lane and
// its connections, counts calls and openings, and probes by itself.
//
// The state machine is github.com/sony/gobreaker. Its two-step breakers have the rolling
// window, open, let one probe pass after the pause, and ignore what began before they
// opened. Ours is what gobreaker lacks: calls apart from openings, which failures are
// in a row, outcomes of what outlasts the window, the probe itself, pauses that grow
// (each is another gobreaker), and an operator's word.
//
// What the server has answered is never a failure, though it only refuses; nor is
// what has not reached it for reasons of the bridge's own or of a client's.
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

// Breaker leaves a server alone that fails again and again: nothing is sent to
// it, and no connection to it is opened, until it is worth trying.
//
// Calls over connections are counted, and openings of connections, each by a gate
// of their own: calls that fail stop everything, openings that fail stop further
// openings only. A connection that is open needs nothing of what keeps another one
// from being opened.
//
// It stands below the lane, where both pass and where it is known what has
// reached the server: a connection that cannot be opened is one failure, however
// many calls wait for it. The probe is the bridge's own call, since one of a
// client's may wait for a person for as long as that one likes.
//
// All methods of nil let everything pass.
type Breaker struct {
	circuit *Circuit
	s       Server
	conns   connections
}

// Server is what a Breaker has to know and to do of its server.
type Server struct {
	Name   string
	Log    *slog.Logger
	Shared bool          // all clients use one connection
	Within time.Duration // how long a probe may take
	// Life ends all probes.
	Life context.Context
	// Go runs f in a goroutine that is awaited after the end of Life. It reports
	// false when that is too late.
	Go func(f func()) bool
	// Open opens a connection that the breaker is not asked for. done closes it,
	// also after an error.
	Open func(ctx context.Context, from *bridge.Caller) (done func(), err error)
	// Noted is told why the server is left alone when that begins, and after each
	// probe that has failed.
	Noted func(why error)
	// Works is told that the server is used again.
	Works func()
}

// patience is for how long after a probe has begun callers wait for its outcome.
const patience = 5 * time.Second

// New returns the breaker of a server; nil when it is off.
func New(o Options, s Server) *Breaker {
	if o.Off {
		return nil
	}
	return &Breaker{circuit: NewCircuit(o), s: s, conns: connections{open: map[*guarded]struct{}{}}}
}

// Set has other options count from now on. It cannot switch on what is nil.
func (b *Breaker) Set(o Options) {
	if b != nil {
		b.circuit.set(o)
	}
}

// Pass returns the error that no connection must be opened, if that is so. When the
// pause is over it has the server probed on behalf of from, and waits a moment for
// what comes of it.
func (b *Breaker) Pass(ctx context.Context, from *bridge.Caller) error {
	if b == nil {
		return nil
	}
	a, err := b.pass(ctx, from, openings)
	if err == nil {
		a.Void() // Opening begins the one that counts
	}
	return err
}

// pass returns the attempt that begins now, or the error that it must not.
func (b *Breaker) pass(ctx context.Context, from *bridge.Caller, k kind) (Attempt, error) {
	if a, ok := b.circuit.begin(k); ok {
		return a, nil
	}
	p, mine := b.circuit.try(k)
	if p == nil {
		return b.now(k)
	}
	if mine && !b.s.Go(func() { b.probe(p, from) }) {
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

// now is pass without waiting.
func (b *Breaker) now(k kind) (Attempt, error) {
	a, ok := b.circuit.begin(k)
	if !ok {
		return a, b.refusal()
	}
	return a, nil
}

// refusal is the error of what must not be sent or opened.
func (b *Breaker) refusal() error {
	left, probed := b.circuit.Left()
	when := "right now"
	if !probed {
		when = fmt.Sprintf("in %d s", int(math.Ceil(left.Seconds())))
	}
	if b.Forced() != nil {
		return &bridge.Error{Server: b.s.Name, Kind: bridge.ErrOpen, After: left, Public: "an operator has stopped calls to it; next attempt " + when}
	}
	why, used := b.circuit.reason()
	text := "it keeps failing (%s): its circuit breaker is open; next attempt %s"
	if used {
		text = "connections to it keep failing (%s): its circuit breaker is open; next attempt %s"
	}
	return &bridge.Error{Server: b.s.Name, Kind: bridge.ErrOpen, After: left, Public: fmt.Sprintf(text, why, when)}
}

// Shut reports whether no connections are opened.
func (b *Breaker) Shut() bool { return b.Status().Why != nil }

// Left returns for how much longer there is no use in trying to open a connection.
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

// Opening says that a connection is about to be opened on behalf of from, until ctx
// ends, or returns the error that it must not be, without waiting: for who has what
// a probe may need. own says that the connection is one client's alone. opened takes
// what came of it, and returns the connection with its calls let pass, and counted.
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
			b.served()
		case j == fails && ctx.Err() == nil:
			b.bad(a, err, from.Principal, "circuit breaker open: connections to the server keep failing")
		default: // it says nothing, or nobody wanted it any more
			a.Void()
		}
		if err != nil {
			return nil
		}
		g := &guarded{Upstream: up, b: b, conn: c, from: from, own: own}
		b.conns.mu.Lock()
		defer b.conns.mu.Unlock()
		b.conns.open[g] = struct{}{}
		return g
	}, nil
}

// served notes that a connection was opened. That is a success among the calls, too:
// a client that makes its own connections end is no reason to leave those of others
// alone as long as new ones can be opened.
func (b *Breaker) served() {
	if a, ok := b.circuit.begin(calls); ok {
		a.Good()
	}
}

// bad notes a failure: err, of an attempt on behalf of that principal. text is for
// the log, if that is why the circuit opens.
func (b *Breaker) bad(a Attempt, err error, principal, text string) {
	why := reason(err, principal)
	if pause := a.Bad(errors.Is(err, bridge.ErrTimeout), why); pause > 0 {
		b.s.Noted(b.note(why))
		b.s.Log.Warn(text, "for", pause.String(), "err", err)
	}
}

// note is why the server is left alone, for its status.
func (b *Breaker) note(why string) error {
	return &bridge.Error{Server: b.s.Name, Kind: bridge.ErrOpen, Public: why}
}

// errSlow is the failure of a call that had its answer, but late.
var errSlow = errors.New("an answer took too long")

// reason is why the server is left alone, for clients. What was said to one may
// be about its call, and is not for others to know: where there are several
// principals they are told the kind only.
func reason(err error, principal string) string {
	if e, ok := errors.AsType[*bridge.Error](err); ok && principal == "" {
		public, _, _ := strings.Cut(e.Public, "; whether ") // which is about that call
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

// judgement is what the outcome of a call, or of opening a connection, says
// about the server.
type judgement int

const (
	nothing judgement = iota
	works
	fails
)

// judge says so of an error. What the server has answered, though only by
// refusing, is no failure: nor is what has not reached it for other reasons.
// Where ctx has ended, it is for the reason of that: who ends a session closes
// its connection too, and the call may have met with either first.
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
		return fails // a deadline of the bridge's own too
	case ctx.Err() != nil:
		return nothing
	}
	return fails // whatever else it is, it is no answer
}

// Status says how a breaker is.
type Status struct {
	// State is "closed" when the server is used, "open" when it, or opening a
	// connection to it, is left alone, "half-open" while it is probed, and "off".
	State string
	Trips uint64    // how often it began to be left alone
	Why   error     // it is; nil when it is closed or off, and then so is the rest
	Since time.Time // it is
	Again time.Time // when the pause is over
}

// Status returns how the breaker is.
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
	st.Why, st.Since, st.Again = b.note(c.why), c.since, c.again
	return st
}
