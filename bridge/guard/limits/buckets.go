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

// limiter bounds how often each principal calls. Each principal has a bucket of tokens for each rate, and every call
// takes a token from each of its buckets.
type limiter struct {
	refused atomic.Uint64

	mu      sync.Mutex // guards the rest: a call takes a token from all its buckets, or from none
	buckets simplelru.LRUCache[bucketKey, *rate.Limiter]
}

// bucketKey identifies the bucket of a principal for a rate.
type bucketKey struct {
	principal string
	rate      int // limit.index
}

// limit is a rate with its index among the rates of a limiter.
type limit struct {
	Rate
	index int
}

// maxBuckets bounds the buckets of a limiter. Access rules never have so many principals. Beyond maxBuckets, a new
// bucket replaces the one that was used longest ago.
const maxBuckets = 10_000

// maxOwed is how many calls beyond a rate may pass because they continue a call. It is the largest number of rounds of
// a call.
const maxOwed = 10

func newLimiter() *limiter {
	b, err := simplelru.NewLRU[bucketKey, *rate.Limiter](maxBuckets, nil)
	if err != nil {
		panic(err) // the size is positive
	}
	return &limiter{buckets: b}
}

// take takes a token of each rate. If a rate has none, take takes nothing, and returns the rate with the longest wait
// and the time until that rate has a token. But if goesOn reports that the call continues a counted call, take takes
// the tokens even so, unless a rate then owes more than maxOwed.
func (l *limiter) take(principal string, of []limit, goesOn func() bool) (wait time.Duration, by limit) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(now, 2) // removes full buckets about as fast as calls add new ones
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

// has reports whether each bucket has a token.
func has(buckets []*rate.Limiter, now time.Time) bool {
	return !slices.ContainsFunc(buckets, func(l *rate.Limiter) bool { return l.TokensAt(now) < 1 })
}

// spend takes a token of each bucket. A bucket that has no token owes one afterwards.
func spend(buckets []*rate.Limiter, now time.Time) {
	for _, l := range buckets {
		if !l.AllowN(now, 1) {
			l.ReserveN(now, 1)
		}
	}
}

// until returns the time until the bucket has a token, or 0 if it has one. It rounds to a microsecond, so that a client
// that waits exactly so long is not refused.
func until(l *rate.Limiter, now time.Time) time.Duration {
	missing := (1 - l.TokensAt(now)) / float64(l.Limit()) // seconds
	return max(time.Duration(math.Round(missing*1e6)), 0) * time.Microsecond
}

// bucket returns the principal's bucket for r. If there is none, it makes a full one. The caller holds l.mu.
func (l *limiter) bucket(principal string, r limit) *rate.Limiter {
	b := bucketKey{principal, r.index}
	one, ok := l.buckets.Get(b)
	if !ok {
		one = rate.NewLimiter(rate.Limit(r.PerSecond), max(r.Burst, 1))
		l.buckets.Add(b, one)
	}
	return one
}

// expire removes at most n buckets, those that were used longest ago, as long as they are full: a new bucket would be
// the same. It keeps keptCallers of them, since the next call would make them again. The caller holds l.mu.
func (l *limiter) expire(now time.Time, n int) {
	for range min(n, l.buckets.Len()-keptCallers) {
		b, one, ok := l.buckets.GetOldest()
		if !ok || one.TokensAt(now) < float64(one.Burst()) {
			return
		}
		l.buckets.Remove(b)
	}
}

func (l *limiter) sweep(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.buckets.Keys() {
		if one, ok := l.buckets.Peek(b); ok && one.TokensAt(now) >= float64(one.Burst()) {
			l.buckets.Remove(b)
		}
	}
}
