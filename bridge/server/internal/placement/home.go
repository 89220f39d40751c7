package placement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/server/internal/peer"
	"github.com/mcp-bridge/bridge/internal/cluster"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/backoff"
)

// HomeOptions configure Homes. All are needed but for those that say otherwise.
type HomeOptions struct {
	Node  *cluster.Node
	Peers HomePeers
	Lease time.Duration
	Drain time.Duration // how long an instance that stops may take
	Log   *slog.Logger
	// MaxMessage and MaxBytes bound one message between instances, and all of inner
	// sessions together, in bytes.
	MaxMessage int
	MaxBytes   int64
	Gateway    Gateway
}

// HomePeers reaches other instances, as peer.Peers does.
type HomePeers interface {
	AskHome(ctx context.Context, m cluster.Member, server, alike string) error
	Call(ctx context.Context, m cluster.Member, server, alike string, r *bridge.Request) (*jsonrpc.Message, error)
	Way(m cluster.Member) remote.Config
	AskLeave(ctx context.Context, m cluster.Member, what string)
}

// Gateway has the connections that live here.
type Gateway interface {
	// Joint returns a part in the connection to a server that sessions share, and what the
	// server gets of clients' headers.
	Joint(server string, from bridge.Caller, rest bridge.Client) (Joint, []bridge.Forward, error)
	// Pooled makes the request of a client without a session over a connection of this
	// instance's.
	Pooled(ctx context.Context, server string, r *bridge.Request) (*jsonrpc.Message, error)
	// Left closes the connections to a server that are for the clients of that key, as soon
	// as nobody uses them, and at once those of sessions that nobody uses: this instance is
	// not their home any more, or is about to be none. It does not wait.
	Left(server, key string)
}

// Joint is a part in a shared connection.
type Joint interface {
	bridge.Upstream
	// Keep opens the connection, and keeps it open until release is called.
	Keep(ctx context.Context) (release func(), err error)
}

// Homes are the homes of shared connections: those that are here, and where others are.
type Homes struct {
	o     HomeOptions
	inner *Sessions
	known *lru.Cache[string, string] // where others are, by key
	out   *outbound
	wg    sync.WaitGroup

	mu       sync.Mutex // guards the rest
	claims   map[string]*claim
	claiming map[string]*bid
	stopping bool // what is here stays until nobody uses it, or it is closed
	drained  bool // then what nobody uses is given up at once
	closed   bool
	ending   context.Context // ends with closed
	end      context.CancelFunc
}

var (
	_ bridge.Places = (*Homes)(nil)
	_ peer.Homes    = (*Homes)(nil)
)

// whose says which connections a home has: those to a server that are alike by what is
// given. That begins with the kind of clients and, behind a NUL, their principal.
type whose struct{ server, alike string }

// key returns the key under which the home is kept.
func (w whose) key() string { return cluster.HomeKey(w.server, w.alike) }

// principal returns whose clients they are for; nothing where all share one.
func (w whose) principal() string {
	_, rest, _ := strings.Cut(w.alike, "\x00")
	name, _, _ := strings.Cut(rest, "\x00")
	return name
}

// claim is a home that is here.
type claim struct {
	whose
	h     *Homes
	key   string
	uses  int
	since time.Time       // when the last use ended
	timer *time.Timer     // until it is given up; nil while it is used
	lost  context.Context // ends when this instance is not the home any more
	lose  context.CancelFunc
}

// bid is a claim that is being made, or given up.
type bid struct {
	whose // nothing before there is room for it, and when it is given up
	done  chan struct{}
}

const (
	// maxKnown bounds what is remembered of homes elsewhere.
	maxKnown = 10_000
	// homeLinger is how long the home of a lane is kept that has no connection.
	homeLinger = time.Minute
	// pooled is how long the home of connections for clients without sessions is kept
	// that has no call: longer than calls wait for their clients there.
	pooled = 15 * time.Minute
	// maxHomes bounds the homes here, and maxOwn those of one caller's connections to one
	// server: as many as it may have.
	maxHomes = 10_000
	maxOwn   = 32
	// homeAgain is how long to wait before a home that cannot be reached is tried again.
	homeAgain = 200 * time.Millisecond
)

// NewHomes makes Homes. Close ends it.
func NewHomes(o HomeOptions) *Homes {
	h := &Homes{o: o, out: newOutbound(), claims: map[string]*claim{}, claiming: map[string]*bid{}}
	h.ending, h.end = context.WithCancel(context.Background())
	h.known, _ = lru.New[string, string](maxKnown) // only a size below 1 fails
	h.inner = NewSessions(SessionOptions{
		Adapter: (*shared)(h), Headers: []string{peer.ServerHeader, peer.AlikeHeader, peer.ForwardHeader},
		Await: func(ctx context.Context) error { return o.Node.Await(ctx, "") }, Log: o.Log, MaxMessage: o.MaxMessage, MaxBytes: o.MaxBytes,
	})
	return h
}

// hold makes this instance the home of connections, for one use until done, unless another
// one is: which it returns then.
func (h *Homes) hold(ctx context.Context, server, alike string, keep time.Duration) (at cluster.Member, c *claim, done func(), err error) {
	its := whose{server, alike}
	key := its.key()
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
		if busy := h.claiming[key]; busy != nil {
			h.mu.Unlock()
			select {
			case <-busy.done:
				continue
			case <-ctx.Done():
				return at, nil, nil, context.Cause(ctx)
			}
		}
		b := &bid{done: make(chan struct{})}
		h.claiming[key] = b
		h.mu.Unlock()
		at, mine, err := h.o.Node.Claim(ctx, key, server, func() error { return h.room(b, its) })
		h.mu.Lock()
		if mine {
			c := &claim{whose: its, h: h, key: key}
			c.lost, c.lose = context.WithCancel(context.Background())
			h.claims[key] = c
		}
		h.over(key, b)
		h.mu.Unlock()
		if err != nil || !mine {
			return at, nil, nil, err
		}
	}
}

// over ends a bid. The caller holds h.mu.
func (h *Homes) over(key string, b *bid) {
	delete(h.claiming, key)
	close(b.done)
}

// room makes room for one more home: the one that was not used for longest is given up.
// There is none when all are in use.
func (h *Homes) room(by *bid, its whose) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return session.ErrUnavailable
	}
	all, own := len(h.claims), 0
	var oldest, ownOldest *claim
	who := its.principal()
	mine := func(o whose) bool { // without access rules everybody is one caller
		return who != "" && o.server == its.server && o.principal() == who
	}
	older := func(c, than *claim) *claim {
		if c.uses == 0 && c.timer != nil && (than == nil || c.since.Before(than.since)) {
			return c
		}
		return than
	}
	for _, c := range h.claims {
		oldest = older(c, oldest)
		if mine(c.whose) {
			own++
			ownOldest = older(c, ownOldest)
		}
	}
	for _, b := range h.claiming {
		if b.server != "" {
			all++
		}
		if mine(b.whose) {
			own++
		}
	}
	switch {
	case own >= maxOwn && ownOldest == nil:
		return full(its.server, "one caller has too many connections to it", maxOwn)
	case own >= maxOwn:
		h.giveUp(ownOldest)
	case all >= maxHomes && oldest == nil:
		return full(its.server, "this instance of the bridge has too many connections that are shared", maxHomes)
	case all >= maxHomes:
		h.giveUp(oldest)
	}
	by.whose = its
	return nil
}

// full is the error of a call for whose connection there is no room.
func full(server, what string, most int) error {
	return &bridge.Error{Server: server, Kind: bridge.ErrUnavailable, Err: bridge.ErrOverloaded, Public: bridge.OverLimit(what, most)}
}

// leave ends a use. What nobody uses for that long is given up.
func (h *Homes) leave(c *claim, keep time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.uses--
	switch {
	case c.uses > 0 || h.claims[c.key] != c || h.closed:
	case h.drained:
		h.giveUp(c)
	case !h.stopping:
		c.since, c.timer = time.Now(), time.AfterFunc(keep, func() { h.unused(c) })
	}
}

// unused gives up a home that nobody has used.
func (h *Homes) unused(c *claim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.uses == 0 && c.timer != nil && h.claims[c.key] == c && !h.stopping {
		h.giveUp(c)
	}
}

// giveUp gives up a home that nobody uses. The caller holds h.mu.
func (h *Homes) giveUp(c *claim) {
	delete(h.claims, c.key)
	if c.timer != nil {
		c.timer.Stop()
	}
	b := &bid{done: make(chan struct{})} // until the store knows
	h.claiming[c.key] = b
	h.wg.Go(func() {
		h.left(c)
		h.unclaim(c.key)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.over(c.key, b)
	})
}

// left ends what there is of a home here, which is none any more.
func (h *Homes) left(c *claim) {
	c.lose()
	h.o.Gateway.Left(c.server, c.alike)
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
		h.left(c)
	}
}

// Leave implements peer.Homes.
func (h *Homes) Leave(ctx context.Context, instance string) error {
	return h.out.leave(ctx, instance, h.o.Node)
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

// looks is how often an instance that stops looks whether connections are used.
const looks = 50 * time.Millisecond

// Drain waits until no request of another instance is under way, or ctx ends, and ends
// what the others have of the connections here. It waits until each of them has left this
// instance. Requests that come meanwhile wait at their
// instances for the next home: what nobody uses here by then is given up.
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
	h.inner.Drain(ctx)
	h.inner.Close(ctx)
	if used {
		askLeave(ctx, h.o.Peers, peer.LeaveHome, h.o.Node.Others())
	}
	h.release()
}

// release gives up each home as soon as nobody uses it, until Close: calls of other
// instances wait for that, and not for what else is under way here.
func (h *Homes) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.drained = true
	for _, c := range h.claims {
		if c.uses == 0 {
			h.giveUp(c)
		}
	}
	h.wg.Go(func() {
		for {
			h.mu.Lock()
			all := slices.Collect(maps.Values(h.claims))
			h.mu.Unlock()
			for _, c := range all { // the connection that nobody uses is a use itself
				h.o.Gateway.Left(c.server, c.alike)
			}
			if backoff.For(h.ending, looks) != nil {
				return
			}
		}
	})
}

// Close gives up the homes that are here. The connections must have been closed.
func (h *Homes) Close() {
	h.mu.Lock()
	h.stopping, h.closed = true, true
	h.end()
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
func (h *Homes) CloseLanes(ctx context.Context) { h.inner.Close(ctx) }

// Mine implements peer.Homes.
func (h *Homes) Mine(ctx context.Context, server, alike string) bool {
	if h.inner.Stopping().Err() != nil {
		return false
	}
	_, c, done, err := h.hold(ctx, server, alike, homeLinger)
	if err != nil || c == nil {
		return false
	}
	done()
	return true
}

// Home implements bridge.Places.
func (h *Homes) Home(server, alike string, here bridge.Away) bridge.Away {
	return &toHome{whose{server, alike}, h, here}
}

// errReach says nothing about the server.
var errReach = fmt.Errorf("%w: %w", bridge.ErrUnavailable, bridge.ErrOverloaded)

// unreachable is the error of a call whose home cannot be reached.
func unreachable(server string, err error) error {
	if already, ok := errors.AsType[*bridge.Error](err); ok {
		return already
	}
	return &bridge.Error{Server: server, Kind: errReach, Err: err, After: 2 * time.Second, Public: "the instance of the bridge that has its connection is out of reach; try again later"}
}

// toHome is the way to a home.
type toHome struct {
	whose
	h    *Homes
	here bridge.Away // for when it is this instance
}

// Call implements bridge.Away. It waits while the home is about to stop, or may be dead.
func (a *toHome) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	until := time.Now().Add(a.h.patience())
	key := a.key()
	var at cluster.Member // where it was tried last
	var refused error
	for {
		next, c, done, err := a.where(ctx, key)
		switch {
		case err == nil && c != nil:
			defer done()
			return c.make(ctx, r, a.here.Call)
		case err != nil && refused == nil:
			return nil, unreachable(a.server, err)
		case err != nil || next.ID == at.ID:
			if now, ok := a.h.o.Node.Member(at.ID); (!ok || !now.Draining) && time.Now().After(until) || time.Now().After(until.Add(a.h.o.Drain)) {
				return nil, unreachable(a.server, cmp.Or(err, refused))
			}
			if backoff.For(ctx, homeAgain) != nil {
				return nil, context.Cause(ctx)
			}
		}
		if err != nil {
			continue
		}
		at = next
		m, err := a.away(ctx, at, r)
		if _, unsent := errors.AsType[*peer.Unsent](err); !unsent && !errors.Is(err, peer.ErrElsewhere) {
			return m, err
		}
		refused = err
		a.h.known.Remove(key)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// away makes the request at another instance.
func (a *toHome) away(ctx context.Context, at cluster.Member, r *bridge.Request) (*jsonrpc.Message, error) {
	_, done, err := a.h.out.enter(at.ID)
	if err != nil {
		return nil, err
	}
	defer done()
	return a.h.o.Peers.Call(ctx, at, a.server, a.alike, r)
}

// where looks who is the home: this instance, for one use until done, or another one.
func (a *toHome) where(ctx context.Context, key string) (at cluster.Member, c *claim, done func(), err error) {
	if id, ok := a.h.known.Get(key); ok {
		if m, ok := a.h.o.Node.Member(id); ok {
			return m, nil, nil, nil
		}
	}
	if at, c, done, err = a.h.hold(ctx, a.server, a.alike, pooled); err == nil && c == nil {
		a.h.known.Add(key, at.ID)
	}
	return at, c, done, err
}

// make makes the request of a client without a session over a connection that lives here.
// A subscription ends when another instance is the home, where it goes on.
func (c *claim) make(ctx context.Context, r *bridge.Request, call func(context.Context, *bridge.Request) (*jsonrpc.Message, error)) (*jsonrpc.Message, error) {
	inner, from := *r, *r.From
	from.Stay = right{c}
	inner.From = &from
	if r.Method != era.Listen {
		return call(ctx, &inner)
	}
	its, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(c.lost, stop)()
	a, err := call(its, &inner)
	if c.lost.Err() != nil && ctx.Err() == nil {
		a.Release()
		return nil, &bridge.Error{Server: c.server, Kind: bridge.ErrLost, Err: peer.ErrElsewhere, Public: movedText}
	}
	return a, err
}

// movedText says where a connection is that was here.
const movedText = "its connection lives at another instance of the bridge now"

// sure returns nil when a request may be sent over a connection that lives here: it may
// have waited, and the process may have been stopped meanwhile (S-012).
func (c *claim) sure(ctx context.Context) error {
	if !c.h.o.Node.Ready() {
		if err := c.h.o.Node.Await(ctx, c.key); ctx.Err() != nil {
			return context.Cause(ctx)
		} else if err != nil {
			return unreachable(c.server, err)
		}
	}
	if c.lost.Err() != nil {
		return &bridge.Error{Server: c.server, Kind: bridge.ErrUnsent, Err: errors.Join(bridge.ErrLost, peer.ErrElsewhere), Public: movedText}
	}
	return nil
}

// right is that of a home to make a client's requests.
type right struct{ c *claim }

var _ bridge.Stay = right{}

// Sure implements bridge.Stay.
func (r right) Sure(ctx context.Context) error { return r.c.sure(ctx) }

// Carried implements bridge.Stay: nobody goes on with the connection.
func (right) Carried(string, []byte) {}

// Carry implements bridge.Stay.
func (right) Carry(string) ([]byte, int64) { return nil, 0 }

// Moves implements bridge.Stay.
func (right) Moves() bool { return false }

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
		defer context.AfterFunc(h.inner.Stopping(), stop)()
	} else {
		err := h.inner.Enter()
		if err == nil {
			defer h.inner.Leave()
		} else if alike != parked {
			return nil, peer.ErrElsewhere
		}
	}
	here := func(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
		return h.o.Gateway.Pooled(ctx, server, r)
	}
	if alike == parked {
		return here(ctx, r)
	}
	_, c, done, err := h.hold(ctx, server, alike, pooled)
	if err != nil || c == nil {
		return nil, peer.ErrElsewhere
	}
	defer done()
	m, err := c.make(ctx, r, here)
	if h.inner.Stopping().Err() != nil && r.Method == era.Listen {
		m.Release()
		return nil, &bridge.Error{Server: server, Kind: bridge.ErrLost, Public: "the instance of the bridge that has its connection stops"}
	}
	return m, err
}
