package queue

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge/session"
)

// Front requests connections for an instance. Its methods may be called concurrently.
type Front struct {
	id    string
	queue Queue
	log   *slog.Logger
	wg    sync.WaitGroup

	unreached unreached // workers that could not be reached

	mu      sync.Mutex // guards the rest
	waiting map[string]*waiter
	closed  bool
}

// waiter is a request that waits for a worker.
type waiter struct {
	server  string
	granted chan Grant    // has room for one Grant
	resend  chan struct{} // holds an element if the store may have lost the request
}

// Grant is a worker's answer to a request. With its key the front opens the connection.
type Grant struct {
	Worker string // id of the instance
	Key    string // random
}

// NewFront returns the Front of the instance with that id. The caller must call Close.
func NewFront(id string, q Queue, log *slog.Logger) *Front {
	return &Front{
		id:      id,
		queue:   q,
		log:     log,
		waiting: map[string]*waiter{},
	}
}

const (
	// opTimeout bounds one operation of the store.
	opTimeout = 500 * time.Millisecond
	// storeRetry is the pause before an unreachable store is tried again.
	storeRetry = 250 * time.Millisecond
	// fullRetry is the pause before a full line is tried again. The line may already have the request.
	fullRetry = time.Second
	// missingCheck is how often Wait checks that its request is still in the line, which may have been removed or
	// evicted.
	missingCheck = 5 * time.Second
)

// Wait adds a request to the line of a server, and waits for a worker's grant. If the line already has most entries,
// the error is session.ErrFull. If the store was never reached, it is session.ErrUnavailable. Otherwise it is the cause
// of ctx.
func (f *Front) Wait(ctx context.Context, server string, most int) (Grant, error) {
	id, w := rand.Text(), &waiter{
		server:  server,
		granted: make(chan Grant, 1),
		resend:  make(chan struct{}, 1),
	}
	f.mu.Lock()
	f.waiting[id] = w
	f.mu.Unlock()
	entry, err := "", error(session.ErrUnavailable)
	for first := true; ; first = false {
		one, cancel := context.WithTimeout(ctx, opTimeout)
		at, failed := f.queue.Add(one, server, Request{id, f.id}, most)
		cancel()
		var retry, look <-chan time.Time // one of them is set: look if the request is surely in the line
		switch full := errors.Is(failed, session.ErrFull); {
		case failed == nil:
			if entry != "" { // the line may still have the former entry
				f.remove(server, entry)
			}
			entry, err = at, nil
			look = time.After(missingCheck)
		case full && first:
			return f.leave(id, w, entry, session.ErrFull)
		case full: // former entries of this request may fill the line
			if err != nil {
				err = session.ErrFull
			}
			retry = time.After(fullRetry)
		default:
			retry = time.After(storeRetry)
		}
		for missing := false; !missing; {
			select {
			case g := <-w.granted:
				if !first && entry != "" { // the worker may have taken a former entry
					f.remove(server, entry)
				}
				return g, nil
			case <-w.resend:
				missing = true
			case <-retry:
				missing = true
			case <-look:
				missing = f.missing(ctx, server, entry) && len(w.granted) == 0 // otherwise the worker removed the request, and its grant has come
				look = time.After(missingCheck)
			case <-ctx.Done():
				return f.leave(id, w, entry, cmp.Or(err, context.Cause(ctx)))
			}
		}
	}
}

// missing reports whether the store has answered that a request is not in its line.
func (f *Front) missing(ctx context.Context, server, entry string) bool {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	there, err := f.queue.Has(ctx, server, entry)
	return err == nil && !there
}

// remove removes a request from its line, so that no worker takes it for nothing.
func (f *Front) remove(server, entry string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	f.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
		defer cancel()
		if err := f.queue.Done(ctx, server, entry); err != nil {
			f.log.Debug("a request could not be removed from the queue", "server", server, "err", err)
		}
	})
}

// leave ends a wait with err, unless a grant has just come.
func (f *Front) leave(id string, w *waiter, entry string, err error) (Grant, error) {
	f.mu.Lock()
	delete(f.waiting, id)
	f.mu.Unlock()
	select {
	case g := <-w.granted:
		return g, nil
	default:
	}
	if entry != "" {
		f.remove(w.server, entry)
	}
	return Grant{}, err
}

// Accept accepts a worker's grant for the request of that id. If the request has a grant already, or no caller waits
// for it, the error is ErrOver. If the worker was recently unreachable, the error is ErrUnreached.
func (f *Front) Accept(id string, g Grant) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.waiting[id]
	if w == nil {
		return ErrOver
	}
	if f.unreached.has(g.Worker) {
		return ErrUnreached
	}
	delete(f.waiting, id)
	w.granted <- g
	return nil
}

// Reached records whether this instance reached a worker with the worker's grant.
func (f *Front) Reached(worker string, reached bool) { f.unreached.record(worker, reached) }

// RequestAgain makes all waiting requests enter their lines again, because the store may have lost them. It does not
// block.
func (f *Front) RequestAgain() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.waiting {
		select {
		case w.resend <- struct{}{}:
		default:
		}
	}
}

// Waiting returns the number of waiting requests, by server.
func (f *Front) Waiting() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := map[string]int{}
	for w := range maps.Values(f.waiting) {
		n[w.server]++
	}
	return n
}

// Close waits for operations of the store in flight. No Wait may be in flight or follow.
func (f *Front) Close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.wg.Wait()
}
