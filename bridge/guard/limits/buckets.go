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

// limiter bounds how often each principal does something: a bucket of tokens for
// each of the rates that count, of which every call takes one.
type limiter struct {
	refused atomic.Uint64

	mu      sync.Mutex // guards the rest: that of several buckets all have a token, or none gives one
	buckets *simplelru.LRU[bucketKey, *rate.Limiter]
}

// bucketKey says whose bucket it is, and of which rate.
type bucketKey struct {
	principal string
	rate      int // its place among those of the limiter
}

// limit is a rate and its place.
type limit struct {
	Rate
	place int
}

// maxBuckets bounds the buckets of a limiter. Principals are those of the access
// rules: there are never so many. Of more, those lose count that have not
// called for longest.
const maxBuckets = 10_000

// maxOwed is how many calls beyond the rate go on all the same after a
// question: as many as there can be rounds.
const maxOwed = 10

func newLimiter() *limiter {
	b, err := simplelru.NewLRU[bucketKey, *rate.Limiter](maxBuckets, nil)
	if err != nil {
		panic(err) // the size is positive
	}
	return &limiter{buckets: b}
}

// take takes a token of each of the rates. When one has none it takes nothing,
// and returns that one and how long it takes until there is one. A call that goes
// on with one that was counted before is not refused for a while, but counts.
func (p *limiter) take(principal string, of []limit, goesOn func() bool) (wait time.Duration, by limit) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire(now, 2) // more than can come
	var room [4]*rate.Limiter
	from := room[:0]
	for _, r := range of {
		from = append(from, p.bucket(principal, r))
	}
	if has(from[1:], now) && from[0].AllowN(now, 1) {
		spend(from[1:], now)
		return 0, limit{}
	}
	for i, l := range from {
		if w := until(l, now); w > wait {
			wait, by = w, of[i]
		}
	}
	if wait > 0 {
		if !goesOn() {
			return wait, by
		}
		for _, l := range from {
			if l.TokensAt(now) < 1-maxOwed {
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

// spend takes a token of each; one that there is not, from those to come.
func spend(buckets []*rate.Limiter, now time.Time) {
	for _, l := range buckets {
		if !l.AllowN(now, 1) {
			l.ReserveN(now, 1)
		}
	}
}

// until returns how long it takes until the bucket has a token: to the
// microsecond, so that who comes when it was told to is not refused for the last
// digit.
func until(l *rate.Limiter, now time.Time) time.Duration {
	missing := (1 - l.TokensAt(now)) / float64(l.Limit()) // seconds
	return max(time.Duration(math.Round(missing*1e6)), 0) * time.Microsecond
}

// bucket returns a bucket, a full one if there is none. The caller holds p.mu.
func (p *limiter) bucket(principal string, r limit) *rate.Limiter {
	k := bucketKey{principal, r.place}
	l, ok := p.buckets.Get(k)
	if !ok {
		l = rate.NewLimiter(rate.Limit(r.PerSecond), max(r.Burst, 1))
		p.buckets.Add(k, l)
	}
	return l
}

// expire forgets at most n of the buckets that were not used for longest and are
// full again: they are as good as none. A few stay: they would only be made anew.
// The caller holds p.mu.
func (p *limiter) expire(now time.Time, n int) {
	for range min(n, p.buckets.Len()-keptCallers) {
		k, l, ok := p.buckets.GetOldest()
		if !ok || l.TokensAt(now) < float64(l.Burst()) {
			return
		}
		p.buckets.Remove(k)
	}
}

// sweep forgets all that are full again.
func (p *limiter) sweep(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.buckets.Keys() {
		if l, ok := p.buckets.Peek(k); ok && l.TokensAt(now) >= float64(l.Burst()) {
			p.buckets.Remove(k)
		}
	}
}
