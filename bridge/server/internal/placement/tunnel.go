package placement

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/streamable"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/server/internal/peer"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
	"github.com/mcp-bridge/bridge/internal/cluster"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/backoff"
)

// TunnelWay is the way to a server's connection at another instance. All is needed but Timeouts,
// where there are none.
type TunnelWay struct {
	Server     string
	At         string // the instance
	HTTP       remote.Config
	Node       *cluster.Node
	Log        *slog.Logger
	MaxMessage int // bytes of one message
	Timeouts   conn.Timeouts
}

// Tunnel is an Upstream whose connection lives at another instance.
type Tunnel struct {
	bridge.Upstream
	a      *streamable.Upstream
	server string
	rest   bridge.Client
	ctx    context.Context // ends with Close
	stop   context.CancelFunc
	wg     sync.WaitGroup

	calls   atomic.Int64 // under way
	refused atomic.Bool  // one was: the other instance does not have the session any more
}

// settle is how long the end of a lane waits for its calls when the other instance has
// refused one: it refuses the others too, and then they can be made over another lane.
const settle = 5 * time.Second

// OpenTunnel opens an inner session at the other instance.
func OpenTunnel(ctx context.Context, w TunnelWay, from *bridge.Caller, rest bridge.Client) (*Tunnel, error) {
	return open(w, from, rest, func(a *streamable.Upstream, from *bridge.Caller) (bridge.Upstream, error) {
		return a.Open(ctx, from, rest)
	})
}

// ResumeTunnel goes on with an inner session of another instance's: see bridge.Resumer.
func ResumeTunnel(ctx context.Context, w TunnelWay, from *bridge.Caller, rest bridge.Client, carry []byte, above int64) (*Tunnel, error) {
	return open(w, from, rest, func(a *streamable.Upstream, from *bridge.Caller) (bridge.Upstream, error) {
		return a.Resume(ctx, from, rest, carry, above)
	})
}

func open(w TunnelWay, from *bridge.Caller, rest bridge.Client, how func(*streamable.Upstream, *bridge.Caller) (bridge.Upstream, error)) (*Tunnel, error) {
	a, err := streamable.NewUpstream(w.Server, w.HTTP, conn.Options{Log: w.Log, MaxMessage: w.MaxMessage, Timeouts: w.Timeouts, Era: conn.EraLegacy, Hasty: true})
	if err != nil {
		return nil, err
	}
	its := *from
	its.Header, its.Identity = packed(from.Header, from.Identity), nil
	if its.Modern() { // it stands for everybody
		its.Revision, its.Capabilities = era.LatestLegacy, nil
	}
	up, err := how(a, &its)
	if err != nil {
		a.Close()
		return nil, err
	}
	l := &Tunnel{Upstream: up, a: a, server: w.Server, rest: rest}
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.wg.Go(func() { l.watch(w.Node, w.At) })
	return l, nil
}

// packed returns headers and an identity as they go to another instance.
func packed(h http.Header, id *identity.Identity) http.Header {
	if h == nil && id == nil {
		return nil
	}
	return http.Header{peer.ForwardHeader: {peer.EncodeHeader(h, id)}}
}

// Call makes a call. An instance that cannot be reached has lost the connection: whoever
// needs it opens another one.
func (l *Tunnel) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	its := *r
	its.Header, its.Identity = packed(r.Header, r.Identity), nil
	l.calls.Add(1)
	defer l.calls.Add(-1)
	m, err := l.Upstream.Call(ctx, &its)
	if err != nil && remote.Unsent(err) { // which says nothing about the server
		err = &bridge.Error{Server: l.server, Kind: bridge.ErrUnsent, Err: fmt.Errorf("%w: %v", bridge.ErrLost, err), Public: "the instance of the bridge that has its connection cannot be reached"}
	}
	if errors.Is(err, bridge.ErrUnsent) {
		l.refused.Store(true)
	}
	return m, err
}

// watch tells who has the lane when the other instance has left or ended, also when
// nothing is called.
func (l *Tunnel) watch(n *cluster.Node, at string) {
	for missing := 0; backoff.For(l.ctx, time.Second) == nil; {
		if missing++; slices.ContainsFunc(n.Members(), func(m cluster.Member) bool { return m.ID == at }) {
			missing = 0
		}
		if missing < 2 { // it may be put again by one that lives
			continue
		}
		if dead, err := n.Dead(l.ctx, at); dead && err == nil {
			break
		}
	}
	if l.ctx.Err() == nil {
		l.rest.Gone(&bridge.Error{Server: l.server, Kind: bridge.ErrLost, Public: "the instance of the bridge that had its connection has ended; whether it acted on the request is unknown"})
	}
}

// Notify sends a notification.
func (l *Tunnel) Notify(ctx context.Context, r *bridge.Request) error {
	its := *r
	its.Header, its.Identity = packed(r.Header, r.Identity), nil
	return l.Upstream.Notify(ctx, &its)
}

// Close leaves the connection, and closes what leads to it.
func (l *Tunnel) Close(ctx context.Context) error {
	l.stop()
	l.wg.Wait()
	if l.refused.Load() {
		soon, cancel := context.WithTimeout(ctx, settle)
		for l.calls.Load() > 0 && backoff.For(soon, 5*time.Millisecond) == nil {
		}
		cancel()
	}
	defer l.a.Close()
	return l.Upstream.Close(ctx)
}

// ListensToChanges implements bridge.ListensToChanges.
func (l *Tunnel) ListensToChanges() bool {
	up, ok := l.Upstream.(bridge.ListensToChanges)
	return !ok || up.ListensToChanges()
}

// TakesEdits implements bridge.TakesEdits.
func (l *Tunnel) TakesEdits() {}
