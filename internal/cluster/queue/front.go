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

// Front is an instance that wants connections opened. Its methods may be called
// concurrently.
type Front struct {
	id    string
	queue Queue
	log   *slog.Logger
	wg    sync.WaitGroup

	unreached unreached // workers

	mu      sync.Mutex // guards the rest
	waiting map[string]*opening
	closed  bool
}

// opening is one that waits for a worker.
type opening struct {
	server string
	handed chan Ticket   // has room for the one that comes
	again  chan struct{} // the store may have lost the offer
}

// Ticket is what a worker gives for an offer: with it the front opens its connection.
type Ticket struct {
	Worker string // the instance
	Key    string // random
}

// NewFront makes the front of the instance of that id. Close ends it.
func NewFront(id string, q Queue, log *slog.Logger) *Front {
	return &Front{id: id, queue: q, log: log, waiting: map[string]*opening{}}
}

const (
	// tries bounds one operation of the store.
	tries = 500 * time.Millisecond
	// unreachedFor is how long to wait before a store that is out of reach is tried again.
	unreachedFor = 250 * time.Millisecond
	// fullFor is the same for a line that is full, when an offer may be in it already.
	fullFor = time.Second
	// missingFor is how long an offer may be missing in its line before that is noticed:
	// somebody has removed the line, or the store has evicted it.
	missingFor = 5 * time.Second
)

// Wait offers an opening, and waits for the worker that takes it. most is how long the
// line may be. The error is session.ErrFull if it is that long, and session.ErrUnavailable
// if the store was never reached; otherwise that of ctx.
func (f *Front) Wait(ctx context.Context, server string, most int) (Ticket, error) {
	id, w := rand.Text(), &opening{server: server, handed: make(chan Ticket, 1), again: make(chan struct{}, 1)}
	f.mu.Lock()
	f.waiting[id] = w
	f.mu.Unlock()
	entry, err := "", error(session.ErrUnavailable)
	for first := true; ; first = false {
		one, cancel := context.WithTimeout(ctx, tries)
		at, failed := f.queue.Add(one, server, Offer{id, f.id}, most)
		cancel()
		var retry, look <-chan time.Time // one of them; look when the offer is surely in the line
		switch full := errors.Is(failed, session.ErrFull); {
		case failed == nil:
			if entry != "" { // it may be there yet
				f.remove(server, entry)
			}
			entry, err = at, nil
			look = time.After(missingFor)
		case full && first:
			return f.leave(id, w, entry, session.ErrFull)
		case full: // one that was added before, and lost or not, may be what fills it
			if err != nil {
				err = session.ErrFull
			}
			retry = time.After(fullFor)
		default:
			retry = time.After(unreachedFor)
		}
		for missing := false; !missing; {
			select {
			case t := <-w.handed:
				if !first && entry != "" { // the worker may have taken one that was added before
					f.remove(server, entry)
				}
				return t, nil
			case <-w.again:
				missing = true
			case <-retry:
				missing = true
			case <-look:
				missing = f.missing(ctx, server, entry) && len(w.handed) == 0 // a worker that came has taken it
				look = time.After(missingFor)
			case <-ctx.Done():
				return f.leave(id, w, entry, cmp.Or(err, context.Cause(ctx)))
			}
		}
	}
}

// missing reports whether an offer is not in its line any more, as far as the store says.
func (f *Front) missing(ctx context.Context, server, entry string) bool {
	ctx, cancel := context.WithTimeout(ctx, tries)
	defer cancel()
	there, err := f.queue.Has(ctx, server, entry)
	return err == nil && !there
}

// remove takes an offer back, so that no worker comes for nothing.
func (f *Front) remove(server, entry string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	f.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), tries)
		defer cancel()
		if err := f.queue.Done(ctx, server, entry); err != nil {
			f.log.Debug("an offer could not be taken back", "server", server, "err", err)
		}
	})
}

// leave ends a wait, unless a worker has come meanwhile.
func (f *Front) leave(id string, w *opening, entry string, err error) (Ticket, error) {
	f.mu.Lock()
	delete(f.waiting, id)
	f.mu.Unlock()
	select {
	case t := <-w.handed:
		return t, nil
	default:
	}
	if entry != "" {
		f.remove(w.server, entry)
	}
	return Ticket{}, err
}

// Hand gives an offer to a worker. The error is ErrOver when somebody else has it, or
// nobody waits any more, and ErrUnreached when the worker could not be reached just now.
func (f *Front) Hand(id string, t Ticket) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.waiting[id]
	if w == nil {
		return ErrOver
	}
	if f.unreached.has(t.Worker) {
		return ErrUnreached
	}
	delete(f.waiting, id)
	w.handed <- t
	return nil
}

// Tried notes whether a worker was reached with its ticket.
func (f *Front) Tried(worker string, reached bool) { f.unreached.tried(worker, reached) }

// Again adds all offers that wait once more: the store may have lost them. It does not
// block.
func (f *Front) Again() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.waiting {
		select {
		case w.again <- struct{}{}:
		default:
		}
	}
}

// Waiting returns how many openings wait for a worker, by server.
func (f *Front) Waiting() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := map[string]int{}
	for w := range maps.Values(f.waiting) {
		n[w.server]++
	}
	return n
}

// Close waits for what is under way to the store. Nobody may wait any more.
func (f *Front) Close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.wg.Wait()
}
