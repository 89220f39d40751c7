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
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
	wire "github.com/mcp-bridge/bridge/bridge/server/internal/peer"
	"github.com/mcp-bridge/bridge/bridge/server/internal/placement"
	"github.com/mcp-bridge/bridge/bridge/server/status"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/cluster/queue"
	store "github.com/mcp-bridge/bridge/internal/cluster/redis"
	"github.com/mcp-bridge/bridge/internal/oauth/front"
)

// instance is this process as a member of a cluster.
type instance struct {
	id     string
	c      *config.Cluster
	log    *slog.Logger
	kept   *backing
	node   *cluster.Node
	peers  *wire.Peers
	homes  *placement.Owners
	joined bool

	workers *placement.Workers

	copies *replay.Copies // nil with replay: off
	hooks  *announcements
}

// backing holds the shared parts of a cluster's instances, and their ways to reach each other.
type backing struct {
	sessions session.Store
	registry cluster.Registry
	tasks    bridge.Owners
	values   front.Store
	streams  replay.Store
	offers   queue.Queue
	hooks    webhooks
	close    func() error
	dialer   wire.Dialer // connects to other instances; nil means TCP
	// listen opens the address for other instances.
	listen func(ctx context.Context, address string, lease time.Duration) (net.Listener, error)
}

// onRedis returns the backing in Redis. onRedis does not connect yet.
func (s *server) onRedis(id string, life time.Duration) (*backing, error) {
	c := &s.Config().Cluster
	client, err := store.Connect(c.Redis, c.CAFile)
	if err != nil {
		return nil, err
	}
	beats, err := store.Connect(c.Redis, c.CAFile) // heartbeats wait for no other command
	if err != nil {
		return nil, err
	}
	o := store.Options{
		Prefix:  c.KeyPrefix,
		Owner:   id,
		Secrets: c.Keys(),
		Life:    life,
		Hooks:   func() []string { return slices.Collect(maps.Keys(s.hooks())) },
	}
	kept := store.New(client, o)
	return &backing{
		sessions: kept,
		registry: store.New(beats, o),
		tasks:    kept.Tasks(),
		values:   kept.Values(),
		streams:  kept.Streams(),
		offers:   kept.Requests(s.log),
		hooks:    kept.Hooks(),
		close:    func() error { return errors.Join(beats.Close(), client.Close()) },
		listen:   wire.Listen,
	}, nil
}

// newInstance makes the instance that the configuration describes. newInstance does not connect before begin.
func (s *server) newInstance() (*instance, error) {
	c := &s.Config().Cluster
	i := &instance{
		id:  rand.Text(),
		c:   c,
		log: s.log,
	}
	life := s.Config().SessionIdle * 3 / 2
	var err error
	if i.kept, err = s.newBacking(s, i.id, life); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	i.peers, err = wire.New(wire.Options{
		ID:         i.id,
		Secrets:    c.Keys(),
		Lease:      c.Lease,
		Log:        s.log,
		MaxMessage: int(s.Config().MaxMessage) + between,
		Dialer:     i.kept.dialer,
	})
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	i.hooks = newAnnouncements(i.kept.hooks, s.hooks, s.log)
	i.node = s.newNode(i, life)
	i.homes = placement.NewOwners(placement.OwnerOptions{
		Node:       i.node,
		Peers:      i.peers,
		Lease:      c.Lease,
		Drain:      s.Config().Drain,
		Log:        s.log,
		MaxMessage: int(s.Config().MaxMessage) + between,
		MaxBytes:   int64(s.Config().MaxInFlight),
		Gateway:    shared{s},
	})
	i.workers = placement.NewWorkers(placement.WorkerOptions{
		Node:       i.node,
		ID:         i.id,
		Peers:      i.peers,
		Queue:      i.kept.offers,
		Runs:       c.Role != cluster.RoleFront,
		Slots:      s.Config().MaxChildren,
		Log:        s.log,
		Servers:    s,
		MaxMessage: int(s.Config().MaxMessage) + between,
		MaxBytes:   int64(s.Config().MaxInFlight),
	})
	if c.Replay == config.ReplayOn {
		i.copies = replay.NewCopies(i.kept.streams, s.log)
	}
	return i, nil
}

// newNode makes the membership of an instance.
func (s *server) newNode(i *instance, life time.Duration) *cluster.Node {
	return cluster.New(cluster.Options{
		Self: cluster.Member{
			ID:      i.id,
			Version: Version(),
			Role:    i.c.Role,
		},
		Store:       i.kept.sessions,
		Registry:    i.kept.registry,
		Peers:       i.peers,
		Lease:       i.c.Lease,
		Life:        life,
		Stop:        i.c.StoreLost == config.StoreLostStop,
		MaxSessions: s.Config().MaxSessions,
		Log:         s.log,
		Lost: func(key string) {
			if cluster.IsConnectionKey(key) {
				i.homes.Lost(key)
			} else {
				s.g.Move(key)
			}
		},
		Hooked:       i.hooks.update,
		StoreEmptied: func() { i.workers.RequestAgain() },
		Room:         func() (int, map[string]int) { return i.workers.Free(), i.workers.Running() },
		Servers:      func() string { return hashOf(s.table.Load().names()) },
	})
}

// hashOf returns a short hash of names, independent of their order.
func hashOf(names []string) string {
	sum := sha256.Sum256([]byte(strings.Join(slices.Sorted(slices.Values(names)), "\n")))
	return hex.EncodeToString(sum[:8])
}

// between is how many bytes larger than a client's message a message between instances may be: it holds more data.
const between = 1 << 20

// shared gives other instances access to the connections of this instance.
type shared struct{ s *server }

// Join implements placement.Gateway.
func (s shared) Join(server string, from bridge.Caller, rest bridge.Client) (gateway.Joined, []bridge.Forward, error) {
	return s.s.g.Join(server, from, rest)
}

// CallPool implements placement.Gateway.
func (s shared) CallPool(ctx context.Context, server string, r *bridge.Request) (*jsonrpc.Message, error) {
	return s.s.g.CallPool(ctx, server, r)
}

// Release implements placement.Gateway.
func (s shared) Release(server, key string) {
	s.s.g.ReleasePool(server, key)
	if of, ours := strings.CutPrefix(key, placement.SessionAffinity); ours || key == "" {
		s.s.g.ReleaseShared(server, of)
	}
}

// join gives the parts of this instance to its peers, before begin.
func (i *instance) join(s *server) {
	i.peers.Join(wire.Parts{
		Node:     i.node,
		Gateway:  s.g,
		Sessions: s.streamable,
		Streams:  s.sse,
		Owners:   i.homes,
		Workers:  i.workers,
	})
}

// tag returns the prefix of the ids of sessions that start here; empty for a single instance.
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
		return cannotListen(i.c.Listen, err, "cluster: listen:")
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
	if err := i.checkAddress(ctx, address); err != nil {
		i.peers.Close(ctx)
		return err
	}
	i.node.Start(address)
	i.workers.Begin()
	i.joined = true
	i.log.Info("joining the cluster", "instance", i.id[:session.TagLength], "reached_at", address)
	return nil
}

// checkAddress checks that no other instance answers at the address of this instance. With the address of a
// Service, or a copy of another instance's file, requests would reach the wrong instance.
func (i *instance) checkAddress(ctx context.Context, address string) error {
	who, err := i.peers.IDAt(ctx, address)
	switch {
	case err != nil:
		i.log.Warn("this instance cannot reach itself at the address that the others use: check cluster: advertise", "address", address, "err", err)
	case who != i.id:
		return fmt.Errorf("cluster: advertise is %s, where another instance answers (%s): each instance needs its own address, not that of a load balancer or a Service", address, who[:min(len(who), session.TagLength)])
	}
	return nil
}

// leave hands the sessions over to other instances, each when it has no call in flight, until ctx ends. leave then
// still forwards requests, because load balancers and instances have open connections to this one. leave stops
// forwarding when the others have seen that nothing is here. New sessions start elsewhere.
//
// Other instances stop using connections and processes here as soon as they see that this instance stops. They do not
// wait for the calls of this instance's sessions. Calls of other instances in flight here may take as long as those:
// others is done when they have ended.
func (i *instance) leave(ctx context.Context, s *server) (others *sync.WaitGroup) {
	i.node.Drain(ctx)
	others = &sync.WaitGroup{}
	for _, drain := range []func(context.Context){i.homes.Drain, i.workers.Drain} {
		others.Go(func() {
			_ = backoff.For(context.Background(), i.node.Beats())
			within, cancel := context.WithTimeout(context.Background(), s.Config().Drain)
			defer cancel()
			drain(within)
		})
	}
	for s.g.MoveIdle() > 0 && backoff.For(ctx, 20*time.Millisecond) == nil {
	}
	known, cancel := context.WithTimeout(context.Background(), i.node.Beats())
	defer cancel()
	_ = i.node.Beat(known)
	for backoff.For(known, 50*time.Millisecond) == nil {
		s.g.MoveIdle()
	}
	i.peers.Leave()
	return others
}

// close leaves the cluster. close is called after the sessions have ended.
func (i *instance) close(ctx context.Context) {
	i.homes.Close()
	i.workers.Close(ctx)
	if i.joined {
		i.node.Close(ctx)
		i.peers.Close(ctx)
	}
	i.hooks.close()
	if i.copies != nil {
		i.copies.Close()
	}
	_ = i.kept.close() // everything has been written
}

// workerState returns the state of workers; nil if no server is placed at workers.
func (i *instance) workerState(placed []string) *status.Workers {
	if len(placed) == 0 {
		return nil
	}
	st := i.workers.Status()
	w := &status.Workers{
		Queued:      st.Queued,
		Waiting:     st.Waiting,
		Connections: map[string]int{},
		Running:     st.Running,
		Stopping:    st.Stopping,
	}
	for id, n := range st.Tunnels {
		w.Connections[id[:session.TagLength]] = n
	}
	return w
}

func (i *instance) status() *status.Cluster {
	c := i.node.Counts()
	out := &status.Cluster{
		Instance:  i.id[:session.TagLength],
		State:     i.node.State(),
		Role:      cmp.Or(i.c.Role, cluster.RoleAll),
		StoreMS:   float64(i.node.BeatTook().Microseconds()) / 1000,
		Forwarded: c.Forwarded.Load(),
		TakenOver: c.Taken.Load(),
		Lost:      c.Lost.Load(),
		Refused:   c.Refused.Load(),
	}
	for _, m := range i.node.Members() {
		out.Members = append(out.Members, status.Member{
			Instance:  m.ID[:session.TagLength],
			Address:   m.Address,
			Version:   m.Version,
			Sessions:  m.Sessions,
			Role:      cmp.Or(m.Role, cluster.RoleAll),
			Free:      m.Free,
			Draining:  m.Draining,
			Unreached: i.node.Unreached(m.ID),
		})
	}
	return out
}
