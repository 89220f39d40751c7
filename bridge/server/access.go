package server

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
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/auth/token"
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

// follow has what a principal has end when its key is taken away. stop ends that,
// and returns when it has.
func (s *Server) follow() (stop func()) {
	if s.keys == nil {
		return func() {}
	}
	s.keys.Heed(func(principal string, good bool) {
		if good {
			s.b.Restore(principal)
			return
		}
		s.b.Revoke(principal)
		s.sse.Revoke(principal)
	})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { s.keys.Follow(ctx) })
	wg.Go(func() { s.keys.Run(ctx) })
	switch { // a front whose store is memory alone has nothing to hear, and nothing that is not taken
	case s.front == nil:
	case s.disk != nil:
		wg.Go(func() {
			select {
			case <-s.disk.Opened():
				s.front.Watch(ctx)
			case <-ctx.Done():
			}
		})
	case s.instance != nil:
		wg.Go(func() { s.front.Watch(ctx) })
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

// admit lets those in who show a key or a token for a place, and returns the request
// with whose it is in its context. ok is false for others, who have been answered. Each request shows
// its key anew: a session's id proves nothing. path is the request's if it is
// one that is served, for the log.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, path string, to place) (known *http.Request, ok bool) {
	if s.keys == nil {
		return r, true
	}
	ctx, gate := s.gated(r)
	defer gate.done()
	who, err := s.keys.Caller(ctx, r.Header, s.resource(r, to))
	if err != nil {
		s.turnAway(w, r, path, to, err)
		return r, false
	}
	shown(r.Context())
	return r.WithContext(auth.WithCaller(r.Context(), who)), true
}

// gated returns the context in which a request's caller is looked for. No issuer is asked
// about more tokens of whoever has shown many that were made up, nor about more at once than
// may turn out to be. g is done when what was shown has been counted.
func (s *Server) gated(r *http.Request) (_ context.Context, g *gate) {
	if !s.keys.Tokens() {
		return r.Context(), nil
	}
	g = &gate{s: s, r: r}
	return token.WithGate(r.Context(), g), g
}

// gate is the token.Gate of a request.
type gate struct {
	s   *Server
	r   *http.Request
	end func() // ends the question about its token; nil if there is none
}

// Pass reports whether the issuer may be asked about the token of the request.
func (g *gate) Pass() (busy <-chan struct{}, ok bool) {
	g.end, busy = g.s.questions.Begin(g.s.guard.Load().client(g.r))
	return busy, g.end != nil
}

func (g *gate) done() {
	if g != nil && g.end != nil {
		g.end()
	}
}

// guessed counts what may be a guess at a key, or a token that was made up. It returns how
// long the client has to wait until it may show more; 0 while it need not.
func (s *Server) guessed(r *http.Request, guess bool, why error) (wait time.Duration) {
	e, _ := errors.AsType[*token.Error](why)
	from := s.guard.Load().client(r)
	switch asked := e != nil && e.Asked; {
	case guess && asked:
		wait = max(s.wrong.Take(from), s.strange.Wait(from))
	case guess:
		wait = s.wrong.Take(from)
	case asked:
		wait = max(s.strange.Take(from), s.wrong.Wait(from))
	}
	if e != nil && e.Unasked {
		wait = max(wait, time.Second)
	}
	return wait
}

// granted reports whether the caller may use the server of that name. For others it
// does not exist, which they have been told.
func (s *Server) granted(w http.ResponseWriter, r *http.Request, base, name string) bool {
	g, ruled := s.grants.Of(auth.Principal(r.Context()))
	if ruled && !g.Covers(name) {
		s.unknown(w, r, base)
		return false
	}
	return true
}

// operator lets those in who may look at the state of the bridge: everybody, if the
// configuration says so. Otherwise it is as admit.
func (s *Server) operator(w http.ResponseWriter, r *http.Request, base string) (known *http.Request, ok bool) {
	if s.c().PublicStatus {
		return r, true
	}
	return s.admit(w, r, r.URL.Path, place{base, ""})
}

// sight is of which servers somebody may see the state.
type sight struct {
	all bool // and the bridge as a whole
	of  func(server string) bool
}

// sight returns what the caller of that name may see.
func (s *Server) sight(principal string) sight {
	if s.keys == nil || s.c().PublicStatus || s.c().SeesAll(auth.RuleOf(principal)) {
		return sight{true, func(string) bool { return true }}
	}
	return sight{false, func(server string) bool { return server != "" && s.b.Allowed(server, principal) == nil }}
}

// insider reports whether the details of the state of the bridge may be shown in
// answer to a request that is answered in any case, and which. acts says that who asks may
// act on what is of others.
func (s *Server) insider(r *http.Request, base string) (sees sight, acts, ok bool) {
	if s.keys == nil || s.c().PublicStatus {
		return s.sight(""), s.keys == nil && auth.Principal(r.Context()) == "" && s.near(r), true
	}
	to := place{base, ""}
	ctx, gate := s.gated(r)
	defer gate.done()
	who, err := s.keys.Caller(ctx, r.Header, s.resource(r, to))
	switch {
	case err == nil:
		shown(r.Context())
	case s.guessed(r, s.refusalOf(r, to, err).guess, err) == 0 && s.refusalOf(r, to, err).guess:
		s.complain(r, r.URL.Path, err) // somebody may be guessing
	}
	_, acts = s.rights(who.Principal)
	return s.sight(who.Principal), acts && err == nil, err == nil
}

const (
	challenge = `Bearer realm="mcp-bridge"`
	showKey   = "this takes a key, in the header Authorization: Bearer KEY or X-API-Key: KEY"
	// unreadLimit is how long the HTTP server may wait for the body of a request
	// that was turned away: it reads some of it for the sake of the connection.
	unreadLimit = 5 * time.Second
)

// complainEvery is how often a line may be logged about who was turned away for
// one cause: none of these hides another.
const complainEvery = 10 * time.Second

// complain logs that somebody showed no key, or a wrong one. Nothing secret of what was
// shown is logged. Where tokens count, to show nothing is how each client begins that signs in.
func (s *Server) complain(r *http.Request, path string, why error) {
	cause, level := auth.ResultOf(why), slog.LevelInfo
	switch {
	case errors.Is(why, auth.ErrInvalid):
		cause = ""
	case errors.Is(why, auth.ErrMissing) && s.keys.Tokens():
		level = slog.LevelDebug
	}
	lines, _ := s.complaints.LoadOrStore(cause, new(logs.Limiter))
	more, ok := lines.(*logs.Limiter).Due(complainEvery)
	if !ok {
		return
	}
	s.log.Log(r.Context(), level, "a request was turned away", "from", s.guard.Load().client(r).String(), "path", path, "err", why, "more", more)
}

// tooMany answers a request with a wrong key from an address that has shown too
// many.
func tooMany(w http.ResponseWriter, wait time.Duration) {
	seconds := strconv.Itoa(int(math.Ceil(wait.Seconds())))
	w.Header().Set("Retry-After", seconds)
	why := "too many wrong keys were shown from this address: show a good one, or try again in " + seconds + " s"
	more := `{"bridge":"rate_limited","retryAfterMs":` + seconds + `000}`
	data(w, http.StatusTooManyRequests, "application/json", jsonrpc.NewError(nil, jsonrpc.CodeInvalidRequest, why, []byte(more)).Append(nil, nil, nil))
}
