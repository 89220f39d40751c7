package access

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/server/internal/answer"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/auth/token"
	"github.com/mcp-bridge/bridge/internal/httpio"
	"github.com/mcp-bridge/bridge/internal/logs"
)

func keysOf(c *config.Config) []auth.Key {
	var all []auth.Key
	for _, a := range c.Access {
		if a.Token == "" && a.TokenFile == "" {
			continue // the rule is for users
		}
		all = append(all, auth.Key{
			Principal: a.Name,
			Token:     a.Token,
			File:      a.TokenFile,
		})
	}
	return all
}

// Start watches key files, issuers and the front, until Stop.
func (a *Access) Start() {
	a.stop = func() {}
	if a.keys == nil {
		return
	}
	a.keys.OnChange(a.o.Bridge.KeysChanged)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { a.keys.Watch(ctx) })
	wg.Go(func() { a.keys.Run(ctx) })
	switch { // a front that stores in memory has nothing to watch
	case a.front == nil:
	case a.disk != nil:
		wg.Go(func() {
			select {
			case <-a.disk.Opened():
				a.front.Watch(ctx)
			case <-ctx.Done():
			}
		})
	case a.o.Store != nil:
		wg.Go(func() { a.front.Watch(ctx) })
	}
	a.stop = func() {
		cancel()
		wg.Wait()
	}
}

// Stop ends the goroutines of Start, and waits for them.
func (a *Access) Stop() { a.stop() }

// Admit accepts requests with a key or a token for the target, and returns the request with its caller in the
// context. Admit answers all others, and ok is false. Each request shows its key anew: a session's id proves nothing
// . path is for the log.
func (a *Access) Admit(w http.ResponseWriter, r *http.Request, path string, to Target) (known *http.Request, ok bool) {
	if a.keys == nil {
		return r, true
	}
	ctx, gate := a.gated(r)
	defer gate.done()
	who, err := a.keys.Caller(ctx, r.Header, a.resource(r, to))
	if err != nil {
		a.reject(w, r, path, to, err)
		return r, false
	}
	a.o.Bridge.Accepted(r.Context())
	return r.WithContext(auth.WithCaller(r.Context(), who)), true
}

// gated returns the context for verifying a request's credentials. gated limits lookups at issuers for addresses that
// showed many invented tokens, and simultaneous lookups of an address. The caller calls g.done when it has counted
// the result. Without an issuer, g is nil, and done does nothing.
func (a *Access) gated(r *http.Request) (_ context.Context, g *gate) {
	if !a.keys.Tokens() {
		return r.Context(), nil
	}
	g = &gate{a: a, r: r}
	return token.WithGate(r.Context(), g), g
}

// gate is the token.Gate of one request.
type gate struct {
	a   *Access
	r   *http.Request
	end func() // ends the lookup of the request's token; nil without a lookup
}

// Pass implements token.Gate. Pass begins a lookup at the issuer, which gate.done ends.
func (g *gate) Pass() (busy <-chan struct{}, ok bool) {
	g.end, busy = g.a.lookups.Begin(g.a.guard.Load().client(g.r))
	return busy, g.end != nil
}

func (g *gate) done() {
	if g != nil && g.end != nil {
		g.end()
	}
}

// countGuess counts a possible guess at a key, or an invented token. countGuess returns the time that the client has
// to wait before the next guess; 0 means not at all.
func (a *Access) countGuess(r *http.Request, guess bool, why error) (wait time.Duration) {
	e, _ := errors.AsType[*token.Error](why)
	from := a.guard.Load().client(r)
	switch asked := e != nil && e.Asked; {
	case guess && asked:
		wait = max(a.failedKeys.Take(from), a.unknownTokens.Wait(from))
	case guess:
		wait = a.failedKeys.Take(from)
	case asked:
		wait = max(a.unknownTokens.Take(from), a.failedKeys.Wait(from))
	}
	if e != nil && e.Unasked {
		wait = max(wait, time.Second)
	}
	return wait
}

// View names the servers whose state a caller may see.
type View struct {
	All bool // the caller may see all servers, and the bridge as a whole
	Of  func(server string) bool
}

// View returns what a principal may see: the whole bridge, or only the servers that it may use.
func (a *Access) View(principal string) View {
	if a.keys == nil || a.c().PublicStatus || a.c().SeesAll(auth.RuleOf(principal)) {
		return View{true, func(string) bool { return true }}
	}
	return View{false, func(server string) bool { return server != "" && a.o.Bridge.Allowed(server, principal) == nil }}
}

// StatusView returns what the sender of a request to an open path, such as /readyz, may see of the bridge's state. If
// ok is false, the sender may see only whether the bridge is ready. acts reports whether the caller may act as an
// operator.
func (a *Access) StatusView(r *http.Request, base string) (sees View, acts, ok bool) {
	if a.keys == nil || a.c().PublicStatus {
		return a.View(""), a.keys == nil && auth.Principal(r.Context()) == "" && a.Local(r), true
	}
	to := Target{Base: base, Endpoint: ""}
	ctx, gate := a.gated(r)
	defer gate.done()
	who, err := a.keys.Caller(ctx, r.Header, a.resource(r, to))
	switch {
	case err == nil:
		a.o.Bridge.Accepted(r.Context())
	case a.countGuess(r, a.refusalOf(r, to, err).guess, err) == 0 && a.refusalOf(r, to, err).guess:
		a.logRejected(r, r.URL.Path, err) // the key may be a guess
	}
	_, acts = a.Rights(who.Principal)
	return a.View(who.Principal), acts && err == nil, err == nil
}

const (
	challenge = `Bearer realm="mcp-bridge"`
	showKey   = "send the header Authorization: Bearer KEY or X-API-Key: KEY"
	// unreadLimit limits the time in which the HTTP server reads the body of a rejected request. The
	// server reads a part so that the connection can be used again.
	unreadLimit = 5 * time.Second
)

// RejectedLogEvery is the least time between two lines about requests rejected for the same cause. Each cause has a
// limit of its own, so that no cause hides another.
const RejectedLogEvery = 10 * time.Second

// logRejected logs a request without a good key or token, but no part of its credentials. With an issuer, a request
// without credentials is a detail: every sign-in begins with one.
func (a *Access) logRejected(r *http.Request, path string, why error) {
	cause, level := auth.ResultOf(why), slog.LevelInfo
	switch {
	case errors.Is(why, auth.ErrInvalid):
		cause = ""
	case errors.Is(why, auth.ErrMissing) && a.keys.Tokens():
		level = slog.LevelDebug
	}
	lines, _ := a.rejections.LoadOrStore(cause, new(logs.Limiter))
	more, ok := lines.(*logs.Limiter).Due(RejectedLogEvery)
	if !ok {
		return
	}
	a.o.Log.Log(r.Context(), level, "request rejected", "from", a.guard.Load().client(r).String(), "path", path, "err", why, "more", more)
}

// TooMany answers a request with a wrong key from an address that showed too many. refuse is the Refuse of a Target.
func TooMany(w http.ResponseWriter, wait time.Duration, refuse func(w http.ResponseWriter, status int, code, message string)) {
	seconds := strconv.Itoa(int(math.Ceil(wait.Seconds())))
	httpio.RetryAfter(w.Header(), wait)
	why := "too many wrong keys came from this address: send a valid one, or try again in " + seconds + " s"
	if refuse != nil {
		refuse(w, http.StatusTooManyRequests, "rate_limited", why)
		return
	}
	more := `{"bridge":"rate_limited","retryAfterMs":` + seconds + `000}`
	answer.Data(w, http.StatusTooManyRequests, "application/json", jsonrpc.NewError(nil, jsonrpc.CodeInvalidRequest, why, []byte(more)).Append(nil, nil, nil))
}
