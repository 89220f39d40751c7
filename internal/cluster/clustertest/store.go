// Package clustertest has the store of several instances in memory, and the suite that each such store must pass.
package clustertest

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/cluster"
)

// Store is what several instances share, in memory.
type Store struct {
	// Evicts is the policy by which the store evicts keys. It is set before the first beat.
	Evicts string

	mu      sync.Mutex // guards the rest
	run     int
	records *session.Memory
	put     map[string]bool // keys of all records that there were
	members map[string]member
	tasks   map[task]bool
	hooks   map[string]hook
}

// member is an instance, as the store knows it.
type member struct {
	cluster.Member
	until  time.Time
	secret string
}

type task struct{ server, id, principal string }

// hook is the last webhook of a server.
type hook struct {
	next, number int64
	body         []byte
}

// New returns an empty store.
func New() *Store {
	return &Store{
		records: session.NewMemory(1 << 20),
		put:     map[string]bool{},
		members: map[string]member{},
		tasks:   map[task]bool{},
		hooks:   map[string]hook{},
	}
}

// Restart makes the store another process, which has lost nothing.
func (s *Store) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run++
}

// Wipe removes all that the store has.
func (s *Store) Wipe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = session.NewMemory(1 << 20)
	clear(s.members)
	clear(s.tasks)
	clear(s.hooks)
}

// EndLeases ends the leases of all members, as a jump of the store's clock does.
func (s *Store) EndLeases() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.members)
}

// Records returns the records that the store has.
func (s *Store) Records() (all []session.Held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.put {
		if h, err := s.records.Find(context.Background(), key); err == nil {
			all = append(all, h)
		}
	}
	return all
}

// Restore gives the store these records, in place of those that it has.
func (s *Store) Restore(all []session.Held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = session.NewMemory(1 << 20)
	for _, h := range all {
		owner := h.Owner
		h.Epoch--
		if _, err := s.records.As(owner).Put(context.Background(), h); err != nil {
			panic(err) // it has none of them
		}
	}
}

// Has reports whether the store has a record.
func (s *Store) Has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.records.Find(context.Background(), key)
	return err == nil
}

// Way is the way of a command to the store, and of the answer back. It calls do, which does the command, once or not at
// all. key is that of the record, or the id of the instance, if the command is about one.
type Way func(ctx context.Context, what, key string, do func() error) error

// View is the store as one instance reaches it.
type View struct {
	s             *Store
	owner, secret string
	way           Way
	warned        bool // of Evicts; guarded by s.mu
}

var (
	_ session.Store    = (*View)(nil)
	_ cluster.Registry = (*View)(nil)
	_ Tasks            = (*View)(nil)
	_ Webhooks         = Hooks{}
)

// As returns the store as an instance with a secret reaches it. way may be nil: then nothing fails.
func (s *Store) As(owner, secret string, way Way) *View {
	if way == nil {
		way = func(_ context.Context, _, _ string, do func() error) error { return do() }
	}
	return &View{s: s, owner: owner, secret: secret, way: way}
}

// record does a command about records.
func (v *View) record(ctx context.Context, what, key string, do func(*session.Memory) error) error {
	return v.way(ctx, what, key, func() error {
		v.s.mu.Lock()
		defer v.s.mu.Unlock()
		return do(v.s.records.As(v.owner))
	})
}

// held does a command about records that returns one.
func (v *View) held(ctx context.Context, what, key string, do func(*session.Memory) (session.Held, error)) (session.Held, error) {
	var h session.Held
	if err := v.record(ctx, what, key, func(m *session.Memory) (err error) {
		h, err = do(m)
		return err
	}); err != nil {
		return session.Held{}, err
	}
	return h, nil
}

// Put implements session.Keeper.
func (v *View) Put(ctx context.Context, h session.Held) (session.Held, error) {
	return v.held(ctx, "put", h.Key, func(m *session.Memory) (session.Held, error) {
		v.s.put[h.Key] = true
		return m.Put(ctx, h)
	})
}

// Find implements session.Store.
func (v *View) Find(ctx context.Context, key string) (session.Held, error) {
	return v.held(ctx, "find", key, func(m *session.Memory) (session.Held, error) { return m.Find(ctx, key) })
}

// Take implements session.Store.
func (v *View) Take(ctx context.Context, h session.Held) (session.Held, error) {
	return v.held(ctx, "take", h.Key, func(m *session.Memory) (session.Held, error) { return m.Take(ctx, h) })
}

// Save implements session.Keeper.
func (v *View) Save(ctx context.Context, h session.Held) error {
	return v.record(ctx, "save", h.Key, func(m *session.Memory) error { return m.Save(ctx, h) })
}

// Release implements session.Keeper.
func (v *View) Release(ctx context.Context, h session.Held) error {
	return v.record(ctx, "release", h.Key, func(m *session.Memory) error { return m.Release(ctx, h) })
}

// Delete implements session.Keeper.
func (v *View) Delete(ctx context.Context, h session.Held) error {
	return v.record(ctx, "delete", h.Key, func(m *session.Memory) error { return m.Delete(ctx, h) })
}

// Keep implements session.Store.
func (v *View) Keep(ctx context.Context, all []session.Held) (fenced []session.Held, err error) {
	var found []session.Held
	err = v.record(ctx, "keep", "", func(m *session.Memory) (err error) {
		found, err = m.Keep(ctx, all)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// locked does a command about anything else.
func (v *View) locked(ctx context.Context, what, key string, do func(*Store) error) error {
	return v.way(ctx, what, key, func() error {
		v.s.mu.Lock()
		defer v.s.mu.Unlock()
		return do(v.s)
	})
}

// Beat implements cluster.Registry.
func (v *View) Beat(ctx context.Context, m cluster.Member, life time.Duration) (cluster.Seen, error) {
	var seen cluster.Seen
	if err := v.locked(ctx, "beat", "", func(s *Store) error {
		if seen = s.beat(m, life, v.secret); !v.warned {
			seen.Evicts, v.warned = s.Evicts, true
		}
		return nil
	}); err != nil {
		return cluster.Seen{}, err
	}
	return seen, nil
}

func (s *Store) beat(m cluster.Member, life time.Duration, secret string) cluster.Seen {
	seen := cluster.Seen{
		Run:    fmt.Sprint("run ", s.run),
		Absent: !s.present(m.ID),
		Hooks:  map[string]int64{},
	}
	s.members[m.ID] = member{m, time.Now().Add(life), secret}
	for id, other := range s.members {
		switch {
		case !s.present(id):
		case other.secret != secret:
			seen.Sealed = append(seen.Sealed, id)
		default:
			seen.Members = append(seen.Members, other.Member)
		}
	}
	for server, h := range s.hooks {
		if h.body != nil {
			seen.Hooks[server] = h.number
		}
	}
	return seen
}

// present reports whether the lease of a member has not ended. The caller holds s.mu.
func (s *Store) present(id string) bool {
	m, ok := s.members[id]
	return ok && time.Now().Before(m.until)
}

// Present implements cluster.Registry.
func (v *View) Present(ctx context.Context, id string) (bool, error) {
	var there bool
	if err := v.locked(ctx, "present", id, func(s *Store) error {
		there = s.present(id)
		return nil
	}); err != nil {
		return false, err
	}
	return there, nil
}

// Leave implements cluster.Registry.
func (v *View) Leave(ctx context.Context, id string) error {
	return v.locked(ctx, "leave", id, func(s *Store) error {
		delete(s.members, id)
		return nil
	})
}

// Note implements Tasks.
func (v *View) Note(ctx context.Context, server, id, principal string) error {
	return v.locked(ctx, "note", "", func(s *Store) error {
		s.tasks[task{server, id, principal}] = true
		return nil
	})
}

// Noted implements Tasks.
func (v *View) Noted(ctx context.Context, server, principal string, ids []string) ([]bool, error) {
	noted := make([]bool, len(ids))
	if err := v.locked(ctx, "noted", "", func(s *Store) error {
		for i, id := range ids {
			noted[i] = s.tasks[task{server, id, principal}]
		}
		return nil
	}); err != nil {
		return nil, err
	}
	return noted, nil
}

// Hooks are the webhooks of a store as one instance reaches them.
type Hooks struct{ v *View }

// Hooks returns the webhooks.
func (v *View) Hooks() Hooks { return Hooks{v} }

// Next implements Webhooks.
func (h Hooks) Next(ctx context.Context, server string) (int64, error) {
	var n int64
	if err := h.v.locked(ctx, "next", "", func(s *Store) error {
		k := s.hooks[server]
		k.next++
		n, s.hooks[server] = k.next, k
		return nil
	}); err != nil {
		return 0, err
	}
	return n, nil
}

// Put implements Webhooks.
func (h Hooks) Put(ctx context.Context, server string, n int64, body []byte) error {
	return h.v.locked(ctx, "hook", "", func(s *Store) error {
		if k := s.hooks[server]; n >= k.number {
			s.hooks[server] = hook{max(k.next, n), n, bytes.Clone(body)}
		}
		return nil
	})
}

// Get implements Webhooks.
func (h Hooks) Get(ctx context.Context, server string) (int64, []byte, error) {
	var last hook
	if err := h.v.locked(ctx, "hooked", "", func(s *Store) error {
		if last = s.hooks[server]; last.body == nil {
			return session.ErrNotFound
		}
		return nil
	}); err != nil {
		return 0, nil, err
	}
	return last.number, last.body, nil
}
