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

// stay is a session that may go on at another instance.
type stay struct {
	lease session.Leased
	keep  func(change func(*session.Record))
	moves func() bool

	key    string
	mu     sync.Mutex        // guards the rest
	resume map[string][]byte // what another instance has noted, of servers that were not reached yet
	above  int64
	noted  map[string][]byte // what is kept
}

var _ bridge.Stay = (*stay)(nil)

// newStay makes the Stay of a session. keep changes what is kept of it, and moves says
// whether it has ended since another instance goes on with it.
func newStay(lease session.Leased, key string, keep func(change func(*session.Record)), moves func() bool) *stay {
	return &stay{lease: lease, key: key, keep: keep, moves: moves}
}

// idsOfInstance is how far apart the ids of requests begin that instances make one after the other.
const idsOfInstance = 1 << 32

// Resume says what another instance has kept of the session, which was taken over.
func (s *stay) Resume(h *session.Held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resume, s.noted, s.above = maps.Clone(h.Carry), h.Carry, h.Epoch*idsOfInstance
}

// Sure implements bridge.Stay (S-012).
func (s *stay) Sure(ctx context.Context) error {
	if s.lease.Ready() {
		return nil
	}
	err := s.lease.Await(ctx, s.key)
	switch {
	case ctx.Err() != nil: // perhaps since the session has been lost
		return context.Cause(ctx)
	case err != nil:
		return &bridge.Error{Kind: bridge.ErrUnavailable, Err: err, After: 2 * time.Second, Public: "this instance of the bridge does not reach its store, and another one may have the session"}
	}
	return nil
}

// Carried implements bridge.Stay.
func (s *stay) Carried(server string, carry []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes.Equal(s.noted[server], carry) {
		return
	}
	now := map[string][]byte{} // the one before may be on its way to the store
	maps.Copy(now, s.noted)
	if now[server] = carry; carry == nil {
		delete(now, server)
	}
	s.noted = now
	s.keep(func(r *session.Record) { r.Carry = now })
}

// Carry implements bridge.Stay.
func (s *stay) Carry(server string) ([]byte, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	carry := s.resume[server]
	delete(s.resume, server)
	return carry, s.above
}

// Moves implements bridge.Stay.
func (s *stay) Moves() bool { return s.moves() }
