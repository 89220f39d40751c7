package gateway

import (
	"bytes"
	"context"
	"maps"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/session"
)

// stay is the bridge.Handover of a session that another instance may continue.
type stay struct {
	lease session.Leased
	key   string
	of    keeper

	mu     sync.Mutex        // guards the rest
	resume map[string][]byte // resumption state from another instance, by servers not yet reached
	above  int64
	saved  map[string][]byte // the record's resumption state
}

var _ bridge.Handover = (*stay)(nil)

// keeper is a session with a record.
type keeper interface {
	// keep changes the record.
	keep(change func(*session.Record))
	// moves reports whether another instance may continue the session.
	moves() bool
}

func newStay(lease session.Leased, key string, of keeper) *stay {
	return &stay{
		lease: lease,
		key:   key,
		of:    of,
	}
}

// idsOfInstance is the range of request ids that each owner of a session uses.
const idsOfInstance = 1 << 32

// Resume sets the state from the record of another instance.
func (s *stay) Resume(h *session.Held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resume, s.saved, s.above = maps.Clone(h.Carry), h.Carry, h.Epoch*idsOfInstance
}

// Confirm implements bridge.Handover (S-012).
func (s *stay) Confirm(ctx context.Context) error {
	if s.lease.Ready() {
		return nil
	}
	err := s.lease.Await(ctx, s.key)
	switch {
	case ctx.Err() != nil: // perhaps because the session was lost
		return context.Cause(ctx)
	case err != nil:
		return &bridge.Error{
			Kind:   bridge.ErrUnavailable,
			Err:    err,
			After:  2 * time.Second,
			Public: "this instance of the bridge cannot reach its store, and another instance may own the session",
		}
	}
	return nil
}

func (s *stay) SaveResume(server string, carry []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes.Equal(s.saved[server], carry) {
		return
	}
	now := map[string][]byte{} // a copy: a save of the former one may be in flight
	maps.Copy(now, s.saved)
	if now[server] = carry; carry == nil {
		delete(now, server)
	}
	s.saved = now
	s.of.keep(func(r *session.Record) { r.Carry = now })
}

func (s *stay) TakeResume(server string) ([]byte, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	carry := s.resume[server]
	delete(s.resume, server)
	return carry, s.above
}

func (s *stay) HandedOver() bool { return s.of.moves() }
