package replay

import (
	"container/list"
	"sync"
)

// History holds the logs whose events only wait for clients that may come back. The zero value is ready for use.
type History struct {
	mu     sync.Mutex // guards the rest; locked after the mutex of a log
	queues [ranks]list.List
}

// rank orders the histories of logs. Lower ranks are dropped first, and the oldest of a rank.
type rank int

const (
	written rank = iota // its client got all of it
	unread              // its client left before it got all of it
	ranks
)

// Drop drops the history of one log to make room. It reports false if there is none.
func (h *History) Drop() bool { return h.DropOf(nil) }

// DropOf is Drop for logs of that Room, which must be comparable. nil means all logs.
func (h *History) DropOf(room Room) bool {
	for r := range ranks {
		for l := h.oldest(r, room); l != nil; l = h.oldest(r, room) {
			if l.shed(r) { // otherwise another goroutine was first
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

// settle puts the log into the right queue. The caller holds l.mu.
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

// shed drops the log's history of that rank, and reports whether there was one.
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
