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

// keysOf returns what the access rules say about keys.
func keysOf(c *config.Config) []auth.Key {
	var all []auth.Key
	for _, a := range c.Access {
		if a.Token == "" && a.TokenFile == "" {
			continue // it is for users
		}
		all = append(all, auth.Key{Principal: a.Name, Token: a.Token, File: a.TokenFile})
	}
	return all
}

// Start has what a principal has end when its key is taken away.
func (a *Access) Start() {
	a.stop = func() {}
	if a.keys == nil {
		return
	}
	a.keys.Heed(a.o.Heed)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { a.keys.Follow(ctx) })
	wg.Go(func() { a.keys.Run(ctx) })
	switch { // a front whose store is memory alone has nothing to hear, and nothing that is not taken
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

// Stop ends what Start has begun, and returns when it has.
func (a *Access) Stop() { a.stop() }

// Admit lets those in who show a key or a token for a place, and returns the request
// with whose it is in its context. ok is false for others, who have been answered. Each request shows
// its key anew: a session's id proves nothing. path is the request's if it is
// one that is served, for the log.
func (a *Access) Admit(w http.ResponseWriter, r *http.Request, path string, to Place) (known *http.Request, ok bool) {
	if a.keys == nil {
		return r, true
	}
	ctx, gate := a.gated(r)
	defer gate.done()
	who, err := a.keys.Caller(ctx, r.Header, a.resource(r, to))
	if err != nil {
		a.turnAway(w, r, path, to, err)
		return r, false
	}
	a.o.Known(r.Context())
	return r.WithContext(auth.WithCaller(r.Context(), who)), true
}

// gated returns the context in which a request's caller is looked for. No issuer is asked
// about more tokens of whoever has shown many that were made up, nor about more at once than
// may turn out to be. g is done when what was shown has been counted.
func (a *Access) gated(r *http.Request) (_ context.Context, g *gate) {
	if !a.keys.Tokens() {
		return r.Context(), nil
	}
	g = &gate{a: a, r: r}
	return token.WithGate(r.Context(), g), g
}

// gate is the token.Gate of a request.
type gate struct {
	a   *Access
	r   *http.Request
	end func() // ends the question about its token; nil if there is none
}

// Pass reports whether the issuer may be asked about the token of the request.
func (g *gate) Pass() (busy <-chan struct{}, ok bool) {
	g.end, busy = g.a.questions.Begin(g.a.guard.Load().client(g.r))
	return busy, g.end != nil
}

func (g *gate) done() {
	if g != nil && g.end != nil {
		g.end()
	}
}

// guessed counts what may be a guess at a key, or a token that was made up. It returns how
// long the client has to wait until it may show more; 0 while it need not.
func (a *Access) guessed(r *http.Request, guess bool, why error) (wait time.Duration) {
	e, _ := errors.AsType[*token.Error](why)
	from := a.guard.Load().client(r)
	switch asked := e != nil && e.Asked; {
	case guess && asked:
		wait = max(a.wrong.Take(from), a.strange.Wait(from))
	case guess:
		wait = a.wrong.Take(from)
	case asked:
		wait = max(a.strange.Take(from), a.wrong.Wait(from))
	}
	if e != nil && e.Unasked {
		wait = max(wait, time.Second)
	}
	return wait
}

// Sight is of which servers somebody may see the state.
type Sight struct {
	All bool // and the bridge as a whole
	Of  func(server string) bool
}

// Sight returns what the caller of that name may see.
func (a *Access) Sight(principal string) Sight {
	if a.keys == nil || a.c().PublicStatus || a.c().SeesAll(auth.RuleOf(principal)) {
		return Sight{true, func(string) bool { return true }}
	}
	return Sight{false, func(server string) bool { return server != "" && a.o.Allowed(server, principal) == nil }}
}

// Insider reports whether the details of the state of the bridge may be shown in
// answer to a request that is answered in any case, and which. acts says that who asks may
// act on what is of others.
func (a *Access) Insider(r *http.Request, base string) (sees Sight, acts, ok bool) {
	if a.keys == nil || a.c().PublicStatus {
		return a.Sight(""), a.keys == nil && auth.Principal(r.Context()) == "" && a.Near(r), true
	}
	to := Place{base, ""}
	ctx, gate := a.gated(r)
	defer gate.done()
	who, err := a.keys.Caller(ctx, r.Header, a.resource(r, to))
	switch {
	case err == nil:
		a.o.Known(r.Context())
	case a.guessed(r, a.refusalOf(r, to, err).guess, err) == 0 && a.refusalOf(r, to, err).guess:
		a.complain(r, r.URL.Path, err) // somebody may be guessing
	}
	_, acts = a.Rights(who.Principal)
	return a.Sight(who.Principal), acts && err == nil, err == nil
}

const (
	challenge = `Bearer realm="mcp-bridge"`
	showKey   = "this takes a key, in the header Authorization: Bearer KEY or X-API-Key: KEY"
	// unreadLimit is how long the HTTP server may wait for the body of a request
	// that was turned away: it reads some of it for the sake of the connection.
	unreadLimit = 5 * time.Second
)

// ComplainEvery is how often a line may be logged about who was turned away for
// one cause: none of these hides another.
const ComplainEvery = 10 * time.Second

// complain logs that somebody showed no key, or a wrong one. Nothing secret of what was
// shown is logged. Where tokens count, to show nothing is how each client begins that signs in.
func (a *Access) complain(r *http.Request, path string, why error) {
	cause, level := auth.ResultOf(why), slog.LevelInfo
	switch {
	case errors.Is(why, auth.ErrInvalid):
		cause = ""
	case errors.Is(why, auth.ErrMissing) && a.keys.Tokens():
		level = slog.LevelDebug
	}
	lines, _ := a.complaints.LoadOrStore(cause, new(logs.Limiter))
	more, ok := lines.(*logs.Limiter).Due(ComplainEvery)
	if !ok {
		return
	}
	a.o.Log.Log(r.Context(), level, "a request was turned away", "from", a.guard.Load().client(r).String(), "path", path, "err", why, "more", more)
}

// TooMany answers a request with a wrong key from an address that has shown too
// many.
func TooMany(w http.ResponseWriter, wait time.Duration) {
	seconds := strconv.Itoa(int(math.Ceil(wait.Seconds())))
	httpio.RetryAfter(w.Header(), wait)
	why := "too many wrong keys were shown from this address: show a good one, or try again in " + seconds + " s"
	more := `{"bridge":"rate_limited","retryAfterMs":` + seconds + `000}`
	answer.Data(w, http.StatusTooManyRequests, "application/json", jsonrpc.NewError(nil, jsonrpc.CodeInvalidRequest, why, []byte(more)).Append(nil, nil, nil))
}
