package login

import (
	"os"
	"syscall"
	"time"
)

// Full has the disk be full for a store.
func (s *Store) Full() { s.sync = func(*os.File) error { return syscall.ENOSPC } }

// Held has a store be as on Windows, with somebody who reads the file for that many attempts
// to replace it.
func (s *Store) Held(attempts int) {
	s.held = time.Minute
	s.rename = func(from, to string) error {
		if attempts--; attempts >= 0 {
			return syscall.EACCES
		}
		return os.Rename(from, to)
	}
}

// Room has it have room again.
func (s *Store) Room() { s.sync = (*os.File).Sync }

// Aged has no token be new until the result is called.
func Aged() (back func()) {
	was := newFor
	newFor = time.Duration(0)
	return func() { newFor = was }
}

// Impatient has requests hardly wait for a sign-in until the result is called.
func Impatient() (back func()) {
	was := patience
	patience = 10 * time.Millisecond
	return func() { patience = was }
}

// Hasty has pauses after failures begin with a millisecond until the result is called.
func Hasty() (back func()) {
	was := firstPause
	firstPause = time.Millisecond
	return func() { firstPause = was }
}

// Closing is closed when Close has begun.
func (p *Person) Closing() <-chan struct{} { return p.life.Done() }

// Good reports whether the token of a login can be used.
func Good(l *Login, now time.Time) bool { return l.good(now) }
