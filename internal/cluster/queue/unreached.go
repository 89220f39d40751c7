package queue

import (
	"maps"
	"sync"
	"time"
)

const (
	// passOver is the time for which an instance is passed over after misses failures in a row.
	passOver = 3 * time.Second
	misses   = 2
)

// unreached holds instances that were unreachable lately. A grant between such instances takes a slot in vain.
type unreached struct {
	mu sync.Mutex // guards of
	of map[string]missed
}

type missed struct {
	n     int       // in a row
	until time.Time // when it is tried again
}

// has reports whether the instance is passed over. After passOver it lets one attempt through, and more when that
// succeeds.
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
	maps.DeleteFunc(u.of, func(_ string, m missed) bool { return time.Since(m.until) > time.Minute }) // instances that are gone
	u.of[id] = missed{u.of[id].n + 1, time.Now().Add(passOver)}
}
