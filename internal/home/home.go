// Package home has shared connections live at one instance of several: that of
// `share: principal` and `share: all`, and those of clients without sessions to a child
// or to a server with sessions. Otherwise a server with a memory would show another face
// with each request that reaches another instance.
//
// The first instance that needs such a connection claims it in the store, and is its
// home until it stops, ends, or has not used it for long. The others reach it there. A
// lane's connection at the home is an inner MCP session to it, spoken as to any other
// server: what the home loses, it opens again itself; when the home ends, the lane of
// each other instance has lost a connection and opens another one, at the next home.
// Requests of clients without sessions go to the home one by one.
package home

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/mcp-bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/adapters/peer"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/era"
	"github.com/mcp-bridge/bridge/internal/pause"
	"github.com/mcp-bridge/bridge/internal/session"
	"github.com/mcp-bridge/bridge/jsonrpc"
)

// Options configure Homes. All are needed but for those that say otherwise.
type Options struct {
	Node  *cluster.Node
	Peers *peer.Peers
	Lease time.Duration
	Drain time.Duration // how long an instance that stops may take
	Log   *slog.Logger
	// MaxMessage and MaxBytes bound one message between instances, and all of inner
	// sessions together, in bytes.
	MaxMessage int
	MaxBytes   int64
	Gateway    Gateway
}

// Gateway has the connections that live here.
type Gateway interface {
	// Joint returns a part in the connection to a server that sessions share, and what the
	// server gets of clients' headers.
	Joint(server string, from bridge.Caller, rest bridge.Client) (Joint, []bridge.Forward, error)
	// Pooled makes the request of a client without a session over a connection of this
	// instance's.
	Pooled(ctx context.Context, server string, r *bridge.Request) (*jsonrpc.Message, error)
}

// Joint is a part in a shared connection.
type Joint interface {
	bridge.Upstream
	// Keep opens the connection, and keeps it open until release is called.
	Keep(ctx context.Context) (release func(), err error)
}

// Homes are the homes of shared connections: those that are here, and where others are.
type Homes struct {
	o     Options
	inner *inner
	known *lru.Cache[string, string] // where others are, by key
	wg    sync.WaitGroup

	mu       sync.Mutex // guards the rest
	claims   map[string]*claim
	claiming map[string]chan struct{} // closed when it has ended
	stopping bool
}

var (
	_ bridge.Places = (*Homes)(nil)
	_ peer.Homes    = (*Homes)(nil)
)

// claim is a home that is here.
type claim struct {
	key   string
	uses  int
	timer *time.Timer     // until it is given up; nil while it is used
	lost  context.Context // ends when another instance has it
	lose  context.CancelFunc
	told  bool // somebody is told of that
}

const (
	// maxKnown bounds what is remembered of homes elsewhere.
	maxKnown = 10_000
	// linger is how long the home of a lane is kept that has no connection.
	linger = time.Minute
	// pooled is how long the home of connections for clients without sessions is kept
	// that has no call: longer than calls wait for their clients there.
	pooled = 15 * time.Minute
	// again is how long to wait before a home that cannot be reached is tried again.
	again = 200 * time.Millisecond
)

// New makes Homes. Close ends it.
func New(o Options) *Homes {
	h := &Homes{o: o, claims: map[string]*claim{}, claiming: map[string]chan struct{}{}}
	h.known, _ = lru.New[string, string](maxKnown) // only a size below 1 fails
	h.inner = newInner(h)
	return h
}

// hold makes this instance the home of a key, for one use until done, unless another
// one is: which it returns then.
func (h *Homes) hold(ctx context.Context, server, key string, keep time.Duration) (at cluster.Member, c *claim, done func(), err error) {
	for {
		h.mu.Lock()
		if c := h.claims[key]; c != nil {
			c.uses++
			if c.timer != nil {
				c.timer.Stop()
				c.timer = nil
			}
			h.mu.Unlock()
			done := sync.OnceFunc(func() { h.leave(c, keep) })
			if err := h.o.Node.Await(ctx, key); err != nil {
				done()
				return at, nil, nil, err
			}
			if c.lost.Err() != nil { // to another instance, while this one waited
				done()
				continue
			}
			return at, c, done, nil
		}
		busy := h.claiming[key]
		if busy == nil {
			h.claiming[key] = make(chan struct{})
		}
		stopping := h.stopping
		h.mu.Unlock()
		if busy != nil {
			select {
			case <-busy:
				continue
			case <-ctx.Done():
				return at, nil, nil, context.Cause(ctx)
			}
		}
		at, mine, err := h.o.Node.Claim(ctx, key, server)
		h.mu.Lock()
		if mine {
			c := &claim{key: key}
			c.lost, c.lose = context.WithCancel(context.Background())
			h.claims[key] = c
			if stopping { // it is not to be kept
				c.timer = time.AfterFunc(0, func() { h.unused(c) })
			}
		}
		close(h.claiming[key])
		delete(h.claiming, key)
		h.mu.Unlock()
		if err != nil || !mine {
			return at, nil, nil, err
		}
	}
}

// leave ends a use. What nobody uses for that long is given up.
func (h *Homes) leave(c *claim, keep time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.uses--
	if c.uses == 0 && h.claims[c.key] == c && !h.stopping {
		c.timer = time.AfterFunc(keep, func() { h.unused(c) })
	}
}

// unused gives up a home that nobody has used.
func (h *Homes) unused(c *claim) {
	h.mu.Lock()
	if c.uses > 0 || c.timer == nil || h.claims[c.key] != c || h.stopping {
		h.mu.Unlock()
		return
	}
	delete(h.claims, c.key)
	busy := make(chan struct{}) // until the store knows
	h.claiming[c.key] = busy
	h.wg.Add(1)
	h.mu.Unlock()
	defer h.wg.Done()
	c.lose()
	h.unclaim(c.key)
	h.mu.Lock()
	delete(h.claiming, c.key)
	h.mu.Unlock()
	close(busy)
}

func (h *Homes) unclaim(key string) {
	if err := h.o.Node.Unclaim(context.Background(), key); err != nil && !errors.Is(err, session.ErrFenced) {
		h.o.Log.Debug("the home of a shared connection could not be given up", "err", err)
	}
}

// Lost notes that another instance is the home of a key now.
func (h *Homes) Lost(key string) {
	h.mu.Lock()
	c := h.claims[key]
	delete(h.claims, key)
	if c != nil && c.timer != nil {
		c.timer.Stop()
	}
	h.mu.Unlock()
	if c != nil {
		c.lose()
	}
}

// Here returns how many homes are here.
func (h *Homes) Here() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.claims)
}

// patience is how long a home is tried that does not answer: until it would be found
// dead.
func (h *Homes) patience() time.Duration { return h.o.Lease + 2*time.Second }

// letGo is how long other instances have to notice that their lanes here have ended: what
// they send meanwhile is refused, and would be lost later.
const letGo = 500 * time.Millisecond

// Drain waits until no request of another instance is under way, or ctx ends, and ends
// what the others have of the connections here. Requests that come meanwhile wait at their
// instances for the next home.
func (h *Homes) Drain(ctx context.Context) {
	h.mu.Lock()
	h.stopping = true
	for _, c := range h.claims {
		if c.timer != nil {
			c.timer.Stop()
		}
	}
	used := len(h.claims) > 0
	h.mu.Unlock()
	h.inner.drain(ctx)
	h.inner.close(ctx)
	if used {
		_ = pause.For(ctx, letGo)
	}
}

// Close gives up the homes that are here. The connections must have been closed.
func (h *Homes) Close() {
	h.mu.Lock()
	h.stopping = true
	all := h.claims
	h.claims = map[string]*claim{}
	h.mu.Unlock()
	for _, c := range all {
		if c.timer != nil {
			c.timer.Stop()
		}
		c.lose()
		h.wg.Go(func() { h.unclaim(c.key) })
	}
	h.wg.Wait()
}

// CloseLanes ends what other instances have of the connections that are here. It comes
// before these are closed.
func (h *Homes) CloseLanes(ctx context.Context) { h.inner.close(ctx) }

// Mine implements peer.Homes.
func (h *Homes) Mine(ctx context.Context, server, alike string) bool {
	if h.inner.draining() {
		return false
	}
	_, c, done, err := h.hold(ctx, server, cluster.HomeKey(server, alike), linger)
	if err != nil || c == nil {
		return false
	}
	done()
	return true
}

// Home implements bridge.Places.
func (h *Homes) Home(ctx context.Context, server, alike string, lost func()) (bridge.Away, func(), error) {
	at := cluster.HomeKey(server, alike)
	if id, ok := h.known.Get(at); ok {
		if m, ok := h.o.Node.Member(id); ok {
			return &away{h, server, alike, at, m}, func() {}, nil
		}
	}
	return h.home(ctx, server, alike, at, lost)
}

// home asks the store.
func (h *Homes) home(ctx context.Context, server, alike, key string, lost func()) (bridge.Away, func(), error) {
	m, c, done, err := h.hold(ctx, server, key, pooled)
	switch {
	case err != nil:
		return nil, nil, unreachable(server, err)
	case c == nil:
		h.known.Add(key, m.ID)
		return &away{h, server, alike, key, m}, func() {}, nil
	}
	h.mu.Lock()
	first := !c.told
	c.told = true
	h.mu.Unlock()
	if first && lost != nil {
		context.AfterFunc(c.lost, lost)
	}
	return nil, done, nil
}

// errReach says nothing about the server.
var errReach = fmt.Errorf("%w: %w", bridge.ErrUnavailable, bridge.ErrOverloaded)

// unreachable is the error of a call whose home cannot be reached.
func unreachable(server string, err error) error {
	return &bridge.Error{Server: server, Kind: errReach, Err: err, After: 2 * time.Second, Public: "the instance of the bridge that has its connection is out of reach; try again later"}
}

// away is the way to a home.
type away struct {
	h                  *Homes
	server, alike, key string
	at                 cluster.Member
}

// Call implements bridge.Away. It waits while the home is about to stop, or may be dead.
func (a *away) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	until := time.Now().Add(a.h.patience())
	for {
		m, err := a.h.o.Peers.Call(ctx, a.at, a.server, a.alike, r)
		if _, unsent := errors.AsType[*peer.Unsent](err); !unsent && !errors.Is(err, peer.ErrElsewhere) {
			return m, err
		}
		a.h.known.Remove(a.key)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		at, done, none := a.next(ctx)
		switch {
		case none == nil && at == nil:
			defer done()
			return a.h.o.Gateway.Pooled(ctx, a.server, r)
		case none == nil && at.at.ID != a.at.ID:
			a.at = at.at
			continue
		}
		if now, ok := a.h.o.Node.Member(a.at.ID); (!ok || !now.Draining) && time.Now().After(until) || time.Now().After(until.Add(a.h.o.Drain)) {
			return nil, unreachable(a.server, cmp.Or(none, err))
		}
		if pause.For(ctx, again) != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// next looks who is the home now.
func (a *away) next(ctx context.Context) (*away, func(), error) {
	m, c, done, err := a.h.hold(ctx, a.server, a.key, pooled)
	if err != nil || c != nil {
		return nil, done, err
	}
	a.h.known.Add(a.key, m.ID)
	return &away{a.h, a.server, a.alike, a.key, m}, nil, nil
}

// Instance implements bridge.Places.
func (h *Homes) Instance(ctx context.Context, server, id string) (bridge.Away, error) {
	m, ok := h.o.Node.Member(id)
	if !ok {
		_ = h.o.Node.Beat(ctx) // it may be new
		if m, ok = h.o.Node.Member(id); !ok {
			return nil, nil
		}
	}
	return &waiting{h, server, m}, nil
}

// waiting is the way to the instance where a call waits for its client.
type waiting struct {
	h      *Homes
	server string
	at     cluster.Member
}

// Call implements bridge.Away. A nil answer without an error means that the instance has ended.
func (w *waiting) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	m, err := w.h.o.Peers.Call(ctx, w.at, w.server, parked, r)
	if _, unsent := errors.AsType[*peer.Unsent](err); !unsent && !errors.Is(err, peer.ErrElsewhere) {
		return m, err
	}
	if dead, notKnown := w.h.o.Node.Dead(ctx, w.at.ID); dead && notKnown == nil {
		return nil, nil
	}
	return nil, unreachable(w.server, err)
}

// parked stands for a call that waits at an instance, whoever is the home by now.
const parked = "\x00parked"

// Call implements peer.Homes.
func (h *Homes) Call(ctx context.Context, server, alike string, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Method == era.Listen { // it lasts, and goes on at the next home
		var stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(h.inner.stopping, stop)()
	} else {
		err := h.inner.calls.Enter()
		if err == nil {
			defer h.inner.calls.Leave()
		} else if alike != parked {
			return nil, peer.ErrElsewhere
		}
	}
	if alike != parked {
		_, c, done, err := h.hold(ctx, server, cluster.HomeKey(server, alike), pooled)
		if err != nil || c == nil {
			return nil, peer.ErrElsewhere
		}
		defer done()
	}
	m, err := h.o.Gateway.Pooled(ctx, server, r)
	if h.inner.stopping.Err() != nil && r.Method == era.Listen {
		m.Release()
		return nil, &bridge.Error{Server: server, Kind: bridge.ErrLost, Public: "the instance of the bridge that has its connection stops"}
	}
	return m, err
}
