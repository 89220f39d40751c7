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

// ErrOver is the error about a request that another worker has, or for which no caller waits.
var ErrOver = errors.New("the request is over: another worker has it, or nobody waits for it")

// ErrUnreached is the error about a grant that is surely not used: the worker did not reach the front, or the front
// cannot reach the worker.
var ErrUnreached = errors.New("the front and the worker do not reach each other")

// WorkerOptions configure a Worker. All fields are required.
type WorkerOptions struct {
	Queue Queue
	Slots Slots
	// Grant sends a grant to the front of a request. If the front refuses it, the error is ErrOver. If the front did
	// not get it, the error is ErrUnreached. After another error the front may have it.
	Grant func(ctx context.Context, t Taken, grant string) error
	Log   *slog.Logger
}

// Slots holds the slots of a worker. Its methods may be called concurrently.
type Slots interface {
	// Room returns the servers of which this worker can start a process now, and the number of free slots. changed
	// closes when that number may have changed.
	Room() (servers []string, free int, changed <-chan struct{})
	// Reserve takes a slot for a request. The front opens the connection with grant. If it will not, the caller calls
	// cancel, which frees the slot. If no slot is free, Reserve reports false.
	Reserve(server string) (grant string, cancel func(), ok bool)
}

// Worker takes requests while it has free slots.
type Worker struct {
	o    WorkerOptions
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup
	turn int       // index of the line to poll first, if there are more lines than slots
	last time.Time // when the worker last looked for overdue requests

	unreached unreached // fronts that could not be reached
}

const (
	// pollFor is how long one poll of the queue waits for a request.
	pollFor = time.Second
	// shortPoll is how long a poll waits if there are fewer free slots than lines, so that each line soon has its turn.
	shortPoll = 50 * time.Millisecond
	// overdue is how long a worker may have a request that is not done.
	overdue = 3 * time.Second
	// maxOverdue is how many overdue requests of each line a worker takes at once. The first of them may all be of
	// unreachable fronts.
	maxOverdue = 32
	// overdueEvery is how often a worker looks for overdue requests.
	overdueEvery = time.Second
	// grantTimeout bounds the time to send a grant. It is shorter than overdue.
	grantTimeout = 2 * time.Second
)

// NewWorker starts a Worker. The caller must call Close.
func NewWorker(o WorkerOptions) *Worker {
	w := &Worker{o: o}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.wg.Go(w.run)
	return w
}

// Close stops the worker, and waits for its goroutines.
func (w *Worker) Close() {
	w.stop()
	w.wg.Wait()
}

func (w *Worker) run() {
	for w.ctx.Err() == nil {
		servers, free, changed := w.o.Slots.Room()
		if len(servers) == 0 || free == 0 {
			select {
			case <-changed:
			case <-time.After(pollFor): // the servers may have changed
			case <-w.ctx.Done():
			}
			continue
		}
		if err := w.poll(servers, free); err != nil {
			w.o.Log.Debug("no requests can be taken from the queue", "err", err)
			_ = backoff.For(w.ctx, storeRetry)
		}
	}
}

// poll takes requests from at most free lines.
func (w *Worker) poll(servers []string, free int) error {
	wait := pollFor
	if free < len(servers) { // each line gives one request, which needs a slot
		wait = shortPoll
		from := w.turn % len(servers)
		w.turn += free
		servers = append(servers[from:len(servers):len(servers)], servers[:from]...)[:free]
	}
	if time.Since(w.last) >= overdueEvery {
		w.last = time.Now()
		ctx, cancel := context.WithTimeout(w.ctx, opTimeout)
		taken, err := w.o.Queue.Overdue(ctx, servers, overdue, maxOverdue)
		cancel()
		if err != nil || len(taken) > 0 {
			if w.grantAll(taken) {
				w.last = time.Time{} // there may be more overdue requests
			}
			return err
		}
	}
	ctx, cancel := context.WithTimeout(w.ctx, wait+opTimeout)
	defer cancel()
	taken, err := w.o.Queue.Take(ctx, servers, wait)
	w.grantAll(taken)
	return err
}

// grantAll sends a grant for each request. Requests of unreachable fronts go back to the queue, for other workers. some
// reports whether there were other requests.
func (w *Worker) grantAll(all []Taken) (some bool) {
	for _, t := range all {
		if w.unreached.has(t.Front) {
			w.wg.Go(func() { w.settle(t, w.o.Queue.Return) })
			continue
		}
		some = true
		grant, cancel, ok := w.o.Slots.Reserve(t.Server)
		if w.ctx.Err() != nil && ok { // the worker is about to stop
			cancel()
			ok = false
		}
		w.wg.Go(func() {
			if !ok {
				w.settle(t, w.o.Queue.Return)
				return
			}
			ctx, stop := context.WithTimeout(context.WithoutCancel(w.ctx), grantTimeout)
			defer stop()
			err := w.o.Grant(ctx, t, grant)
			known, missed := err == nil || errors.Is(err, ErrOver), errors.Is(err, ErrUnreached)
			if known || missed {
				w.unreached.record(t.Front, known)
			}
			if err != nil && (known || missed) {
				cancel()
			}
			switch {
			case known:
				w.settle(t, func(ctx context.Context, t Taken) error { return w.o.Queue.Done(ctx, t.Server, t.Entry) })
			case missed:
				w.settle(t, w.o.Queue.Return)
				fallthrough
			default: // the front may use the grant; otherwise another worker gets the request soon
				w.o.Log.Debug("a grant could not be sent to its front", "server", t.Server, "front", t.Front[:min(len(t.Front), session.TagLength)], "err", err)
			}
		})
	}
	return some
}

// settle records the outcome of a request in the queue. If that fails, another worker finds out that the request is
// over.
func (w *Worker) settle(t Taken, how func(context.Context, Taken) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), opTimeout)
	defer cancel()
	if err := how(ctx, t); err != nil {
		w.o.Log.Debug("the outcome of a request could not be recorded in the queue", "server", t.Server, "err", err)
	}
}
