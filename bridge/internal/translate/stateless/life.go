package stateless

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lower"
)

// maxOwn bounds the connections of a principal to a server. It equals the limit on parked calls.
const maxOwn = lower.MaxParked

// room makes room for one more connection of a principal. room drops the least recently used connection, or returns
// an error if all are in use. The caller holds p.mu.
func (p *Pool) room(principal, group, key string) error {
	full := func(most int, which func(*slot) bool) bool {
		n := 0
		for _, all := range p.slots {
			for _, s := range all {
				if which(s) {
					n++
				}
			}
		}
		for ; n >= most; n-- { // several, if the limit was lowered
			oldest := p.oldest(which)
			if oldest == nil {
				return true
			}
			p.drop(oldest)
		}
		return false
	}
	limited := func(what string, most int) error {
		return &bridge.Error{
			Server: p.o.Legacy.Name,
			Kind:   bridge.ErrUnavailable,
			Err:    bridge.ErrOverloaded,
			Public: bridge.OverLimit(what, most),
		}
	}
	// Without access rules all clients are one principal. Then the limit holds for each handle and for all
	// together.
	mine := func(s *slot) bool {
		return s.group == group || principal != "" && s.line.Caller().Principal == principal
	}
	if len(p.slots[key]) == 0 && !p.roomForKey(mine) {
		return limited("it has too many connections for clients of different capabilities", maxProfiles)
	}
	if principal != "" && full(maxOwn, mine) {
		return limited("one caller has too many connections to it", maxOwn)
	}
	if most := int(p.o.Shares.Most()); most > 0 && principal != "" && full(most, mine) {
		return p.o.Shares.Refusal(p.o.Legacy.Name)
	}
	if most := int(p.o.Budget.Most()); full(most, func(*slot) bool { return true }) {
		return limited("it has too many connections", most)
	}
	return nil
}

// roomForKey makes room for one more set of capabilities. roomForKey drops the connections of the least recently used
// set, or reports false if all are in use. The caller holds p.mu.
func (p *Pool) roomForKey(which func(*slot) bool) bool {
	n, oldest, use := 0, "", uint64(0)
	for key, all := range p.slots {
		if !which(all[0]) {
			continue
		}
		n++
		used, latest := false, uint64(0)
		for _, s := range all {
			used, latest = used || s.users > 0, max(latest, s.use)
		}
		if !used && (oldest == "" || latest < use) {
			oldest, use = key, latest
		}
	}
	if n < maxProfiles {
		return true
	}
	for _, s := range slices.Clone(p.slots[oldest]) {
		p.drop(s)
	}
	return oldest != "" && n == maxProfiles
}

// Yield drops the least recently used connection to make room for another connection. With own, only connections of
// the principal count. Yield reports false if all are in use.
func (p *Pool) Yield(principal string, own bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	oldest := p.oldest(func(s *slot) bool { return !own || s.line.Caller().Principal == principal })
	if oldest == nil || p.closed {
		return false
	}
	p.drop(oldest)
	return true
}

// CloseUnused drops the connections that no request uses.
func (p *Pool) CloseUnused() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, all := range p.slots {
		for _, s := range all {
			if s.users == 0 {
				defer p.drop(s)
			}
		}
	}
}

// oldest returns the least recently used connection that which accepts, or nil if all are in use. The caller
// holds p.mu.
func (p *Pool) oldest(which func(*slot) bool) (s *slot) {
	for _, all := range p.slots {
		for _, other := range all {
			if which(other) && other.users == 0 && (s == nil || other.use < s.use) {
				s = other
			}
		}
	}
	return s
}

// leave ends a use that enter began, and serves waiting calls.
func (p *Pool) leave(s *slot, call bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.users--
	if call {
		s.calls--
	}
	if p.queue.Len() > 0 {
		defer p.serve()
	}
	if s.users > 0 || p.closed {
		return
	}
	if s.once || !p.found(s) {
		p.shut(s)
		return
	}
	s.used = time.Now()
	if p.o.Idle > 0 && s.timer == nil {
		s.timer = time.AfterFunc(p.o.Idle, func() { p.closeIdle(s) })
	}
}

// closeIdle closes an idle connection. If there were uses since the timer started, closeIdle sets the timer again,
// which is cheaper than a reset with each call.
func (p *Pool) closeIdle(s *slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.timer = nil
	if p.closed || s.users > 0 || !p.found(s) {
		return
	}
	if left := p.o.Idle - time.Since(s.used); left > 0 {
		s.timer = time.AfterFunc(left, func() { p.closeIdle(s) })
		return
	}
	p.drop(s)
}

// found reports whether requests find the connection. The caller holds p.mu.
func (p *Pool) found(s *slot) bool { return slices.Contains(p.slots[s.key], s) }

// drop hides the connection from requests. The connection is closed after its last use. The caller holds p.mu.
func (p *Pool) drop(s *slot) {
	left := slices.DeleteFunc(p.slots[s.key], func(o *slot) bool { return o == s })
	if p.slots[s.key] = left; len(left) == 0 {
		delete(p.slots, s.key)
	}
	if s.users == 0 && !p.closed {
		p.shut(s)
	}
}

// shut closes a hidden connection. The caller holds p.mu.
func (p *Pool) shut(s *slot) {
	if _, open := p.all[s]; !open {
		return
	}
	delete(p.all, s)
	closed := p.o.Budget.Closing()
	p.wg.Go(func() {
		defer closed()
		s.lower.Close(p.o.Force)
	})
}

// Close closes all connections.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	all := p.all
	p.all, p.slots = map[*slot]struct{}{}, map[string][]*slot{}
	for s := range all {
		if s.timer != nil {
			s.timer.Stop()
		}
	}
	p.serve()
	p.mu.Unlock()
	var wg sync.WaitGroup
	for s := range all {
		wg.Go(func() { s.lower.Close(ctx) })
	}
	wg.Wait()
	p.wg.Wait()
	p.legacy.Close()
	return nil
}

// Hold counts one more call of a connection in use.
func (s *slot) Hold() {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.users++
	s.calls++
}

// Release ends what Hold began.
func (s *slot) Release() { s.p.leave(s, true) }

// Suspect records whether the server may ask about a call that has ended. If not, waiting calls are served.
func (s *slot) Suspect(yes bool) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if s.suspect = yes; !yes {
		s.p.serve()
	}
}

// Retire drops a connection whose unattributed questions may belong to ended calls, unless the share setting chose
// it. Waiting calls get another connection.
func (s *slot) Retire() {
	if s.p.o.Sharing != Apart {
		return
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.p.drop(s)
	s.p.serve()
}

// Gone drops a connection whose server has ended or was replaced.
func (s *slot) Gone() {
	s.identity.learn(nil)
	s.lose()
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.p.drop(s)
}
