package replay

import (
	"container/list"
	"sync"
)

// History holds the logs whose events are stored only for clients that may come back. The zero value is empty.
type History struct {
	mu     sync.Mutex // guards the rest; locked after the mutex of a log
	queues [ranks]list.List
}

// rank says how important the history of a log is. History drops lower ranks first, and within a rank the oldest.
type rank int

const (
	written rank = iota // the client got all events
	unread              // the client left before it got all events
	ranks
)

// Drop drops the stored events of one log to make room. It reports false if there is no such log.
func (h *History) Drop() bool { return h.DropOf(nil) }

// DropOf is Drop for logs with that Room. A nil Room means all logs.
func (h *History) DropOf(room Room) bool {
	for r := range ranks {
		for l := h.oldest(r, room); l != nil; l = h.oldest(r, room) {
			if l.shed(r) { // otherwise another goroutine dropped it first
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

// settle puts the log into the queue of its rank, or removes it. The caller holds l.mu.
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

// shed drops the stored events of a log that has that rank, and reports whether there were any.
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
