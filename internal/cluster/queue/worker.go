package queue

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/backoff"
)

// ErrOver is the error of an offer that another worker has, or that nobody waits for.
var ErrOver = errors.New("the offer is over")

// ErrUnreached is the error of a ticket that surely nobody comes with: its front was not
// reached, or cannot reach the worker.
var ErrUnreached = errors.New("the front and the worker do not reach each other")

// WorkerOptions configure a Worker. All are needed.
type WorkerOptions struct {
	Queue Queue
	Desk  Desk
	// Tell gives a ticket for an offer to its front. The error is ErrOver when the front
	// does not want it, and ErrUnreached when it does not have it; any other one means that
	// this is not known.
	Tell func(ctx context.Context, t Taken, ticket string) error
	Log  *slog.Logger
}

// Desk has the places of a worker. Its methods may be called concurrently.
type Desk interface {
	// Room returns the servers of which one more connection may be opened now, and how
	// many of all of them. changed is closed when that may be another number.
	Room() (servers []string, free int, changed <-chan struct{})
	// Reserve takes a place for an offer. A front that comes with the ticket opens the
	// connection; cancel gives the place back if that will not be. It reports false if
	// there is none by now.
	Reserve(server string) (ticket string, cancel func(), ok bool)
}

// Worker takes offers for as long as it has places. Close ends it.
type Worker struct {
	o    WorkerOptions
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup
	turn int       // which line is asked first, where not all can be
	last time.Time // when overdue offers were looked for

	unreached unreached // fronts
}

const (
	// listens is how long one look at the queue waits for an offer.
	listens = time.Second
	// glance is the same while there are fewer places than lines: others have to be
	// looked at soon.
	glance = 50 * time.Millisecond
	// overdue is how long an offer may be with a worker that has not said what came of it.
	overdue = 3 * time.Second
	// many is how many of those are looked at, of each line: the first may all be of fronts
	// that cannot be reached.
	many = 32
	// lookEvery is how often overdue ones are looked for.
	lookEvery = time.Second
	// telling bounds how long a front is told of a ticket: less than until another
	// worker gets the offer.
	telling = 2 * time.Second
)

// NewWorker makes a worker, which begins at once.
func NewWorker(o WorkerOptions) *Worker {
	w := &Worker{o: o}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.wg.Go(w.run)
	return w
}

// Close ends the worker: it takes nothing more.
func (w *Worker) Close() {
	w.stop()
	w.wg.Wait()
}

func (w *Worker) run() {
	for w.ctx.Err() == nil {
		servers, free, changed := w.o.Desk.Room()
		if len(servers) == 0 || free == 0 {
			select {
			case <-changed:
			case <-time.After(listens): // the configuration may have changed
			case <-w.ctx.Done():
			}
			continue
		}
		if err := w.look(servers, free); err != nil {
			w.o.Log.Debug("no offers can be taken", "err", err)
			_ = backoff.For(w.ctx, unreachedFor)
		}
	}
}

// look takes offers of so many servers at most.
func (w *Worker) look(servers []string, free int) error {
	wait := listens
	if free < len(servers) { // each line gives one offer, and each needs a place
		wait = glance
		from := w.turn % len(servers)
		w.turn += free
		servers = append(servers[from:len(servers):len(servers)], servers[:from]...)[:free]
	}
	if time.Since(w.last) >= lookEvery {
		w.last = time.Now()
		ctx, cancel := context.WithTimeout(w.ctx, tries)
		taken, err := w.o.Queue.Overdue(ctx, servers, overdue, many)
		cancel()
		if err != nil || len(taken) > 0 {
			if w.take(taken) {
				w.last = time.Time{} // there may be more of them
			}
			return err
		}
	}
	ctx, cancel := context.WithTimeout(w.ctx, wait+tries)
	defer cancel()
	taken, err := w.o.Queue.Take(ctx, servers, wait)
	w.take(taken)
	return err
}

// take gives a ticket for each of those offers. Those of a front that cannot be reached are
// for other workers, at once. It reports whether there were others.
func (w *Worker) take(all []Taken) (some bool) {
	for _, t := range all {
		if w.unreached.has(t.Front) {
			w.wg.Go(func() { w.settle(t, w.o.Queue.Back) })
			continue
		}
		some = true
		ticket, cancel, ok := w.o.Desk.Reserve(t.Server)
		if w.ctx.Err() != nil && ok { // it is about to stop
			cancel()
			ok = false
		}
		w.wg.Go(func() {
			if !ok {
				w.settle(t, w.o.Queue.Back)
				return
			}
			ctx, stop := context.WithTimeout(context.WithoutCancel(w.ctx), telling)
			defer stop()
			err := w.o.Tell(ctx, t, ticket)
			known, missed := err == nil || errors.Is(err, ErrOver), errors.Is(err, ErrUnreached)
			if known || missed {
				w.unreached.tried(t.Front, known)
			}
			if err != nil && (known || missed) {
				cancel()
			}
			switch {
			case known:
				w.settle(t, func(ctx context.Context, t Taken) error { return w.o.Queue.Done(ctx, t.Server, t.Entry) })
			case missed:
				w.settle(t, w.o.Queue.Back)
				fallthrough
			default: // it may come with the ticket, and another worker gets the offer soon
				w.o.Log.Debug("a front could not be told of its ticket", "server", t.Server, "front", t.Front[:min(len(t.Front), session.TagLength)], "err", err)
			}
		})
	}
	return some
}

// settle says in the queue what came of an offer. If it cannot, another worker finds that
// it is over.
func (w *Worker) settle(t Taken, how func(context.Context, Taken) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), tries)
	defer cancel()
	if err := how(ctx, t); err != nil {
		w.o.Log.Debug("the queue does not know what came of an offer", "server", t.Server, "err", err)
	}
}
