// Package retry retries idempotent calls that got no answer: lists, reads, and as an option tools that the server
// declares idempotent.
//
// After a growing pause, the package retries at most a few calls each second, and a tenth of all calls. It never
// retries a call whose client was notified or asked during the call. It starts no goroutine. The lane, not this
// package, repeats requests that were surely not sent.
package retry

import (
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
	"github.com/mcp-bridge/bridge/internal/setting"
)

// Idempotent reports whether the list of tools that the principal got declares the tool idempotent.
type Idempotent func(principal, tool string) bool

// Retries limits the retries of calls to a server: a few each second, and a tenth of all calls. So retries add little
// load to a server that fails.
type Retries struct {
	options    atomic.Pointer[Options] // complete: without zero values that mean a default
	idempotent Idempotent
	log        *slog.Logger
	life       <-chan struct{} // ends all pauses when it is closed
	tenths     atomic.Int64    // tenths of a retry that calls have saved up
	few        *rate.Limiter
}

const (
	fewRetries  = 3       // retries each second
	maxTenths   = 10 * 10 // calls save up at most 10 retries
	firstPause  = 100 * time.Millisecond
	maxPauses   = 2 * time.Second
	worthWithin = 30 * time.Second // a call that failed after a longer time is not retried: its client has waited enough
)

// New returns the retries of calls to a server, or nil if o switches retries off. When life ends, pauses end.
func New(o Options, idempotent Idempotent, log *slog.Logger, life context.Context) *Retries {
	if !o.On() {
		return nil
	}
	r := &Retries{
		idempotent: idempotent,
		log:        log,
		life:       life.Done(),
		few:        rate.NewLimiter(fewRetries, fewRetries),
	}
	r.Set(o)
	return r
}

// Set replaces the options for calls that begin later. A nil Retries stays off.
func (r *Retries) Set(o Options) {
	if r == nil {
		return
	}
	if setting.Fill(&o); !o.On() {
		o.Attempts = 1
	}
	r.options.Store(&o)
}

// Wrap returns up with retries. A nil Retries returns up.
func (r *Retries) Wrap(up bridge.Upstream) bridge.Upstream {
	if r == nil {
		return up
	}
	return &retrying{up, r}
}

// retrying is an Upstream that retries calls.
type retrying struct {
	bridge.Upstream
	r *Retries
}

// take takes one retry from the budget. If the budget is empty, it reports false.
func (r *Retries) take() bool {
	if r.few.Allow() {
		return true
	}
	for {
		n := r.tenths.Load()
		if n < 10 {
			return false
		}
		if r.tenths.CompareAndSwap(n, n-10) {
			return true
		}
	}
}

// repeatable are the methods whose calls may always be retried.
var repeatable = map[string]bool{
	"tools/list": true, "prompts/list": true, "resources/list": true, "resources/templates/list": true,
	"resources/read": true, "server/discover": true, "ping": true,
}

// Call makes a call, and retries it if that is allowed and of use.
func (r *retrying) Call(ctx context.Context, request *bridge.Request) (*jsonrpc.Message, error) {
	if r.r.tenths.Load() < maxTenths {
		r.r.tenths.Add(1)
	}
	o := r.r.options.Load()
	if !r.may(o, request) {
		return r.Upstream.Call(ctx, request)
	}
	return r.call(ctx, o.Attempts, request)
}

// may reports whether the options and the request allow a retry.
func (r *retrying) may(o *Options, request *bridge.Request) bool {
	switch {
	case o.Attempts < 2:
		return false
	case repeatable[request.Method]:
	case request.Method == "tools/call" && o.Tools:
		if request.Doubtful() || !r.r.idempotent(request.From.Principal, request.Name()) || gjson.GetBytes(request.Params, "task").Exists() {
			return false
		}
	default:
		return false
	}
	return !era.MayAsk(request.Method) || !rawjson.Mentions(request.Params, "requestState", "inputResponses") // a server accepts answers to its questions only once
}

// call makes a call up to attempts times.
func (r *retrying) call(ctx context.Context, attempts int, request *bridge.Request) (*jsonrpc.Message, error) {
	saved := *request // the layers below change the request's headers
	var heard *attended
	if request.Back != nil {
		heard = &attended{Client: request.Back}
		saved.Back = heard
	}
	for n := 1; ; n++ {
		inner := saved
		began := time.Now()
		m, err := r.Upstream.Call(ctx, &inner)
		if err == nil || n >= attempts || heard != nil && heard.used.Load() || time.Since(began) > worthWithin {
			return m, err
		}
		pause, ok := pauseFor(ctx, err, n)
		if !ok || !r.r.take() {
			return m, err
		}
		r.r.log.Debug("retrying a call", "method", request.Method, "err", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-r.r.life:
			return nil, bridge.ErrShutdown
		}
	}
}

// pauseFor returns the pause before the retry of a call that failed n times, the last time with err. It reports false
// if a retry is pointless. Pauses grow and have random parts, so that calls that failed together are not retried
// together.
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
		return 0, false // a retry would fail with the same error
	}
	pause += after
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= pause {
		return 0, false
	}
	return pause, true
}

// attended is the Client of a call that may be retried. It records whether its client was notified or asked, which must
// not happen again in a retry.
type attended struct {
	bridge.Client
	used atomic.Bool
}

var _ bridge.Client = (*attended)(nil)

func (a *attended) Notify(m *jsonrpc.Message) {
	a.used.Store(true)
	a.Client.Notify(m)
}

func (a *attended) Ask(m *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	a.used.Store(true)
	return a.Client.Ask(m, reply)
}
