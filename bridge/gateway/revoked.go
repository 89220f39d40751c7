package gateway

import (
	"context"
	"sync"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/list"
)

// errRevoked is the error for calls and sessions of a principal whose key was removed.
var errRevoked = &bridge.Error{Kind: bridge.ErrRevoked, Public: "the caller's key is no longer valid"}

// principals holds the calls of stateless clients by principal, and the revoked principals. Its zero value is empty.
// Its methods may be called concurrently.
type principals struct {
	mu    sync.Mutex                // guards the rest, and prev and next of calls
	calls map[string]*principalCall // the newest call of each principal
	out   map[string]struct{}       // revoked principals
}

// principalCall is a call or a subscription of a stateless client.
type principalCall struct {
	// Relists is called when the principal's lists of these kinds may have changed at the server of that name. An empty
	// name means all servers. Relists is nil for a call.
	Relists func(server string, kinds ...list.Kind)

	stop       context.CancelCauseFunc
	prev, next *principalCall // of the same principal
}

// Revoke refuses the principal's calls until Restore, ends its calls in flight, and returns their number.
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

// Restore ends Revoke.
func (p *principals) Restore(principal string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.out, principal)
}

// Relist calls Relists of each call for whose principal of returns true. It holds no lock meanwhile, so of may call
// methods of p.
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

// Check returns errRevoked if the principal is revoked.
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

// Enter registers a call of a stateless client. Revoke ends the call by stop. After a nil error, the caller must call
// Leave.
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

// Leave removes a call that Enter registered.
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
