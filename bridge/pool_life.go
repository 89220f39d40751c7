package bridge

import (
	"context"
	"sync"
	"time"
)

// room makes room for one more connection of a principal's. The one that was
// not used for longest goes; when all are in use there is none. The caller holds
// p.mu.
func (p *pool) room(principal, group string) error {
	full := func(most int, which func(*lower) bool) bool {
		n := 0
		for _, l := range p.lowers {
			if which(l) {
				n++
			}
		}
		if n < most {
			return false
		}
		oldest := p.oldest(which)
		if oldest == nil {
			return true
		}
		p.drop(oldest)
		return n > most
	}
	limited := func(what string, most int) error {
		return &Error{Server: p.r.o.Name, Kind: ErrUnavailable, Err: ErrOverloaded, Public: limitText(what, most)}
	}
	// Without access rules everybody is one principal: only each lane's own
	// connections count then, and all together.
	mine := func(l *lower) bool {
		return l.group == group || principal != "" && l.lane.caller.Principal == principal
	}
	if full(maxProfiles, mine) {
		return limited("it has too many connections for clients of different capabilities", maxProfiles)
	}
	if most := int(p.r.portions.most); most > 0 && principal != "" && full(most, mine) {
		return p.r.portions.refusal(p.r.o.Name)
	}
	if full(int(p.r.maxLanes), func(*lower) bool { return true }) {
		return limited("it has too many connections", int(p.r.maxLanes))
	}
	return nil
}

// yield gives up the connection that was not used for longest, for one that is
// needed; with own only one of the principal's. It reports false when all are in
// use.
func (p *pool) yield(principal string, own bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	oldest := p.oldest(func(l *lower) bool { return !own || l.lane.caller.Principal == principal })
	if oldest == nil || p.closed {
		return false
	}
	p.drop(oldest)
	return true
}

// oldest returns the connection of some that was not used for longest, or nil
// when all are in use. The caller holds p.mu.
func (p *pool) oldest(which func(*lower) bool) (l *lower) {
	for _, other := range p.lowers {
		if which(other) && other.users == 0 && (l == nil || other.use < l.use) {
			l = other
		}
	}
	return l
}

// leave ends what enter began.
func (p *pool) leave(l *lower) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.users--
	if l.users > 0 || p.closed {
		return
	}
	if l.once || p.lowers[l.key] != l {
		p.shut(l)
		return
	}
	l.used = time.Now()
	if p.idle > 0 && l.timer == nil {
		l.timer = time.AfterFunc(p.idle, func() { p.doze(l) })
	}
}

// doze closes a connection that nobody uses. It looks again later when somebody
// did in the meantime: cheaper than a timer that each call resets.
func (p *pool) doze(l *lower) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.timer = nil
	if p.closed || l.users > 0 || p.lowers[l.key] != l {
		return
	}
	if left := p.idle - time.Since(l.used); left > 0 {
		l.timer = time.AfterFunc(left, func() { p.doze(l) })
		return
	}
	p.drop(l)
}

// drop lets no more requests find the connection, which is closed when nobody
// uses it any more. The caller holds p.mu.
func (p *pool) drop(l *lower) {
	if p.lowers[l.key] == l {
		delete(p.lowers, l.key)
	}
	if l.users == 0 && !p.closed {
		p.shut(l)
	}
}

// shut closes a connection that no request finds. The caller holds p.mu.
func (p *pool) shut(l *lower) {
	if _, open := p.all[l]; !open {
		return
	}
	delete(p.all, l)
	left := p.r.leave.begin()
	p.wg.Go(func() {
		defer left()
		l.close(p.r.b.force)
	})
}

// forget drops a connection whose server came back another, or not at all.
func (p *pool) forget(l *lower) {
	l.circle.learn(nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(l)
}

// Close ends all connections.
func (p *pool) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	all := p.all
	p.all, p.lowers = map[*lower]struct{}{}, map[string]*lower{}
	for l := range all {
		if l.timer != nil {
			l.timer.Stop()
		}
	}
	p.mu.Unlock()
	var wg sync.WaitGroup
	for l := range all {
		wg.Go(func() { l.close(ctx) })
	}
	wg.Wait()
	p.wg.Wait()
	p.mu.Lock()
	waiting := p.parked
	p.parked = map[string]*parked{}
	p.mu.Unlock()
	for _, c := range waiting {
		c.forgotten()
	}
	return nil
}

// hold counts one more use of a connection that is in use.
func (p *pool) hold(l *lower) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.users++
}
