package placement

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/server/internal/peer"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/cluster/queue"
)

// WorkerOptions configure Workers. All are needed.
type WorkerOptions struct {
	Node  *cluster.Node
	ID    string // of this instance
	Peers WorkerPeers
	Queue queue.Queue
	// Runs says that this instance is a worker itself.
	Runs bool
	// Places is how many child processes run here for others at most.
	Places int
	// Placed returns the servers of which workers run the child processes, by name.
	Placed func() []string
	// Local returns how a server of those is started here.
	Local func(server string) (Local, bool)
	Log   *slog.Logger
	// MaxMessage and MaxBytes bound one message between instances, and all of the lanes
	// that are served here together, in bytes.
	MaxMessage int
	MaxBytes   int64
}

// Local is how a server is started at a worker.
type Local struct {
	Adapter bridge.Adapter
	Most    int          // of its processes at one worker
	Check   func() error // why none can be started here; nil if nothing can be said
}

// WorkerPeers reaches other instances, as peer.Peers does.
type WorkerPeers interface {
	Tell(ctx context.Context, m cluster.Member, offer, ticket string) error
	AskWorker(ctx context.Context, m cluster.Member, ticket string, epoch int64) error
	WhyWorker(ctx context.Context, m cluster.Member, server, ticket string) error
	WorkWay(m cluster.Member) remote.Config
	AskLeave(ctx context.Context, m cluster.Member, what string)
}

// Workers are the workers of a cluster, as this instance uses them, and this instance as
// one of them.
type Workers struct {
	o     WorkerOptions
	front *queue.Front
	desk  *desk         // what runs here for others
	takes *queue.Worker // nil where this is no worker
	out   *outbound

	mu    sync.Mutex     // guards the rest
	lanes map[string]int // open ones of this instance, by worker
}

var _ peer.Workers = (*Workers)(nil)

// NewWorkers makes Workers. Begin has to follow when this instance has joined the others, and
// Close ends it.
func NewWorkers(o WorkerOptions) *Workers {
	return &Workers{o: o, front: queue.NewFront(o.ID, o.Queue, o.Log), desk: newDesk(o), out: newOutbound(), lanes: map[string]int{}}
}

// Begin takes offers from now on, if this is a worker.
func (w *Workers) Begin() {
	if w.o.Runs {
		w.takes = queue.NewWorker(queue.WorkerOptions{Queue: w.o.Queue, Desk: w.desk, Tell: w.tell, Log: w.o.Log})
	}
}

// tell gives a front a ticket. An offer of one that does not live is over.
func (w *Workers) tell(ctx context.Context, t queue.Taken, ticket string) error {
	m, lives, err := w.o.Node.Living(ctx, t.Front)
	if err != nil {
		return fmt.Errorf("%w: %w", queue.ErrUnreached, err)
	}
	if !lives {
		w.o.Log.Info("an offer was dropped: the instance that has made it does not live any more", "server", t.Server)
		return queue.ErrOver
	}
	return w.o.Peers.Tell(ctx, m, t.ID, ticket)
}

// Hand implements peer.Workers.
func (w *Workers) Hand(id string, t queue.Ticket) error { return w.front.Hand(id, t) }

// Leave implements peer.Workers.
func (w *Workers) Leave(ctx context.Context, instance string) error {
	return w.out.leave(ctx, instance, w.o.Node)
}

// Again offers anew what waits for a worker: the store may have lost it. It does not block.
func (w *Workers) Again() { w.front.Again() }

// Free returns how many more child processes may run here for others.
func (w *Workers) Free() int {
	if !w.o.Runs {
		return 0
	}
	return w.desk.free()
}

// Drain waits until no call of another instance is under way here, or ctx ends, ends the child
// processes, and waits until the instances that had them have left this one. Requests that come meanwhile wait at their instances, for another
// worker.
func (w *Workers) Drain(ctx context.Context) {
	if w.takes != nil {
		w.takes.Close()
		w.desk.drain(ctx)
	}
}

// Close ends what runs here for others. Nobody may open a connection any more.
func (w *Workers) Close(ctx context.Context) {
	if w.takes != nil {
		w.takes.Close()
	}
	w.desk.close(ctx)
	w.front.Close()
}

// WorkerStatus is how things stand.
type WorkerStatus struct {
	Waiting map[string]int // openings of this instance that wait for a worker, by server
	Lanes   map[string]int // connections of this instance to workers, by worker
	Running map[string]int // child processes here for others, by server
	Queued  map[string]int // offers in the queue, of all instances, by server; nil if the store does not say
	// Stopping says that calls of others to what runs here wait, for another worker.
	Stopping bool
}

// Status returns how things stand. It asks the store how long the lines are.
func (w *Workers) Status() WorkerStatus {
	w.mu.Lock()
	st := WorkerStatus{Waiting: w.front.Waiting(), Lanes: maps.Clone(w.lanes), Running: w.desk.running(), Stopping: w.desk.inner.Stopping().Err() != nil}
	w.mu.Unlock()
	names := w.o.Placed()
	if len(names) == 0 {
		return st
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if lengths, err := w.o.Queue.Lengths(ctx, names); err == nil {
		st.Queued = map[string]int{}
		for i, name := range names {
			st.Queued[name] = lengths[i]
		}
	}
	return st
}

// count notes that a connection to a worker was opened, or with -1 has ended.
func (w *Workers) count(worker string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lanes[worker] += n; w.lanes[worker] == 0 {
		delete(w.lanes, worker)
	}
}

// places returns how many workers live, and how many free places they have had with their
// last beat.
func (w *Workers) places() (workers, free int) {
	for _, m := range w.o.Node.Members() {
		if m.Runs() && !m.Draining {
			workers, free = workers+1, free+m.Free
		}
	}
	return workers, free
}

// unplaced is the error of a connection that no worker has opened.
func (w *Workers) unplaced(s *WorkerServer, most int, err error) error {
	e := &bridge.Error{Server: s.Name, Kind: bridge.ErrNoWorker, Err: err, After: time.Second}
	switch workers, _ := w.places(); {
	case errors.Is(err, session.ErrFull):
		e.Public = bridge.OverLimit("too many of its connections wait for a worker", most)
	case errors.Is(err, session.ErrUnavailable):
		e.Public = "no worker could be asked to start it: the store of the cluster is out of reach"
	case workers == 0:
		e.Public = fmt.Sprintf("no worker has started it within %v: it has place: workers, and no instance with cluster: role: worker or all is there", s.Wait)
	default:
		e.Public = fmt.Sprintf("no worker had a free place for it within %v", s.Wait)
	}
	return e
}
