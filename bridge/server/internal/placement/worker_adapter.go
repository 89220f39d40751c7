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
	"github.com/mcp-bridge/bridge/bridge/server/internal/peer"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/cluster/queue"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/backoff"
)

// WorkerServer is a server whose child processes workers run.
type WorkerServer struct {
	Name string
	// Queue is how many openings may wait beyond the free places of workers, and Wait how
	// long one may.
	Queue int
	Wait  time.Duration
	// Handshake is how long the process may take for its handshake, once there is a worker.
	Handshake time.Duration
	Timeouts  conn.Timeouts // of its calls
}

// Adapter returns what opens connections to a server at workers.
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
func (p *workerAdapter) BoundsOpenings() time.Duration { return p.s.Wait }

// Open implements bridge.Adapter. It waits for a worker. However long that took, and what
// was before, the handshake has its own time.
func (p *workerAdapter) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	waiting, cancel := context.WithTimeout(ctx, p.s.Wait)
	defer cancel()
	for {
		_, free := p.w.places()
		most := p.s.Queue + free
		t, err := p.w.front.Wait(waiting, p.s.Name, most)
		if err != nil && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			return nil, p.w.unplaced(&p.s, most, err)
		}
		m, lives, err := p.w.o.Node.Living(ctx, t.Worker)
		if err == nil && !lives {
			err = peer.ErrElsewhere
		}
		if err == nil {
			err = p.w.o.Peers.AskWorker(ctx, m, t.Key, 0)
			if ctx.Err() == nil {
				p.w.front.Tried(t.Worker, err == nil || errors.Is(err, peer.ErrElsewhere))
			}
		}
		var up bridge.Upstream
		if err != nil { // nothing was begun there
			err = p.ended(err)
		} else if up, err = p.start(ctx, m, t, from, rest); err == nil || ctx.Err() != nil || !errors.Is(err, bridge.ErrNoWorker) {
			return up, err
		}
		if backoff.For(waiting, workerAgain) != nil { // there is no time for another one
			return nil, cmp.Or(context.Cause(ctx), err)
		}
		p.w.o.Log.Warn("a worker has not opened a connection: it is offered again", "server", p.s.Name, "worker", tag(t.Worker), "err", err)
	}
}

// ended is the error of an opening whose worker cannot be asked for it any more.
func (p *workerAdapter) ended(err error) error {
	return &bridge.Error{Server: p.s.Name, Kind: bridge.ErrNoWorker, Err: err, After: time.Second, Public: "the worker that was about to start it has ended, or cannot be reached"}
}

// start is open, within the time for the handshake.
func (p *workerAdapter) start(ctx context.Context, m cluster.Member, t queue.Ticket, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	its, cancel := context.WithTimeoutCause(ctx, p.s.Handshake, &bridge.Error{Server: p.s.Name, Kind: bridge.ErrUnavailable,
		Public: fmt.Sprintf("it did not finish its handshake within %v", p.s.Handshake)})
	defer cancel()
	up, err := p.open(its, m, t, from, rest)
	if err != nil && its.Err() != nil && ctx.Err() == nil {
		err = context.Cause(its)
	}
	return up, err
}

// workerAgain is how long to wait before another offer when the worker of one was of no use.
const workerAgain = 100 * time.Millisecond

// way is the way to what a ticket stands for.
func (p *workerAdapter) way(m cluster.Member, key string, from *bridge.Caller, epoch int64) TunnelWay {
	o := &p.w.o
	w := TunnelWay{Server: p.s.Name, At: m.ID, HTTP: o.Peers.WorkWay(m), Node: o.Node, out: p.w.out, Log: o.Log, MaxMessage: o.MaxMessage, Timeouts: p.s.Timeouts}
	w.HTTP.Headers = peer.WorkHeader(from.Principal, key, epoch)
	return w
}

// open opens the connection that a ticket stands for. The error is bridge.ErrNoWorker when
// it says nothing about the server: the worker has ended, or has no room for a process.
func (p *workerAdapter) open(ctx context.Context, m cluster.Member, t queue.Ticket, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	l, err := OpenTunnel(ctx, p.way(m, t.Key, from, 0), from, rest)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		if why := p.w.o.Peers.WhyWorker(ctx, m, p.s.Name, t.Key); why != nil {
			return nil, why
		}
		if errors.Is(err, bridge.ErrNoHandshake) || errors.Is(err, bridge.ErrInvalid) || errors.Is(err, bridge.ErrTooLarge) {
			return nil, err // it was answered
		}
		return nil, p.ended(err)
	}
	return p.lane(l, t), nil
}

// carried is what another instance needs to go on with a lane.
type carried struct {
	Worker string          `json:"worker"`
	Ticket string          `json:"ticket"`
	Inner  json.RawMessage `json:"inner"` // what it needs for the inner session
}

// epochs is how far apart the numbers of requests begin that the owners of a session make
// one after the other: see bridge.Stay.
const epochs = 32 // bits

// Resume implements bridge.Resumer: it takes the child process from the instance that had
// the session.
func (p *workerAdapter) Resume(ctx context.Context, from *bridge.Caller, rest bridge.Client, carry []byte, above int64) (bridge.Upstream, error) {
	gone := func(err error) error {
		return &bridge.Error{Server: p.s.Name, Kind: bridge.ErrUnavailable, Err: err, Public: "the worker does not have its process any more"}
	}
	var c carried
	if err := json.Unmarshal(carry, &c); err != nil {
		return nil, gone(err)
	}
	epoch := above >> epochs
	m, err := p.reclaim(ctx, c, epoch)
	if err != nil {
		return nil, gone(err)
	}
	l, err := ResumeTunnel(ctx, p.way(m, c.Ticket, from, epoch), from, rest, c.Inner, above)
	if err != nil {
		return nil, err
	}
	return p.lane(l, queue.Ticket{Worker: c.Worker, Key: c.Ticket}), nil
}

// reclaims is how long a worker that lives, and cannot be reached, is asked for a process.
const reclaims = 5 * time.Second

// reclaim takes over what a ticket stands for.
func (p *workerAdapter) reclaim(ctx context.Context, c carried, epoch int64) (cluster.Member, error) {
	for until := time.Now().Add(reclaims); ; {
		m, lives, err := p.w.o.Node.Living(ctx, c.Worker)
		if err == nil && !lives {
			return m, errors.New("the worker has ended")
		}
		if err == nil {
			err = p.w.o.Peers.AskWorker(ctx, m, c.Ticket, epoch)
		}
		if err == nil || errors.Is(err, peer.ErrElsewhere) || time.Now().After(until) || backoff.For(ctx, workerAgain) != nil {
			return m, err
		}
	}
}

func (p *workerAdapter) lane(l *Tunnel, t queue.Ticket) bridge.Upstream {
	p.w.count(t.Worker, 1)
	return &lane{l, p.w, p.s.Name, t}
}

// lane is a connection to a child process at a worker.
type lane struct {
	*Tunnel
	w      *Workers
	server string
	t      queue.Ticket
}

var _ bridge.Portable = (*lane)(nil)

// pingMethod asks the child process for a sign of life: the worker itself answers pings.
const pingMethod = "bridge/ping"

// Call makes a call.
func (l *lane) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Method == "ping" {
		ask := *r
		ask.Message = jsonrpc.NewRequest(pingMethod, nil)
		r = &ask
	}
	m, err := l.Tunnel.Call(ctx, r)
	switch {
	case err == nil && m.Error != nil:
		if failed := l.failed(m.Error); failed != nil {
			m.Release()
			return nil, failed
		}
	case errors.Is(err, bridge.ErrLost) && !errors.Is(err, bridge.ErrUnsent):
		return nil, &bridge.Error{Server: l.server, Kind: bridge.ErrWorkerLost, Err: err, Public: "its worker has ended, or cannot be reached; whether it acted on the request is unknown"}
	}
	return m, err
}

// kinds are the errors by which a worker says that its process has given no answer, by the
// names that they travel under. Those come first that are kinds of others.
var kinds = []struct {
	name string
	kind error
}{{"timeout", bridge.ErrTimeout}, {"too_large", bridge.ErrTooLarge}, {"invalid", bridge.ErrInvalid}, {"lost", bridge.ErrLost}}

// inPlace returns what a worker answers in place of its process, which has failed; nil for
// other errors. A process that is an instance of the bridge itself has answers with
// data.bridge: those are its own.
func inPlace(err error) *jsonrpc.Message {
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

// failed returns the error that an answer of the worker stands for, so that it counts here
// as if the process had failed here; nil for an answer of the process.
func (l *lane) failed(answer []byte) error {
	e := gjson.ParseBytes(answer)
	name := e.Get("data.worker").Str
	for _, k := range kinds {
		if k.name == name {
			return &bridge.Error{Server: l.server, Kind: k.kind, Public: e.Get("message").Str, Err: errors.New("at a worker")}
		}
	}
	return nil
}

// Carry implements bridge.Portable.
func (l *lane) Carry() []byte {
	p, ok := l.Upstream.(bridge.Portable)
	if !ok {
		return nil
	}
	within := p.Carry()
	if within == nil {
		return nil
	}
	carry, _ := json.Marshal(carried{l.t.Worker, l.t.Key, within}) // what is within is JSON
	return carry
}

// Leave implements bridge.Portable.
func (l *lane) Leave() {
	if p, ok := l.Upstream.(bridge.Portable); ok {
		p.Leave()
	}
}

// Close ends the child process, unless it was left to another instance.
func (l *lane) Close(ctx context.Context) error {
	defer l.w.count(l.t.Worker, -1)
	return l.Tunnel.Close(ctx)
}

// errFront is why a child process ends that nobody uses any more.
var errFront = fmt.Errorf("the instance that had it has ended, and no other one has gone on with it within %v", workerLinger)
