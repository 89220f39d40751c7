package limits

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// limiter bounds the calls of each principal: a bucket of tokens for each rate, from which every
// call takes one.
type limiter struct {
	refused atomic.Uint64

	mu      sync.Mutex // guards the rest: a call takes a token of each bucket or none
	buckets simplelru.LRUCache[bucketKey, *rate.Limiter]
}

// bucketKey names the bucket of a principal and a rate.
type bucketKey struct {
	principal string
	rate      int // its index among those of the limiter
}

// limit is a rate and its index.
type limit struct {
	Rate
	index int
}

// maxBuckets bounds the buckets of a limiter. There are never so many principals of access rules.
// Beyond it, the principals with the oldest last calls lose their counts.
const maxBuckets = 10_000

// maxOwed is how many calls beyond the rate pass because they continue a call. It is the largest
// number of rounds of a call.
const maxOwed = 10

func newLimiter() *limiter {
	b, err := simplelru.NewLRU[bucketKey, *rate.Limiter](maxBuckets, nil)
	if err != nil {
		panic(err) // the size is positive
	}
	return &limiter{buckets: b}
}

// take takes a token of each rate. If a rate has none, take takes nothing. Then take returns the
// rate with the longest wait, and the time until that rate has a token. If goesOn reports that the
// call is the next round of a counted one, take takes tokens nevertheless: each rate may owe maxOwed.
func (l *limiter) take(principal string, of []limit, goesOn func() bool) (wait time.Duration, by limit) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(now, 2) // more than a call can add
	var room [4]*rate.Limiter
	from := room[:0]
	for _, r := range of {
		from = append(from, l.bucket(principal, r))
	}
	if has(from[1:], now) && from[0].AllowN(now, 1) {
		spend(from[1:], now)
		return 0, limit{}
	}
	for i, one := range from {
		if w := until(one, now); w > wait {
			wait, by = w, of[i]
		}
	}
	if wait > 0 {
		if !goesOn() {
			return wait, by
		}
		for _, item := range from {
			if item.TokensAt(now) < 1-maxOwed {
				return wait, by
			}
		}
	}
	spend(from, now)
	return 0, limit{}
}

// has reports whether all of the buckets have a token.
func has(buckets []*rate.Limiter, now time.Time) bool {
	return !slices.ContainsFunc(buckets, func(l *rate.Limiter) bool { return l.TokensAt(now) < 1 })
}

// spend takes a token of each bucket. A bucket without a token owes one.
func spend(buckets []*rate.Limiter, now time.Time) {
	for _, l := range buckets {
		if !l.AllowN(now, 1) {
			l.ReserveN(now, 1)
		}
	}
}

// until returns how long it takes until the bucket has a token. It rounds to a microsecond, so that
// a client that waits exactly so long is not refused.
func until(l *rate.Limiter, now time.Time) time.Duration {
	missing := (1 - l.TokensAt(now)) / float64(l.Limit()) // seconds
	return max(time.Duration(math.Round(missing*1e6)), 0) * time.Microsecond
}

// bucket returns the principal's bucket of r. If there is none, it adds a full one. The caller holds l.mu.
func (l *limiter) bucket(principal string, r limit) *rate.Limiter {
	b := bucketKey{principal, r.index}
	one, ok := l.buckets.Get(b)
	if !ok {
		one = rate.NewLimiter(rate.Limit(r.PerSecond), max(r.Burst, 1))
		l.buckets.Add(b, one)
	}
	return one
}

// expire removes at most n of the least recently used buckets if they are full again: a new bucket
// is equal to them. A few stay, since the next call would recreate them. The caller holds l.mu.
func (l *limiter) expire(now time.Time, n int) {
	for range min(n, l.buckets.Len()-keptCallers) {
		b, one, ok := l.buckets.GetOldest()
		if !ok || one.TokensAt(now) < float64(one.Burst()) {
			return
		}
		l.buckets.Remove(b)
	}
}

// sweep removes all full buckets.
func (l *limiter) sweep(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.buckets.Keys() {
		if one, ok := l.buckets.Peek(b); ok && one.TokensAt(now) >= float64(one.Burst()) {
			l.buckets.Remove(b)
		}
	}
}
