// Package retry retries idempotent calls that had no answer: lists, reads, and, if
// that is wanted, tools that the server says may be called twice.
//
// It makes at most a few calls again each second and a tenth of all, after a pause
// that grows, and none whose client was told or asked something meanwhile. It
// starts no goroutine. A request that was surely not sent is not its business: the
// lane sends that again.
package retry

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/time/rate"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Idempotent reports whether the server has listed a tool to the principal as one
// that may be called twice.
type Idempotent func(principal, tool string) bool

// Retries says how much a server's calls may be made again: a tenth of what it
// is asked, and a few each second. One that fails has enough to do as it is.
type Retries struct {
	options    atomic.Pointer[Options] // complete
	idempotent Idempotent
	log        *slog.Logger
	life       <-chan struct{} // closed when nothing is made again any more
	tenths     atomic.Int64    // of calls that may be made again
	few        *rate.Limiter
}

const (
	fewRetries  = 3       // a second
	maxTenths   = 10 * 10 // saved up by calls
	firstPause  = 100 * time.Millisecond
	maxPauses   = 2 * time.Second
	worthWithin = 30 * time.Second // a call that took longer to fail is not made again: who waits for it has waited enough
)

// New returns what makes the calls to a server again; nil when none are. The end
// of life is the end of all pauses.
func New(o Options, idempotent Idempotent, log *slog.Logger, life context.Context) *Retries {
	if !o.On() {
		return nil
	}
	u := &Retries{idempotent: idempotent, log: log, life: life.Done(), few: rate.NewLimiter(fewRetries, fewRetries)}
	u.Set(o)
	return u
}

// Set has other options count, for calls that begin from now on. nil has none: it makes
// no calls again whatever they are.
func (u *Retries) Set(o Options) {
	if u == nil {
		return
	}
	if o.Attempts = cmp.Or(o.Attempts, 2); !o.On() {
		o.Attempts = 1
	}
	u.options.Store(&o)
}

// Wrap returns up with its calls made again. nil makes none again.
func (u *Retries) Wrap(up bridge.Upstream) bridge.Upstream {
	if u == nil {
		return up
	}
	return &retrying{up, u}
}

// retrying is an Upstream that makes a call again which had no answer, if to
// have it executed twice does no harm.
type retrying struct {
	bridge.Upstream
	r *Retries
}

// take reports whether one more call may be made again.
func (u *Retries) take() bool {
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
	if u.r.tenths.Load() < maxTenths {
		u.r.tenths.Add(1)
	}
	o := u.r.options.Load()
	if !u.may(o, r) {
		return u.Upstream.Call(ctx, r)
	}
	return u.call(ctx, o.Attempts, r)
}

// may reports whether a call may be made again.
func (u *retrying) may(o *Options, r *bridge.Request) bool {
	switch {
	case o.Attempts < 2:
		return false
	case repeatable[r.Method]:
	case r.Method == "tools/call" && o.Tools:
		if r.Doubtful() || !u.r.idempotent(r.From.Principal, r.Name()) || gjson.GetBytes(r.Params, "task").Exists() {
			return false
		}
	default:
		return false
	}
	return !era.MayAsk(r.Method) || !rawjson.Mentions(r.Params, "requestState", "inputResponses") // its answers are good for once
}

// call makes a call that may be made again, so often at most.
func (u *retrying) call(ctx context.Context, attempts int, r *bridge.Request) (*jsonrpc.Message, error) {
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
		if err == nil || n >= attempts || heard != nil && heard.spoken.Load() || time.Since(began) > worthWithin {
			return a, err
		}
		pause, ok := pauseFor(ctx, err, n)
		if !ok || !u.r.take() {
			return a, err
		}
		u.r.log.Debug("retrying a call", "method", r.Method, "err", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-u.r.life:
			return nil, bridge.ErrShutdown
		}
	}
}

// pauseFor returns after what pause a call is made again that has failed n times,
// the last time with err, and whether that is worth it. The pauses grow, and are
// as random as can be: what has failed together does not come again together.
func pauseFor(ctx context.Context, err error, n int) (time.Duration, bool) {
	switch {
	case ctx.Err() != nil, errors.Is(err, bridge.ErrOpen), errors.Is(err, bridge.ErrOverloaded), errors.Is(err, bridge.ErrNoHandshake), errors.Is(err, bridge.ErrReplaced):
		return 0, false
	case !errors.Is(err, bridge.ErrUnavailable) && !errors.Is(err, bridge.ErrLost) && !errors.Is(err, bridge.ErrTimeout):
		return 0, false
	}
	most := min(firstPause<<(n-1), maxPauses)
	pause := rand.N(most) + 1
	after := bridge.RetryAfter(err)
	if errors.Is(err, bridge.ErrRejected) && after == 0 || after > maxPauses {
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
