package front

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
)

// wrongDocument is what is wrong with a document that was fetched: who is sent here may know. What
// else happens when it is fetched, a status too, says something of the network, and is logged
// alone.
type wrongDocument string

// Error implements error.
func (w wrongDocument) Error() string { return string(w) }

const (
	maxDocument = 64 << 10
	limit       = 5 * time.Second
	least       = time.Minute // for which one counts
	most        = 24 * time.Hour
	// faultFor is for how long it is known that there is none.
	faultFor     = 10 * time.Second
	maxDocuments = 1000
	// FormerFor is for how long one is used that cannot be fetched again.
	FormerFor    = time.Hour
	maxFetches   = 32 // at the same time
	maxFetchesOf = 2  // at the same time, from one host, or for one network
	// patience is for how long one may take that others wait for.
	patience = time.Second
)

// documents fetches documents of one kind, and keeps what was read of them. Its methods may be
// called concurrently.
type documents[T any] struct {
	client *http.Client
	what   string // they are, for the log
	most   func(*T) time.Duration
	log    *slog.Logger

	mu    sync.Mutex // guards the rest; it is not held while one is fetched
	all   *simplelru.LRU[string, *document[T]]
	busy  map[string]int // how many are being fetched from a host, and for a network
	under []*fetch       // those that are under way, the one that began first in front
}

// document is what was read of one, or why there is nothing.
type document[T any] struct {
	done  chan struct{} // closed when the rest is there
	value *T
	err   error
	until time.Time
	// former is what was there before, and may be used until another time.
	former      *T
	formerUntil time.Time
}

// fetch is a document that is being fetched.
type fetch struct {
	began time.Time
	end   context.CancelFunc // has it make room for another one
}

// newDocuments makes what fetches documents, which are called that, by a transport that must refuse
// private networks. most tells for how long one counts at most, whatever it says of itself.
func newDocuments[T any](transport http.RoundTripper, what string, most func(*T) time.Duration, log *slog.Logger) *documents[T] {
	all, _ := simplelru.NewLRU[string, *document[T]](maxDocuments, nil) // the size is positive
	return &documents[T]{
		client: &http.Client{Transport: transport, Timeout: limit, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		what:   what, most: most, log: log, all: all, busy: map[string]int{},
	}
}

// Get returns the document at an address, for somebody in a network. allow is asked before it is fetched,
// and read reads it. Those who want the same at the same time share one request.
func (d *documents[T]) Get(ctx context.Context, id, network string, allow func() bool, read func([]byte) (*T, error)) (*T, error) {
	u, err := url.Parse(id)
	if err != nil {
		return nil, err
	}
	places := []string{"host " + strings.ToLower(u.Hostname()), "for " + network}
	d.mu.Lock()
	one, ok := d.all.Get(id)
	had := one
	if ok {
		select {
		case <-one.done:
			ok = time.Now().Before(one.until)
		default: // it is being fetched
		}
	}
	if !ok {
		one = &document[T]{done: make(chan struct{})}
		if had != nil {
			one.former, one.formerUntil = had.value, had.until.Add(FormerFor)
			if had.former != nil {
				one.former, one.formerUntil = had.former, had.formerUntil
			}
		}
		full := slices.ContainsFunc(places, func(p string) bool { return d.busy[p] >= maxFetchesOf })
		if full || !allow() {
			d.mu.Unlock()
			return one.fallback(wrongDocument("too many are fetched for this address, or from its host: try again later"))
		}
		if !d.room(d.busy[places[1]]) {
			d.mu.Unlock()
			return one.fallback(wrongDocument("too many are being fetched: try again later"))
		}
		d.all.Add(id, one)
		ctx, end := context.WithCancel(context.WithoutCancel(ctx))
		defer end()
		this := &fetch{time.Now(), end}
		d.under = append(d.under, this)
		for _, p := range places {
			d.busy[p]++
		}
		d.mu.Unlock()
		d.fetch(ctx, id, one, read)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.under = slices.DeleteFunc(d.under, func(other *fetch) bool { return other == this })
		for _, p := range places {
			if d.busy[p]--; d.busy[p] == 0 {
				delete(d.busy, p)
			}
		}
		return one.value, one.err
	}
	d.mu.Unlock()
	select {
	case <-one.done:
		return one.value, one.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// room makes room for one more to be fetched, for a network that so many are being fetched for,
// and reports whether there is. Half of it is for networks that none is being fetched for; for
// them, the one that began first has to go if it is slow. d.mu is held.
func (d *documents[T]) room(had int) bool {
	switch n := len(d.under); {
	case n < maxFetches/2:
	case had > 0:
		return false
	case n >= maxFetches:
		if time.Since(d.under[0].began) < patience {
			return false
		}
		d.under[0].end()
		d.under = slices.Delete(d.under, 0, 1)
	}
	return true
}

// fallback returns the former document where there is one still, or why there is none.
func (d *document[T]) fallback(err error) (*T, error) {
	if d.former != nil && time.Now().Before(d.formerUntil) {
		return d.former, nil
	}
	return nil, err
}

// errFetch says that an answer is no document, but that there may be one still.
type errFetch int

func (e errFetch) Error() string { return fmt.Sprintf("the answer is HTTP %d", int(e)) }

// lasts reports whether what has gone wrong says nothing of the document: that it could not
// be fetched just then.
func lasts(err error) bool {
	if status, ok := errors.AsType[errFetch](err); ok {
		return status < 500 && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout
	}
	_, ok := errors.AsType[wrongDocument](err)
	return ok
}

// fetch fetches one.
func (d *documents[T]) fetch(ctx context.Context, id string, one *document[T], read func([]byte) (*T, error)) {
	defer close(one.done)
	one.until = time.Now().Add(faultFor)
	defer func() {
		if one.err == nil || lasts(one.err) {
			one.former = nil
			return
		}
		why := one.err
		if ctx.Err() != nil {
			why, one.until = errors.New("it was slow while others waited"), time.Now()
		}
		if one.value, one.err = one.fallback(why); one.err == nil {
			d.log.Warn(d.what+" cannot be fetched: for up to an hour, what was there before counts", "url", fmt.Sprintf("%.200q", id), "err", why)
		}
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, id, nil)
	if err != nil {
		one.err = err
		return
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "mcp-bridge")
	res, err := d.client.Do(r)
	if err != nil {
		one.err = discovery.Reason(err)
		return
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxDocument+1))
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case err != nil:
		one.err = discovery.Reason(err)
	case res.StatusCode != http.StatusOK:
		one.err = errFetch(res.StatusCode)
	case len(data) > maxDocument:
		one.err = wrongDocument("it is larger than 64 KiB")
	case kind != "application/json" && !strings.HasSuffix(kind, "+json"):
		one.err = wrongDocument("it is not sent as application/json")
	default:
		if one.value, one.err = read(data); one.err == nil {
			one.until = time.Now().Add(min(age(res.Header.Get("Cache-Control")), d.most(one.value)))
		}
	}
}

// age returns how long a document counts that came with that Cache-Control.
func age(control string) time.Duration {
	for part := range strings.SplitSeq(control, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if seconds, err := strconv.ParseUint(value, 10, 31); err == nil && strings.EqualFold(name, "max-age") {
			return min(max(time.Duration(seconds)*time.Second, least), most)
		}
	}
	return least
}
