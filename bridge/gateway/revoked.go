package gateway

import (
	"context"
	"sync"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/list"
)

// errRevoked is why everything of a principal ends whose key was taken away.
var errRevoked = &bridge.Error{Kind: bridge.ErrRevoked, Public: "the caller's key is not valid any more"}

// principals are those whose key was taken away. The zero value has none. Methods may be
// called concurrently.
type principals struct {
	mu    sync.Mutex                // guards the rest, and what it points at
	calls map[string]*principalCall // of clients without sessions, by principal; the newest
	out   map[string]struct{}       // principals whose key was taken away
}

// principalCall is a call of a client without a session.
type principalCall struct {
	// Relists is called when lists of these kinds may be others for its principal, of all
	// servers or of the one of that name; nil for a call that need not know.
	Relists func(server string, kinds ...list.Kind)

	stop       context.CancelCauseFunc
	prev, next *principalCall // of the same principal
}

// Revoke keeps a principal out until Restore, and stops the calls of its clients without
// sessions. It returns how many these are.
func (p *principals) Revoke(principal string) (calls int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out == nil {
		p.out = map[string]struct{}{}
	}
	p.out[principal] = struct{}{}
	for c := p.calls[principal]; c != nil; c = c.next {
		c.stop(errRevoked)
		calls++
	}
	return calls
}

// Restore lets a principal in again.
func (p *principals) Restore(principal string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.out, principal)
}

// Relist tells the calls of principals of whom of reports true what Relists takes. It may
// ask p.
func (p *principals) Relist(of func(principal string) bool, server string, kinds ...list.Kind) {
	tell := map[string][]func(string, ...list.Kind){}
	p.mu.Lock()
	for principal, c := range p.calls {
		for ; c != nil; c = c.next {
			if c.Relists != nil {
				tell[principal] = append(tell[principal], c.Relists)
			}
		}
	}
	p.mu.Unlock()
	for principal, all := range tell {
		if of(principal) {
			for _, f := range all {
				f(server, kinds...)
			}
		}
	}
}

// Check returns errRevoked if a principal is kept out.
func (p *principals) Check(principal string) error {
	if principal == "" {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.check(principal)
}

// check is Check. The caller holds p.mu.
func (p *principals) check(principal string) error {
	if _, out := p.out[principal]; out {
		return errRevoked
	}
	return nil
}

// Enter admits a call of a client without a session, which stop ends. Every success needs
// a Leave.
func (p *principals) Enter(c *principalCall, principal string, stop context.CancelCauseFunc) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.check(principal); err != nil {
		return err
	}
	if p.calls == nil {
		p.calls = map[string]*principalCall{}
	}
	c.stop = stop
	if c.next = p.calls[principal]; c.next != nil {
		c.next.prev = c
	}
	p.calls[principal] = c
	return nil
}

// Leave ends what Enter began.
func (p *principals) Leave(c *principalCall, principal string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.next != nil {
		c.next.prev = c.prev
	}
	switch {
	case c.prev != nil:
		c.prev.next = c.next
	case c.next != nil:
		p.calls[principal] = c.next
	default:
		delete(p.calls, principal)
	}
	c.prev, c.next = nil, nil
}
