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

// lives ends streams when the tokens of their callers expire. A session's streams last as long as
// the last token that was shown for the session; a later request with a newer token extends them
// (I-027). The answers of calls in flight are not affected. The zero value is ready for use.
type lives struct {
	mu sync.Mutex
	of map[string]*life // by session, those with an open stream
}

// life is the state of the open streams of one session.
type life struct {
	last    *token.Token // the one that expires last
	streams int
}

// left returns how long the streams may last.
func (l *life) left() time.Duration {
	if l.last.Gone() {
		return 0
	}
	return time.Until(l.last.Until)
}

// lookAgain is the interval in which the token of a stream is checked: the issuer may have
// withdrawn its key.
const lookAgain = time.Minute

// errTokenEnded is the cause of an ended stream.
var errTokenEnded = errors.New("the token of the stream has expired")

// follow returns the request with a context that ends with the caller's token, if it opens a
// stream. The caller calls done when the request has been answered. which is the last part of the
// path.
func (l *lives) follow(r *http.Request, server, which string) (followed *http.Request, done func()) {
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
		return l.enter(r, key, t)
	case r.Method == http.MethodPost && slices.ContainsFunc(r.Header["Mcp-Method"], func(v string) bool { return era.EqualHeader(v, era.Listen) }): // from a stateless client
		return l.enter(r, "", t)
	}
	l.extend(key, t)
	return r, func() {}
}

// extend postpones the end of the streams of a session.
func (l *lives) extend(key string, t *token.Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.of[key]; one != nil && (t.Until.After(one.last.Until) || one.last.Gone()) {
		one.last = t
	}
}

// enter returns a request that ends with the token. Without a key, nothing extends it.
func (l *lives) enter(r *http.Request, key string, t *token.Token) (*http.Request, func()) {
	ctx, cancel := context.WithCancelCause(httpio.Attached(r.Context()))
	l.extend(key, t)
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.of[key]
	if one == nil || key == "" {
		one = &life{last: t}
	}
	if key != "" {
		if l.of == nil {
			l.of = map[string]*life{}
		}
		l.of[key] = one
	}
	one.streams++
	var timer *time.Timer
	timer = time.AfterFunc(min(one.left(), lookAgain), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if left := one.left(); left > 0 {
			timer.Reset(min(left, lookAgain))
		} else {
			cancel(errTokenEnded)
		}
	})
	return r.WithContext(ctx), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		timer.Stop()
		cancel(nil)
		if one.streams--; one.streams == 0 && key != "" {
			delete(l.of, key)
		}
	}
}
