package logs

import (
	"sync"
	"time"
)

// Limiter limits log lines about one thing. Its zero value allows a line at once. It may be used concurrently.
type Limiter struct {
	mu   sync.Mutex // guards the rest
	next time.Time  // when the next line is allowed
	more int        // lines suppressed since the last allowed line
}

// Due reports whether a line may be logged: one for each period of length every. more is the number of lines that were
// suppressed before it.
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
