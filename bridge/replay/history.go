package replay

import (
	"container/list"
	"sync"
)

// History has the logs with events that are kept only for clients that may come
// back for them. It is ready for use as it is.
type History struct {
	mu     sync.Mutex // guards the rest; a log's is taken first
	queues [ranks]list.List
}

// rank says how dear the history of a log is. It is dropped in this order, the
// oldest first.
type rank int

const (
	written rank = iota // its client has got it
	unread              // its client has gone before it got all
	ranks
)

// Drop drops the history of one log, to make room. It reports false when there is
// nothing left to drop.
func (h *History) Drop() bool { return h.DropOf(nil) }

// DropOf is Drop for a log that has that Room, which must be comparable; nil means
// any.
func (h *History) DropOf(room Room) bool {
	for r := range ranks {
		for l := h.oldest(r, room); l != nil; l = h.oldest(r, room) {
			if l.shed(r) { // otherwise somebody else was there first
				return true
			}
		}
	}
	return false
}

func (h *History) oldest(r rank, of Room) *Log {
	h.mu.Lock()
	defer h.mu.Unlock()
	for e := h.queues[r].Front(); e != nil; e = e.Next() {
		if l := e.Value.(*Log); of == nil || l.limits.Room == of {
			return l
		}
	}
	return nil
}

// settle enters the log where its history belongs. The caller holds l.mu.
func (l *Log) settle() {
	h := l.limits.History
	if h == nil {
		return
	}
	r, in := written, len(l.events) > 0
	if in && l.events[0].Seq > l.written {
		r, in = unread, l.left
	}
	if in == (l.shelf != nil) && (!in || r == l.rank) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.shelf != nil {
		h.queues[l.rank].Remove(l.shelf)
		l.shelf = nil
	}
	if in {
		l.rank, l.shelf = r, h.queues[r].PushBack(l)
	}
}

// shed drops the history of that rank. It reports whether there was any.
func (l *Log) shed(r rank) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shelf == nil || l.rank != r {
		return false
	}
	n := 0
	for n < len(l.events) && (r == unread || l.events[n].Seq <= l.written) {
		l.drop(l.events[n])
		n++
	}
	l.cut(n)
	return n > 0
}
