package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/time/rate"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// retrying is an Upstream that makes a call again which had no answer, if to
// have it executed twice does no harm (protocol.md D0.8).
type retrying struct {
	bridge.Upstream
	r *route
}

// retrying returns up with its calls made again, if the server's are.
func (r *route) retrying(up bridge.Upstream) bridge.Upstream {
	if r.retries == nil {
		return up
	}
	return &retrying{up, r}
}

// retries says how much a server's calls may be made again: a tenth of what it
// is asked, and a few each second. One that fails has enough to do as it is.
type retries struct {
	attempts int
	tools    bool
	tenths   atomic.Int64 // of calls that may be made again
	few      *rate.Limiter
}

const (
	fewRetries  = 3       // a second
	maxTenths   = 10 * 10 // saved up by calls
	firstPause  = 100 * time.Millisecond
	maxPauses   = 2 * time.Second
	worthWithin = 30 * time.Second // a call that took longer to fail is not made again: who waits for it has waited enough
)

// newRetries returns what there is to know about the calls of a server that are
// made again; nil when none are.
func newRetries(o Retry) *retries {
	n := or(o.Attempts, 2)
	if o.Off || n < 2 {
		return nil
	}
	return &retries{attempts: n, tools: o.Tools, few: rate.NewLimiter(fewRetries, fewRetries)}
}

// wantsTools reports whether calls of tools are made again.
func (u *retries) wantsTools() bool { return u != nil && u.tools }

// earn counts a call.
func (u *retries) earn() {
	if u.tenths.Load() < maxTenths {
		u.tenths.Add(1)
	}
}

// take reports whether one more call may be made again.
func (u *retries) take() bool {
	if u.few.Allow() {
		return true
	}
	for {
		n := u.tenths.Load()
		if n < 10 {
			return false
		}
		if u.tenths.CompareAndSwap(n, n-10) {
			return true
		}
	}
}

// repeatable are the methods whose calls may be made again.
var repeatable = map[string]bool{
	"tools/list": true, "prompts/list": true, "resources/list": true, "resources/templates/list": true,
	"resources/read": true, "server/discover": true, "ping": true,
}

// Call makes a call, and again if it can be.
func (u *retrying) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	s := u.r.retries
	s.earn()
	if s.tools && r.Method == lists[tools].method {
		a, err := u.call(ctx, r)
		if err == nil && a.Error == nil {
			u.r.catalog(r.From.Principal).noteCalm(r, a.Result)
		}
		return a, err
	}
	if !u.may(r) {
		return u.Upstream.Call(ctx, r)
	}
	return u.call(ctx, r)
}

// may reports whether a call may be made again.
func (u *retrying) may(r *bridge.Request) bool {
	switch {
	case repeatable[r.Method]:
	case r.Method == "tools/call" && u.r.retries.tools:
		if r.Doubtful() || !u.r.catalog(r.From.Principal).harmless(r.Name()) || gjson.GetBytes(r.Params, "task").Exists() {
			return false
		}
	default:
		return false
	}
	return !era.MayAsk(r.Method) || !mentions(r.Params, "requestState", "inputResponses") // its answers are good for once
}

// call makes a call that may be made again.
func (u *retrying) call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	saved := *r // below, the headers of what it is given are replaced
	var heard *attended
	if r.Back != nil {
		heard = &attended{Client: r.Back}
		saved.Back = heard
	}
	for n := 1; ; n++ {
		inner := saved
		began := time.Now()
		a, err := u.Upstream.Call(ctx, &inner)
		if err == nil || n >= u.r.retries.attempts || heard != nil && heard.spoken.Load() || time.Since(began) > worthWithin {
			return a, err
		}
		pause, ok := pauseFor(ctx, err, n)
		if !ok || !u.r.retries.take() {
			return a, err
		}
		u.r.log.Debug("a call is made again", "method", r.Method, "err", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		case <-u.r.b.life.Done():
			timer.Stop()
			return nil, bridge.ErrShutdown
		}
	}
}

// pauseFor returns after what pause a call is made again that has failed n times,
// the last time with err, and whether that is worth it. The pauses grow, and are
// as random as can be: what has failed together does not come again together.
func pauseFor(ctx context.Context, err error, n int) (time.Duration, bool) {
	switch {
	case ctx.Err() != nil, errors.Is(err, bridge.ErrOpen), errors.Is(err, bridge.ErrOverloaded), errors.Is(err, bridge.ErrRefused), errors.Is(err, errAnother):
		return 0, false
	case !errors.Is(err, bridge.ErrUnavailable) && !errors.Is(err, bridge.ErrLost) && !errors.Is(err, bridge.ErrTimeout):
		return 0, false
	}
	most := min(firstPause<<(n-1), maxPauses)
	pause := rand.N(most) + 1
	after := bridge.RetryAfter(err)
	if errors.Is(err, bridge.ErrDeclined) && after == 0 || after > maxPauses {
		return 0, false // nothing will have changed
	}
	pause += after
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= pause {
		return 0, false
	}
	return pause, true
}

// attended is the Client of a call that may be made again: what its client was
// told or asked once, it is not told or asked again.
type attended struct {
	bridge.Client
	spoken atomic.Bool
}

var _ bridge.Client = (*attended)(nil)

// Notify passes on what the server says about the call.
func (c *attended) Notify(n *jsonrpc.Message) {
	c.spoken.Store(true)
	c.Client.Notify(n)
}

// Ask passes on what the server asks about the call.
func (c *attended) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	c.spoken.Store(true)
	return c.Client.Ask(q, reply)
}

// noteCalm notes which tools of a page may be called twice.
func (c *catalog) noteCalm(r *bridge.Request, page []byte) {
	found := map[string]bool{}
	if mentions(page, "Hint") {
		tools.items(page, func(item []byte, key string) {
			if calm(gjson.GetBytes(item, "annotations")) {
				found[key] = true
			}
		})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !gjson.GetBytes(r.Params, "cursor").Exists() || len(c.calm)+len(found) > maxCatalog {
		c.calm = found // the list begins anew
		return
	}
	for name := range found {
		c.calm[name] = true
	}
}

// calm reports whether a tool of these annotations may be called twice. Only
// what is said counts, and of what contradicts itself the worse.
func calm(annotations gjson.Result) bool {
	if annotations.Get("idempotentHint").Type == gjson.True {
		return true
	}
	return annotations.Get("readOnlyHint").Type == gjson.True && annotations.Get("destructiveHint").Type != gjson.True
}

// harmless reports whether the server has listed the tool as one that may be
// called twice.
func (c *catalog) harmless(tool string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calm[tool]
}
