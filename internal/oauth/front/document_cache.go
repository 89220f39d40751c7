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
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
)

// wrongDocument is a fault of a fetched document, written for the user. Other failures, such as a status, reveal the
// bridge's network, so they go only to the log.
type wrongDocument string

// Error implements error.
func (w wrongDocument) Error() string { return string(w) }

const (
	maxDocument = 64 << 10
	limit       = 5 * time.Second
	minLife     = time.Minute // minimum lifetime of a document
	maxLife     = 24 * time.Hour
	// failureLife is the lifetime of a failure.
	failureLife  = 10 * time.Second
	maxDocuments = 1000
	// OldFor is how long an old document is used while it cannot be fetched again.
	OldFor       = time.Hour
	maxFetches   = 32 // in flight at the same time
	maxFetchesOf = 2  // in flight at the same time from one host or for one network
	// slotPatience limits a fetch while other fetches need its slot.
	slotPatience = time.Second
)

// documents fetches and caches documents of one kind. Its methods may be called concurrently.
type documents[T any] struct {
	client  *http.Client
	kind    string // name of the kind, for the log
	maxLife func(*T) time.Duration
	log     *slog.Logger

	mu       sync.Mutex // guards the rest; not held during a fetch
	all      simplelru.LRUCache[string, *document[T]]
	inFlight map[string]int // fetches in flight per host and per network
	running  []*fetch       // fetches in flight, oldest first
}

// document is a parsed document, or the reason why there is none.
type document[T any] struct {
	done  chan struct{} // closed when the other fields are set
	value *T
	err   error
	until time.Time
	// old is the previous document, which may be used until oldUntil.
	old      *T
	oldUntil time.Time
}

type fetch struct {
	began time.Time
	end   context.CancelFunc // cancels the fetch, to free its slot
}

// newDocuments returns a cache of documents of a kind. transport must refuse private networks. maxLife returns the
// maximum lifetime of a document.
func newDocuments[T any](transport http.RoundTripper, kind string, maxLife func(*T) time.Duration, log *slog.Logger) *documents[T] {
	all, _ := simplelru.NewLRU[string, *document[T]](maxDocuments, nil) // the size is positive
	return &documents[T]{
		client: &http.Client{
			Transport:     transport,
			Timeout:       limit,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		kind:     kind,
		maxLife:  maxLife,
		log:      log,
		all:      all,
		inFlight: map[string]int{},
	}
}

// Get returns the document at an address, for a caller in a network. It fetches only if allow returns true, and parses
// with read. Concurrent calls for one address share a fetch.
func (d *documents[T]) Get(ctx context.Context, id, network string, allow func() bool, read func([]byte) (*T, error)) (*T, error) {
	u, err := url.Parse(id)
	if err != nil {
		return nil, err
	}
	keys := []string{"host " + strings.ToLower(u.Hostname()), "for " + network}
	d.mu.Lock()
	doc, ok := d.all.Get(id)
	before := doc
	if ok {
		select {
		case <-doc.done:
			ok = time.Now().Before(doc.until)
		default: // the fetch is in flight
		}
	}
	if !ok {
		doc = &document[T]{done: make(chan struct{})}
		if before != nil {
			doc.old, doc.oldUntil = before.value, before.until.Add(OldFor)
			if before.old != nil {
				doc.old, doc.oldUntil = before.old, before.oldUntil
			}
		}
		full := slices.ContainsFunc(keys, func(p string) bool { return d.inFlight[p] >= maxFetchesOf })
		if full || !allow() {
			d.mu.Unlock()
			return doc.fallback(wrongDocument("too many fetches for your address or from its host: try again later"))
		}
		if !d.makeSlot(d.inFlight[keys[1]]) {
			d.mu.Unlock()
			return doc.fallback(wrongDocument("too many fetches at once: try again later"))
		}
		d.all.Add(id, doc)
		ctx, end := context.WithCancel(context.WithoutCancel(ctx))
		defer end()
		running := &fetch{time.Now(), end}
		d.running = append(d.running, running)
		for _, p := range keys {
			d.inFlight[p]++
		}
		d.mu.Unlock()
		d.fetch(ctx, id, doc, read)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.running = slices.DeleteFunc(d.running, func(other *fetch) bool { return other == running })
		for _, p := range keys {
			if d.inFlight[p]--; d.inFlight[p] == 0 {
				delete(d.inFlight, p)
			}
		}
		return doc.value, doc.err
	}
	d.mu.Unlock()
	select {
	case <-doc.done:
		return doc.value, doc.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// makeSlot makes a slot for a fetch and reports whether there is a slot. had is the number of fetches in flight for the
// caller's network. Half of the slots are only for networks that have no slot yet; if no slot is free for such a
// network, makeSlot cancels the oldest fetch if it is slow. The caller holds d.mu.
func (d *documents[T]) makeSlot(had int) bool {
	switch n := len(d.running); {
	case n < maxFetches/2:
	case had > 0:
		return false
	case n >= maxFetches:
		if time.Since(d.running[0].began) < slotPatience {
			return false
		}
		d.running[0].end()
		d.running = slices.Delete(d.running, 0, 1)
	}
	return true
}

// fallback returns the old document if it may still be used, else err.
func (d *document[T]) fallback(err error) (*T, error) {
	if d.old != nil && time.Now().Before(d.oldUntil) {
		return d.old, nil
	}
	return nil, err
}

// errFetch is an HTTP status that was received instead of a document.
type errFetch int

func (e errFetch) Error() string { return fmt.Sprintf("the answer is HTTP %d", int(e)) }

// permanent reports whether a failure is the document's. Other failures are temporary.
func permanent(err error) bool {
	if status, ok := errors.AsType[errFetch](err); ok {
		return status < 500 && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout
	}
	_, ok := errors.AsType[wrongDocument](err)
	return ok
}

func (d *documents[T]) fetch(ctx context.Context, id string, doc *document[T], read func([]byte) (*T, error)) {
	defer close(doc.done)
	doc.until = time.Now().Add(failureLife)
	defer func() {
		if doc.err == nil || permanent(doc.err) {
			doc.old = nil
			return
		}
		why := doc.err
		if ctx.Err() != nil {
			why, doc.until = errors.New("it was too slow while others waited"), time.Now()
		}
		if doc.value, doc.err = doc.fallback(why); doc.err == nil {
			d.log.Warn(d.kind+" cannot be fetched: the bridge uses the old document for up to an hour", "url", fmt.Sprintf("%.200q", id), "err", why)
		}
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, id, nil)
	if err != nil {
		doc.err = err
		return
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "mcp-bridge")
	res, err := d.client.Do(r)
	if err != nil {
		doc.err = discovery.Reason(err)
		return
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxDocument+1))
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case err != nil:
		doc.err = discovery.Reason(err)
	case res.StatusCode != http.StatusOK:
		doc.err = errFetch(res.StatusCode)
	case len(data) > maxDocument:
		doc.err = wrongDocument("it must not be larger than 64 KiB")
	case kind != "application/json" && !strings.HasSuffix(kind, "+json"):
		doc.err = wrongDocument("its Content-Type must be application/json")
	default:
		if doc.value, doc.err = read(data); doc.err == nil {
			doc.until = time.Now().Add(min(discovery.MaxAge(res.Header, minLife, maxLife), d.maxLife(doc.value)))
		}
	}
}
