package login

import (
	"syscall"
	"time"

	"github.com/mcp-bridge/bridge/internal/files"
)

// Full makes writing fail as on a full disk.
func (s *Store) Full() { s.write = func(string, []byte) error { return syscall.ENOSPC } }

// Auto makes the store as OpenOwn does without a variable: it seals where it can.
func (s *Store) Auto() { s.required = false }

// Prompting makes the keychain show a prompt until answered is closed.
func (s *Store) Prompting(answered <-chan struct{}) {
	get := s.chain.get
	s.chain.get = func(service, user string) (string, error) {
		<-answered
		return get(service, user)
	}
}

// Room undoes Full.
func (s *Store) Room() { s.write = files.Write }

// AllTokensOld makes every token old until back is called.
func AllTokensOld() (back func()) {
	was := newFor
	newFor = time.Duration(0)
	return func() { newFor = was }
}

// ShortPatience makes requests hardly wait for a sign-in until back is called.
func ShortPatience() (back func()) {
	was := patience
	patience = 10 * time.Millisecond
	return func() { patience = was }
}

// ShortPauses makes pauses after failures begin with a millisecond until back is called.
func ShortPauses() (back func()) {
	was := firstPause
	firstPause = time.Millisecond
	return func() { firstPause = was }
}

// Closing is closed when Close has begun.
func (p *Person) Closing() <-chan struct{} { return p.closing.Done() }

// Good reports whether the token of a login can be used.
func Good(l *Login, now time.Time) bool { return l.good(now) }
