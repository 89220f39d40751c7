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
	// margin is how long before its end a token is replaced: a fifth of its life if that is less.
	margin = 30 * time.Second
	// usualLife is the lifetime of a token whose expiry is unknown.
	usualLife = 5 * time.Minute
	// askLimit is the timeout for all requests that getting one token takes.
	askLimit = time.Minute
	// firstPause is the pause after a failed request for a token. It doubles with each failure, up
	// to maxPause.
	firstPause = time.Second
	maxPause   = 30 * time.Second
	// renewPause is the least time between two new tokens that the server's refusals cause.
	renewPause = 10 * time.Second
	// maxKept bounds the cached tokens for one server.
	maxKept = 10_000
)

// keeper caches tokens in memory until shortly before they expire. Concurrent callers with the same
// key share one request.
type keeper struct {
	log  *slog.Logger
	life context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	closed bool
	kept   *simplelru.LRU[string, *held]
}

// held is a cached token, or one being requested.
type held struct {
	done    chan struct{} // closed when token, until and err are set
	token   string        // empty while the authorization server is unknown
	until   time.Time     // guarded by the keeper's lock once done is closed
	err     error
	fails   int       // number of failed requests before this one
	renewed time.Time // when a refusal last caused a new token
}

func newKeeper(log *slog.Logger) *keeper {
	k := &keeper{log: log}
	k.kept, _ = simplelru.NewLRU[string, *held](maxKept, nil) // the size is positive
	k.life, k.stop = context.WithCancel(context.Background())
	return k
}

// close cancels requests for tokens and waits for them.
func (k *keeper) close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.stop()
	k.wg.Wait()
}

// get returns the token of a key. It calls ask if there is none. The request belongs to no caller:
// the end of ctx does not cancel it.
func (k *keeper) get(ctx context.Context, key string, ask func(context.Context) (*discovery.Token, error)) (string, error) {
	k.mu.Lock()
	one, _ := k.kept.Get(key)
	if one == nil || one.over(time.Now()) {
		if k.closed {
			k.mu.Unlock()
			return "", &Failure{Public: "the bridge is stopping"}
		}
		next := &held{done: make(chan struct{})}
		if one != nil {
			if next.renewed = one.renewed; one.err != nil {
				next.fails = one.fails + 1
			}
		}
		one = next
		k.kept.Add(key, one)
		k.wg.Go(func() { k.fetch(one, ask) })
	}
	k.mu.Unlock()
	select {
	case <-one.done:
		return one.token, one.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// over reports whether a new token must be requested. The caller holds the keeper's lock.
func (h *held) over(now time.Time) bool {
	select {
	case <-h.done:
		return !h.until.IsZero() && !now.Before(h.until)
	default:
		return false
	}
}

// refused handles the refusal of a token. It reports whether to send the request again, with a new
// token or one that replaced it already.
func (k *keeper) refused(key, token string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	one, _ := k.kept.Get(key)
	if one == nil {
		return true // get requests another one
	}
	select {
	case <-one.done:
	default:
		return true // another one is being requested
	}
	now := time.Now()
	switch {
	case one.err != nil || one.token != token:
		return true // there is another one, or an error, which get returns
	case token != "" && !one.renewed.IsZero() && now.Sub(one.renewed) < renewPause:
		return false
	}
	one.renewed, one.until = now, now
	return true
}

func (k *keeper) fetch(one *held, ask func(context.Context) (*discovery.Token, error)) {
	defer close(one.done)
	ctx, cancel := context.WithTimeout(k.life, askLimit)
	defer cancel()
	began := time.Now()
	t, err := ask(ctx)
	switch {
	case err != nil:
		// The failure is cached for a while: an authorization server that refuses or is down must not
		// get a request with each call.
		one.until = time.Now().Add(backoff.Grown(firstPause, maxPause, one.fails+1))
		one.err = failure(err)
		k.log.Warn("the bridge got no token for the server", "err", err)
	case t != nil:
		life := cmp.Or(t.Lives, usualLife)
		one.token, one.until = t.Access, began.Add(life-min(margin, life/5))
		k.log.Debug("token for the server", "until", one.until)
	}
}
