package gateway

import (
	"context"
	"sync"

	"github.com/mcp-bridge/bridge/bridge"
)

// revocations keep out the callers whose key was taken away, and end what their
// stateless clients wait for.
type revocations struct {
	mu    sync.Mutex                // guards the rest, and what it points at
	calls map[string]*statelessCall // of clients without sessions, by principal; the newest
	out   map[string]struct{}       // principals whose key was taken away
}

// revoked is why everything of a principal ends whose key was taken away.
var revoked = &bridge.Error{Kind: bridge.ErrRevoked, Public: "the caller's key is not valid any more"}

// Revoke ends what a principal has, whose key was taken away: its sessions with
// their streams, and of its clients without sessions the calls under way, those
// that wait for their answers, and the subscriptions. Nothing of it begins any
// more until Restore. Other principals are not disturbed.
func (b *Gateway) Revoke(principal string) {
	b.revoked.revoke(principal)
	b.mu.Lock()
	var ended []*Session
	for s := range b.sessions {
		if s.caller.Principal == principal {
			ended = append(ended, s)
		}
	}
	b.mu.Unlock()
	for _, s := range ended {
		s.End(revoked)
	}
	for _, r := range b.servers {
		r.pool.Revoke(principal, revoked)
	}
	b.log.Info("what a caller had was ended: its key was taken away", "principal", principal, "sessions", len(ended))
}

// Restore lets a principal in again that Revoke has put out.
func (b *Gateway) Restore(principal string) {
	b.revoked.mu.Lock()
	defer b.revoked.mu.Unlock()
	delete(b.revoked.out, principal)
}

// revoke keeps a principal out, and ends what its clients without sessions wait
// for.
func (d *revocations) revoke(principal string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.out == nil {
		d.out = map[string]struct{}{}
	}
	d.out[principal] = struct{}{}
	for c := d.calls[principal]; c != nil; c = c.next {
		c.stop(revoked)
	}
}

// barred returns why a principal is kept out, or nil.
func (d *revocations) barred(principal string) error {
	if principal == "" {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.isOut(principal)
}

// isOut is barred. The caller holds d.mu.
func (d *revocations) isOut(principal string) error {
	if _, out := d.out[principal]; out {
		return revoked
	}
	return nil
}

// come enters a call of a client without a session, which stop ends.
// Every success needs a gone.
func (d *revocations) come(c *statelessCall, principal string, stop context.CancelCauseFunc) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.isOut(principal); err != nil {
		return err
	}
	if d.calls == nil {
		d.calls = map[string]*statelessCall{}
	}
	c.stop = stop
	if c.next = d.calls[principal]; c.next != nil {
		c.next.prev = c
	}
	d.calls[principal] = c
	return nil
}

// gone ends what come began.
func (d *revocations) gone(c *statelessCall, principal string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.next != nil {
		c.next.prev = c.prev
	}
	switch {
	case c.prev != nil:
		c.prev.next = c.next
	case c.next != nil:
		d.calls[principal] = c.next
	default:
		delete(d.calls, principal)
	}
	c.prev, c.next = nil, nil
}

// Allowed says whether a principal may use the server of that name, which is as
// in Initialize. The error is ErrUnknownServer, or of the kind ErrDenied.
func (b *Gateway) Allowed(server, principal string) error {
	if err := b.revoked.barred(principal); err != nil {
		return err
	}
	r := b.server(server)
	switch {
	case server != "" && r == nil:
		return bridge.ErrUnknownServer
	case server == "" && len(b.servers) == 1:
		r = b.servers[0]
	case server == "":
		for _, one := range b.servers {
			if one.filter.Serves(principal) {
				return nil
			}
		}
		return &bridge.Error{Kind: bridge.ErrDenied, Public: "this caller may use no server"}
	}
	if !r.filter.Serves(principal) {
		return &bridge.Error{Server: r.o.Name, Kind: bridge.ErrDenied, Public: "this caller may not use it"}
	}
	return nil
}
