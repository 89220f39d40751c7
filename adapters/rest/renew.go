package rest

import (
	"bytes"
	"context"
	"errors"
)

// look is a webhook's wish that everything be read again.
type look struct {
	body  []byte // the catalogue itself; nil if it is to be read
	done  chan struct{}
	tools int
	err   error
}

// answer says what has come of it. nil is nobody's wish.
func (l *look) answer(e *edition, err error) {
	if l == nil {
		return
	}
	if l.err = err; err == nil {
		l.tools = len(e.tools)
	}
	close(l.done)
}

// ErrElsewhere is why Renew refuses a catalogue.
var ErrElsewhere = errors.New("the catalogue is read from its file or URL: send nothing, and it is read again")

// CatalogError says why the catalogue that was brought cannot be used. The tools
// stay as they were.
type CatalogError struct {
	Err error // the fault
}

// Error implements error.
func (e *CatalogError) Error() string { return e.Err.Error() }

// Unwrap returns the fault.
func (e *CatalogError) Unwrap() error { return e.Err }

// Renew reads everything again at once, on behalf of a webhook. A body is the
// new catalogue, where that is read from nowhere else; the error is ErrElsewhere
// or a *CatalogError then. It returns how many tools there are.
func (a *Adapter) Renew(ctx context.Context, body []byte) (tools int, err error) {
	l := &look{done: make(chan struct{})}
	if len(bytes.TrimSpace(body)) > 0 {
		if a.c.Catalog.location() != "" {
			return 0, ErrElsewhere
		}
		l.body = bytes.Clone(body)
		// What is wrong with it is the sender's to know; what else may go wrong is
		// not.
		if err := a.c.published(&material{}, &a.o, l.body); err != nil {
			return 0, &CatalogError{err}
		}
	}
	if err := a.first(ctx); err != nil { // which begins to follow
		return 0, err
	}
	select {
	case a.looks <- l:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-a.life.Done():
		return 0, a.unavailable("it was stopped", nil)
	}
	select {
	case <-l.done:
		return l.tools, l.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-a.life.Done():
		return 0, a.unavailable("it was stopped", nil)
	}
}
