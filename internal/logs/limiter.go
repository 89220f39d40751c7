package logs

import (
	"sync"
	"time"
)

// Limiter are those about one thing, of which there may be one from time to time. The zero
// value is ready for use, by several goroutines.
type Limiter struct {
	mu   sync.Mutex // guards the rest
	next time.Time  // when there may be another line
	more int        // since the last one
}

// Due reports whether it is time for a line, and how many had none before it. After a line
// there is none for as long as every.
func (l *Limiter) Due(every time.Duration) (more int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Before(l.next) {
		l.more++
		return 0, false
	}
	more, l.more, l.next = l.more, 0, now.Add(every)
	return more, true
}
