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

// lives end streams whose callers have no good token any more. What a server says by
// itself goes on for as long as the last token counts that was shown for the session;
// a later request with a newer one moves that on (I-027). Answers of calls under way
// are not concerned. The zero value is ready for use.
type lives struct {
	mu sync.Mutex
	of map[string]*life // of sessions with an open stream
}

// life is how long the streams of a session may go on.
type life struct {
	last    *token.Token // that ends the latest
	streams int
}

// left returns how long the streams may go on.
func (l *life) left() time.Duration {
	if l.last.Gone() {
		return 0
	}
	return time.Until(l.last.Until)
}

// lookAgain is after what time a stream is ended at the latest whose token's key the
// issuer has taken back.
const lookAgain = time.Minute

// errTokenEnded is why a stream ends.
var errTokenEnded = errors.New("the token that was shown for the stream has ended")

// follow returns the request of a caller with a token, which ends with that token if it
// opens a stream. done is called when it has been answered. which is the last part of
// its path.
func (l *lives) follow(r *http.Request, server, which string) (followed *http.Request, done func()) {
	t := auth.TokenOf(r.Context())
	if t == nil {
		return r, func() {}
	}
	// A stream of HTTP+SSE has its session's id from within: those of one user at one
	// server go on together.
	key := auth.Principal(r.Context()) + "\n" + server + "\n" + which
	if which == "messages" {
		key = auth.Principal(r.Context()) + "\n" + server + "\nsse"
	}
	if id := r.Header.Get("Mcp-Session-Id"); id != "" {
		key = auth.Principal(r.Context()) + "\n" + server + "\n" + id // a token for another server is of no use here
	}
	switch {
	case r.Method == http.MethodGet:
		return l.enter(r, key, t)
	case r.Method == http.MethodPost && slices.ContainsFunc(r.Header["Mcp-Method"], func(v string) bool { return era.EqualHeader(v, era.Listen) }): // of a client without a session
		return l.enter(r, "", t)
	}
	l.extend(key, t)
	return r, func() {}
}

// extend moves the end of the streams of that key on.
func (l *lives) extend(key string, t *token.Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.of[key]; one != nil && (t.Until.After(one.last.Until) || one.last.Gone()) {
		one.last = t
	}
}

// enter returns a request that ends with the token; without a key nothing moves that on.
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
