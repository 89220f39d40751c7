package front

import (
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// maxLimited is of how many it is known how often they have come. Of those beyond, the one
// goes that has not come for the longest time.
const maxLimited = 4096

// limiter bounds how often something may be done from one address, or by one user (I-114).
type limiter struct {
	every time.Duration
	burst int

	mu sync.Mutex // guards by
	by *simplelru.LRU[string, *rate.Limiter]
}

// newLimiter lets so many through at once, and then one in so long.
func newLimiter(every time.Duration, burst int) limiter {
	by, _ := simplelru.NewLRU[string, *rate.Limiter](maxLimited, nil) // the size is positive
	return limiter{every: every, burst: burst, by: by}
}

// network returns what stands for the address that a request comes from: of IPv6, what one
// subscriber has.
func network(from netip.Addr) string { return prefix(from, 64) }

// site returns what stands for all addresses that one company may have.
func site(from netip.Addr) string { return prefix(from, 48) }

// prefix returns the beginning of an address of IPv6, or one of IPv4.
func prefix(from netip.Addr, bits int) string {
	if from = from.Unmap().WithZone(""); !from.Is6() {
		bits = 32
	}
	p, _ := from.Prefix(bits) // the zero address has one, too
	return p.String()
}

// take counts one. It returns how long that one has to wait; 0 if it need not.
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
