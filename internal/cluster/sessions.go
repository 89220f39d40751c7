package cluster

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge/session"
)

// Put implements session.Keeper. While the store is unreachable, Put succeeds and the record is written later.
func (n *Node) Put(ctx context.Context, h session.Held) (session.Held, error) {
	n.mu.Lock()
	if n.full() {
		n.mu.Unlock()
		return session.Held{}, session.ErrFull
	}
	e := &entry{Held: h, extended: time.Now()}
	if !h.Bound {
		e.Owner = n.o.Self.ID
	}
	n.add(e)
	n.mu.Unlock()
	if h.Bound {
		return h, nil
	}
	var err error = session.ErrUnavailable
	var put session.Held
	if n.reaches() {
		one, cancel := context.WithTimeout(ctx, opTimeout)
		defer cancel()
		put, err = n.o.Store.Put(one, h)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case err == nil:
		if put.Epoch > e.Epoch { // otherwise settle was faster
			e.Owner, e.Epoch = put.Owner, put.Epoch
		}
	case errors.Is(err, session.ErrUnavailable):
		e.doubts++
		wake(n.writeNow)
	default:
		n.remove(e)
		return session.Held{}, err
	}
	return e.Held, nil
}

// Save implements session.Keeper. writeBehind writes the record later.
func (n *Node) Save(_ context.Context, h session.Held) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if e := n.held[h.Key]; e != nil {
		if e.Record, e.dirty = h.Record, !h.Bound; e.dirty {
			wake(n.writeNow)
		}
	}
	return nil
}

// Release implements session.Keeper.
func (n *Node) Release(ctx context.Context, h session.Held) error {
	return n.end(ctx, h, true)
}

// Delete implements session.Keeper.
func (n *Node) Delete(ctx context.Context, h session.Held) error {
	return n.end(ctx, h, false)
}

// end gives up the ownership of a session, unless another instance owns it.
func (n *Node) end(ctx context.Context, h session.Held, release bool) error {
	n.mu.Lock()
	e := n.held[h.Key]
	if e == nil || e.lost {
		n.mu.Unlock()
		return nil
	}
	n.remove(e)
	if h.Bound {
		n.mu.Unlock()
		return nil
	}
	d := &ending{
		Held:     e.Held,
		at:       time.Now(),
		released: release,
		unsure:   e.doubts > 0 && !IsConnectionKey(h.Key),
	}
	d.Record = session.Record{Key: h.Key}
	if release {
		d.Record = h.Record
	}
	n.ended[h.Key] = d
	forgot := n.forget()
	last := *d
	n.mu.Unlock()
	if forgot > 0 {
		n.o.Log.Warn("too many sessions ended while the store is unreachable: the records of some stay in the store until they expire", "sessions", forgot)
	}
	err := n.finish(ctx, &last)
	if errors.Is(err, session.ErrUnavailable) { // the next successful beat writes the ending
		n.mu.Lock()
		d.pending, n.hasPending = true, true
		n.mu.Unlock()
		return nil
	}
	return err
}

// finish records in the store that a session ended here, or that it was released.
func (n *Node) finish(ctx context.Context, e *ending) error {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	h := e.Held
	if e.unsure {
		found, err := n.o.Store.Find(ctx, h.Key)
		if errors.Is(err, session.ErrNotFound) && e.released { // the record was not written yet
			found, err = n.o.Store.Put(ctx, h)
		}
		if errors.Is(err, session.ErrNotFound) || err == nil && found.Owner != n.o.Self.ID {
			return nil
		}
		if err != nil {
			return err
		}
		h.Epoch = found.Epoch
	}
	if e.released {
		return n.o.Store.Release(ctx, h)
	}
	return n.o.Store.Delete(ctx, h)
}

// forget bounds the number of entries in n.ended. owed is how many of the removed ones the store does not know of. The
// caller holds n.mu.
func (n *Node) forget() (owed int) {
	if len(n.ended) <= 2*n.o.MaxSessions {
		return 0
	}
	old := time.Now().Add(-endedFor)
	maps.DeleteFunc(n.ended, func(_ string, e *ending) bool { return !e.pending && e.at.Before(old) })
	all := slices.SortedFunc(maps.Values(n.ended), func(e, b *ending) int { return b.at.Compare(e.at) })
	for _, e := range all[min(n.o.MaxSessions, len(all)):] { // the oldest
		delete(n.ended, e.Key)
		if e.pending {
			owed++
		}
	}
	return owed
}

// full reports whether this instance owns MaxSessions sessions. The caller holds n.mu.
func (n *Node) full() bool { return len(n.held)-n.connections >= n.o.MaxSessions }

// add adds a session, or a shared connection. The caller holds n.mu.
func (n *Node) add(e *entry) {
	if n.held[e.Key] == nil && IsConnectionKey(e.Key) {
		n.connections++
	}
	n.held[e.Key] = e
}

// remove removes an entry, unless another entry has its key now. The caller holds n.mu.
func (n *Node) remove(e *entry) {
	if n.held[e.Key] == e {
		delete(n.held, e.Key)
		if IsConnectionKey(e.Key) {
			n.connections--
		}
	}
	n.unblock(e)
}

// block makes requests of a session wait until unblock. The caller holds n.mu.
func (n *Node) block(e *entry) {
	if e.blocked == nil {
		e.blocked = make(chan struct{})
		n.blocked.Add(1)
	}
}

// unblock lets the requests of a session begin. The caller holds n.mu.
func (n *Node) unblock(e *entry) {
	if e.blocked != nil {
		n.blocked.Add(-1) // first, so that Ready is true when a waiting request continues
		close(e.blocked)
		e.blocked = nil
	}
}

// Holds reports whether this instance owns the session with that key.
func (n *Node) Holds(key string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.held[key]
	return e != nil && !e.lost
}

// Find returns the record of a session from the store: see session.Store.
func (n *Node) Find(ctx context.Context, key string) (session.Held, error) {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	return n.o.Store.Find(ctx, key)
}

// endedFor is how long the node remembers that a session ended. A store that was restored from an old copy may still
// have the session.
const endedFor = time.Minute

// Take takes over a session whose owner is dead or released it. While this instance must take none, the error is
// ErrUnavailable.
func (n *Node) Take(ctx context.Context, seen session.Held) (session.Held, error) {
	good := n.lastGood.Load()
	n.mu.Lock()
	may := !n.draining.Load() && !time.Now().Before(n.noTakesUntil)
	full := n.full()
	e := n.ended[seen.Key]
	stays := e != nil && !e.released && seen.Owner == n.o.Self.ID && (e.pending || time.Since(e.at) < endedFor)
	n.mu.Unlock()
	if stays { // the store still has a session that ended here
		one, cancel := context.WithTimeout(ctx, opTimeout)
		defer cancel()
		if err := n.o.Store.Delete(one, seen); err != nil {
			return session.Held{}, err
		}
		return session.Held{}, session.ErrNotFound
	}
	if !may || full || !n.fresh(good) {
		return session.Held{}, session.ErrUnavailable
	}
	one, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	h, err := n.o.Store.Take(one, seen)
	if err == nil {
		err = n.begin(h, good)
	}
	if err != nil {
		return session.Held{}, err
	}
	n.counts.Taken.Add(1)
	return h, nil
}

// begin adds a session that the store just gave to this instance. good is when the last successful beat before that
// request was sent. If good is too old by now, another instance may already own the session (S-012). Then the error is
// ErrUnavailable, and the next request asks the store again.
func (n *Node) begin(h session.Held, good *time.Time) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.ended, h.Key)
	if !n.fresh(good) {
		return session.ErrUnavailable
	}
	n.add(&entry{Held: h, extended: time.Now()})
	return nil
}

// saveAfter is how long changes of records are collected before they are written.
const saveAfter = 100 * time.Millisecond

// writeBehind writes changed records in the background until Close.
func (n *Node) writeBehind() {
	for {
		select {
		case <-n.writeNow:
		case <-n.ctx.Done():
			return
		}
		n.settleAll()
		select {
		case <-time.After(saveAfter):
		case <-n.ctx.Done():
			return
		}
	}
}

// atOnce is how many sessions are settled in parallel. endings is how many endings one round writes, so that live
// sessions have their turn between rounds.
const (
	atOnce  = 16
	endings = 256
)

// settleAll writes changed records and endings, if the store is reachable.
func (n *Node) settleAll() {
	if !n.reaches() {
		return // the next successful beat calls it again
	}
	n.mu.Lock()
	var unsettled, dirty []*entry
	var due []session.Held
	now := time.Now()
	for _, e := range n.held {
		switch {
		case e.Bound, e.lost:
		case e.doubts > 0:
			unsettled = append(unsettled, e)
		case e.dirty:
			dirty = append(dirty, e)
		case now.Sub(e.extended) > n.o.Life/4 && len(due) < 1000:
			e.extended, due = now, append(due, e.Held)
		}
	}
	again, more := n.pendingEndings(now)
	n.mu.Unlock()
	slices.SortFunc(unsettled, func(e, b *entry) int { return b.extended.Compare(e.extended) }) // the newest first
	each(unsettled, n.settle)
	each(dirty, n.save)
	var away atomic.Bool
	each(again, func(e *ending) {
		if !away.Load() && !n.sendEnding(e) {
			away.Store(true) // the next beat tries again
		}
	})
	if more && !away.Load() {
		wake(n.writeNow)
	}
	if len(due) > 0 {
		ctx, cancel := context.WithTimeout(n.ctx, 2*opTimeout)
		fenced, err := n.o.Store.Keep(ctx, due)
		cancel()
		if err != nil {
			fenced = due // settle asks the store about each of them
		}
		n.mu.Lock()
		for _, h := range fenced {
			if e := n.held[h.Key]; e != nil {
				e.doubts++
				wake(n.writeNow)
			}
		}
		n.mu.Unlock()
	}
}

// pendingEndings returns the endings to write in one round, and whether there are more. The caller holds n.mu.
func (n *Node) pendingEndings(now time.Time) (all []*ending, more bool) {
	if !n.hasPending {
		return nil, false
	}
	n.hasPending = false
	for key, e := range n.ended {
		switch {
		case !e.pending:
		case now.Sub(e.at) > n.o.Life: // the record has expired, too
			delete(n.ended, key)
		case len(all) == endings:
			n.hasPending = true
			return all, true
		default:
			all = append(all, e)
		}
	}
	return all, false
}

// sendEnding writes an ending to the store. It reports false if the store is unreachable.
func (n *Node) sendEnding(e *ending) bool {
	n.mu.Lock()
	last := *e
	gone := n.held[e.Key] == nil && n.ended[e.Key] == e
	n.mu.Unlock()
	if !gone { // the session has begun again
		return true
	}
	away := errors.Is(n.finish(n.ctx, &last), session.ErrUnavailable)
	n.mu.Lock()
	defer n.mu.Unlock()
	if away {
		n.hasPending = true
	} else {
		e.pending, e.at = false, time.Now()
	}
	return !away
}

// each calls f for all elements, at most atOnce at a time.
func each[T any](all []T, f func(T)) {
	next := make(chan T)
	var wg sync.WaitGroup
	for range min(atOnce, len(all)) {
		wg.Go(func() {
			for e := range next {
				f(e)
			}
		})
	}
	for _, e := range all {
		next <- e
	}
	close(next)
	wg.Wait()
}

// save writes a changed record.
func (n *Node) save(e *entry) {
	n.mu.Lock()
	h := e.Held
	e.dirty = false
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(n.ctx, opTimeout)
	defer cancel()
	if err := n.o.Store.Save(ctx, h); err != nil {
		n.mu.Lock()
		e.doubts++
		n.mu.Unlock()
		if errors.Is(err, session.ErrFenced) {
			wake(n.writeNow)
		}
	}
}

// settle asks the store whether this instance still owns a session, and if so, writes the record.
//
// Another instance may consider this one dead, and be about to take over the session. So this instance takes a blocked
// session again, even if the store names it as the owner. Each Take increases the epoch, and the store lets only one of
// the two succeed (S-010).
func (n *Node) settle(e *entry) {
	n.mu.Lock()
	h, doubts, barred := e.Held, e.doubts, e.blocked != nil
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(n.ctx, 3*opTimeout)
	defer cancel()
	found, err := n.Find(ctx, h.Key)
	switch {
	case errors.Is(err, session.ErrNotFound):
		if found, err = n.o.Store.Put(ctx, h); err == nil {
			h.Owner, h.Epoch = found.Owner, found.Epoch
		}
	case err != nil:
	case found.Owner == n.o.Self.ID && !barred:
		h.Owner, h.Epoch = found.Owner, found.Epoch
		err = n.o.Store.Save(ctx, h)
	default:
		free := found.Owner == "" || found.Owner == n.o.Self.ID
		if !free {
			if free, err = n.Dead(ctx, found.Owner); err == nil && !free {
				n.markLost(e)
				return
			}
		}
		if err == nil {
			found, err = n.o.Store.Take(ctx, found)
		}
		if err == nil {
			h.Owner, h.Epoch = found.Owner, found.Epoch
			err = n.o.Store.Save(ctx, h)
		}
	}
	fenced := errors.Is(err, session.ErrFenced)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.held[h.Key] != e { // the session has ended meanwhile, and may have begun again
		if e := n.ended[h.Key]; e != nil && n.held[h.Key] == nil && !fenced {
			e.unsure = err != nil && !IsConnectionKey(h.Key)
			e.Owner, e.Epoch = h.Owner, h.Epoch
			e.pending, n.hasPending = true, true
			if err == nil {
				wake(n.writeNow)
			}
		}
		return
	}
	settled := err == nil && e.doubts == doubts
	if settled || !fenced && h.Epoch >= e.Epoch { // a store restored from an old file has a lower epoch
		e.Owner, e.Epoch = h.Owner, h.Epoch
	}
	switch {
	case settled:
		e.doubts, e.extended = 0, time.Now()
		n.unblock(e)
	case fenced, err == nil: // the entry changed, or the answer may be old: settle it again
		wake(n.writeNow)
	} // otherwise the next beat tries again
}

// markLost ends a session that another instance owns. Its requests wait until Options.Lost has returned.
func (n *Node) markLost(e *entry) {
	n.mu.Lock()
	mine := n.held[e.Key] == e && !e.lost
	if mine {
		e.lost = true
		n.block(e)
	}
	n.mu.Unlock()
	if !mine {
		return // the session has ended meanwhile
	}
	n.counts.Lost.Add(1)
	if IsConnectionKey(e.Key) {
		n.o.Log.Warn("shared connection closed: another instance owns it now", "server", e.Server)
	} else {
		n.o.Log.Warn("session closed: another instance took it over", "session", e.Key[:min(len(e.Key), 8)])
	}
	n.o.Lost(e.Key)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.remove(e) // after Lost, so that a waiting request no longer finds the session here
}
