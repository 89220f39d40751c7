package gateway

import (
	"context"

	"github.com/mcp-bridge/bridge/bridge"
)

// revoked is why everything of a principal ends whose key was taken away.
var revoked = &bridge.Error{Kind: bridge.ErrRevoked, Public: "the caller's key is not valid any more"}

// Revoke ends what a principal has, whose key was taken away: its sessions with
// their streams, and of its clients without sessions the calls under way, those
// that wait for their answers, and the subscriptions. Nothing of it begins any
// more until Restore. Other principals are not disturbed.
func (b *Gateway) Revoke(principal string) {
	b.door.revoke(principal)
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
	for _, r := range b.routes {
		r.pool.revoke(principal)
	}
	b.log.Info("what a caller had was ended: its key was taken away", "principal", principal, "sessions", len(ended))
}

// Restore lets a principal in again that Revoke has put out.
func (b *Gateway) Restore(principal string) {
	b.door.mu.Lock()
	defer b.door.mu.Unlock()
	delete(b.door.out, principal)
}

// revoke keeps a principal out, and ends what its clients without sessions wait
// for.
func (d *door) revoke(principal string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.out == nil {
		d.out = map[string]struct{}{}
	}
	d.out[principal] = struct{}{}
	for c := d.guests[principal]; c != nil; c = c.next {
		c.stop(revoked)
	}
}

// barred returns why a principal is kept out, or nil.
func (d *door) barred(principal string) error {
	if principal == "" {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.isOut(principal)
}

// isOut is barred. The caller holds d.mu.
func (d *door) isOut(principal string) error {
	if _, out := d.out[principal]; out {
		return revoked
	}
	return nil
}

// come enters a call of a client without a session, which stop ends.
// Every success needs a gone.
func (d *door) come(c *guestCall, principal string, stop context.CancelCauseFunc) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.isOut(principal); err != nil {
		return err
	}
	if d.guests == nil {
		d.guests = map[string]*guestCall{}
	}
	c.stop = stop
	if c.next = d.guests[principal]; c.next != nil {
		c.next.prev = c
	}
	d.guests[principal] = c
	return nil
}

// gone ends what come began.
func (d *door) gone(c *guestCall, principal string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.next != nil {
		c.next.prev = c.prev
	}
	switch {
	case c.prev != nil:
		c.prev.next = c.next
	case c.next != nil:
		d.guests[principal] = c.next
	default:
		delete(d.guests, principal)
	}
	c.prev, c.next = nil, nil
}

// revoke forgets the calls of a principal that wait for their clients.
func (p *pool) revoke(principal string) {
	p.mu.Lock()
	var its []*parked
	for _, c := range p.parked {
		if c.principal() == principal {
			its = append(its, c)
		}
	}
	p.mu.Unlock()
	for _, c := range its {
		c.drop(revoked)
	}
}
