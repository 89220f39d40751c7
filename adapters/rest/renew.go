package rest

import (
	"bytes"
	"context"
	"errors"
)

// wakeup is a webhook's request to read everything again.
type wakeup struct {
	body  []byte // the catalogue itself; nil to read it
	done  chan struct{}
	tools int
	err   error
}

// answer reports the outcome. nil is no webhook's request.
func (w *wakeup) answer(e *edition, err error) {
	if w == nil {
		return
	}
	if w.err = err; err == nil {
		w.tools = len(e.tools)
	}
	close(w.done)
}

// ErrElsewhere refuses a catalogue in a webhook's request.
var ErrElsewhere = errors.New("the catalogue is read from its file or URL: send nothing, and it is read again")

// CatalogError reports that a catalogue from a webhook is unusable. The tools stay as they were.
type CatalogError struct {
	Err error // the fault
}

// Error implements error.
func (c *CatalogError) Error() string { return c.Err.Error() }

// Unwrap returns the fault.
func (c *CatalogError) Unwrap() error { return c.Err }

// Renew reads everything again at once, for a webhook. body is the new catalogue if it has no file
// or URL. Renew returns how many tools there are. The error is ErrElsewhere or a *CatalogError if
// body is unusable.
func (a *Adapter) Renew(ctx context.Context, body []byte) (tools int, err error) {
	w := &wakeup{done: make(chan struct{})}
	if len(bytes.TrimSpace(body)) > 0 {
		if a.c.Catalog.location() != "" {
			return 0, ErrElsewhere
		}
		w.body = bytes.Clone(body)
		// The sender gets faults in the catalogue, but no others.
		if err := a.c.published(&material{}, &a.o, w.body); err != nil {
			return 0, &CatalogError{err}
		}
	}
	if err := a.firstRead(ctx); err != nil { // starts following too
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
