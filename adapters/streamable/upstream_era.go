package streamable

import (
	"context"
	"errors"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/era"
)

// Open opens a connection on behalf of from. It first tries the server's known era, or else the era of
// from. If the server seems to speak HTTP+SSE, the error wraps remote.ErrOtherTransport.
func (u *Upstream) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	first, other := u.eras.Order(from)
	if first == conn.EraModern {
		return u.modernFirst(ctx, from, rest, other)
	}
	return u.legacyFirst(ctx, from, rest, other)
}

// legacyFirst opens a connection by initialize. If the server refuses that and other is set, it tries
// the modern era.
func (u *Upstream) legacyFirst(ctx context.Context, from *bridge.Caller, rest bridge.Client, other bool) (bridge.Upstream, error) {
	w, unknown, err := u.initialize(ctx, from, rest)
	if err == nil {
		return w, nil
	}
	if !other || ctx.Err() != nil || !errors.Is(err, bridge.ErrNoHandshake) && !errors.Is(err, remote.ErrOtherTransport) {
		return nil, err
	}
	s, undiscovered, also := u.discover(ctx, from, rest)
	if also != nil && undiscovered && unknown {
		s, also = u.list(ctx, from, rest)
	}
	if also != nil {
		u.o.Log.Debug("the server is no modern one either", "err", also)
		return nil, err
	}
	u.eras.Learn(conn.EraLegacy, false)
	return s, nil
}

// modernFirst opens a connection by server/discover. If the answer is none of a modern server, and
// other is set, it tries the legacy era (protocol.md C2).
func (u *Upstream) modernFirst(ctx context.Context, from *bridge.Caller, rest bridge.Client, other bool) (bridge.Upstream, error) {
	s, undiscovered, err := u.discover(ctx, from, rest)
	switch {
	case err == nil:
		return s, nil
	case undiscovered && !other:
		if s, err = u.list(ctx, from, rest); err != nil {
			return nil, err
		}
		return s, nil
	case !other || ctx.Err() != nil || !errors.Is(err, errNotModern):
		return nil, err
	}
	w, unknown, err := u.initialize(ctx, from, rest)
	if err == nil {
		u.eras.Learn(conn.EraModern, false)
		return w, nil
	}
	if !undiscovered || !unknown || ctx.Err() != nil {
		return nil, err
	}
	s, also := u.list(ctx, from, rest)
	if also != nil {
		return nil, err
	}
	u.eras.Learn(conn.EraLegacy, false)
	return s, nil
}

// initialize opens a connection to a legacy server. unknown reports whether the server answered with
// 404 and "method not found".
func (u *Upstream) initialize(ctx context.Context, from *bridge.Caller, rest bridge.Client) (w *wire, unknown bool, err error) {
	w = newWire(ctx, u, from, rest)
	w.server, err = conn.Handshake(ctx, w.Conn, from, u.o.Revision)
	if err == nil {
		err = w.opened(ctx)
	}
	if err != nil {
		_ = w.Close(context.Background()) // deletes the session even if ctx has ended
		return nil, w.unknownInitialize.Load(), u.name.Unopened(err)
	}
	u.eras.Learn(conn.EraLegacy, true)
	return w, false, nil
}

// errNotModern is the cause of an error if the response is none of a modern server. Only this cause
// leads to initialize.
var errNotModern = errors.New("no answer of a modern server")

// discover opens a connection to a modern server by server/discover. If the server seems to be a
// legacy one, the error wraps errNotModern. undiscovered reports whether the answer is that of a
// modern server without the method.
func (u *Upstream) discover(ctx context.Context, from *bridge.Caller, rest bridge.Client) (s *stateless, undiscovered bool, err error) {
	s = newStateless(ctx, u, from, rest)
	g, v, err := conn.Discover(ctx, s.Conn, from)
	if err == nil {
		err = s.notModern(v)
	}
	if err == nil {
		err = s.opened(g)
	}
	if err != nil {
		_ = s.Close(context.Background()) // does not wait for the server
		return nil, s.fault().undiscovered(), u.name.Unopened(err)
	}
	return s, false, nil
}

// list opens a connection to a server that has neither server/discover nor initialize (protocol.md
// C2.4).
func (u *Upstream) list(ctx context.Context, from *bridge.Caller, rest bridge.Client) (*stateless, error) {
	s := newStateless(ctx, u, from, rest)
	s.undiscovered = true
	g, err := conn.DiscoverByListing(ctx, s.Conn, from)
	switch {
	case err == nil && g == nil:
		err = u.name.Unavailable("it knows neither server/discover nor initialize, and lists nothing", nil)
	case err == nil:
		err = s.opened(g)
	}
	if err != nil {
		_ = s.Close(context.Background())
		return nil, u.name.Unopened(err)
	}
	return s, nil
}

// notModern returns why a verdict does not show a modern server, or nil.
func (s *stateless) notModern(v conn.Verdict) error {
	u := s.a
	switch f := s.fault(); {
	case v == conn.SaysModern:
		return nil
	case v == conn.SaysLegacy:
		return u.name.Unavailable("it speaks legacy revisions of the protocol only", errNotModern)
	case f.modern(): // C2.3: only a modern server refuses the request for that reason
		return u.name.Unavailable("it finds fault with server/discover: "+f.text, nil)
	}
	return u.name.Unavailable("it does not speak revision "+era.LatestModern+" of the protocol", errNotModern)
}
