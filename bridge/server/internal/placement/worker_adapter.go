package placement

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/server/internal/peer"
	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/cluster/queue"
)

// WorkerServer is a server with place: workers.
type WorkerServer struct {
	Name string
	// MaxProcesses bounds the processes of the server at one worker.
	MaxProcesses int
	// Queue is how many requests may wait in addition to the number of processes that the workers could start. Wait
	// limits each wait.
	Queue int
	Wait  time.Duration
	// Handshake limits the handshake of the process, once a worker has the request.
	Handshake time.Duration
	Timeouts  conn.Timeouts // of its calls
}

// Adapter returns the Adapter that opens connections to a server at workers.
func (w *Workers) Adapter(s WorkerServer) bridge.Adapter { return &workerAdapter{w, s} }

type workerAdapter struct {
	w *Workers
	s WorkerServer
}

var (
	_ bridge.Adapter        = (*workerAdapter)(nil)
	_ bridge.Resumer        = (*workerAdapter)(nil)
	_ bridge.BoundsOpenings = (*workerAdapter)(nil)
)

// BoundsOpenings implements bridge.BoundsOpenings: the queue is the bound.
func (w *workerAdapter) BoundsOpenings() time.Duration { return w.s.Wait }

// Open implements bridge.Adapter. Open waits for a worker. The handshake has its full time after that.
func (w *workerAdapter) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	waiting, cancel := context.WithTimeout(ctx, w.s.Wait)
	defer cancel()
	for {
		_, free := w.w.room(&w.s)
		most := w.s.Queue + free
		g, err := w.w.front.Wait(waiting, w.s.Name, most)
		if err != nil && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			return nil, w.w.noWorker(&w.s, most, err)
		}
		m, lives, err := w.w.o.Node.Living(ctx, g.Worker)
		if err == nil && !lives {
			err = peer.ErrElsewhere
		}
		if err == nil {
			err = w.w.o.Peers.ClaimSlot(ctx, m, g.Key, 0)
			if ctx.Err() == nil {
				w.w.front.Reached(g.Worker, err == nil || errors.Is(err, peer.ErrElsewhere))
			}
		}
		var up bridge.Upstream
		if err != nil { // the worker started nothing
			err = w.workerGone(err)
		} else if up, err = w.openInTime(ctx, m, g, from, rest); err == nil || ctx.Err() != nil || !errors.Is(err, bridge.ErrNoWorker) {
			return up, err
		}
		if backoff.For(waiting, workerRetry) != nil { // no time is left for another worker
			return nil, cmp.Or(context.Cause(ctx), err)
		}
		w.w.o.Log.Warn("a worker did not open the connection: another one is asked", "server", w.s.Name, "worker", tag(g.Worker), "err", err)
	}
}

// workerGone returns the error of an opening whose worker is gone or unreachable.
func (w *workerAdapter) workerGone(err error) error {
	return &bridge.Error{
		Server: w.s.Name,
		Kind:   bridge.ErrNoWorker,
		Err:    err,
		After:  time.Second,
		Public: "the worker that was about to start it is gone or unreachable",
	}
}

// openInTime is open with the timeout of the handshake.
func (w *workerAdapter) openInTime(ctx context.Context, m cluster.Member, g queue.Grant, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	its, cancel := context.WithTimeoutCause(ctx, w.s.Handshake, &bridge.Error{Server: w.s.Name, Kind: bridge.ErrUnavailable,
		Public: fmt.Sprintf("it did not finish its handshake within %v", w.s.Handshake)})
	defer cancel()
	up, err := w.open(its, m, g, from, rest)
	if err != nil && its.Err() != nil && ctx.Err() == nil {
		err = context.Cause(its)
	}
	return up, err
}

// workerRetry is the wait before another request when a worker did not open the connection.
const workerRetry = 100 * time.Millisecond

// tunnelOptions returns the options of the tunnel to the slot of a grant.
func (w *workerAdapter) tunnelOptions(m cluster.Member, key string, from *bridge.Caller, epoch int64) TunnelOptions {
	o := &w.w.o
	one := TunnelOptions{
		Server:     w.s.Name,
		At:         m.ID,
		HTTP:       o.Peers.WorkerTunnel(m),
		Node:       o.Node,
		out:        w.w.out,
		Log:        o.Log,
		MaxMessage: o.MaxMessage,
		Timeouts:   w.s.Timeouts,
	}
	one.HTTP.Headers = peer.WorkerTunnelHeaders(from.Principal, key, epoch)
	return one
}

// open opens the connection of a grant. The error is bridge.ErrNoWorker when it does not concern the server: the
// worker is gone, or has no room for a process.
func (w *workerAdapter) open(ctx context.Context, m cluster.Member, g queue.Grant, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	t, err := OpenTunnel(ctx, w.tunnelOptions(m, g.Key, from, 0), from, rest)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		if why := w.w.o.Peers.SlotFailure(ctx, m, w.s.Name, g.Key); why != nil {
			return nil, why
		}
		if errors.Is(err, bridge.ErrNoHandshake) || errors.Is(err, bridge.ErrInvalid) || errors.Is(err, bridge.ErrTooLarge) {
			return nil, err // the process answered
		}
		return nil, w.workerGone(err)
	}
	return w.upstream(t, g), nil
}

// carryState is the data by which another instance resumes the connection.
type carryState struct {
	Worker string          `json:"worker"`
	Ticket string          `json:"ticket"`
	Inner  json.RawMessage `json:"inner"` // the ResumeData of the tunnel's session
}

// epochBits is the number of bits below the epoch in the ids of requests: see bridge.Handover.
const epochBits = 32

// Resume implements bridge.Resumer: it takes the child process over from the former owner of the session.
func (w *workerAdapter) Resume(ctx context.Context, from *bridge.Caller, rest bridge.Client, carry []byte, above int64) (bridge.Upstream, error) {
	gone := func(err error) error {
		return &bridge.Error{
			Server: w.s.Name,
			Kind:   bridge.ErrUnavailable,
			Err:    err,
			Public: "the worker no longer has its process",
		}
	}
	var c carryState
	if err := json.Unmarshal(carry, &c); err != nil {
		return nil, gone(err)
	}
	epoch := above >> epochBits
	m, err := w.reclaim(ctx, c, epoch)
	if err != nil {
		return nil, gone(err)
	}
	t, err := ResumeTunnel(ctx, w.tunnelOptions(m, c.Ticket, from, epoch), from, rest, c.Inner, above)
	if err != nil {
		return nil, err
	}
	return w.upstream(t, queue.Grant{Worker: c.Worker, Key: c.Ticket}), nil
}

// reclaimFor limits the time in which a living but unreachable worker is asked for a process again.
const reclaimFor = 5 * time.Second

// reclaim takes over the slot of a grant.
func (w *workerAdapter) reclaim(ctx context.Context, c carryState, epoch int64) (cluster.Member, error) {
	for until := time.Now().Add(reclaimFor); ; {
		m, lives, err := w.w.o.Node.Living(ctx, c.Worker)
		if err == nil && !lives {
			return m, errors.New("the worker has ended")
		}
		if err == nil {
			err = w.w.o.Peers.ClaimSlot(ctx, m, c.Ticket, epoch)
		}
		if err == nil || errors.Is(err, peer.ErrElsewhere) || time.Now().After(until) || backoff.For(ctx, workerRetry) != nil {
			return m, err
		}
	}
}

func (w *workerAdapter) upstream(t *Tunnel, g queue.Grant) bridge.Upstream {
	w.w.countTunnel(g.Worker, 1)
	return &workerUpstream{t, w.w, w.s.Name, g}
}

// workerUpstream is a connection to a child process at a worker.
type workerUpstream struct {
	*Tunnel
	w      *Workers
	server string
	grant  queue.Grant
}

var _ bridge.Resumable = (*workerUpstream)(nil)

// pingMethod makes a worker ping its child process: the worker answers a plain ping itself.
const pingMethod = "bridge/ping"

// Call makes a call. Call asks the worker to ping the process, and turns answers about failures of the process into
// errors.
func (w *workerUpstream) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Method == "ping" {
		ask := *r
		ask.Message = jsonrpc.NewRequest(pingMethod, nil)
		r = &ask
	}
	m, err := w.Tunnel.Call(ctx, r)
	switch {
	case err == nil && m.Error != nil:
		if failed := w.failureOf(m.Error); failed != nil {
			m.Release()
			return nil, failed
		}
	case errors.Is(err, bridge.ErrLost) && !errors.Is(err, bridge.ErrUnsent):
		return nil, &bridge.Error{
			Server: w.server,
			Kind:   bridge.ErrWorkerLost,
			Err:    err,
			Public: "its worker is gone or unreachable; the outcome of the request is unknown",
		}
	}
	return m, err
}

// kinds lists the names under which a worker sends the failures of its process. The order matters: a failure that is
// of several kinds gets the name of the first kind.
var kinds = []struct {
	name string
	kind error
}{{"timeout", bridge.ErrTimeout}, {"too_large", bridge.ErrTooLarge}, {"invalid", bridge.ErrInvalid}, {"lost", bridge.ErrLost}}

// failureAnswer returns the answer of a worker whose process failed, or nil for other errors. failureAnswer does not
// use data.bridge: a process that is a bridge itself uses that member.
func failureAnswer(err error) *jsonrpc.Message {
	for _, k := range kinds {
		if !errors.Is(err, k.kind) || errors.Is(err, bridge.ErrUnsent) {
			continue
		}
		public := "it failed"
		if e, ok := errors.AsType[*bridge.Error](err); ok {
			public = e.Public
		}
		return jsonrpc.NewError(nil, jsonrpc.CodeInternal, public, []byte(`{"worker":"`+k.name+`"}`))
	}
	return nil
}

// failureOf returns the error in an answer of the worker, or nil for an answer of the process. The bridge treats the
// error like a failure of a process of this instance.
func (w *workerUpstream) failureOf(answer []byte) error {
	e := gjson.ParseBytes(answer)
	name := e.Get("data.worker").Str
	for _, k := range kinds {
		if k.name == name {
			return &bridge.Error{
				Server: w.server,
				Kind:   k.kind,
				Public: e.Get("message").Str,
				Err:    errors.New("at a worker"),
			}
		}
	}
	return nil
}

// ResumeData implements bridge.Resumable.
func (w *workerUpstream) ResumeData() []byte {
	r, ok := w.Upstream.(bridge.Resumable)
	if !ok {
		return nil
	}
	within := r.ResumeData()
	if within == nil {
		return nil
	}
	carry, _ := json.Marshal(carryState{w.grant.Worker, w.grant.Key, within}) // every member has a JSON form
	return carry
}

// Detach implements bridge.Resumable.
func (w *workerUpstream) Detach() {
	if r, ok := w.Upstream.(bridge.Resumable); ok {
		r.Detach()
	}
}

// Close stops the child process, unless Detach left it to another instance.
func (w *workerUpstream) Close(ctx context.Context) error {
	defer w.w.countTunnel(w.grant.Worker, -1)
	return w.Tunnel.Close(ctx)
}

// errOwnerGone is the cause when a worker stops a process whose front is gone.
var errOwnerGone = fmt.Errorf("its instance is gone, and no other one took it over within %v", workerLinger)
