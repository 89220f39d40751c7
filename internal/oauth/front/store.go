package front

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/mcp-bridge/bridge/internal/pause"
)

// Store keeps what must count only once. Values are sealed, and no two of them are the same.
// Their life ends by the clock of the store: instances do not compare theirs (S-014).
type Store interface {
	// Get returns the value of a key; nil without one.
	Get(ctx context.Context, key string) ([]byte, error)
	// Swap puts a value in the place of another, for as long, and reports whether it has:
	// only if old is there still, or the value itself is there already, since an answer may
	// have been lost. No old means that there must be none, and no value that there will be
	// none.
	Swap(ctx context.Context, key string, old, value []byte, life time.Duration) (bool, error)
}

// maxKept is how many values Memory keeps of each kind. Of those beyond, the one goes that
// nobody has asked for the longest time.
const maxKept = 20_000

// kindOf returns what a key is for: what stands before its colon. Those of one kind leave
// those of another alone.
func kindOf(key string) string {
	kind, _, _ := strings.Cut(key, ":")
	return kind
}

// Memory is a Store in the memory of this process.
type Memory struct {
	mu  sync.Mutex // guards all
	all map[string]*simplelru.LRU[string, kept]
}

type kept struct {
	value []byte
	until time.Time
}

// NewMemory makes an empty one.
func NewMemory() *Memory { return &Memory{all: map[string]*simplelru.LRU[string, kept]{}} }

// Get implements Store.
func (m *Memory) Get(_ context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.get(key), nil
}

// of returns the values of the kind of a key. The caller holds m.mu.
func (m *Memory) of(key string) *simplelru.LRU[string, kept] {
	kind := kindOf(key)
	had := m.all[kind]
	if had == nil {
		had, _ = simplelru.NewLRU[string, kept](maxKept, nil) // the size is positive
		m.all[kind] = had
	}
	return had
}

func (m *Memory) get(key string) []byte {
	all := m.of(key)
	k, ok := all.Get(key)
	if ok && time.Now().Before(k.until) {
		return k.value
	}
	all.Remove(key)
	return nil
}

// Swap implements Store.
func (m *Memory) Swap(_ context.Context, key string, old, value []byte, life time.Duration) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	is := m.get(key)
	if value != nil && bytes.Equal(is, value) {
		return true, nil
	}
	if !bytes.Equal(is, old) {
		return false, nil
	}
	if value == nil {
		m.of(key).Remove(key)
	} else {
		m.of(key).Add(key, kept{value, time.Now().Add(life)})
	}
	return true, nil
}

const (
	// tries is how often a value is put that must not be lost, until the store answers: for
	// some 12 seconds, and as long as it takes to hear nothing from it.
	tries    = 5
	twice    = 2 // for what can be done again without harm
	firstTry = 500 * time.Millisecond
	maxRetry = 5 * time.Second
)

// put is Swap, again and again if the store does not answer. ctx must not end.
func (f *Front) put(ctx context.Context, key string, old, value []byte, life time.Duration, times int) (ok bool, err error) {
	for n := 1; ; n++ {
		if ok, err = f.o.Store.Swap(ctx, key, old, value, life); err == nil || n >= times {
			return ok, err
		}
		_ = pause.For(ctx, pause.Grown(firstTry, maxRetry, n)) // ctx does not end
	}
}
