package access

import (
	"net/netip"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/internal/address"
)

// lookups bounds the lookups of tokens that run at once for an address, to the number of wrong keys that the address
// may still show. Otherwise all lookups that begin before the first result would pass. Its methods may be called
// concurrently.
type lookups struct {
	limits []*limit

	mu      sync.Mutex // guards the rest
	running map[netip.Prefix]*addressLookups
}

// addressLookups counts the running lookups of a network of addresses (address.Network).
type addressLookups struct {
	n       int
	changed chan struct{} // closed when a lookup ends; nil without a waiting goroutine
}

// newLookups returns lookups that are bounded by limits, which count wrong keys.
func newLookups(limits ...*limit) *lookups {
	return &lookups{limits: limits, running: map[netip.Prefix]*addressLookups{}}
}

// Begin starts a lookup for an address. The caller calls end once, after it has counted a wrong key (see limit.Take),
// or found a good key. end is nil if the lookup must wait until busy is closed. If busy is nil too, no lookup may
// begin before the address may show a wrong key again.
func (l *lookups) Begin(from netip.Addr) (end func(), busy <-chan struct{}) {
	at := address.Network(from)
	l.mu.Lock()
	defer l.mu.Unlock()
	left := WrongAtOnce
	for _, limit := range l.limits {
		left = min(left, limit.left(at))
	}
	of := l.running[at]
	switch {
	case left < 1:
		return nil, nil
	case of == nil:
		of = &addressLookups{}
		l.running[at] = of
	case of.n >= left:
		if of.changed == nil {
			of.changed = make(chan struct{})
		}
		return nil, of.changed
	}
	of.n++
	return func() { l.end(at, of) }, nil
}

func (l *lookups) end(at netip.Prefix, of *addressLookups) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of.n--; of.n == 0 {
		delete(l.running, at)
	}
	if of.changed != nil {
		close(of.changed)
		of.changed = nil
	}
}

// left returns the number of wrong keys that the address may show at once.
func (l *limit) left(from netip.Prefix) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	of, ok := l.by.Get(from)
	if !ok {
		return WrongAtOnce
	}
	return int(of.rate.TokensAt(time.Now()) + 1e-10) // against rounding errors; less than the tokens of a nanosecond
}
