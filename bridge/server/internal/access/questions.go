package access

import (
	"net/netip"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/internal/address"
)

// questions bounds how many answers are waited for that may each say that a key was wrong:
// as many as the address may still show wrong ones. Otherwise all that come before the
// first answer would pass. Its methods may be called concurrently.
type questions struct {
	limits []*limit

	mu   sync.Mutex // guards the rest
	open map[netip.Prefix]*open
}

// open are the questions of an address, of which there are some.
type open struct {
	n       int
	changed chan struct{} // closed when one has ended; nil while nobody waits for that
}

// ask makes questions whose answers count in one of those limits.
func ask(limits ...*limit) *questions {
	return &questions{limits: limits, open: map[netip.Prefix]*open{}}
}

// Begin begins a question for whoever is at an address. end is called once, when a wrong
// key has been counted (see limit.Take), or the key was good. It is nil if there may be no
// question now: until busy is closed, or if that is nil too, until the address may show a
// wrong key again.
func (q *questions) Begin(from netip.Addr) (end func(), busy <-chan struct{}) {
	at := address.Network(from)
	q.mu.Lock()
	defer q.mu.Unlock()
	left := WrongAtOnce
	for _, l := range q.limits {
		left = min(left, l.left(at))
	}
	of := q.open[at]
	switch {
	case left < 1:
		return nil, nil
	case of == nil:
		of = &open{}
		q.open[at] = of
	case of.n >= left:
		if of.changed == nil {
			of.changed = make(chan struct{})
		}
		return nil, of.changed
	}
	of.n++
	return func() { q.end(at, of) }, nil
}

func (q *questions) end(at netip.Prefix, of *open) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if of.n--; of.n == 0 {
		delete(q.open, at)
	}
	if of.changed != nil {
		close(of.changed)
		of.changed = nil
	}
}

// left returns how many wrong keys may be shown from there at once.
func (l *limit) left(from netip.Prefix) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	of, ok := l.by.Get(from)
	if !ok {
		return WrongAtOnce
	}
	return int(of.rate.TokensAt(time.Now()) + 1e-10) // a nanosecond is more: it is for what rounding costs
}
