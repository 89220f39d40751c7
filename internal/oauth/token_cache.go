package oauth

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
)

const (
	// renewBefore is how long before its end a token is replaced, or a fifth of the token's life if that is less.
	renewBefore = 30 * time.Second
	// usualLife is the lifetime of a token whose expiry is unknown.
	usualLife = 5 * time.Minute
	// askLimit is the timeout for all requests that are needed for one token.
	askLimit = time.Minute
	// firstPause is the pause after a failed request for a token. Each failure doubles the pause, up to maxPause.
	firstPause = time.Second
	maxPause   = 30 * time.Second
	// renewPause is the minimum time between two new tokens because of refusals by the server.
	renewPause = 10 * time.Second
	// maxCached bounds the cached tokens for one server.
	maxCached = 10_000
)

// tokenCache caches tokens in memory until shortly before they expire. Concurrent callers with the same key share one
// request.
type tokenCache struct {
	log  *slog.Logger
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.Mutex // guards the rest
	closed bool
	tokens simplelru.LRUCache[string, *cachedToken]
}

// cachedToken is a cached token, or a token that is being requested.
type cachedToken struct {
	done    chan struct{} // closed when token, until and err are set
	token   string        // empty while the authorization server is unknown
	until   time.Time     // guarded by the tokenCache's mu once done is closed
	err     error
	fails   int       // number of consecutive failed requests before this request
	renewed time.Time // when a refusal last caused a new token
}

func newTokenCache(log *slog.Logger) *tokenCache {
	t := &tokenCache{log: log}
	t.tokens, _ = simplelru.NewLRU[string, *cachedToken](maxCached, nil) // the size is positive
	t.ctx, t.stop = context.WithCancel(context.Background())
	return t
}

// close cancels requests for tokens and waits for them.
func (t *tokenCache) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.stop()
	t.wg.Wait()
}

// get returns the token of a key. If there is none, get calls ask. The request belongs to no caller: the end of ctx
// does not cancel it.
func (t *tokenCache) get(ctx context.Context, key string, ask func(context.Context) (*discovery.Token, error)) (string, error) {
	t.mu.Lock()
	entry, _ := t.tokens.Get(key)
	if entry == nil || entry.expired(time.Now()) {
		if t.closed {
			t.mu.Unlock()
			return "", &Failure{Public: "the bridge is stopping"}
		}
		next := &cachedToken{done: make(chan struct{})}
		if entry != nil {
			if next.renewed = entry.renewed; entry.err != nil {
				next.fails = entry.fails + 1
			}
		}
		entry = next
		t.tokens.Add(key, entry)
		t.wg.Go(func() { t.fetch(entry, ask) })
	}
	t.mu.Unlock()
	select {
	case <-entry.done:
		return entry.token, entry.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// expired reports whether a new token must be requested. The caller holds the tokenCache's mu.
func (c *cachedToken) expired(now time.Time) bool {
	select {
	case <-c.done:
		return !c.until.IsZero() && !now.Before(c.until)
	default:
		return false
	}
}

// refused handles the refusal of a token. It reports whether to send the request again, with a new token or with a
// token that has already replaced the refused token.
func (t *tokenCache) refused(key, token string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	entry, _ := t.tokens.Get(key)
	if entry == nil {
		return true // get requests another token
	}
	select {
	case <-entry.done:
	default:
		return true // another token is being requested
	}
	now := time.Now()
	switch {
	case entry.err != nil || entry.token != token:
		return true // there is another token, or an error that get returns
	case token != "" && !entry.renewed.IsZero() && now.Sub(entry.renewed) < renewPause:
		return false
	}
	entry.renewed, entry.until = now, now
	return true
}

func (t *tokenCache) fetch(entry *cachedToken, ask func(context.Context) (*discovery.Token, error)) {
	defer close(entry.done)
	ctx, cancel := context.WithTimeout(t.ctx, askLimit)
	defer cancel()
	began := time.Now()
	one, err := ask(ctx)
	switch {
	case err != nil:
		// The failure is cached for a while, so that an authorization server that refuses or does not work does not get
		// a request with each call.
		entry.until = time.Now().Add(backoff.Grown(firstPause, maxPause, entry.fails+1))
		entry.err = failure(err)
		t.log.Warn("the bridge got no token for the server", "err", err)
	case one != nil:
		life := cmp.Or(one.Lives, usualLife)
		entry.token, entry.until = one.Access, began.Add(life-min(renewBefore, life/5))
		t.log.Debug("token for the server", "until", entry.until)
	}
}
