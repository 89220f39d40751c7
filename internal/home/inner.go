package home

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/adapters/peer"
	"github.com/mcp-bridge/bridge/internal/adapters/streamable"
	"github.com/mcp-bridge/bridge/internal/gateway"
	"github.com/mcp-bridge/bridge/internal/gateway/flight"
	"github.com/mcp-bridge/bridge/internal/session"
	"github.com/mcp-bridge/bridge/jsonrpc"
)

// inner serves the lanes of other instances, as a bridge of its own: each lane is a
// session of it, and its only server is whatever shared connection the session's headers
// name. All that guards servers and tells clients apart has its place elsewhere: at the
// other instance, or around the shared connection.
type inner struct {
	h        *Homes
	gateway  *gateway.Gateway
	sessions *streamable.Downstream
	calls    flight.Flight
	stopping context.Context // ends when this instance begins to stop
	stop     context.CancelFunc
	drained  chan struct{} // closed when no call is under way then, or there is no more time
	once     sync.Once     // closes it
}

// forgotten is how long the lane of an instance that has vanished is kept: one that lives
// listens.
const forgotten = 2 * time.Minute

// most bounds the inner sessions, and with that their lanes.
const most = 100_000

func newInner(h *Homes) *inner {
	i := &inner{h: h, drained: make(chan struct{})}
	i.stopping, i.stop = context.WithCancel(context.Background())
	own := func(name string) bridge.Forward { return bridge.Forward{From: name, To: name} }
	i.gateway = gateway.New(gateway.Options{
		Log: h.o.Log.With("inner", true), Sessions: session.NewMemory(most), SessionIdle: forgotten, MaxBytes: h.o.MaxBytes, MaxLanes: most,
		Servers: []gateway.ServerOptions{{
			Name: "shared", Adapter: (*shared)(i), EndWithServer: true, Idle: -1, MaxLanes: most,
			Forward: []bridge.Forward{own(peer.ServerHeader), own(peer.AlikeHeader), own(peer.ForwardHeader)},
		}},
	})
	i.sessions = streamable.New(i.gateway, streamable.Options{Log: h.o.Log, MaxMessage: h.o.MaxMessage})
	return i
}

func (i *inner) draining() bool { return i.stopping.Err() != nil }

// drain waits until no call of another instance is under way, or ctx ends.
func (i *inner) drain(ctx context.Context) {
	i.stop()
	_ = i.calls.Drain(ctx)
	i.once.Do(func() { close(i.drained) })
}

func (i *inner) close(ctx context.Context) {
	i.stop()
	i.once.Do(func() { close(i.drained) })
	i.gateway.Close(ctx)
	i.sessions.Close()
}

// Lane implements peer.Homes.
func (h *Homes) Lane(w http.ResponseWriter, r *http.Request) {
	i := h.inner
	if i.draining() { // a connection that ends under a request would cost that its answer
		w.Header().Set("Connection", "close")
	}
	if r.Method != http.MethodPost {
		i.sessions.Serve("", w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(h.o.MaxMessage)))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if m, err := jsonrpc.Parse(body); err == nil && m.IsRequest() {
		if h.o.Node.Await(r.Context(), "") != nil {
			w.WriteHeader(http.StatusNotFound) // nothing begins here now: the lane looks for its home anew
			return
		}
		if i.calls.Enter() != nil {
			select {
			case <-i.drained:
			case <-r.Context().Done():
			}
			w.WriteHeader(http.StatusNotFound)
			return
		}
		defer i.calls.Leave()
	}
	i.sessions.Serve("", w, r)
}

// shared is the Adapter of the one server: its connections are parts in those that live
// here.
type shared inner

// Open joins the shared connection that the headers of the session name.
func (s *shared) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	h := s.h
	server, _ := peer.Decode(from.Header.Get(peer.ServerHeader))
	alike, _ := peer.Decode(from.Header.Get(peer.AlikeHeader))
	_, c, done, err := h.hold(ctx, server, alike, linger)
	if err == nil && c == nil {
		err = peer.ErrElsewhere
	}
	if err != nil {
		return nil, unreachable(server, err)
	}
	its := *from
	its.Header = peer.DecodeHeader(from.Header.Get(peer.ForwardHeader))
	joint, forward, err := h.o.Gateway.Joint(server, its, rest)
	if err != nil {
		done()
		return nil, err
	}
	release, err := joint.Keep(ctx)
	if err != nil {
		_ = joint.Close(ctx)
		done()
		return nil, err
	}
	p := &part{Joint: joint, greeting: joint.Server(), forward: forward}
	moved := context.AfterFunc(c.lost, func() {
		rest.Gone(&bridge.Error{Server: server, Kind: bridge.ErrLost, Err: peer.ErrElsewhere, Public: movedText})
	})
	p.end = func() {
		moved()
		release()
		done()
	}
	return p, nil
}

// part is the part that the lane of another instance has in a shared connection.
type part struct {
	Joint
	greeting *bridge.Greeting
	forward  []bridge.Forward
	end      func()
}

// Server returns what the handshake said when the part began.
func (p *part) Server() *bridge.Greeting { return p.greeting }

// Attributes implements bridge.Attributing: the other instance hears each question on
// the stream of the call that it is about, if the server says that.
func (p *part) Attributes() bool { return true }

// Call makes a call. Headers come under the names that the server knows, and go on under
// those that its lane looks for.
func (p *part) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	r.Header = p.named(r.Header)
	return p.Joint.Call(ctx, r)
}

// Notify sends a notification.
func (p *part) Notify(ctx context.Context, r *bridge.Request) error {
	r.Header = p.named(r.Header)
	return p.Joint.Notify(ctx, r)
}

func (p *part) named(h http.Header) http.Header {
	if h == nil {
		return nil
	}
	its, out := peer.DecodeHeader(h.Get(peer.ForwardHeader)), http.Header{}
	for _, f := range p.forward {
		if values := its[f.To]; len(values) > 0 {
			out[f.From] = values
		}
	}
	return out
}

// Close leaves the shared connection.
func (p *part) Close(ctx context.Context) error {
	err := p.Joint.Close(ctx)
	p.end()
	return err
}
