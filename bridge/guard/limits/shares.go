package limits

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/mcp-bridge/bridge/bridge"
)

// Shares bounds how many of some slots one principal may have. With two or more principals, each may have three
// quarters of the slots.
type Shares struct {
	most atomic.Int64 // bound of one principal; 0 means no bound

	mu    sync.Mutex // guards the rest
	slots int64
	users int
	of    map[string]int64
}

// NewShares returns the bound for slots that a number of principals share. That number is 0 without access rules.
func NewShares(slots int64, principals int) *Shares {
	s := &Shares{slots: slots, of: map[string]int64{}}
	s.Set(principals)
	return s
}

// Set changes the number of principals. A principal that exceeds the new bound keeps what it has.
func (s *Shares) Set(principals int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users = principals
	s.settle()
}

// Resize changes the number of slots. A principal that exceeds the new bound keeps what it has.
func (s *Shares) Resize(slots int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots = slots
	s.settle()
}

func (s *Shares) settle() {
	if s.users < 2 {
		s.most.Store(0)
		return
	}
	s.most.Store(max(1, s.slots*3/4))
}

// Take takes n slots for a principal. If they exceed its bound, Take takes none and reports false. It does not count
// slots for the empty principal.
func (s *Shares) Take(principal string, n int64) bool {
	if principal == "" {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	has := s.of[principal]
	if most := s.most.Load(); most > 0 && has+n > most {
		return false
	}
	if n > 0 {
		s.of[principal] = has + n
	}
	return true
}

// Force takes n slots for a principal, even if they exceed its bound.
func (s *Shares) Force(principal string, n int64) {
	if principal == "" || n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[principal] += n
}

func (s *Shares) Return(principal string, n int64) {
	if principal == "" || n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[principal] -= n; s.of[principal] == 0 {
		delete(s.of, principal)
	}
}

// Refusal returns the error for a principal that has as many connections to a server as it may have.
func (s *Shares) Refusal(server string) error {
	return &bridge.Error{
		Server: server,
		Kind:   bridge.ErrUnavailable,
		Err:    bridge.ErrOverloaded,
		Public: fmt.Sprintf("one caller has too many connections to it: the limit is %d, which is three quarters of max_children, since others may use it too", s.most.Load()),
	}
}

// Most returns how many slots one principal may have. 0 means that there is no bound.
func (s *Shares) Most() int64 { return s.most.Load() }

// Has returns how many slots a principal has. It is 0 for the empty principal.
func (s *Shares) Has(principal string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[principal]
}

// Idle reports whether no principal has a slot.
func (s *Shares) Idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.of) == 0
}
