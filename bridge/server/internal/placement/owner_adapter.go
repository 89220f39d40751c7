package placement

import (
	"context"
	"errors"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/server/internal/peer"
	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/cluster"
)

// Shared implements bridge.Places.
func (o *Owners) Shared(server string, forward []bridge.Forward, all bool, here bridge.Adapter) bridge.Adapter {
	p := &ownerAdapter{o, server, forward, all, here}
	if b, ok := here.(bridge.BoundsOpenings); ok {
		return &bounded{p, b.BoundsOpenings()}
	}
	return p
}

// bounded is an ownerAdapter over an adapter that bounds its openings.
type bounded struct {
	*ownerAdapter
	wait time.Duration
}

// BoundsOpenings implements bridge.BoundsOpenings.
func (b *bounded) BoundsOpenings() time.Duration { return b.wait }

// ownerAdapter opens the connections that sessions share, at their owner.
type ownerAdapter struct {
	h       *Owners
	server  string
	forward []bridge.Forward
	all     bool
	local   bridge.Adapter
}

// SessionAffinity begins the affinity keys of connections for sessions, unless all sessions share one.
const SessionAffinity = "sessions\x00"

// affinityKey returns the affinity key of a session: sessions with the same key share a connection.
func (o *ownerAdapter) affinityKey(from *bridge.Caller) string {
	if o.all {
		return ""
	}
	key, _ := bridge.SessionKey(from, o.forward)
	return SessionAffinity + string(key)
}

// Open implements bridge.Adapter. Open waits while the owner is about to stop, or may be dead.
func (o *ownerAdapter) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	h, affinity := o.h, o.affinityKey(from)
	until := time.Now().Add(h.deadAfter())
	for {
		m, c, done, err := h.locate(ctx, connectionKey{o.server, affinity}, tunnelLinger, false)
		if err == nil && c != nil {
			up, err := o.local.Open(ctx, from, rest)
			if err != nil {
				done()
				return nil, err
			}
			return o.owned(up, c, rest, done), nil
		}
		if err == nil {
			err = h.o.Peers.AskOwner(ctx, m, o.server, affinity)
		}
		if err == nil {
			var up bridge.Upstream
			if up, err = o.openTunnel(ctx, m, affinity, from, rest); !errors.Is(err, peer.ErrElsewhere) {
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
		if late.After(until) || backoff.For(ctx, ownerRetry) != nil {
			return nil, unreachable(o.server, err)
		}
	}
}

// owned wraps a connection that this instance owns. The open connection counts as a use of its claim.
func (o *ownerAdapter) owned(up bridge.Upstream, c *claim, rest bridge.Client, done func()) bridge.Upstream {
	stop := context.AfterFunc(c.lost, func() {
		rest.Gone(&bridge.Error{
			Server: o.server,
			Kind:   bridge.ErrLost,
			Err:    peer.ErrElsewhere,
			Public: movedText + "; whether it acted on the request is unknown",
		})
	})
	return &ownedUpstream{up, c, func() {
		stop()
		done()
	}}
}

// ownedUpstream is a shared connection that this instance owns.
type ownedUpstream struct {
	bridge.Upstream
	c   *claim
	end func()
}

// Call makes a call. Call checks no lease for a ping: a failed ping would end a good connection.
func (o *ownedUpstream) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Method != "ping" && r.Method != "server/discover" {
		if err := o.c.checkLease(ctx); err != nil {
			return nil, err
		}
	}
	return o.Upstream.Call(ctx, r)
}

func (o *ownedUpstream) Notify(ctx context.Context, r *bridge.Request) error {
	if err := o.c.checkLease(ctx); err != nil {
		return err
	}
	return o.Upstream.Notify(ctx, r)
}

func (o *ownedUpstream) Close(ctx context.Context) error {
	defer o.end()
	return o.Upstream.Close(ctx)
}

// Attributes implements bridge.Attributing.
func (o *ownedUpstream) Attributes() bool {
	a, ok := o.Upstream.(bridge.Attributing)
	return ok && a.Attributes()
}

// TakesEdits implements bridge.TakesEdits. Only connections to servers inside the program take no edits, and those
// have no owner.
func (*ownedUpstream) TakesEdits() {}

func (o *ownerAdapter) openTunnel(ctx context.Context, m cluster.Member, affinity string, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	t := TunnelOptions{
		Server:     o.server,
		At:         m.ID,
		HTTP:       o.h.o.Peers.OwnerTunnel(m),
		Node:       o.h.o.Node,
		out:        o.h.out,
		Log:        o.h.o.Log,
		MaxMessage: o.h.o.MaxMessage,
	}
	t.HTTP.Headers = peer.OwnerTunnelHeaders(from.Principal, o.server, affinity)
	l, err := OpenTunnel(ctx, t, from, rest)
	if err != nil {
		return nil, err
	}
	return &remoteUpstream{l}, nil
}

// remoteUpstream is a tunnel to a shared connection of another instance.
type remoteUpstream struct{ *Tunnel }

// LivesElsewhere implements bridge.LivesElsewhere.
func (*remoteUpstream) LivesElsewhere() {}

// Attributes implements bridge.Attributing.
func (*remoteUpstream) Attributes() bool { return true }
