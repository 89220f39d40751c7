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
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/server/internal/peer"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/cluster"
)

// OwnerOptions configure Owners. All are required.
type OwnerOptions struct {
	Node  *cluster.Node
	Peers OwnerPeers
	Lease time.Duration
	Drain time.Duration // limit for the stop of an instance
	Log   *slog.Logger
	// MaxMessage bounds one message between instances, and MaxBytes all messages of tunnels, in bytes.
	MaxMessage int
	MaxBytes   int64
	Gateway    Gateway
}

// OwnerPeers sends requests to other instances, as peer.Peers does.
type OwnerPeers interface {
	AskOwner(ctx context.Context, m cluster.Member, server, affinity string) error
	Call(ctx context.Context, m cluster.Member, server, affinity string, r *bridge.Request) (*jsonrpc.Message, error)
	OwnerTunnel(m cluster.Member) remote.Config
	AskLeave(ctx context.Context, m cluster.Member, what string) (left bool)
}

// Gateway has the connections of this instance.
type Gateway interface {
	// Join joins the connection to a server that sessions share. Join also returns which headers of clients are
	// forwarded to the server.
	Join(server string, from bridge.Caller, rest bridge.Client) (gateway.Joined, []bridge.Forward, error)
	// CallPool makes the request of a stateless client over a connection of this instance.
	CallPool(ctx context.Context, server string, r *bridge.Request) (*jsonrpc.Message, error)
	// Release closes the connections of an affinity key as soon as they are unused. This instance no longer
	// owns them, or is about to give them up. Release does not wait.
	Release(server, key string)
}

// Owners holds the shared connections that this instance owns, and the owners of other connections.
type Owners struct {
	o       OwnerOptions
	tunnels *TunnelSessions
	known   simplelru.LRUCache[string, string] // other owners, by store key
	out     *outbound
	wg      sync.WaitGroup

	mu       sync.Mutex // guards the rest
	claims   map[string]*claim
	pending  map[string]*pendingClaim
	stopping bool // unused claims stay until drained is set, or Close
	drained  bool // unused claims are given up at once
	closed   bool
	ending   context.Context // ends with closed
	end      context.CancelFunc
}

var (
	_ bridge.Places = (*Owners)(nil)
	_ peer.Owners   = (*Owners)(nil)
)

// connectionKey names a group of connections to one server. One instance owns the whole group. The affinity
// key begins with the kind of clients and, after a NUL, their principal.
type connectionKey struct{ server, affinity string }

// storeKey returns the key of the claim in the store.
func (c connectionKey) storeKey() string { return cluster.ConnectionKey(c.server, c.affinity) }

// principal returns the principal of the clients, or "" when all clients share the connection.
func (c connectionKey) principal() string {
	_, rest, _ := strings.Cut(c.affinity, "\x00")
	name, _, _ := strings.Cut(rest, "\x00")
	return name
}

// claim is the ownership of a shared connection by this instance.
type claim struct {
	connectionKey
	h        *Owners
	key      string
	uses     int
	since    time.Time       // when the last use ended
	timer    *time.Timer     // gives the claim up; nil while the claim is used
	lost     context.Context // ends with the ownership
	markLost context.CancelFunc
}

// pendingClaim is a claim that is being made or given up.
type pendingClaim struct {
	connectionKey // empty until there is room for the claim, and while a claim is given up
	done          chan struct{}
	at            cluster.Member // set before done: another instance is the owner
	err           error          // set before done: the owner could not be found
}

const (
	// maxKnown bounds Owners.known.
	maxKnown = 10_000
	// tunnelLinger is how long a claim stays for lanes after its last connection.
	tunnelLinger = time.Minute
	// statelessLinger is how long a claim stays for stateless clients after its last call. statelessLinger is longer
	// than parked calls wait for their clients.
	statelessLinger = 15 * time.Minute
	// maxOwned bounds the claims of this instance, and maxPerCaller the claims of one caller at one server.
	maxOwned     = 10_000
	maxPerCaller = 32
	// ownerRetry is the wait before an unreachable owner is tried again.
	ownerRetry = 200 * time.Millisecond
)

// NewOwners makes Owners. Close ends it.
func NewOwners(o OwnerOptions) *Owners {
	h := &Owners{
		o:       o,
		out:     newOutbound(),
		claims:  map[string]*claim{},
		pending: map[string]*pendingClaim{},
	}
	h.ending, h.end = context.WithCancel(context.Background())
	h.known, _ = lru.New[string, string](maxKnown) // only a size below 1 fails
	h.tunnels = NewTunnelSessions(TunnelSessionOptions{
		Adapter:    (*tunnelAdapter)(h),
		Headers:    []string{peer.ServerHeader, peer.AffinityHeader, peer.ForwardHeader},
		Await:      func(ctx context.Context) error { return o.Node.Await(ctx, "") },
		Log:        o.Log,
		MaxMessage: o.MaxMessage,
		MaxBytes:   o.MaxBytes,
	})
	return h
}

// acquire counts one use of a connection until done, and claims the connection first if it has no owner. If another
// instance owns the connection, acquire returns that instance and no claim. keep is how long the claim stays unused
// after done. If ask is set and no instance reaches the store, acquire asks the other instances for the owner.
func (o *Owners) acquire(ctx context.Context, server, affinity string, keep time.Duration, ask bool) (at cluster.Member, c *claim, done func(), err error) {
	its := connectionKey{server, affinity}
	key := its.storeKey()
	for {
		o.mu.Lock()
		if c := o.claims[key]; c != nil {
			c.uses++
			if c.timer != nil {
				c.timer.Stop()
				c.timer = nil
			}
			o.mu.Unlock()
			done := sync.OnceFunc(func() { o.releaseUse(c, keep) })
			if err := o.o.Node.Await(ctx, key); err != nil {
				done()
				return at, nil, nil, err
			}
			if c.lost.Err() != nil { // another instance took the claim during Await
				done()
				continue
			}
			return at, c, done, nil
		}
		if busy := o.pending[key]; busy != nil {
			o.mu.Unlock()
			select {
			case <-busy.done: // one answer is for all that wait: with a slow store, one question each would take too long
				if busy.err != nil || busy.at.ID != "" {
					return busy.at, nil, nil, busy.err
				}
				continue
			case <-ctx.Done():
				return at, nil, nil, context.Cause(ctx)
			}
		}
		p := &pendingClaim{done: make(chan struct{})}
		o.pending[key] = p
		o.mu.Unlock()
		at, mine, err := o.o.Node.Claim(ctx, key, server, func() error { return o.makeRoom(p, its) })
		if ask && errors.Is(err, session.ErrUnavailable) && o.o.Node.State() == cluster.Frozen {
			at, err = o.askOthers(ctx, its)
		}
		o.mu.Lock()
		p.at, p.err = at, err
		if mine {
			c := &claim{
				connectionKey: its,
				h:             o,
				key:           key,
			}
			c.lost, c.markLost = context.WithCancel(context.Background())
			o.claims[key] = c
		}
		o.endClaim(key, p)
		o.mu.Unlock()
		if err != nil || !mine {
			return at, nil, nil, err
		}
	}
}

// askTimeout limits the questions of askOthers.
const askTimeout = time.Second

// askOthers asks the other instances whether they own a connection, while no instance reaches the store. Without the
// store no instance can become the owner, so an instance that says yes has been the owner before.
func (o *Owners) askOthers(ctx context.Context, its connectionKey) (cluster.Member, error) {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	others := o.o.Node.Others()
	owners := make(chan cluster.Member, len(others))
	for _, m := range others {
		wg.Go(func() {
			if o.o.Peers.AskOwner(ctx, m, its.server, its.affinity) != nil {
				m = cluster.Member{}
			}
			owners <- m
		})
	}
	for range others {
		if m := <-owners; m.ID != "" {
			return m, nil
		}
	}
	return cluster.Member{}, session.ErrUnavailable
}

// locate is acquire with the owners in o.known. While the store does not answer, locate returns the owner known from
// before. If first is set, locate returns a known owner without asking the store.
func (o *Owners) locate(ctx context.Context, its connectionKey, keep time.Duration, first bool) (at cluster.Member, c *claim, done func(), err error) {
	key := its.storeKey()
	id, _ := o.known.Get(key)
	m, ok := o.o.Node.Member(id)
	if ok && first {
		return m, nil, nil, nil
	}
	at, c, done, err = o.acquire(ctx, its.server, its.affinity, keep, true)
	switch {
	case errors.Is(err, session.ErrUnavailable) && ok:
		return m, nil, nil, nil
	case err == nil && c == nil:
		o.known.Add(key, at.ID)
	case err == nil:
		o.known.Remove(key)
	}
	return at, c, done, err
}

// endClaim ends a pending claim. The caller holds o.mu.
func (o *Owners) endClaim(key string, p *pendingClaim) {
	delete(o.pending, key)
	close(p.done)
}

// makeRoom makes room for one more claim. At a limit, makeRoom gives up the claim that was unused for longest; if all
// are in use, makeRoom returns an error.
func (o *Owners) makeRoom(by *pendingClaim, its connectionKey) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return session.ErrUnavailable
	}
	all, own := len(o.claims), 0
	var oldest, ownOldest *claim
	who := its.principal()
	mine := func(one connectionKey) bool { // without access rules all clients are one caller
		return who != "" && one.server == its.server && one.principal() == who
	}
	older := func(c, than *claim) *claim {
		if c.uses == 0 && c.timer != nil && (than == nil || c.since.Before(than.since)) {
			return c
		}
		return than
	}
	for _, c := range o.claims {
		oldest = older(c, oldest)
		if mine(c.connectionKey) {
			own++
			ownOldest = older(c, ownOldest)
		}
	}
	for _, p := range o.pending {
		if p.server != "" {
			all++
		}
		if mine(p.connectionKey) {
			own++
		}
	}
	switch {
	case own >= maxPerCaller && ownOldest == nil:
		return full(its.server, "one caller has too many connections to it", maxPerCaller)
	case own >= maxPerCaller:
		o.giveUp(ownOldest)
	case all >= maxOwned && oldest == nil:
		return full(its.server, "this instance of the bridge owns too many shared connections", maxOwned)
	case all >= maxOwned:
		o.giveUp(oldest)
	}
	by.connectionKey = its
	return nil
}

// full returns the error of a call without room for its connection.
func full(server, what string, most int) error {
	return &bridge.Error{
		Server: server,
		Kind:   bridge.ErrUnavailable,
		Err:    bridge.ErrOverloaded,
		Public: bridge.OverLimit(what, most),
	}
}

// releaseUse ends one use of a claim. A claim that stays unused for keep is given up, unless this instance stops: see
// giveUpIdle.
func (o *Owners) releaseUse(c *claim, keep time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c.uses--
	switch {
	case c.uses > 0 || o.claims[c.key] != c || o.closed:
	case o.drained:
		o.giveUp(c)
	case !o.stopping:
		c.since, c.timer = time.Now(), time.AfterFunc(keep, func() { o.expire(c) })
	}
}

// expire gives up a claim that stayed unused.
func (o *Owners) expire(c *claim) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c.uses == 0 && c.timer != nil && o.claims[c.key] == c && !o.stopping {
		o.giveUp(c)
	}
}

// giveUp gives up an unused claim. The caller holds o.mu.
func (o *Owners) giveUp(c *claim) {
	delete(o.claims, c.key)
	if c.timer != nil {
		c.timer.Stop()
	}
	p := &pendingClaim{done: make(chan struct{})} // pending until the store has the change
	o.pending[c.key] = p
	o.wg.Go(func() {
		o.dropped(c)
		o.unclaim(c.key)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.endClaim(c.key, p)
	})
}

// dropped closes the connections of a claim that ended.
func (o *Owners) dropped(c *claim) {
	c.markLost()
	o.o.Gateway.Release(c.server, c.affinity)
}

func (o *Owners) unclaim(key string) {
	if err := o.o.Node.Unclaim(context.Background(), key); err != nil && !errors.Is(err, session.ErrFenced) {
		o.o.Log.Debug("the claim of a shared connection could not be given up", "err", err)
	}
}

// Lost ends the claim of a key that another instance owns now.
func (o *Owners) Lost(key string) {
	o.mu.Lock()
	c := o.claims[key]
	delete(o.claims, key)
	if c != nil && c.timer != nil {
		c.timer.Stop()
	}
	o.mu.Unlock()
	if c != nil {
		o.dropped(c)
	}
}

// Leave implements peer.Owners.
func (o *Owners) Leave(ctx context.Context, instance string) error {
	return o.out.leave(ctx, instance, o.o.Node)
}

func (o *Owners) holds(its connectionKey) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.claims[its.storeKey()] != nil
}

// Owned returns the number of shared connections that this instance owns.
func (o *Owners) Owned() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.claims)
}

// deadAfter limits the attempts at an owner that does not answer: a dead owner would be found dead within that time.
func (o *Owners) deadAfter() time.Duration { return o.o.Lease + 2*time.Second }

// recheckEvery is the interval at which an instance that stops closes unused connections.
const recheckEvery = 50 * time.Millisecond

// Drain waits until no request of another instance is in flight, and closes the tunnels to this instance. Drain asks
// the other instances to leave, waits for their answers, and gives up unused claims. New requests wait at their
// instances for the next owner. The end of ctx cuts each wait short.
func (o *Owners) Drain(ctx context.Context) {
	o.mu.Lock()
	o.stopping = true
	for _, c := range o.claims {
		if c.timer != nil {
			c.timer.Stop()
		}
	}
	used := len(o.claims) > 0
	o.mu.Unlock()
	o.tunnels.Drain(ctx)
	o.tunnels.Close(ctx)
	if used {
		askLeave(ctx, o.o.Peers, peer.LeaveOwner, o.o.Node.Others())
	}
	o.giveUpIdle()
}

// giveUpIdle gives up each claim as soon as it is unused, until Close. Calls at other instances wait until their
// connection is given up.
func (o *Owners) giveUpIdle() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	o.drained = true
	for _, c := range o.claims {
		if c.uses == 0 {
			o.giveUp(c)
		}
	}
	o.wg.Go(func() {
		for {
			o.mu.Lock()
			all := slices.Collect(maps.Values(o.claims))
			o.mu.Unlock()
			for _, c := range all { // an open connection without users counts as a use of its claim
				o.o.Gateway.Release(c.server, c.affinity)
			}
			if backoff.For(o.ending, recheckEvery) != nil {
				return
			}
		}
	})
}

// Close gives up all claims. Their connections must be closed before.
func (o *Owners) Close() {
	o.mu.Lock()
	o.stopping, o.closed = true, true
	o.end()
	all := o.claims
	o.claims = map[string]*claim{}
	o.mu.Unlock()
	for _, c := range all {
		if c.timer != nil {
			c.timer.Stop()
		}
		c.markLost()
		o.wg.Go(func() { o.unclaim(c.key) })
	}
	o.wg.Wait()
}

// CloseTunnels closes the tunnels of other instances to this one. The caller closes the connections after that.
func (o *Owners) CloseTunnels(ctx context.Context) { o.tunnels.Close(ctx) }

// Owns implements peer.Owners.
func (o *Owners) Owns(ctx context.Context, server, affinity string) bool {
	if o.tunnels.Stopping().Err() != nil {
		return false
	}
	if o.o.Node.State() == cluster.Frozen && !o.holds(connectionKey{server, affinity}) { // two instances that ask each other must not wait for each other
		return false
	}
	_, c, done, err := o.acquire(ctx, server, affinity, tunnelLinger, false)
	if err != nil || c == nil {
		return false
	}
	done()
	return true
}

// Home implements bridge.Places.
func (o *Owners) Home(server, affinity string, here bridge.Away) bridge.Away {
	return &ownerRoute{connectionKey{server, affinity}, o, here}
}

// errReach is the kind of an error that does not concern the server itself.
var errReach = fmt.Errorf("%w: %w", bridge.ErrUnavailable, bridge.ErrOverloaded)

// unreachable returns the error of a call whose owner cannot be reached. unreachable returns err itself if that is a
// bridge.Error.
func unreachable(server string, err error) error {
	if already, ok := errors.AsType[*bridge.Error](err); ok {
		return already
	}
	return &bridge.Error{
		Server: server,
		Kind:   errReach,
		Err:    err,
		After:  2 * time.Second,
		Public: "the instance of the bridge that owns its connection is unreachable; try again later",
	}
}

// ownerRoute sends the requests of stateless clients to the owner of their connection.
type ownerRoute struct {
	connectionKey
	h     *Owners
	local bridge.Away // used when this instance is the owner
}

// Call implements bridge.Away. Call waits while the owner is about to stop, may be dead, or is not known yet. An
// isolated instance does not wait.
func (o *ownerRoute) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	until := time.Now().Add(o.h.deadAfter())
	var at cluster.Member // the last owner that was tried
	var refused error
	for {
		next, c, done, err := o.h.locate(ctx, o.connectionKey, statelessLinger, refused == nil)
		if err == nil && c != nil {
			defer done()
			return c.call(ctx, r, o.local.Call)
		}
		if _, full := errors.AsType[*bridge.Error](err); full || err != nil && o.h.o.Node.State() == cluster.Isolated {
			return nil, unreachable(o.server, err)
		}
		if err != nil || next.ID == at.ID {
			if now, ok := o.h.o.Node.Member(at.ID); (!ok || !now.Draining) && time.Now().After(until) || time.Now().After(until.Add(o.h.o.Drain)) {
				return nil, unreachable(o.server, cmp.Or(err, refused))
			}
			if backoff.For(ctx, ownerRetry) != nil {
				return nil, context.Cause(ctx)
			}
		}
		if err != nil {
			continue
		}
		at = next
		m, err := o.callOwner(ctx, at, r)
		if _, unsent := errors.AsType[*peer.Unsent](err); !unsent && !errors.Is(err, peer.ErrElsewhere) {
			return m, err
		}
		refused = err
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// callOwner makes the request at another instance.
func (o *ownerRoute) callOwner(ctx context.Context, at cluster.Member, r *bridge.Request) (*jsonrpc.Message, error) {
	_, done, err := o.h.out.enter(at.ID)
	if err != nil {
		return nil, err
	}
	defer done()
	return o.h.o.Peers.Call(ctx, at, o.server, o.affinity, r)
}

// call makes the request of a stateless client over a connection of this instance. A subscription ends with the
// claim; then the client's instance subscribes again at the next owner.
func (c *claim) call(ctx context.Context, r *bridge.Request, call func(context.Context, *bridge.Request) (*jsonrpc.Message, error)) (*jsonrpc.Message, error) {
	inner, from := *r, *r.From
	from.Handover = leaseStay{c}
	inner.From = &from
	if r.Method != era.Listen {
		return call(ctx, &inner)
	}
	its, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(c.lost, stop)()
	m, err := call(its, &inner)
	if c.lost.Err() != nil && ctx.Err() == nil {
		m.Release()
		return nil, &bridge.Error{
			Server: c.server,
			Kind:   bridge.ErrLost,
			Err:    peer.ErrElsewhere,
			Public: movedText,
		}
	}
	return m, err
}

// movedText is the public text of errors after the claim was lost.
const movedText = "another instance of the bridge owns its connection now"

// checkLease returns nil when a request may be sent over the connection. The process may have been stopped while
// the request waited (S-012).
func (c *claim) checkLease(ctx context.Context) error {
	if !c.h.o.Node.Ready() {
		if err := c.h.o.Node.Await(ctx, c.key); ctx.Err() != nil {
			return context.Cause(ctx)
		} else if err != nil {
			return unreachable(c.server, err)
		}
	}
	if c.lost.Err() != nil {
		return &bridge.Error{
			Server: c.server,
			Kind:   bridge.ErrUnsent,
			Err:    errors.Join(bridge.ErrLost, peer.ErrElsewhere),
			Public: movedText,
		}
	}
	return nil
}

// leaseStay is the bridge.Handover of requests of stateless clients at the owner.
type leaseStay struct{ c *claim }

var _ bridge.Handover = leaseStay{}

func (l leaseStay) Confirm(ctx context.Context) error { return l.c.checkLease(ctx) }

// SaveResume implements bridge.Handover: no instance resumes the connection.
func (leaseStay) SaveResume(string, []byte) {}

func (leaseStay) TakeResume(string) ([]byte, int64) { return nil, 0 }

func (leaseStay) HandedOver() bool { return false }

// Instance implements bridge.Places.
func (o *Owners) Instance(ctx context.Context, server, id string) (bridge.Away, error) {
	m, ok := o.o.Node.Member(id)
	if !ok {
		_ = o.o.Node.Beat(ctx) // the instance may have just started
		if m, ok = o.o.Node.Member(id); !ok {
			return nil, nil
		}
	}
	return &parkedRoute{o, server, m}, nil
}

// parkedRoute sends requests to the instance that has a parked call.
type parkedRoute struct {
	h      *Owners
	server string
	at     cluster.Member
}

// Call implements bridge.Away. If the instance has ended, the answer and the error are nil.
func (p *parkedRoute) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	m, err := p.h.o.Peers.Call(ctx, p.at, p.server, parked, r)
	if _, unsent := errors.AsType[*peer.Unsent](err); !unsent && !errors.Is(err, peer.ErrElsewhere) {
		return m, err
	}
	if dead, notKnown := p.h.o.Node.Dead(ctx, p.at.ID); dead && notKnown == nil {
		return nil, nil
	}
	return nil, unreachable(p.server, err)
}

// parked is the affinity key of requests for parked calls. The instance of such a call serves them, even if it is not
// the owner.
const parked = "\x00parked"

// Call implements peer.Owners.
func (o *Owners) Call(ctx context.Context, server, affinity string, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Method == era.Listen { // a subscription is not counted, since it lasts; it continues at the next owner
		var stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(o.tunnels.Stopping(), stop)()
	} else {
		err := o.tunnels.Enter()
		if err == nil {
			defer o.tunnels.Leave()
		} else if affinity != parked {
			return nil, peer.ErrElsewhere
		}
	}
	here := func(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
		return o.o.Gateway.CallPool(ctx, server, r)
	}
	if affinity == parked {
		return here(ctx, r)
	}
	_, c, done, err := o.acquire(ctx, server, affinity, statelessLinger, false)
	if err != nil || c == nil {
		return nil, peer.ErrElsewhere
	}
	defer done()
	m, err := c.call(ctx, r, here)
	if o.tunnels.Stopping().Err() != nil && r.Method == era.Listen {
		m.Release()
		return nil, &bridge.Error{
			Server: server,
			Kind:   bridge.ErrLost,
			Public: "the instance of the bridge that owns its connection stops",
		}
	}
	return m, err
}
