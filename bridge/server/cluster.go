package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/replay"
	wire "github.com/mcp-bridge/bridge/bridge/server/internal/peer"
	"github.com/mcp-bridge/bridge/bridge/server/internal/placement"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/cluster/queue"
	store "github.com/mcp-bridge/bridge/internal/cluster/redis"
	"github.com/mcp-bridge/bridge/internal/oauth/front"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// instance is this process as one of several.
type instance struct {
	id    string
	c     *config.Cluster
	log   *slog.Logger
	kept  *backing
	node  *cluster.Node
	peers *wire.Peers
	homes *placement.Homes
	began bool

	workers *placement.Workers

	copies *replay.Copies // nil with replay: off
	hooks  *announcements
}

// backing is what an instance has in common with the others, and its way to them.
type backing struct {
	sessions session.Store
	registry cluster.Registry
	tasks    bridge.Owners
	values   front.Store
	streams  replay.Store
	offers   queue.Queue
	hooks    store.Hooks
	close    func() error
	// listen is where they reach it, and dial is how it reaches them: nil is TCP.
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	listen func(ctx context.Context, address string, lease time.Duration) (net.Listener, error)
}

// onRedis is what instances have in common in Redis. Nothing is connected to yet.
func (s *Server) onRedis(id string, life time.Duration) (*backing, error) {
	c := &s.c().Cluster
	client, err := store.Connect(c.Redis, c.CAFile)
	if err != nil {
		return nil, err
	}
	beats, err := store.Connect(c.Redis, c.CAFile) // they wait for no other command
	if err != nil {
		return nil, err
	}
	o := store.Options{Prefix: c.KeyPrefix, Owner: id, Secrets: c.Keys(), Life: life, Hooks: func() []string { return slices.Collect(maps.Keys(s.hooks())) }}
	kept := store.New(client, o)
	return &backing{
		sessions: kept, registry: store.New(beats, o), tasks: kept.Tasks(), values: kept.Values(), streams: kept.Streams(),
		offers: kept.Offers(s.log), hooks: kept.Hooks(), close: func() error { return errors.Join(beats.Close(), client.Close()) }, listen: wire.Listen,
	}, nil
}

// newInstance makes what the configuration says of the cluster. Nothing is connected to
// before begin.
func (s *Server) newInstance() (*instance, error) {
	c := &s.c().Cluster
	i := &instance{id: rand.Text(), c: c, log: s.log}
	life := s.c().SessionIdle * 3 / 2
	var err error
	if i.kept, err = s.backs(s, i.id, life); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	i.peers, err = wire.New(wire.Options{
		ID: i.id, Secrets: c.Keys(), Lease: c.Lease, Log: s.log,
		Forward:  func() []string { return s.b.Forwards() },
		Allowed:  func(server, principal string) error { return s.b.Allowed(server, principal) },
		Portable: func(r *session.Record) bool { return s.b.Portable(r) },
		Has:      func(id string) bool { return s.streamable.Has(id) },
		Adopt:    func(id string, h session.Held) error { return s.streamable.Adopt(id, h) },
		MCP:      func(server string, w http.ResponseWriter, r *http.Request) { s.streamable.Serve(server, w, r) },
		Messages: func(server string, w http.ResponseWriter, r *http.Request) { s.sse.Message(server, w, r) },
		Workers:  func() wire.Workers { return i.workers },
		Homes:    func() wire.Homes { return i.homes }, MaxMessage: int(s.c().MaxMessage) + between, Dial: i.kept.dial,
	})
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	i.hooks = newAnnouncements(i.kept.hooks, s.hooks, s.log)
	i.node = cluster.New(cluster.Options{
		Self: cluster.Member{ID: i.id, Version: Version(), Role: c.Role}, Store: i.kept.sessions, Registry: i.kept.registry, Peers: i.peers,
		Lease: c.Lease, Life: life, Stop: c.StoreLost == config.StoreLostStop, Most: s.c().MaxSessions, Log: s.log,
		Lost: func(key string) {
			if cluster.IsHome(key) {
				i.homes.Lost(key)
			} else {
				s.b.Move(key)
			}
		},
		Hooked:  i.hooks.hear,
		Emptied: func() { i.workers.Again() },
		Free:    func() int { return i.workers.Free() },
		Servers: func() string { return hashOf(s.now.Load().names()) },
	})
	i.peers.Join(i.node)
	i.homes = placement.NewHomes(placement.HomeOptions{
		Node: i.node, Peers: i.peers, Lease: c.Lease, Drain: s.c().Drain, Log: s.log,
		MaxMessage: int(s.c().MaxMessage) + between, MaxBytes: int64(s.c().MaxInFlight), Gateway: shared{s},
	})
	i.workers = placement.NewWorkers(placement.WorkerOptions{
		Node: i.node, ID: i.id, Peers: i.peers, Queue: i.kept.offers, Runs: c.Role != cluster.RoleFront, Places: s.c().MaxChildren, Log: s.log,
		Placed: s.placed, Local: s.local, MaxMessage: int(s.c().MaxMessage) + between, MaxBytes: int64(s.c().MaxInFlight),
	})
	if c.Replay == config.ReplayOn {
		i.copies = replay.NewCopies(i.kept.streams, s.log)
	}
	return i, nil
}

// hashOf makes a short name of names in any order.
func hashOf(names []string) string {
	sum := sha256.Sum256([]byte(strings.Join(slices.Sorted(slices.Values(names)), "\n")))
	return hex.EncodeToString(sum[:8])
}

// between is how much larger than a client's message one may be between instances, which
// says more of it.
const between = 1 << 20

// shared has the connections of this instance that others use.
type shared struct{ s *Server }

// Joint implements home.Gateway.
func (h shared) Joint(server string, from bridge.Caller, rest bridge.Client) (placement.Joint, []bridge.Forward, error) {
	hubs, forward := h.s.b.Shared(server)
	if hubs == nil {
		return nil, nil, bridge.ErrUnknownServer
	}
	v, err := hubs.Join(from, rest, false)
	if err != nil {
		return nil, nil, err
	}
	return v, forward, nil
}

// Pooled implements home.Gateway.
func (h shared) Pooled(ctx context.Context, server string, r *bridge.Request) (*jsonrpc.Message, error) {
	p := h.s.b.Pool(server)
	if p == nil {
		return nil, bridge.ErrUnknownServer
	}
	return p.Here(ctx, r)
}

// Left implements home.Gateway.
func (h shared) Left(server, key string) {
	if p := h.s.b.Pool(server); p != nil {
		p.LeaveHome(key)
	}
	of, ours := strings.CutPrefix(key, placement.OfSessions)
	if hubs, _ := h.s.b.Shared(server); hubs != nil && (ours || key == "") {
		hubs.Leave(of)
	}
}

// tag begins the ids of sessions that begin here; it is empty for the only instance.
func (i *instance) tag() string {
	if i == nil {
		return ""
	}
	return i.id[:session.TagLength]
}

// begin joins the cluster.
func (i *instance) begin(ctx context.Context) error {
	l, err := i.kept.listen(ctx, i.c.Listen, i.c.Lease)
	if err != nil {
		return fmt.Errorf("cluster: listen on %s: %w (choose another address with cluster: listen:)", i.c.Listen, err)
	}
	i.log.Debug("listening for other instances", "address", l.Addr().String())
	go i.peers.Listen(l)
	address := i.c.Advertise
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if address == "" {
		address, _, _ = net.SplitHostPort(l.Addr().String())
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(strings.Trim(address, "[]"), port)
	}
	if err := i.alone(ctx, address); err != nil {
		i.peers.Close(ctx)
		return err
	}
	i.node.Start(address)
	i.workers.Begin()
	i.began = true
	i.log.Info("one of several instances", "instance", i.id[:session.TagLength], "reached_at", address)
	return nil
}

// alone makes sure that no other instance answers where the others are to reach this one:
// behind the address of a Service, or with a copy of the file of another instance, requests
// would come to the wrong one.
func (i *instance) alone(ctx context.Context, address string) error {
	who, err := i.peers.Who(ctx, address)
	switch {
	case err != nil:
		i.log.Warn("this instance does not reach itself where the others are to reach it: compare cluster: advertise", "address", address, "err", err)
	case who != i.id:
		return fmt.Errorf("cluster: advertise is %s, where another instance answers (%s): each needs an address of its own, so not that of a load balancer or a Service", address, who[:min(len(who), session.TagLength)])
	}
	return nil
}

// leave lets the other instances go on with the sessions, each when no call of it is
// under way. It waits for those until ctx ends. Then it goes on to send others' requests
// to them until they know that nothing is here any more: balancers have connections open
// to this instance, and so have the others. New sessions begin at another one meanwhile.
//
// Calls of others to connections and processes here are held back as soon as they have
// seen that it stops, whatever calls its own sessions have. What was begun by then has as
// long as these: others is done when it has ended.
func (i *instance) leave(ctx context.Context, s *Server) (others *sync.WaitGroup) {
	i.node.Drain(ctx)
	others = &sync.WaitGroup{}
	for _, drain := range []func(context.Context){i.homes.Drain, i.workers.Drain} {
		others.Go(func() {
			_ = backoff.For(context.Background(), i.node.Beats())
			within, cancel := context.WithTimeout(context.Background(), s.c().Drain)
			defer cancel()
			drain(within)
		})
	}
	for s.b.MoveIdle() > 0 && backoff.For(ctx, 20*time.Millisecond) == nil {
	}
	known, cancel := context.WithTimeout(context.Background(), i.node.Beats())
	defer cancel()
	_ = i.node.Beat(known)
	for backoff.For(known, 50*time.Millisecond) == nil {
		s.b.MoveIdle()
	}
	i.peers.Leave()
	return others
}

// close leaves the cluster. It is called when the sessions have ended.
func (i *instance) close(ctx context.Context) {
	i.homes.Close()
	i.workers.Close(ctx)
	if i.began {
		i.node.Close(ctx)
		i.peers.Close(ctx)
	}
	i.hooks.close()
	if i.copies != nil {
		i.copies.Close()
	}
	_ = i.kept.close() // what was to be written is
}

// clustered is what /readyz says of the cluster.
type clustered struct {
	Instance  string        `json:"instance"`
	State     cluster.State `json:"state"`
	Role      string        `json:"role"`
	Workers   *work         `json:"workers,omitempty"` // not there where no server has place: workers
	StoreMS   float64       `json:"store_ms"`          // how long the last beat took
	Members   []colleague   `json:"members"`
	Forwarded uint64        `json:"forwarded"`
	TakenOver uint64        `json:"taken_over"`
	Lost      uint64        `json:"lost_to_others"`
	Refused   uint64        `json:"refused_for_want_of_an_owner"`
}

// colleague is one instance.
type colleague struct {
	Instance string `json:"instance"`
	Address  string `json:"address"`
	Version  string `json:"version"`
	Sessions int    `json:"sessions"`
	Role     string `json:"role"`
	Free     int    `json:"free,omitempty"` // child processes that it could still run for others
	Draining bool   `json:"draining,omitempty"`
	// Unreached: it lives, and could not be reached from here when it was last asked.
	Unreached bool `json:"unreached,omitempty"`
}

// work is what this instance has to do with workers.
type work struct {
	Queued      map[string]int `json:"queued,omitempty"`      // openings of all instances that wait, by server
	Waiting     map[string]int `json:"waiting,omitempty"`     // those of this one
	Connections map[string]int `json:"connections,omitempty"` // of this one, by worker
	Running     map[string]int `json:"running,omitempty"`     // child processes here for others, by server
	Stopping    bool           `json:"stopping,omitempty"`    // calls of others to these wait, for another worker
}

// works says how things stand with workers; nil where there is nothing for them.
func (i *instance) works(placed []string) *work {
	if len(placed) == 0 {
		return nil
	}
	st := i.workers.Status()
	w := &work{st.Queued, st.Waiting, map[string]int{}, st.Running, st.Stopping}
	for id, n := range st.Lanes {
		w.Connections[id[:session.TagLength]] = n
	}
	return w
}

// status says how the cluster looks from here.
func (i *instance) status() *clustered {
	n := i.node.Counts()
	out := &clustered{Instance: i.id[:session.TagLength], State: i.node.State(), Role: cmp.Or(i.c.Role, cluster.RoleAll), StoreMS: float64(i.node.Took().Microseconds()) / 1000,
		Forwarded: n.Forwarded.Load(), TakenOver: n.Taken.Load(), Lost: n.Lost.Load(), Refused: n.Refused.Load()}
	for _, m := range i.node.Members() {
		out.Members = append(out.Members, colleague{m.ID[:session.TagLength], m.Address, m.Version, m.Sessions, cmp.Or(m.Role, cluster.RoleAll), m.Free, m.Draining, i.node.Unreached(m.ID)})
	}
	return out
}
