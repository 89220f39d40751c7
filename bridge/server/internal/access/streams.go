package access

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/auth/token"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// streams ends streams when the tokens of their callers expire. A session's streams last as long as
// the last token that was shown for the session. A later request with a newer token extends them
// (I-027). The answers of calls in flight are not affected. The zero value is ready for use.
type streams struct {
	mu        sync.Mutex
	bySession map[string]*sessionStreams // by session, for sessions with an open stream
}

// sessionStreams is the state of the open streams of one session.
type sessionStreams struct {
	last  *token.Token // the token that expires last
	count int
}

// remaining returns the time until the streams must end.
func (s *sessionStreams) remaining() time.Duration {
	if s.last.Revoked() {
		return 0
	}
	return time.Until(s.last.Until)
}

// recheckEvery is the interval between checks of a stream's token: the issuer may have withdrawn
// the key that signed the token.
const recheckEvery = time.Minute

// errTokenExpired is the cause with which a stream's context ends.
var errTokenExpired = errors.New("the token of the stream has expired")

// If a request opens a stream, follow returns the request with a context that ends with the caller's token. The
// caller calls done when the request has been answered. which is the last part of the path.
func (s *streams) follow(r *http.Request, server, which string) (followed *http.Request, done func()) {
	t := auth.TokenOf(r.Context())
	if t == nil {
		return r, func() {}
	}
	// The session id of an HTTP+SSE stream is not in its request: the streams of one user at
	// one server share their end.
	key := auth.Principal(r.Context()) + "\n" + server + "\n" + which
	if which == "messages" {
		key = auth.Principal(r.Context()) + "\n" + server + "\nsse"
	}
	if id := r.Header.Get("Mcp-Session-Id"); id != "" {
		key = auth.Principal(r.Context()) + "\n" + server + "\n" + id // a token for another server extends nothing here
	}
	switch {
	case r.Method == http.MethodGet:
		return s.open(r, key, t)
	case r.Method == http.MethodPost && slices.ContainsFunc(r.Header["Mcp-Method"], func(v string) bool { return era.EqualHeader(v, era.Listen) }): // from a stateless client
		return s.open(r, "", t)
	}
	s.extend(key, t)
	return r, func() {}
}

// extend lets the streams of a session last until t expires, unless the session has shown a token that expires later.
func (s *streams) extend(key string, t *token.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.bySession[key]; one != nil && (t.Until.After(one.last.Until) || one.last.Revoked()) {
		one.last = t
	}
}

// open returns a request whose context ends with the token. If key is empty, no later token extends the request.
func (s *streams) open(r *http.Request, key string, t *token.Token) (*http.Request, func()) {
	ctx, cancel := context.WithCancelCause(httpio.Attached(r.Context()))
	s.extend(key, t)
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.bySession[key]
	if one == nil || key == "" {
		one = &sessionStreams{last: t}
	}
	if key != "" {
		if s.bySession == nil {
			s.bySession = map[string]*sessionStreams{}
		}
		s.bySession[key] = one
	}
	one.count++
	var timer *time.Timer
	timer = time.AfterFunc(min(one.remaining(), recheckEvery), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if left := one.remaining(); left > 0 {
			timer.Reset(min(left, recheckEvery))
		} else {
			cancel(errTokenExpired)
		}
	})
	return r.WithContext(ctx), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		timer.Stop()
		cancel(nil)
		if one.count--; one.count == 0 && key != "" {
			delete(s.bySession, key)
		}
	}
}
