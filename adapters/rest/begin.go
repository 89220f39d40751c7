package rest

import (
	"errors"
	"io/fs"
	"time"

	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/backoff"
)

// errUnread is why the API cannot be used yet.
var errUnread = errors.New("its description is not read yet")

const (
	firstPause   = time.Second // between the first two attempts of retryRead
	longestPause = time.Minute // between any two attempts
)

// Begin reads the document, the overlays and the catalogue before the first use. When it returns,
// it has read all files. If a file has a fault, it returns an error.
//
// Begin reads URLs, and a catalogue file that does not exist yet, in the background, until that
// succeeds. Until then, calls use the edition of before. before is the adapter of the same server
// with the previous settings, or nil; it may be closed at any time.
func (a *Adapter) Begin(before *Adapter) error {
	if before != nil && a.c.Catalog.Webhook && a.c.Catalog.location() == "" {
		a.carry(before.pushedCatalog())
	}
	if !address.IsHTTP(a.c.OpenAPI) && a.c.Catalog.URL == "" {
		err := a.firstRead(a.life)
		if errors.Is(err, fs.ErrNotExist) && a.c.Catalog.missing() {
			a.borrow(before)
			a.wg.Go(a.retryRead)
			return nil
		}
		if err != nil {
			return err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.current.nowhere
	}
	if _, err := a.c.Inspect(a.life, a.name, a.o); err != nil {
		return err
	}
	a.borrow(before)
	a.wg.Go(a.retryRead)
	return nil
}

// borrow makes the edition of before the current one, until this adapter has its own. before may be
// nil.
func (a *Adapter) borrow(before *Adapter) {
	if before == nil {
		return
	}
	before.mu.Lock()
	u := before.current
	if before.closed || u == nil {
		before.mu.Unlock()
		return
	}
	u.mu.Lock()
	u.users++
	u.mu.Unlock()
	before.mu.Unlock()
	a.mu.Lock()
	a.current = &use{edition: u.edition}
	a.mu.Unlock()
}

// retryRead tries the first reading until it succeeds. It logs each failure whose text differs from
// that of the failure before.
func (a *Adapter) retryRead() {
	said := ""
	for failures := 1; ; failures++ {
		err := a.firstRead(a.life)
		if err == nil || a.life.Err() != nil {
			return
		}
		if text := err.Error(); text != said {
			said = text
			what := "the API cannot be used yet: its description cannot be read; it is tried again"
			if a.Check() == nil {
				what = "the API stays as it was before the configuration changed: its description cannot be read; it is tried again"
			}
			a.o.Log.Warn(what, "err", err)
		}
		if backoff.For(a.life, backoff.Grown(firstPause, longestPause, failures)) != nil {
			return
		}
	}
}

// Behind returns why the previous adapter's edition is still in use, and when the last try to replace
// it failed. Both are zero if no edition is borrowed.
func (a *Adapter) Behind() (since time.Time, why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ownEdition || a.current == nil {
		return time.Time{}, nil
	}
	return a.failedAt, a.failed
}
