package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/mcp-bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/adapters/httpclient"
)

// either reaches a server of which it is not known over which of two
// transports it speaks. What worked is tried first the next time; the other one
// is tried when a server says that it does not speak this one, and for no other
// reason: a server that is out of order would otherwise be met with requests
// that it does not understand (protocol.md C2.7).
type either struct {
	name  string
	log   *slog.Logger
	ways  [2]way // in the order in which they are tried as long as none has worked
	works atomic.Int32
}

// way is one transport.
type way struct {
	transport string // as the configuration calls it
	title     string // as messages call it
	bridge.Adapter
}

var (
	_ bridge.Adapter = (*either)(nil)
	_ bridge.Resumer = (*either)(nil)
)

// Open opens a connection over the transport that worked last, or the other
// one. When neither does, the error says what was wrong with each.
func (e *either) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	first := e.works.Load()
	if first > 0 {
		first--
	}
	one, other := e.ways[first], e.ways[1-first]
	up, err := one.Open(ctx, from, rest)
	if err == nil {
		e.works.Store(first + 1)
		return up, nil
	}
	if !errors.Is(err, httpclient.ErrOtherTransport) || ctx.Err() != nil {
		return nil, err
	}
	up, also := other.Open(ctx, from, rest)
	if also == nil {
		if e.works.Swap(2-first) != 2-first {
			e.log.Info("transport found", "server", e.name, "transport", other.title)
		}
		return up, nil
	}
	return nil, &bridge.Error{
		Server: e.name, Kind: bridge.ErrUnavailable,
		Public: one.title + ": " + told(err) + "; " + other.title + ": " + told(also),
		Err:    fmt.Errorf("%w; %w", known(err), known(also)),
	}
}

// Resume goes on with a connection of another instance: over the transport where that can
// be.
func (e *either) Resume(ctx context.Context, from *bridge.Caller, rest bridge.Client, carry []byte, above int64) (bridge.Upstream, error) {
	for i, w := range e.ways {
		if r, ok := w.Adapter.(bridge.Resumer); ok {
			up, err := r.Resume(ctx, from, rest, carry, above)
			if err == nil {
				e.works.Store(int32(i + 1))
			}
			return up, err
		}
	}
	return nil, &bridge.Error{Server: e.name, Kind: bridge.ErrUnavailable, Public: "no connection to it can be gone on with"}
}

// transport returns the name of the transport that worked last; empty as long
// as none has.
func (e *either) transport() string {
	if n := e.works.Load(); n > 0 {
		return e.ways[n-1].transport
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

// known returns what the log shall have of err beside that.
func known(err error) error {
	if e, ok := errors.AsType[*bridge.Error](err); ok && e.Err != nil {
		return e.Err
	} else if ok {
		return e.Kind
	}
	return err
}

// unusable is the adapter of a server whose settings name files that cannot be
// used: the others are served all the same.
type unusable struct {
	name string
	err  error
}

var _ bridge.Adapter = (*unusable)(nil)

// Open fails.
func (u *unusable) Open(context.Context, *bridge.Caller, bridge.Client) (bridge.Upstream, error) {
	return nil, &bridge.Error{Server: u.name, Kind: bridge.ErrUnavailable, Public: "its configuration cannot be used", Err: u.err}
}
