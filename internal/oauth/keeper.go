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
	// margin is how long before its end a token is not used any more, or a fifth of its life
	// if that is less.
	margin = 30 * time.Second
	// usualLife is taken when the authorization server does not say how long a token lives.
	usualLife = 5 * time.Minute
	// askLimit is for all requests that a token takes.
	askLimit = time.Minute
	// After a token was not to be had, the next is asked for no sooner than that, twice as
	// long each time, up to maxPause.
	firstPause = time.Second
	maxPause   = 30 * time.Second
	// renewPause is how long after a token that the server did not accept no other is asked
	// for because of that.
	renewPause = 10 * time.Second
	// maxKept bounds the tokens that are kept for one server.
	maxKept = 10_000
)

// keeper keeps tokens in memory until shortly before they end, by what they are for. Those
// who need the same one at the same time share one request.
type keeper struct {
	log  *slog.Logger
	life context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.Mutex // guards the rest
	closed bool
	kept   *simplelru.LRU[string, *held]
}

// held is a token that there is, or that is asked for.
type held struct {
	done    chan struct{} // closed when the next three are there
	token   string        // empty as long as it is not known who gives tokens
	until   time.Time     // after done guarded by the keeper's lock
	err     error
	fails   int       // how many before this one were not to be had
	renewed time.Time // when the server has last refused the one before
}

func newKeeper(log *slog.Logger) *keeper {
	k := &keeper{log: log}
	k.kept, _ = simplelru.NewLRU[string, *held](maxKept, nil) // the size is positive
	k.life, k.stop = context.WithCancel(context.Background())
	return k
}

// close ends requests for tokens, and waits for them.
func (k *keeper) close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.stop()
	k.wg.Wait()
}

// get returns the token that is kept under a key. If there is none, ask gets it. It is
// nobody's in particular: the end of one call does not end it.
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

// over reports whether another has to be asked for. The caller holds the keeper's lock.
func (h *held) over(now time.Time) bool {
	select {
	case <-h.done:
		return !h.until.IsZero() && !now.Before(h.until)
	default:
		return false
	}
}

// refused hears that the server does not accept the token under a key, and reports whether
// to send the request again: with a new one, or with one that is there by now.
func (k *keeper) refused(key, token string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	one, _ := k.kept.Get(key)
	if one == nil {
		return true // another is asked for
	}
	select {
	case <-one.done:
	default:
		return true // another is on its way
	}
	now := time.Now()
	switch {
	case one.err != nil || one.token != token:
		return true // there is another, or none: get says which
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
		// Who asks meanwhile is told the same: an authorization server that refuses, or is
		// down, is not asked with each call.
		one.until = time.Now().Add(backoff.Grown(firstPause, maxPause, one.fails+1))
		one.err = failure(err)
		k.log.Warn("no token for the server", "err", err)
	case t != nil:
		life := cmp.Or(t.Lives, usualLife)
		one.token, one.until = t.Access, began.Add(life-min(margin, life/5))
		k.log.Debug("token for the server", "until", one.until)
	}
}
