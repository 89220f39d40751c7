package login

import (
	"syscall"
	"time"

	"github.com/mcp-bridge/bridge/internal/files"
)

// Full makes writing fail as on a full disk.
func (s *Store) Full() { s.write = func(string, []byte) error { return syscall.ENOSPC } }

// Room undoes Full.
func (s *Store) Room() { s.write = files.Write }

// Aged makes every token old until back is called.
func Aged() (back func()) {
	was := newFor
	newFor = time.Duration(0)
	return func() { newFor = was }
}

// Impatient makes requests hardly wait for a sign-in until back is called.
func Impatient() (back func()) {
	was := patience
	patience = 10 * time.Millisecond
	return func() { patience = was }
}

// Hasty makes pauses after failures begin with a millisecond until back is called.
func Hasty() (back func()) {
	was := firstPause
	firstPause = time.Millisecond
	return func() { firstPause = was }
}

// Closing is closed when Close has begun.
func (p *Person) Closing() <-chan struct{} { return p.closing.Done() }

// Good reports whether the token of a login can be used.
func Good(l *Login, now time.Time) bool { return l.good(now) }
