package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/mcp-bridge/bridge/bridge/auth"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/config"
)

// keysOf returns what the access rules say about keys; nil without rules.
func keysOf(c *config.Config) []auth.Key {
	var all []auth.Key
	for _, a := range c.Access {
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
	return func() {
		cancel()
		wg.Wait()
	}
}

// admit lets those in who show a key, and notes in the request's context whose
// it is. Each request shows it anew: a session's id proves nothing.
func (s *Server) admit(c *gin.Context) {
	if s.keys == nil {
		return
	}
	name, err := s.keys.Principal(c.Request.Header)
	if err != nil {
		s.turnAway(c, err)
		return
	}
	shown(c.Request.Context())
	c.Request = c.Request.WithContext(auth.WithPrincipal(c.Request.Context(), name))
}

// granted lets those in who may use the server of that name. For others it does not
// exist.
func (s *Server) granted(name string) gin.HandlerFunc {
	kept := map[string]bool{} // out
	for principal, g := range s.c.Grants() {
		kept[principal] = slices.Contains(s.b.Servers(), name) && !g.Covers(name)
	}
	return func(c *gin.Context) {
		if s.keys != nil && kept[auth.Principal(c.Request.Context())] {
			s.unknown(c)
		}
	}
}

// operator lets those in who may look at how the bridge fares: everybody, if the
// configuration says so.
func (s *Server) operator(c *gin.Context) {
	if !s.c.PublicStatus {
		s.admit(c)
	}
}

// sight is of which servers somebody may see how they fare.
type sight struct {
	all bool // and the bridge as a whole
	of  func(server string) bool
}

// sight returns what the caller of that name may see.
func (s *Server) sight(principal string) sight {
	if s.keys == nil || s.c.PublicStatus || s.c.SeesAll(principal) {
		return sight{true, func(string) bool { return true }}
	}
	return sight{false, func(server string) bool { return server != "" && s.b.Allowed(server, principal) == nil }}
}

// insider reports whether the details of how the bridge fares may be shown in
// answer to a request that is answered in any case, and which.
func (s *Server) insider(c *gin.Context) (sees sight, ok bool) {
	if s.keys == nil || s.c.PublicStatus {
		return s.sight(""), true
	}
	name, err := s.keys.Principal(c.Request.Header)
	switch {
	case err == nil:
		shown(c.Request.Context())
	case errors.Is(err, auth.ErrInvalid) && s.wrong.take(s.guard.client(c.Request)) == 0:
		s.complain(c, err) // somebody may be guessing
	}
	return s.sight(name), err == nil
}

const (
	challenge = `Bearer realm="mcp-bridge"`
	showKey   = "this takes a key, in the header Authorization: Bearer KEY or X-API-Key: KEY"
	// unreadLimit is how long the HTTP server may wait for the body of a request
	// that was turned away: it reads some of it for the sake of the connection.
	unreadLimit = 5 * time.Second
)

// turnAway answers a request that shows no key, or none that is good. What it
// says is the same for all of these, and its body is not looked at.
func (s *Server) turnAway(c *gin.Context, why error) {
	c.Abort()
	if c.Request.ContentLength != 0 {
		_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Now().Add(unreadLimit)) // the server sets another for the next request
	}
	if errors.Is(why, auth.ErrMissing) {
		c.Header("WWW-Authenticate", challenge)
	} else {
		if wait := s.wrong.take(s.guard.client(c.Request)); wait > 0 {
			tooMany(c, wait)
			return
		}
		c.Header("WWW-Authenticate", challenge+`, error="invalid_token"`)
	}
	s.complain(c, why)
	c.Data(http.StatusUnauthorized, "application/json", jsonrpc.NewError(nil, jsonrpc.CodeInvalidRequest, showKey, []byte(`{"bridge":"unauthorized"}`)).Append(nil, nil, nil))
}

// complaints counts what is not worth a line each.
type complaints struct {
	mu   sync.Mutex // guards the rest
	next time.Time  // when there may be another line
	more int        // since the last one
}

// complainEvery is how often a line may be logged about who was turned away.
const complainEvery = 10 * time.Second

// due reports whether it is time for a line, and how many had none before it.
func (c *complaints) due(now time.Time) (more int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Before(c.next) {
		c.more++
		return 0, false
	}
	more, c.more, c.next = c.more, 0, now.Add(complainEvery)
	return more, true
}

// complain logs that somebody showed no key, or a wrong one. Nothing of what was
// shown is logged.
func (s *Server) complain(c *gin.Context, why error) {
	more, ok := s.complaints.due(time.Now())
	if !ok {
		return
	}
	s.log.Info("a request was turned away", "from", s.guard.client(c.Request).String(), "path", c.FullPath(), "err", why, "more", more)
}
