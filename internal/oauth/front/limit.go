package front

import (
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// maxLimited bounds the keys that a limiter stores. At the bound, the limiter removes the key that has been unused for
// longest.
const maxLimited = 4096

// limiter limits the rate of actions of one address or user (I-114).
type limiter struct {
	every time.Duration
	burst int

	mu sync.Mutex // guards by
	by simplelru.LRUCache[string, *rate.Limiter]
}

// newLimiter returns a limiter that allows burst actions at once, then one action per interval.
func newLimiter(every time.Duration, burst int) limiter {
	by, _ := simplelru.NewLRU[string, *rate.Limiter](maxLimited, nil) // the size is positive
	return limiter{
		every: every,
		burst: burst,
		by:    by,
	}
}

// network returns the key of an address. For IPv6, this is the 64-bit prefix of the subscriber's whole network.
func network(from netip.Addr) string { return prefix(from, 64) }

// site returns a key for all addresses of a site, which may belong to one company.
func site(from netip.Addr) string { return prefix(from, 48) }

// prefix returns the first bits of an IPv6 address, or a whole IPv4 address.
func prefix(from netip.Addr, bits int) string {
	if from = from.Unmap().WithZone(""); !from.Is6() {
		bits = 32
	}
	p, _ := from.Prefix(bits) // the zero address has a prefix too
	return p.String()
}

// take counts one use of a key. It returns how long the caller must wait, or 0.
func (l *limiter) take(key string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	of, ok := l.by.Get(key)
	if !ok {
		of = rate.NewLimiter(rate.Every(l.every), l.burst)
		l.by.Add(key, of)
	}
	now := time.Now()
	r := of.ReserveN(now, 1)
	after := r.DelayFrom(now)
	if after > 0 {
		r.CancelAt(now)
	}
	return after
}
