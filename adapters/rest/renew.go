package rest

import (
	"bytes"
	"context"
	"errors"
)

// wakeup is a webhook's request to read everything again.
type wakeup struct {
	body  []byte        // the new catalogue; nil if the request has none
	done  chan struct{} // closed after tools and err are set
	tools int
	err   error
}

// answer reports the outcome to the waiting webhook. w may be nil.
func (w *wakeup) answer(e *edition, err error) {
	if w == nil {
		return
	}
	if w.err = err; err == nil {
		w.tools = len(e.tools)
	}
	close(w.done)
}

// ErrElsewhere is the error of a catalogue in a webhook's request if the configuration names a file
// or a URL.
var ErrElsewhere = errors.New("the catalogue is read from its file or URL: send nothing, and it is read again")

// CatalogError is the error of an unusable catalogue from a webhook. The tools stay as they were.
type CatalogError struct {
	Err error // the fault
}

// Error implements error.
func (c *CatalogError) Error() string { return c.Err.Error() }

// Unwrap returns the fault.
func (c *CatalogError) Unwrap() error { return c.Err }

// Renew reads everything again at once, for a webhook, and returns the number of tools. body, unless
// empty, is the new catalogue. If body is unusable, the error is ErrElsewhere or a *CatalogError.
func (a *Adapter) Renew(ctx context.Context, body []byte) (tools int, err error) {
	w := &wakeup{done: make(chan struct{})}
	if len(bytes.TrimSpace(body)) > 0 {
		if a.c.Catalog.location() != "" {
			return 0, ErrElsewhere
		}
		w.body = bytes.Clone(body)
		// Only faults in the catalogue are for its sender.
		if err := a.c.published(&material{}, &a.o, w.body); err != nil {
			return 0, &CatalogError{err}
		}
	}
	if err := a.firstRead(ctx); err != nil { // also starts follow, which takes wakeups
		return 0, err
	}
	select {
	case a.wakeups <- w:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-a.life.Done():
		return 0, a.unavailable("it was stopped", nil)
	}
	select {
	case <-w.done:
		return w.tools, w.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-a.life.Done():
		return 0, a.unavailable("it was stopped", nil)
	}
}
