package home

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/adapters/httpclient"
	"github.com/mcp-bridge/bridge/internal/adapters/peer"
	"github.com/mcp-bridge/bridge/internal/adapters/streamable"
	"github.com/mcp-bridge/bridge/internal/adapters/upstream"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/conn"
	"github.com/mcp-bridge/bridge/internal/era"
	"github.com/mcp-bridge/bridge/internal/pause"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/jsonrpc"
)

// Shared implements bridge.Places.
func (h *Homes) Shared(server string, forward []bridge.Forward, all bool, here bridge.Adapter) bridge.Adapter {
	return &placed{h, server, forward, all, here}
}

// placed opens the connections to a server that sessions share, at their home.
type placed struct {
	h       *Homes
	server  string
	forward []bridge.Forward
	all     bool
	here    bridge.Adapter
}

// alike is what the sessions have in common that share a connection.
func (p *placed) alike(from *bridge.Caller) string {
	if p.all {
		return ""
	}
	alike := "sessions\x00" + from.Principal + "\x00" + from.Revision + "\x00" + string(era.CanonicalCapabilities(rawjson.Delete(from.Capabilities, "tasks")))
	for _, f := range p.forward {
		for _, value := range from.Header[f.To] {
			alike += "\x00" + f.To + ":" + value
		}
	}
	return alike
}

// Open implements bridge.Adapter. It waits while the home is about to stop, or may be dead.
func (p *placed) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	h, alike := p.h, p.alike(from)
	until := time.Now().Add(h.patience())
	for {
		m, c, done, err := h.hold(ctx, p.server, alike, linger)
		if err == nil && c != nil {
			up, err := p.here.Open(ctx, from, rest)
			if err != nil {
				done()
				return nil, err
			}
			return p.homely(up, c, rest, done), nil
		}
		if err == nil {
			if err = h.o.Peers.AskHome(ctx, m, p.server, alike); err == nil {
				return p.away(ctx, m, alike, from, rest)
			}
		}
		if _, refused := errors.AsType[*bridge.Error](err); refused {
			return nil, err
		}
		late := time.Now()
		if now, ok := h.o.Node.Member(m.ID); errors.Is(err, peer.ErrElsewhere) && ok && now.Draining {
			late = late.Add(-h.o.Drain)
		}
		if late.After(until) || pause.For(ctx, again) != nil {
			return nil, unreachable(p.server, err)
		}
	}
}

// homely is a connection at its home, which it is for as long as the connection is open.
func (p *placed) homely(up bridge.Upstream, c *claim, rest bridge.Client, done func()) bridge.Upstream {
	stop := context.AfterFunc(c.lost, func() {
		rest.Gone(&bridge.Error{Server: p.server, Kind: bridge.ErrLost, Err: peer.ErrElsewhere, Public: movedText + "; whether it acted on the request is unknown"})
	})
	return &homely{up, c, func() {
		stop()
		done()
	}}
}

type homely struct {
	bridge.Upstream
	c   *claim
	end func()
}

// Call makes a call. A ping is none: its loss would end a connection that is good yet.
func (u *homely) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Method != "ping" && r.Method != "server/discover" {
		if err := u.c.sure(ctx); err != nil {
			return nil, err
		}
	}
	return u.Upstream.Call(ctx, r)
}

// Notify sends a notification.
func (u *homely) Notify(ctx context.Context, r *bridge.Request) error {
	if err := u.c.sure(ctx); err != nil {
		return err
	}
	return u.Upstream.Notify(ctx, r)
}

// Close closes the connection.
func (u *homely) Close(ctx context.Context) error {
	defer u.end()
	return u.Upstream.Close(ctx)
}

// Attributes implements bridge.Attributing.
func (u *homely) Attributes() bool {
	a, ok := u.Upstream.(bridge.Attributing)
	return ok && a.Attributes()
}

// ListensToChanges implements bridge.ListensToChanges.
func (u *homely) ListensToChanges() bool {
	l, ok := u.Upstream.(bridge.ListensToChanges)
	return !ok || l.ListensToChanges()
}

// away opens an inner session at the home.
func (p *placed) away(ctx context.Context, m cluster.Member, alike string, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	h := p.h
	way := h.o.Peers.Way(m)
	way.Headers = peer.LaneHeader(from.Principal, p.server, alike)
	a, err := streamable.NewUpstream(p.server, way, upstream.Options{Log: p.h.o.Log, MaxMessage: p.h.o.MaxMessage, Era: conn.EraLegacy, Hasty: true})
	if err != nil {
		return nil, err
	}
	its := *from
	its.Header = packed(from.Header)
	if its.Modern() { // it stands for everybody
		its.Revision, its.Capabilities = era.LatestLegacy, nil
	}
	up, err := a.Open(ctx, &its, rest)
	if err != nil {
		a.Close()
		return nil, err
	}
	e := &elsewhere{Upstream: up, a: a, server: p.server, rest: rest}
	e.ctx, e.stop = context.WithCancel(context.Background())
	e.wg.Go(func() { e.watch(h, m.ID) })
	return e, nil
}

// packed are headers as they go to another instance.
func packed(h http.Header) http.Header {
	if h == nil {
		return nil
	}
	return http.Header{peer.ForwardHeader: {peer.EncodeHeader(h)}}
}

// elsewhere is a part in a connection that lives at another instance.
type elsewhere struct {
	bridge.Upstream
	a      *streamable.Upstream
	server string
	rest   bridge.Client
	ctx    context.Context // ends with Close
	stop   context.CancelFunc
	wg     sync.WaitGroup
}

// Call makes a call. A home that cannot be reached has lost the connection: the lane looks
// for the next one.
func (u *elsewhere) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	inner := *r
	inner.Header = packed(r.Header)
	m, err := u.Upstream.Call(ctx, &inner)
	if err != nil && httpclient.Unsent(err) {
		return nil, &bridge.Error{Server: u.server, Kind: bridge.ErrUnsent, Err: errors.Join(bridge.ErrLost, err), Public: "the instance of the bridge that has its connection cannot be reached"}
	}
	return m, err
}

// watch tells the lane when the home has left or ended, also when nothing is called.
func (u *elsewhere) watch(h *Homes, id string) {
	missing := 0
	for missing < 2 && pause.For(u.ctx, time.Second) == nil {
		if missing++; slices.ContainsFunc(h.o.Node.Members(), func(m cluster.Member) bool { return m.ID == id }) {
			missing = 0
		}
	}
	if u.ctx.Err() == nil {
		u.rest.Gone(&bridge.Error{Server: u.server, Kind: bridge.ErrLost, Public: "the instance of the bridge that had its connection has ended; whether it acted on the request is unknown"})
	}
}

// Notify sends a notification.
func (u *elsewhere) Notify(ctx context.Context, r *bridge.Request) error {
	inner := *r
	inner.Header = packed(r.Header)
	return u.Upstream.Notify(ctx, &inner)
}

// Close leaves the connection, and closes what leads to it.
func (u *elsewhere) Close(ctx context.Context) error {
	u.stop()
	u.wg.Wait()
	defer u.a.Close()
	return u.Upstream.Close(ctx)
}

// LivesElsewhere implements bridge.LivesElsewhere.
func (u *elsewhere) LivesElsewhere() {}

// Attributes implements bridge.Attributing.
func (u *elsewhere) Attributes() bool { return true }

// ListensToChanges implements bridge.ListensToChanges.
func (u *elsewhere) ListensToChanges() bool {
	l, ok := u.Upstream.(bridge.ListensToChanges)
	return !ok || l.ListensToChanges()
}
