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
	resume map[string][]byte // resumption state from another instance, by server; TakeResume removes it
	above  int64             // request ids of this instance are larger
	saved  map[string][]byte // resumption state in the session's record, by server
}

var _ bridge.Handover = (*stay)(nil)

// keeper is the part of a sitting that a stay needs.
type keeper interface {
	// keep changes the record and saves it in the background.
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

// idsOfInstance is how many request ids each instance that owns a session has for it.
const idsOfInstance = 1 << 32

// Resume takes over the resumption state that another instance saved in the session's record.
func (s *stay) Resume(h *session.Held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resume, s.saved, s.above = maps.Clone(h.Carry), h.Carry, h.Epoch*idsOfInstance
}

// Confirm waits until this instance surely owns the session (S-012). See bridge.Handover.
func (s *stay) Confirm(ctx context.Context) error {
	if s.lease.Ready() {
		return nil
	}
	err := s.lease.Await(ctx, s.key)
	switch {
	case ctx.Err() != nil: // the session may have been lost to another instance
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
	now := map[string][]byte{} // a copy, since save may be reading the former map
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
