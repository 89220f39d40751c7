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

// Put implements session.Keeper. While the store is out of reach, it is written later.
func (n *Node) Put(ctx context.Context, h session.Held) (session.Held, error) {
	n.mu.Lock()
	if n.full() {
		n.mu.Unlock()
		return session.Held{}, session.ErrFull
	}
	e := &entry{Held: h, kept: time.Now()}
	if !h.Bound {
		e.Owner = n.o.Self.ID
	}
	n.enter(e)
	n.mu.Unlock()
	if h.Bound {
		return h, nil
	}
	var err error = session.ErrUnavailable
	var put session.Held
	if n.reaches() {
		one, cancel := context.WithTimeout(ctx, tries)
		defer cancel()
		put, err = n.o.Store.Put(one, h)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case err == nil:
		if put.Epoch > e.Epoch { // otherwise it was settled meanwhile
			e.Owner, e.Epoch = put.Owner, put.Epoch
		}
	case errors.Is(err, session.ErrUnavailable):
		e.doubts++
		wake(n.work)
	default:
		n.remove(e)
		return session.Held{}, err
	}
	return e.Held, nil
}

// Save implements session.Keeper. The record is written soon.
func (n *Node) Save(_ context.Context, h session.Held) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if e := n.held[h.Key]; e != nil {
		if e.Record, e.dirty = h.Record, !h.Bound; e.dirty {
			wake(n.work)
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

// end gives a session up. One that was lost to another instance is not touched.
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
	d := &ended{Held: e.Held, at: time.Now(), released: release, unsure: e.doubts > 0 && !release && !IsHome(h.Key)}
	d.Record = session.Record{Key: h.Key}
	if release {
		d.Record = h.Record
	}
	n.ended[h.Key] = d
	forgot := n.forget()
	last := *d
	n.mu.Unlock()
	if forgot > 0 {
		n.o.Log.Warn("so many sessions have ended while the store is out of reach that some are not noted any more: their records live until they expire", "sessions", forgot)
	}
	err := n.finish(ctx, &last)
	if errors.Is(err, session.ErrUnavailable) { // again with the next good beat
		n.mu.Lock()
		d.owed, n.drops = true, true
		n.mu.Unlock()
		return nil
	}
	return err
}

// finish tells the store that a session has ended here.
func (n *Node) finish(ctx context.Context, d *ended) error {
	ctx, cancel := context.WithTimeout(ctx, tries)
	defer cancel()
	h := d.Held
	if d.unsure {
		found, err := n.o.Store.Find(ctx, h.Key)
		if errors.Is(err, session.ErrNotFound) || err == nil && found.Owner != n.o.Self.ID {
			return nil
		}
		if err != nil {
			return err
		}
		h.Epoch = found.Epoch
	}
	if d.released {
		return n.o.Store.Release(ctx, h)
	}
	return n.o.Store.Delete(ctx, h)
}

// forget bounds what is known of what has ended here. It returns how many of these the store has still.
// The caller holds n.mu.
func (n *Node) forget() (owed int) {
	if len(n.ended) <= 2*n.o.Most {
		return 0
	}
	old := time.Now().Add(-endedFor)
	maps.DeleteFunc(n.ended, func(_ string, d *ended) bool { return !d.owed && d.at.Before(old) })
	all := slices.SortedFunc(maps.Values(n.ended), func(a, b *ended) int { return b.at.Compare(a.at) })
	for _, d := range all[min(n.o.Most, len(all)):] { // the oldest
		delete(n.ended, d.Key)
		if d.owed {
			owed++
		}
	}
	return owed
}

// full reports whether there is no room for one more session. The caller holds n.mu.
func (n *Node) full() bool { return len(n.held)-n.homes >= n.o.Most }

// enter notes a session, or a home, that is here. The caller holds n.mu.
func (n *Node) enter(e *entry) {
	if n.held[e.Key] == nil && IsHome(e.Key) {
		n.homes++
	}
	n.held[e.Key] = e
}

// remove forgets one, unless there is another of that key by now. The caller holds n.mu.
func (n *Node) remove(e *entry) {
	if n.held[e.Key] == e {
		delete(n.held, e.Key)
		if IsHome(e.Key) {
			n.homes--
		}
	}
	n.unbar(e)
}

// bar has requests of a session wait. The caller holds n.mu.
func (n *Node) bar(e *entry) {
	if e.barred == nil {
		e.barred = make(chan struct{})
		n.barred.Add(1)
	}
}

// unbar lets requests of a session begin. The caller holds n.mu.
func (n *Node) unbar(e *entry) {
	if e.barred != nil {
		n.barred.Add(-1) // first: whoever has waited finds that the instance is ready
		close(e.barred)
		e.barred = nil
	}
}

// Holds reports whether this instance has the session.
func (n *Node) Holds(key string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.held[key]
	return e != nil && !e.lost
}

// Find returns what the store has of a session: see session.Store.
func (n *Node) Find(ctx context.Context, key string) (session.Held, error) {
	ctx, cancel := context.WithTimeout(ctx, tries)
	defer cancel()
	return n.o.Store.Find(ctx, key)
}

// endedFor is how long it is known that a session has ended here. A store that has come back with
// what it had before may have it still.
const endedFor = time.Minute

// Take takes over a session, whose owner is dead or has released it. It fails with
// ErrUnavailable while this instance may take nothing.
func (n *Node) Take(ctx context.Context, seen session.Held) (session.Held, error) {
	good := n.good.Load()
	n.mu.Lock()
	may := !n.drains.Load() && !time.Now().Before(n.noTakes)
	full := n.full()
	d := n.ended[seen.Key]
	stays := d != nil && !d.released && seen.Owner == n.o.Self.ID && (d.owed || time.Since(d.at) < endedFor)
	n.mu.Unlock()
	if stays { // the store has it again, or still
		one, cancel := context.WithTimeout(ctx, tries)
		defer cancel()
		if err := n.o.Store.Delete(one, seen); err != nil {
			return session.Held{}, err
		}
		return session.Held{}, session.ErrNotFound
	}
	if !may || full || !n.fresh(good) {
		return session.Held{}, session.ErrUnavailable
	}
	one, cancel := context.WithTimeout(ctx, tries)
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

// begin enters what the store has just given to this instance, whose last good beat was that one
// before it asked. If that beat is too old by now, so may the answer be: others may have counted the
// instance out since, and have it (S-012). The error is ErrUnavailable then, and the next request asks again.
func (n *Node) begin(h session.Held, good *time.Time) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.ended, h.Key)
	if !n.fresh(good) {
		return session.ErrUnavailable
	}
	n.enter(&entry{Held: h, kept: time.Now()})
	return nil
}

// saveAfter is how long changes of records are gathered.
const saveAfter = 100 * time.Millisecond

// works writes behind what is to be written, until Close.
func (n *Node) works() {
	for {
		select {
		case <-n.work:
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

// atOnce is how many sessions are settled at a time, and endings how many that have ended are told to
// the store in one round: those that live come between the rounds.
const (
	atOnce  = 16
	endings = 256
)

// settleAll writes what is to be written while the store is in reach.
func (n *Node) settleAll() {
	if !n.reaches() {
		return // the next good beat wakes this
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
		case now.Sub(e.kept) > n.o.Life/4 && len(due) < 1000:
			e.kept, due = now, append(due, e.Held)
		}
	}
	again, more := n.owed(now)
	n.mu.Unlock()
	slices.SortFunc(unsettled, func(a, b *entry) int { return b.kept.Compare(a.kept) }) // the newest first
	each(unsettled, n.settle)
	each(dirty, n.save)
	var away atomic.Bool
	each(again, func(d *ended) {
		if !away.Load() && !n.pay(d) {
			away.Store(true) // the others with the next beat, too
		}
	})
	if more && !away.Load() {
		wake(n.work)
	}
	if len(due) > 0 {
		ctx, cancel := context.WithTimeout(n.ctx, 2*tries)
		fenced, err := n.o.Store.Keep(ctx, due)
		cancel()
		if err != nil {
			fenced = due // asked one by one
		}
		n.mu.Lock()
		for _, h := range fenced {
			if e := n.held[h.Key]; e != nil {
				e.doubts++
				wake(n.work)
			}
		}
		n.mu.Unlock()
	}
}

// owed returns endings that the store does not know, as many as one round has, and whether there are more.
// The caller holds n.mu.
func (n *Node) owed(now time.Time) (all []*ended, more bool) {
	if !n.drops {
		return nil, false
	}
	n.drops = false
	for key, d := range n.ended {
		switch {
		case !d.owed:
		case now.Sub(d.at) > n.o.Life: // so has the record
			delete(n.ended, key)
		case len(all) == endings:
			n.drops = true
			return all, true
		default:
			all = append(all, d)
		}
	}
	return all, false
}

// pay tells the store of an ending that it does not know. It reports false when the store is out of reach.
func (n *Node) pay(d *ended) bool {
	n.mu.Lock()
	last := *d
	gone := n.held[d.Key] == nil && n.ended[d.Key] == d
	n.mu.Unlock()
	if !gone { // it has begun again meanwhile
		return true
	}
	away := errors.Is(n.finish(n.ctx, &last), session.ErrUnavailable)
	n.mu.Lock()
	defer n.mu.Unlock()
	if away {
		n.drops = true
	} else {
		d.owed, d.at = false, time.Now()
	}
	return !away
}

// each runs f on all, some at a time.
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
	ctx, cancel := context.WithTimeout(n.ctx, tries)
	defer cancel()
	if err := n.o.Store.Save(ctx, h); err != nil {
		n.mu.Lock()
		e.doubts++
		n.mu.Unlock()
		if errors.Is(err, session.ErrFenced) {
			wake(n.work)
		}
	}
}

// settle finds out whether a session is this instance's still, and makes the store say
// so if it is.
//
// Whoever has found this instance dead may be about to take a session over. So the instance takes what it
// is about to serve again, although the store says that it has it: that raises the epoch, and of the two
// takes the store lets one succeed (S-010).
func (n *Node) settle(e *entry) {
	n.mu.Lock()
	h, doubts, barred := e.Held, e.doubts, e.barred != nil
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(n.ctx, 3*tries)
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
				n.lose(e)
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
	if n.held[h.Key] != e { // it has ended meanwhile, and may have been put again
		if d := n.ended[h.Key]; d != nil && n.held[h.Key] == nil && !fenced {
			d.unsure = err != nil && !d.released && !IsHome(h.Key)
			d.Owner, d.Epoch = h.Owner, h.Epoch
			d.owed, n.drops = true, true
			if err == nil {
				wake(n.work)
			}
		}
		return
	}
	if !fenced && h.Epoch >= e.Epoch {
		e.Owner, e.Epoch = h.Owner, h.Epoch
	}
	switch {
	case fenced, err == nil && e.doubts != doubts: // it has changed meanwhile, or the answer may be old: once more
		wake(n.work)
	case err == nil:
		e.doubts, e.kept = 0, time.Now()
		n.unbar(e)
	} // otherwise with the next beat
}

// lose ends a session that another instance has. Until that is known where requests of it
// are under way, none begins.
func (n *Node) lose(e *entry) {
	n.mu.Lock()
	mine := n.held[e.Key] == e && !e.lost
	if mine {
		e.lost = true
		n.bar(e)
	}
	n.mu.Unlock()
	if !mine {
		return // it has ended meanwhile
	}
	n.counts.Lost.Add(1)
	if IsHome(e.Key) {
		n.o.Log.Warn("a shared connection ends here: another instance is its home now", "server", e.Server)
	} else {
		n.o.Log.Warn("a session ends here: another instance has taken it over", "session", e.Key[:min(len(e.Key), 8)])
	}
	n.o.Lost(e.Key)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.remove(e) // only now: whoever waits finds that it is not here
}
