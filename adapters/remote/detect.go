package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/mcp-bridge/bridge/bridge"
)

// Adapter is the adapter for a server whose transport is not configured. It first tries the
// transport that worked last. It tries the other one only if the server's answer shows that the server
// does not speak the first. Without this rule, a faulty server would get requests that it does not
// understand (protocol.md C2.7).
type Adapter struct {
	Server     string       // the name of the server
	Log        *slog.Logger // must be set
	Candidates [2]Candidate // in the order in which Open tries them before one has worked
	works      atomic.Int32 // 1 more than the index of the transport that worked last; 0 if none has
}

// Candidate is one transport.
type Candidate struct {
	Transport string // its name in the configuration
	Title     string // its name in messages
	bridge.Adapter
}

var (
	_ bridge.Adapter = (*Adapter)(nil)
	_ bridge.Resumer = (*Adapter)(nil)
)

// Open implements bridge.Adapter. If both transports fail, the error has both reasons.
func (a *Adapter) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	first := a.works.Load()
	if first > 0 {
		first--
	}
	one, other := a.Candidates[first], a.Candidates[1-first]
	up, err := one.Open(ctx, from, rest)
	if err == nil {
		a.works.Store(first + 1)
		return up, nil
	}
	if !errors.Is(err, ErrOtherTransport) || ctx.Err() != nil {
		return nil, err
	}
	up, also := other.Open(ctx, from, rest)
	if also == nil {
		if a.works.Swap(2-first) != 2-first {
			a.Log.Info("transport found", "server", a.Server, "transport", other.Title)
		}
		return up, nil
	}
	before := ""
	if a.works.Load() > 0 {
		before = "it answered before, and may be starting: " // n8n, for example, answers 404 until its webhooks are registered
	}
	return nil, &bridge.Error{
		Server: a.Server, Kind: bridge.ErrUnavailable,
		Public: before + one.Title + ": " + forClient(err) + "; " + other.Title + ": " + forClient(also),
		Err:    joined(forLog(err), forLog(also)),
	}
}

// Resume implements bridge.Resumer, with the first transport that can resume a connection.
func (a *Adapter) Resume(ctx context.Context, from *bridge.Caller, rest bridge.Client, carry []byte, above int64) (bridge.Upstream, error) {
	for i, c := range a.Candidates {
		if r, ok := c.Adapter.(bridge.Resumer); ok {
			up, err := r.Resume(ctx, from, rest, carry, above)
			if err == nil {
				a.works.Store(int32(i + 1))
			}
			return up, err
		}
	}
	return nil, &bridge.Error{
		Server: a.Server,
		Kind:   bridge.ErrUnavailable,
		Public: "its session cannot be resumed",
	}
}

// Transport returns the name of the transport that worked last, or "".
func (a *Adapter) Transport() string {
	if n := a.works.Load(); n > 0 {
		return a.Candidates[n-1].Transport
	}
	return ""
}

// forClient returns the part of err that a client may see.
func forClient(err error) string {
	if e, ok := errors.AsType[*bridge.Error](err); ok {
		return e.Public
	}
	return "it could not be reached"
}

// forLog returns the part of err that only the log may show, or nil.
func forLog(err error) error {
	e, ok := errors.AsType[*bridge.Error](err)
	switch {
	case ok && errors.Is(e.Err, ErrOtherTransport):
		return nil // the text for clients has the status, and there is nothing more
	case ok && e.Err != nil:
		return e.Err
	case ok:
		return e.Kind
	}
	return err
}

// joined returns both errors as one. It leaves out nil errors.
func joined(one, other error) error {
	switch {
	case one == nil:
		return other
	case other == nil:
		return one
	}
	return fmt.Errorf("%w; %w", one, other)
}
