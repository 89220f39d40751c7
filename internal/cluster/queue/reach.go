package queue

import (
	"maps"
	"sync"
	"time"
)

const (
	// passOver is for how long nothing is agreed with an instance that could not be reached
	// so many times in a row.
	passOver = 3 * time.Second
	misses   = 2
)

// unreached are instances that could not be reached lately. Each agreement with one of them
// takes a place for nothing.
type unreached struct {
	mu sync.Mutex // guards of
	of map[string]missed
}

type missed struct {
	n     int       // in a row
	until time.Time // it is passed over
}

// has reports whether the instance is to be passed over. After its time one attempt is let
// through, and others when that was good.
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

// tried notes whether an instance was reached.
func (u *unreached) tried(id string, reached bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if reached {
		delete(u.of, id)
		return
	}
	if u.of == nil {
		u.of = map[string]missed{}
	}
	maps.DeleteFunc(u.of, func(_ string, m missed) bool { return time.Since(m.until) > time.Minute }) // those that have ended
	u.of[id] = missed{u.of[id].n + 1, time.Now().Add(passOver)}
}
