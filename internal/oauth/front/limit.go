package front

import (
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// maxAddressesKnown is of how many addresses it is known how often they have come. Of those
// beyond, the one goes that has not come for the longest time.
const maxAddressesKnown = 4096

// limiter bounds how often something may be done from one address (I-114).
type limiter struct {
	every time.Duration
	burst int

	mu sync.Mutex // guards by
	by *simplelru.LRU[netip.Prefix, *rate.Limiter]
}

// newLimiter lets so many through at once, and then one in so long.
func newLimiter(every time.Duration, burst int) limiter {
	by, _ := simplelru.NewLRU[netip.Prefix, *rate.Limiter](maxAddressesKnown, nil) // the size is positive
	return limiter{every: every, burst: burst, by: by}
}

// take counts one. It returns how long the address has to wait; 0 if it need not.
func (l *limiter) take(from netip.Addr) time.Duration {
	bits := 32
	if from = from.Unmap().WithZone(""); from.Is6() {
		bits = 64 // what one subscriber has
	}
	network, _ := from.Prefix(bits) // the zero address has one, too
	l.mu.Lock()
	defer l.mu.Unlock()
	of, ok := l.by.Get(network)
	if !ok {
		of = rate.NewLimiter(rate.Every(l.every), l.burst)
		l.by.Add(network, of)
	}
	now := time.Now()
	r := of.ReserveN(now, 1)
	after := r.DelayFrom(now)
	if after > 0 {
		r.CancelAt(now)
	}
	return after
}
