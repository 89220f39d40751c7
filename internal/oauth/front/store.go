package front

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Store keeps what must count only once. Values are sealed.
type Store interface {
	// Get returns the value of a key; nil without one.
	Get(ctx context.Context, key string) ([]byte, error)
	// Swap puts a value in the place of another, for as long, and reports whether it has:
	// only if old is there still. No old means that there must be none, and no value that
	// there will be none.
	Swap(ctx context.Context, key string, old, value []byte, life time.Duration) (bool, error)
}

// maxKept is how many values Memory keeps. Of those beyond, the one goes that nobody has
// asked for the longest time. Only who has signed in has one.
const maxKept = 20_000

// Memory is a Store in the memory of this process.
type Memory struct {
	mu  sync.Mutex // guards all
	all *simplelru.LRU[string, kept]
}

type kept struct {
	value []byte
	until time.Time
}

// NewMemory makes an empty one.
func NewMemory() *Memory {
	all, _ := simplelru.NewLRU[string, kept](maxKept, nil) // the size is positive
	return &Memory{all: all}
}

// Get implements Store.
func (m *Memory) Get(_ context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.get(key), nil
}

func (m *Memory) get(key string) []byte {
	k, ok := m.all.Get(key)
	if ok && time.Now().Before(k.until) {
		return k.value
	}
	m.all.Remove(key)
	return nil
}

// Swap implements Store.
func (m *Memory) Swap(_ context.Context, key string, old, value []byte, life time.Duration) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !bytes.Equal(m.get(key), old) {
		return false, nil
	}
	if value == nil {
		m.all.Remove(key)
	} else {
		m.all.Add(key, kept{value, time.Now().Add(life)})
	}
	return true, nil
}
