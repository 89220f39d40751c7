package logs

import (
	"sync"
	"time"
)

// Limiter limits log lines about one thing. The zero value is ready for use, also concurrently.
type Limiter struct {
	mu   sync.Mutex // guards the fields below
	next time.Time  // time of the next allowed line
	more int        // lines suppressed since the last one
}

// Due reports whether a line may be logged, and the number of suppressed lines before it. It allows one
// line per period.
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
