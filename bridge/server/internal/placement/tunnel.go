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
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/server/internal/peer"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
	"github.com/mcp-bridge/bridge/internal/cluster"
)

// TunnelOptions configure a Tunnel. All are required but Timeouts, which may be zero.
type TunnelOptions struct {
	Server     string
	At         string // the other instance
	HTTP       remote.Config
	Node       *cluster.Node
	Log        *slog.Logger
	MaxMessage int // bytes of one message
	Timeouts   conn.Timeouts
	out        *outbound
}

// Tunnel is an Upstream over a connection of another instance.
type Tunnel struct {
	bridge.Upstream
	adapter *streamable.Upstream
	server  string
	client  bridge.Client
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	wg      sync.WaitGroup
	done    func() // tells outbound that the tunnel no longer uses the other instance

	calls   gateway.InFlight
	refused atomic.Bool // the other instance stops: it answers or refuses each call, and loses none
}

// OpenTunnel opens a tunnel to the instance t.At on behalf of from. ctx bounds only the opening.
func OpenTunnel(ctx context.Context, t TunnelOptions, from *bridge.Caller, rest bridge.Client) (*Tunnel, error) {
	return open(t, from, rest, func(u *streamable.Upstream, from *bridge.Caller) (bridge.Upstream, error) {
		return u.Open(ctx, from, rest)
	})
}

// ResumeTunnel resumes a tunnel that another instance opened: see bridge.Resumer.
func ResumeTunnel(ctx context.Context, t TunnelOptions, from *bridge.Caller, rest bridge.Client, carry []byte, above int64) (*Tunnel, error) {
	return open(t, from, rest, func(u *streamable.Upstream, from *bridge.Caller) (bridge.Upstream, error) {
		return u.Resume(ctx, from, rest, carry, above)
	})
}

func open(t TunnelOptions, from *bridge.Caller, rest bridge.Client, how func(*streamable.Upstream, *bridge.Caller) (bridge.Upstream, error)) (*Tunnel, error) {
	u, err := streamable.NewUpstream(t.Server, t.HTTP, conn.Options{
		Log:        t.Log,
		MaxMessage: t.MaxMessage,
		Timeouts:   t.Timeouts,
		Era:        conn.EraLegacy,
		FailFast:   true,
	})
	if err != nil {
		return nil, err
	}
	stops, done, err := t.out.enter(t.At)
	if err != nil {
		u.Close()
		return nil, err
	}
	its := *from
	its.Header, its.Identity = packed(from.Header, from.Identity), nil
	if its.Modern() { // the connection is for all stateless clients
		its.Revision, its.Capabilities = era.LatestLegacy, nil
	}
	up, err := how(u, &its)
	if err != nil {
		u.Close()
		done()
		return nil, err
	}
	l := &Tunnel{
		Upstream: up,
		adapter:  u,
		server:   t.Server,
		client:   rest,
		done:     done,
	}
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.wg.Go(func() { l.watch(t.Node, t.At, stops) })
	return l, nil
}

// packed returns headers and an identity in the form in which they go to another instance.
func packed(h http.Header, id *identity.Identity) http.Header {
	if h == nil && id == nil {
		return nil
	}
	return http.Header{peer.ForwardHeader: {peer.EncodeHeader(h, id)}}
}

// Call makes a call. When the other instance cannot be reached, the connection is lost and the call unsent, so that
// the lane opens another connection.
func (t *Tunnel) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	its := *r
	its.Header, its.Identity = packed(r.Header, r.Identity), nil
	if t.calls.Enter() == nil {
		defer t.calls.Leave()
	} // otherwise Close has begun, and Upstream refuses the call
	m, err := t.Upstream.Call(ctx, &its)
	if err != nil && remote.Unsent(err) { // the server itself may work
		err = &bridge.Error{
			Server: t.server,
			Kind:   bridge.ErrUnsent,
			Err:    fmt.Errorf("%w: %v", bridge.ErrLost, err),
			Public: "the instance of the bridge that owns its connection cannot be reached",
		}
	}
	if errors.Is(err, bridge.ErrUnsent) {
		t.refused.Store(true)
	}
	return m, err
}

// watch reports the connection as lost when the other instance stops or is dead, also without calls.
func (t *Tunnel) watch(n *cluster.Node, at string, stops context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for missing := 0; ; {
		select {
		case <-t.ctx.Done():
			return
		case <-stops.Done():
			t.refused.Store(true)
			t.client.Gone(&bridge.Error{
				Server: t.server,
				Kind:   bridge.ErrLost,
				Err:    peer.ErrElsewhere,
				Public: "the instance of the bridge that owns its connection stops",
			})
			return
		case <-tick.C:
		}
		if missing++; slices.ContainsFunc(n.Members(), func(m cluster.Member) bool { return m.ID == at }) {
			missing = 0
		}
		if missing < 2 { // the store may have lost the member for a moment
			continue
		}
		if dead, err := n.Dead(t.ctx, at); dead && err == nil {
			break
		}
	}
	if t.ctx.Err() == nil {
		t.client.Gone(&bridge.Error{
			Server: t.server,
			Kind:   bridge.ErrLost,
			Public: "the instance of the bridge that owned its connection is gone; whether it acted on the request is unknown",
		})
	}
}

func (t *Tunnel) Notify(ctx context.Context, r *bridge.Request) error {
	its := *r
	its.Header, its.Identity = packed(r.Header, r.Identity), nil
	return t.Upstream.Notify(ctx, &its)
}

// Close closes the tunnel. When the other instance stops, Close first waits for each call in flight, which is either
// answered, or refused and made again over another tunnel.
func (t *Tunnel) Close(ctx context.Context) error {
	t.stop()
	t.wg.Wait()
	if t.refused.Load() {
		_ = t.calls.Drain(ctx)
	}
	defer t.done()
	defer t.adapter.Close()
	return t.Upstream.Close(ctx)
}

// TakesEdits implements bridge.TakesEdits.
func (t *Tunnel) TakesEdits() {}
