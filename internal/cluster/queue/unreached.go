package queue

import (
	"maps"
	"sync"
	"time"
)

const (
	// passOver is how long an instance gets no grants or requests after misses failures in a row.
	passOver = 3 * time.Second
	misses   = 2
)

// unreached holds instances that could not be reached recently. A grant that cannot be used would take a slot for
// nothing.
type unreached struct {
	mu sync.Mutex // guards of
	of map[string]missed
}

type missed struct {
	n     int       // failures in a row
	until time.Time // until then the instance is passed over
}

// has reports whether the instance is passed over. After passOver it lets one attempt pass, and all attempts once that
// one has succeeded.
func (u *unreached) has(id string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	m := u.of[id]
	if m.n < misses || time.Now().Before(m.until) {
		return m.n >= misses
	}
	m.until = time.Now().Add(passOver)
	u.of[id] = m
	return false
}

// record records whether an instance was reached.
func (u *unreached) record(id string, reached bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if reached {
		delete(u.of, id)
		return
	}
	if u.of == nil {
		u.of = map[string]missed{}
	}
	maps.DeleteFunc(u.of, func(_ string, m missed) bool { return time.Since(m.until) > time.Minute }) // instances that have ended
	u.of[id] = missed{u.of[id].n + 1, time.Now().Add(passOver)}
}
