package document

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/internal/backoff"
)

// Maker makes an API's tools of its texts.
type Maker interface {
	// Make makes the tools of a reading and puts them to use. It returns their number. In the first
	// reading, a fault in the configuration is an error. Later, the document may have changed, so that
	// a fault affects only its own entry. pushed, unless nil, is the catalogue from a webhook; if that
	// is unusable, the error is a *CatalogError.
	Make(one *Reading, first bool, pushed []byte) (tools int, err error)
	// Usable reports whether calls can be made now.
	Usable() bool
}

// CatalogError is the error of an unusable catalogue from a webhook. The tools stay as they were.
type CatalogError struct {
	Err error // the fault
}

// Error implements error.
func (c *CatalogError) Error() string { return c.Err.Error() }

// Unwrap returns the fault.
func (c *CatalogError) Unwrap() error { return c.Err }

var (
	// ErrUnread is why an API cannot be used yet.
	ErrUnread = errors.New("its description is not read yet")
	// ErrStopped is the error after Close.
	ErrStopped = errors.New("the server was stopped")
)

// Follower reads the texts of an API for the first time, and then again after changes, until Close.
type Follower struct {
	texts   *Reader
	maker   Maker
	refresh time.Duration // between checks for changes; 0 means filePause and urlPause
	webhook bool          // Renew may be called
	log     *slog.Logger

	life    context.Context // ends with Close
	stop    context.CancelFunc
	wg      sync.WaitGroup
	wakeups chan *wakeup // requests of webhooks for follow

	mu       sync.Mutex // guards the fields below
	read     bool       // the first reading has succeeded
	reading  *attempt   // the first reading in progress, or nil
	failed   error      // why the last attempt at a first reading failed
	failedAt time.Time
	pushed   []byte // the catalogue that a webhook sent; nil if none did
	closed   bool
}

// attempt is one attempt at the first reading.
type attempt struct {
	done chan struct{} // closed after err is set
	err  error
}

// wakeup is a webhook's request to read everything again.
type wakeup struct {
	body  []byte        // the new catalogue; nil if the request has none
	done  chan struct{} // closed after tools and err are set
	tools int
	err   error
}

// answer reports the outcome to the waiting webhook. w may be nil.
func (w *wakeup) answer(tools int, err error) {
	if w == nil {
		return
	}
	w.tools, w.err = tools, err
	close(w.done)
}

// NewFollower returns a follower of the texts, which reads nothing before First. refresh is the pause
// between checks for changes; 2 s for files and 5 min for URLs if 0. webhook says that Renew may be
// called.
func NewFollower(texts *Reader, maker Maker, refresh time.Duration, webhook bool) *Follower {
	f := &Follower{
		texts:   texts,
		maker:   maker,
		refresh: refresh,
		webhook: webhook,
		log:     texts.o.Log,
		wakeups: make(chan *wakeup),
	}
	f.life, f.stop = context.WithCancel(context.Background())
	return f
}

// First waits for the first reading, and starts it if none is in progress. If the first reading has
// succeeded before, First returns nil at once.
func (f *Follower) First(ctx context.Context) error {
	f.mu.Lock()
	if f.read || f.closed {
		defer f.mu.Unlock()
		if f.closed {
			return ErrStopped
		}
		return nil
	}
	r := f.reading
	if r == nil {
		r = &attempt{done: make(chan struct{})}
		f.reading = r
		f.wg.Go(func() { f.begin(r) })
	}
	f.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnread, context.Cause(ctx))
	}
}

// Now is First until the follower is closed.
func (f *Follower) Now() error { return f.First(f.life) }

// begin does the first reading. If that succeeds, begin watches for changes until Close.
func (f *Follower) begin(r *attempt) {
	o := &f.texts.o
	before := stampFiles(append([]string{o.Location, o.Catalog}, o.Overlays...))
	one, _, err := f.make(true, f.Pushed())
	if _, ok := errors.AsType[*CatalogError](err); ok {
		f.log.Warn("the catalogue from a webhook no longer fits the configuration: send it again", "err", err)
		f.Push(nil)
		one, _, err = f.make(true, nil)
	}
	f.mu.Lock()
	f.reading, f.read, f.failed, f.failedAt = nil, err == nil, err, time.Now()
	r.err = err
	f.mu.Unlock()
	close(r.done)
	if err == nil && (len(one.texts) > 0 || f.webhook) {
		f.follow(watch(f.texts.fetch, one.texts, before), one.Saved)
	}
}

// make reads the texts and makes the tools of them.
func (f *Follower) make(first bool, pushed []byte) (*Reading, int, error) {
	one, err := f.texts.Read(f.life, first)
	if err != nil {
		return nil, 0, err
	}
	tools, err := f.maker.Make(one, first, pushed)
	return one, tools, err
}

// Pushed returns the last catalogue that a webhook sent, or nil.
func (f *Follower) Pushed() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pushed
}

// Push sets the catalogue from a webhook for the next reading. nil means none.
func (f *Follower) Push(catalogue []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pushed = catalogue
}

const (
	firstPause   = time.Second // between the first two attempts of Retry
	longestPause = time.Minute // between any two attempts
)

// Retry tries the first reading in the background until it succeeds. It logs each failure whose text
// differs from that of the failure before.
func (f *Follower) Retry() {
	f.wg.Go(func() {
		said := ""
		for failures := 1; ; failures++ {
			err := f.Now()
			if err == nil || f.life.Err() != nil {
				return
			}
			if text := err.Error(); text != said {
				said = text
				what := "the API cannot be used yet: its description cannot be read; it is tried again"
				if f.maker.Usable() {
					what = "the API stays as it was before the configuration changed: its description cannot be read; it is tried again"
				}
				f.log.Warn(what, "err", err)
			}
			if backoff.For(f.life, backoff.Grown(firstPause, longestPause, failures)) != nil {
				return
			}
		}
	})
}

// Failed returns why the last attempt at the first reading failed, and when. Both are zero if the first
// reading has succeeded or was not tried.
func (f *Follower) Failed() (at time.Time, why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.read {
		return time.Time{}, nil
	}
	return f.failedAt, f.failed
}

// filePause is the pause between checks of files for changes, and urlPause that between checks of
// URLs, unless Follower.refresh is set.
const (
	filePause = 2 * time.Second
	urlPause  = 5 * time.Minute
)

// follow watches for changes until Close. It polls, since neither file systems nor exchanged volumes of
// containers always report changes. While the saved document is in use, follow reads the URL at once,
// and then at least every longestPause.
func (f *Follower) follow(w *watched, saved bool) {
	ticker := time.NewTicker(cmp.Or(f.refresh, filePause))
	defer ticker.Stop()
	asked, said := time.Now(), ""
	urls := cmp.Or(f.refresh, urlPause)
	pausing := urls
	if saved {
		asked, pausing = time.Time{}, min(urls, longestPause)
	}
	for {
		var l *wakeup
		select {
		case <-ticker.C:
		case l = <-f.wakeups:
		case <-f.life.Done():
			return
		}
		changed := l != nil || w.filesChanged()
		if len(w.urls) > 0 && !changed && time.Since(asked) >= pausing {
			asked = time.Now()
			var err error
			if changed, err = w.urlsChanged(f.life); err != nil {
				said = f.logUnusable(said, err)
			}
		}
		if !changed {
			continue
		}
		texts, newest := w.texts(), f.Pushed()
		before := stampFiles(texts)
		if l != nil && l.body != nil {
			newest = l.body
		}
		one, tools, err := f.make(false, newest)
		if err != nil {
			said = f.logUnusable(said, err)
		} else {
			said, pausing = "", urls
			f.Push(newest)
			texts = one.texts
		}
		l.answer(tools, err)
		w = watch(f.texts.fetch, texts, before)
	}
}

// logUnusable logs that the document or the catalogue cannot be used, unless said is the text of the
// same error. It returns that text, for the next call.
func (f *Follower) logUnusable(said string, err error) string {
	if text := err.Error(); text != said && f.life.Err() == nil {
		f.log.Warn("the tools stay as they were: the document or the catalogue cannot be used", "err", err)
		return text
	}
	return said
}

// Renew reads everything again at once, for a webhook, and returns the number of tools. body, unless
// nil, is the new catalogue.
func (f *Follower) Renew(ctx context.Context, body []byte) (tools int, err error) {
	if err := f.First(ctx); err != nil { // also starts follow, which takes wakeups
		return 0, err
	}
	w := &wakeup{body: body, done: make(chan struct{})}
	select {
	case f.wakeups <- w:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-f.life.Done():
		return 0, ErrStopped
	}
	select {
	case <-w.done:
		return w.tools, w.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-f.life.Done():
		return 0, ErrStopped
	}
}

// Close ends a reading in progress, and all goroutines of the follower. It returns when they have ended.
func (f *Follower) Close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.stop()
	f.wg.Wait()
}
