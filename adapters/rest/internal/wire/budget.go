package wire

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/internal/backoff"
)

// Budget is what an API may cost: how many requests run at once, how many are sent in a time, which
// answers need not be requested again, and which hosts get no requests for a while. All sources of an API
// share it, so that a changed document neither gives the API a new budget nor forgets what was learned.
//
// The guards of the gateway stand before it, and do not replace it. They count the calls of clients, with
// those that the cache answers, and refuse a caller who calls too often. The budget counts requests to the
// API, with repeated ones and without those that the cache answers. They wait for their turn as long as
// their call may take, whoever calls. And the cache has answers by the rules of HTTP, while the gateway's
// cache has lists of tools.
type Budget struct {
	slots    chan struct{} // has an item for each running request
	limiter  *rate.Limiter // nil without Limits.Rate
	most     limits.Rate   // of limiter
	breakers *breakers
	cache    *cache        // nil without Options.CacheBytes
	tokens   atomic.Uint64 // how many tokens have a number: see tokens.number
}

// NewBudget returns a budget for the sources with the Limits, Breaker and CacheBytes of o.
func NewBudget(o *Options) *Budget {
	b := &Budget{
		slots:    make(chan struct{}, o.Limits.Concurrent),
		breakers: newBreakers(o.Breaker, cmp.Or(o.Log, slog.New(slog.DiscardHandler))),
	}
	if r := o.Limits.Rate; r.PerSecond > 0 {
		r.Burst = cmp.Or(r.Burst, max(1, int(r.PerSecond)))
		b.limiter, b.most = rate.NewLimiter(rate.Limit(r.PerSecond), r.Burst), r
	}
	if o.CacheBytes > 0 {
		b.cache = newCache(o.CacheBytes)
	}
	return b
}

// enter waits until fewer than Limits.Concurrent requests run. The caller calls leave when its request
// ends. If ctx ends first, the error is a Fault.
func (b *Budget) enter(ctx context.Context) (leave func(), err error) {
	select {
	case b.slots <- struct{}{}:
		return func() { <-b.slots }, nil
	default:
	}
	select {
	case b.slots <- struct{}{}:
		return func() { <-b.slots }, nil
	case <-ctx.Done():
		return nil, &Fault{Text: fmt.Sprintf("was not sent: %d calls to this API are in flight, the most that limits: concurrent allows", cap(b.slots))}
	}
}

// waitForRate waits until the rate allows the next request. If ctx would end first, it returns a
// Fault at once.
func (b *Budget) waitForRate(ctx context.Context) error {
	if b.limiter == nil {
		return nil
	}
	r := b.limiter.Reserve()
	wait := r.Delay()
	if wait == 0 {
		return nil
	}
	if end, ok := ctx.Deadline(); ok && time.Until(end) < wait {
		r.Cancel()
		return &Fault{Text: fmt.Sprintf("was not sent: the limit of %s for requests to this API is reached", b.most), After: wait}
	}
	if err := backoff.For(ctx, wait); err != nil {
		r.Cancel()
		return err
	}
	return nil
}
