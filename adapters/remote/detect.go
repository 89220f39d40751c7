package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/mcp-bridge/bridge/bridge"
)

// Adapter reaches a server whose transport is not configured. What worked is tried first the next time; the other way
// is tried when a server says that it does not speak this one, and for no other reason: a
// server that is out of order would otherwise be met with requests that it does not
// understand (protocol.md C2.7).
type Adapter struct {
	Server string       // its name
	Log    *slog.Logger // must be set
	Ways   [2]Way       // in the order in which they are tried as long as none has worked
	works  atomic.Int32
}

// Way is one transport.
type Way struct {
	Transport string // as the configuration calls it
	Title     string // as messages call it
	bridge.Adapter
}

var (
	_ bridge.Adapter = (*Adapter)(nil)
	_ bridge.Resumer = (*Adapter)(nil)
)

// Open opens a connection over the transport that worked last, or the other
// one. When neither does, the error says what was wrong with each.
func (e *Adapter) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	first := e.works.Load()
	if first > 0 {
		first--
	}
	one, other := e.Ways[first], e.Ways[1-first]
	up, err := one.Open(ctx, from, rest)
	if err == nil {
		e.works.Store(first + 1)
		return up, nil
	}
	if !errors.Is(err, ErrOtherTransport) || ctx.Err() != nil {
		return nil, err
	}
	up, also := other.Open(ctx, from, rest)
	if also == nil {
		if e.works.Swap(2-first) != 2-first {
			e.Log.Info("transport found", "server", e.Server, "transport", other.Title)
		}
		return up, nil
	}
	return nil, &bridge.Error{
		Server: e.Server, Kind: bridge.ErrUnavailable,
		Public: one.Title + ": " + told(err) + "; " + other.Title + ": " + told(also),
		Err:    joined(known(err), known(also)),
	}
}

// Resume goes on with a connection of another instance: over the transport where that can
// be.
func (e *Adapter) Resume(ctx context.Context, from *bridge.Caller, rest bridge.Client, carry []byte, above int64) (bridge.Upstream, error) {
	for i, w := range e.Ways {
		if r, ok := w.Adapter.(bridge.Resumer); ok {
			up, err := r.Resume(ctx, from, rest, carry, above)
			if err == nil {
				e.works.Store(int32(i + 1))
			}
			return up, err
		}
	}
	return nil, &bridge.Error{Server: e.Server, Kind: bridge.ErrUnavailable, Public: "no connection to it can be gone on with"}
}

// Transport returns the name of the transport that worked last; empty as long
// as none has.
func (e *Adapter) Transport() string {
	if n := e.works.Load(); n > 0 {
		return e.Ways[n-1].Transport
	}
	return ""
}

// told returns what a client may know of err.
func told(err error) string {
	if e, ok := errors.AsType[*bridge.Error](err); ok {
		return e.Public
	}
	return "it could not be reached"
}

// known returns what the log shall have of err beside that; nil if what told returns
// says it all.
func known(err error) error {
	e, ok := errors.AsType[*bridge.Error](err)
	switch {
	case ok && errors.Is(e.Err, ErrOtherTransport):
		return nil // it has the status, which is all there is to know
	case ok && e.Err != nil:
		return e.Err
	case ok:
		return e.Kind
	}
	return err
}

// joined returns both errors as one, with those left out that are nil.
func joined(one, other error) error {
	switch {
	case one == nil:
		return other
	case other == nil:
		return one
	}
	return fmt.Errorf("%w; %w", one, other)
}
