package placement

import (
	"context"
	"errors"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/server/internal/peer"
	"github.com/mcp-bridge/bridge/internal/cluster"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Shared implements bridge.Places.
func (h *Homes) Shared(server string, forward []bridge.Forward, all bool, here bridge.Adapter) bridge.Adapter {
	p := &homeAdapter{h, server, forward, all, here}
	if b, ok := here.(bridge.BoundsOpenings); ok {
		return &bounded{p, b.BoundsOpenings()}
	}
	return p
}

// bounded is placed, of an adapter that bounds its openings.
type bounded struct {
	*homeAdapter
	wait time.Duration
}

// BoundsOpenings implements bridge.BoundsOpenings.
func (b *bounded) BoundsOpenings() time.Duration { return b.wait }

// homeAdapter opens the connections to a server that sessions share, at their home.
type homeAdapter struct {
	h       *Homes
	server  string
	forward []bridge.Forward
	all     bool
	here    bridge.Adapter
}

// OfSessions begins what connections for sessions have in common, unless all share one.
const OfSessions = "sessions\x00"

// alike is what the sessions have in common that share a connection.
func (p *homeAdapter) alike(from *bridge.Caller) string {
	if p.all {
		return ""
	}
	alike := OfSessions + from.Principal + "\x00" + from.Revision + "\x00" + string(era.CanonicalCapabilities(rawjson.Delete(from.Capabilities, "tasks")))
	for _, f := range bridge.Lasting(p.forward) {
		for _, value := range from.Header[f.To] {
			alike += "\x00" + f.To + ":" + value
		}
	}
	return alike
}

// Open implements bridge.Adapter. It waits while the home is about to stop, or may be dead.
func (p *homeAdapter) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	h, alike := p.h, p.alike(from)
	until := time.Now().Add(h.patience())
	for {
		m, c, done, err := h.hold(ctx, p.server, alike, homeLinger)
		if err == nil && c != nil {
			up, err := p.here.Open(ctx, from, rest)
			if err != nil {
				done()
				return nil, err
			}
			return p.homely(up, c, rest, done), nil
		}
		if err == nil {
			err = h.o.Peers.AskHome(ctx, m, p.server, alike)
		}
		if err == nil {
			var up bridge.Upstream
			if up, err = p.away(ctx, m, alike, from, rest); !errors.Is(err, peer.ErrElsewhere) {
				return up, err
			}
		}
		if _, refused := errors.AsType[*bridge.Error](err); refused {
			return nil, err
		}
		late := time.Now()
		if now, ok := h.o.Node.Member(m.ID); errors.Is(err, peer.ErrElsewhere) && ok && now.Draining {
			late = late.Add(-h.o.Drain)
		}
		if late.After(until) || backoff.For(ctx, homeAgain) != nil {
			return nil, unreachable(p.server, err)
		}
	}
}

// homely is a connection at its home, which it is for as long as the connection is open.
func (p *homeAdapter) homely(up bridge.Upstream, c *claim, rest bridge.Client, done func()) bridge.Upstream {
	stop := context.AfterFunc(c.lost, func() {
		rest.Gone(&bridge.Error{Server: p.server, Kind: bridge.ErrLost, Err: peer.ErrElsewhere, Public: movedText + "; whether it acted on the request is unknown"})
	})
	return &homely{up, c, func() {
		stop()
		done()
	}}
}

type homely struct {
	bridge.Upstream
	c   *claim
	end func()
}

// Call makes a call. A ping is none: its loss would end a connection that is good yet.
func (u *homely) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Method != "ping" && r.Method != "server/discover" {
		if err := u.c.sure(ctx); err != nil {
			return nil, err
		}
	}
	return u.Upstream.Call(ctx, r)
}

// Notify sends a notification.
func (u *homely) Notify(ctx context.Context, r *bridge.Request) error {
	if err := u.c.sure(ctx); err != nil {
		return err
	}
	return u.Upstream.Notify(ctx, r)
}

// Close closes the connection.
func (u *homely) Close(ctx context.Context) error {
	defer u.end()
	return u.Upstream.Close(ctx)
}

// Attributes implements bridge.Attributing.
func (u *homely) Attributes() bool {
	a, ok := u.Upstream.(bridge.Attributing)
	return ok && a.Attributes()
}

// TakesEdits implements bridge.TakesEdits: servers that a program has made have no home.
func (*homely) TakesEdits() {}

// ListensToChanges implements bridge.ListensToChanges.
func (u *homely) ListensToChanges() bool {
	l, ok := u.Upstream.(bridge.ListensToChanges)
	return !ok || l.ListensToChanges()
}

// away opens an inner session at the home.
func (p *homeAdapter) away(ctx context.Context, m cluster.Member, alike string, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	w := TunnelWay{Server: p.server, At: m.ID, HTTP: p.h.o.Peers.Way(m), Node: p.h.o.Node, out: p.h.out, Log: p.h.o.Log, MaxMessage: p.h.o.MaxMessage}
	w.HTTP.Headers = peer.LaneHeader(from.Principal, p.server, alike)
	l, err := OpenTunnel(ctx, w, from, rest)
	if err != nil {
		return nil, err
	}
	return &elsewhere{l}, nil
}

// elsewhere is a part in a connection that lives at another instance.
type elsewhere struct{ *Tunnel }

// LivesElsewhere implements bridge.LivesElsewhere.
func (*elsewhere) LivesElsewhere() {}

// Attributes implements bridge.Attributing.
func (*elsewhere) Attributes() bool { return true }
