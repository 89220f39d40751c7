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

// WorkerOptions configure Workers. All are required.
type WorkerOptions struct {
	Node  *cluster.Node
	ID    string // of this instance
	Peers WorkerPeers
	Queue queue.Queue
	// Runs means that this instance is a worker.
	Runs bool
	// Slots is the number of child processes that may run here for other instances.
	Slots   int
	Servers PlacedServers
	Log     *slog.Logger
	// MaxMessage bounds one message between instances, and MaxBytes all messages of the tunnels served here,
	// in bytes.
	MaxMessage int
	MaxBytes   int64
}

// PlacedServers has the servers with place: workers.
type PlacedServers interface {
	// Placed returns the names of these servers.
	Placed() []string
	// Local returns the settings with which such a server is started here.
	Local(server string) (Local, bool)
}

// Local holds the settings with which a worker starts a server.
type Local struct {
	Adapter      bridge.Adapter
	MaxProcesses int          // processes of the server at one worker
	Check        func() error // returns the known reason that no process can start here, or nil; the field may be nil
}

// WorkerPeers sends requests to other instances, as peer.Peers does.
type WorkerPeers interface {
	Grant(ctx context.Context, m cluster.Member, offer, grant string) error
	ClaimSlot(ctx context.Context, m cluster.Member, grant string, epoch int64) error
	SlotFailure(ctx context.Context, m cluster.Member, server, grant string) error
	WorkerTunnel(m cluster.Member) remote.Config
	AskLeave(ctx context.Context, m cluster.Member, what string) (left bool)
}

// Workers runs child processes at the workers of a cluster, and for others at this instance.
type Workers struct {
	o     WorkerOptions
	front *queue.Front
	slots *slots        // the processes here for others
	taker *queue.Worker // nil unless this instance is a worker
	out   *outbound

	mu      sync.Mutex     // guards the rest
	tunnels map[string]int // open tunnels of this instance, by worker
}

var _ peer.Workers = (*Workers)(nil)

// NewWorkers makes Workers. The caller calls Begin when this instance has joined the cluster, and Close at the end.
func NewWorkers(w WorkerOptions) *Workers {
	return &Workers{
		o:       w,
		front:   queue.NewFront(w.ID, w.Queue, w.Log),
		slots:   newSlots(w),
		out:     newOutbound(),
		tunnels: map[string]int{},
	}
}

// Begin starts to take requests from the queue, if this instance is a worker.
func (w *Workers) Begin() {
	if w.o.Runs {
		w.taker = queue.NewWorker(queue.WorkerOptions{
			Queue: w.o.Queue,
			Slots: w.slots,
			Grant: w.grant,
			Log:   w.o.Log,
		})
	}
}

// grant sends a grant to the front of a request. If the front is dead, the request is over.
func (w *Workers) grant(ctx context.Context, t queue.Taken, grant string) error {
	m, lives, err := w.o.Node.Living(ctx, t.Front)
	if err != nil {
		return fmt.Errorf("%w: %w", queue.ErrUnreached, err)
	}
	if !lives {
		w.o.Log.Info("request for a worker dropped: the instance that made it is gone", "server", t.Server)
		return queue.ErrOver
	}
	return w.o.Peers.Grant(ctx, m, t.ID, grant)
}

// AcceptGrant implements peer.Workers.
func (w *Workers) AcceptGrant(id string, g queue.Grant) error { return w.front.Accept(id, g) }

// Leave implements peer.Workers.
func (w *Workers) Leave(ctx context.Context, instance string) error {
	return w.out.leave(ctx, instance, w.o.Node)
}

// RequestAgain adds the waiting requests to the queue again: the store may have lost them. RequestAgain does not
// block.
func (w *Workers) RequestAgain() { w.front.RequestAgain() }

// Free returns the number of further child processes that may run here for others.
func (w *Workers) Free() int {
	if !w.o.Runs {
		return 0
	}
	return w.slots.free()
}

// Running returns the number of child processes here for others, by server.
func (w *Workers) Running() map[string]int { return w.slots.running() }

// Drain waits until no call of another instance is in flight, and stops the child processes. Drain asks the instances
// that used them to leave, and waits for their answers. New requests wait at their instances for another worker. The
// end of ctx cuts each wait short.
func (w *Workers) Drain(ctx context.Context) {
	if w.taker != nil {
		w.taker.Close()
		w.slots.drain(ctx)
	}
}

// Close stops the processes here. The caller must have stopped opening connections.
func (w *Workers) Close(ctx context.Context) {
	if w.taker != nil {
		w.taker.Close()
	}
	w.slots.close(ctx)
	w.front.Close()
}

// WorkerStatus is the status of Workers.
type WorkerStatus struct {
	Waiting map[string]int // requests of this instance that wait for a worker, by server
	Tunnels map[string]int // tunnels of this instance, by worker
	Running map[string]int // child processes here for others, by server
	Queued  map[string]int // requests in the queue, of all instances, by server; nil if the store is unreachable
	// Stopping means that calls of others to processes here wait for another worker.
	Stopping bool
}

// Status returns the status. For that it reads the lengths of the queues from the store.
func (w *Workers) Status() WorkerStatus {
	w.mu.Lock()
	st := WorkerStatus{
		Waiting:  w.front.Waiting(),
		Tunnels:  maps.Clone(w.tunnels),
		Running:  w.slots.running(),
		Stopping: w.slots.tunnels.Stopping().Err() != nil,
	}
	w.mu.Unlock()
	names := w.o.Servers.Placed()
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

// countTunnel counts an open tunnel to a worker; with n -1, a closed tunnel.
func (w *Workers) countTunnel(worker string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tunnels[worker] += n; w.tunnels[worker] == 0 {
		delete(w.tunnels, worker)
	}
}

// room returns the number of living workers, and of the processes of a server that they could start by their last beats.
func (w *Workers) room(s *WorkerServer) (workers, free int) {
	for _, m := range w.o.Node.Members() {
		if m.Runs() && !m.Draining {
			workers, free = workers+1, free+max(0, min(m.Free, s.MaxProcesses-m.Running[s.Name]))
		}
	}
	return workers, free
}

// noWorker returns the error of a connection that no worker opened.
func (w *Workers) noWorker(s *WorkerServer, most int, err error) error {
	e := &bridge.Error{
		Server: s.Name,
		Kind:   bridge.ErrNoWorker,
		Err:    err,
		After:  time.Second,
	}
	switch workers, _ := w.room(s); {
	case errors.Is(err, session.ErrFull):
		e.Public = bridge.OverLimit("too many of its connections wait for a worker", most)
	case errors.Is(err, session.ErrUnavailable):
		e.Public = "no worker could be asked to start it: the store of the cluster is unreachable"
	case workers == 0:
		e.Public = fmt.Sprintf("no worker has started it within %v: it has place: workers, and no instance with cluster: role: worker or all is there", s.Wait)
	default:
		e.Public = fmt.Sprintf("no worker had a free place for it within %v", s.Wait)
	}
	return e
}
