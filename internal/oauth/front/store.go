package front

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/mcp-bridge/bridge/internal/backoff"
)

// Store stores values that may be used only once. Values are sealed, and no two values are equal. They expire by the
// store's clock, because clocks of instances may differ (S-014).
type Store interface {
	// Get returns the value of a key, or nil if there is none.
	Get(ctx context.Context, key string) ([]byte, error)
	// If old is stored, Swap replaces it by value for a lifetime; it reports whether value is now stored. It also
	// succeeds if value is stored already, for a retry after a lost answer. If old is nil, no value must be stored; if
	// value is nil, Swap removes old.
	Swap(ctx context.Context, key string, old, value []byte, life time.Duration) (bool, error)
	// End records for a lifetime that a login has ended. Callers may call it twice.
	End(ctx context.Context, id string, life time.Duration) error
	// Ended returns the logins that End has recorded since the call that returned mark, and maybe earlier logins, and
	// the next mark. With an empty mark, Ended returns all logins.
	Ended(ctx context.Context, mark string) (ids []string, next string, err error)
}

// maxStored bounds the values of one kind in a Memory. At the bound, the value that has been unused for longest is
// dropped.
const maxStored = 20_000

// kindOf returns the part of a key before its colon. Each kind has its own limit.
func kindOf(key string) string {
	kind, _, _ := strings.Cut(key, ":")
	return kind
}

// Memory is a Store in memory.
type Memory struct {
	mu      sync.Mutex // guards the rest
	all     map[string]simplelru.LRUCache[string, stored]
	ended   []ending // oldest first
	dropped int      // number of entries that were dropped from ended
}

// ending is the record of an ended login.
type ending struct {
	id    string
	until time.Time
}

type stored struct {
	value []byte
	until time.Time
}

// NewMemory returns an empty Memory.
func NewMemory() *Memory { return &Memory{all: map[string]simplelru.LRUCache[string, stored]{}} }

// Get implements Store.
func (m *Memory) Get(_ context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.get(key), nil
}

// kindValues returns the values of a key's kind. The caller holds m.mu.
func (m *Memory) kindValues(key string) simplelru.LRUCache[string, stored] {
	kind := kindOf(key)
	values := m.all[kind]
	if values == nil {
		values, _ = simplelru.NewLRU[string, stored](maxStored, nil) // the size is positive
		m.all[kind] = values
	}
	return values
}

func (m *Memory) get(key string) []byte {
	all := m.kindValues(key)
	s, ok := all.Get(key)
	if ok && time.Now().Before(s.until) {
		return s.value
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
		m.kindValues(key).Remove(key)
	} else {
		m.kindValues(key).Add(key, stored{value, time.Now().Add(life)})
	}
	return true, nil
}

// End implements Store.
func (m *Memory) End(_ context.Context, id string, life time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for len(m.ended) >= maxEnded || len(m.ended) > 0 && !now.Before(m.ended[0].until) {
		m.ended, m.dropped = m.ended[1:], m.dropped+1
	}
	m.ended = append(m.ended, ending{id, now.Add(life)})
	return nil
}

// Ended implements Store. The mark is the number of endings so far.
func (m *Memory) Ended(_ context.Context, mark string) (ids []string, next string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen, _ := strconv.Atoi(mark) // an empty mark counts as 0
	for _, e := range m.ended[min(max(seen-m.dropped, 0), len(m.ended)):] {
		if time.Now().Before(e.until) {
			ids = append(ids, e.id)
		}
	}
	return ids, strconv.Itoa(m.dropped + len(m.ended)), nil
}

const (
	// tries is the number of attempts at a write that must not be lost. All attempts together take about 12 seconds,
	// plus the store's own timeouts.
	tries    = 5
	twice    = 2 // for writes whose loss does no harm
	firstTry = 500 * time.Millisecond
	maxRetry = 5 * time.Second
)

// put calls Swap again while the store fails, in all at most as often as times says. ctx must not end.
func (f *Front) put(ctx context.Context, key string, old, value []byte, life time.Duration, times int) (ok bool, err error) {
	for n := 1; ; n++ {
		if ok, err = f.o.Store.Swap(ctx, key, old, value, life); err == nil || n >= times {
			return ok, err
		}
		_ = backoff.For(ctx, backoff.Grown(firstTry, maxRetry, n)) // ctx does not end
	}
}

// recordEnd records in the store that a login has ended.
func (f *Front) recordEnd(ctx context.Context, id string) (err error) {
	for n := 1; ; n++ {
		if err = f.o.Store.End(ctx, id, endLife); err == nil || n >= twice || backoff.For(ctx, backoff.Grown(firstTry, maxRetry, n)) != nil {
			return err
		}
	}
}

// lookEvery bounds how long access tokens of an ended login still work at other instances.
const lookEvery = 2 * time.Second

// lastWait bounds the recording of owed endings when the process stops.
const lastWait = 3 * time.Second

// endLife is the lifetime of the record of an ended login. It is longer than the lifetime of access tokens at an
// instance with a slow clock.
const endLife = plainLife + 10*time.Minute

// endings is the state of this instance's reading and writing of ended logins.
type endings struct {
	known atomic.Bool // the store was read successfully at least once
	away  atomic.Bool // the last read failed
	// owed are logins that ended at this instance and whose end is not in the store yet.
	owed simplelru.LRUCache[string, struct{}]
}

// Watch reads logins that end at other instances and refuses their access tokens here (I-110), until ctx ends. It also
// retries the endings that the store did not accept. At the end it retries once more, because no other instance knows
// these endings.
func (f *Front) Watch(ctx context.Context) {
	for mark := f.readEnded(ctx, ""); backoff.For(ctx, lookEvery) == nil; mark = f.readEnded(ctx, mark) {
		f.retryOwed(ctx)
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWait)
	defer cancel()
	f.retryOwed(last)
	if left := f.endings.owed.Len(); left > 0 {
		f.o.Log.Warn("the front could not store the end of some logins: their access tokens work at other instances, and after a restart, until they expire", "logins", left)
	}
}

// retryOwed records owed endings in the store until an attempt fails.
func (f *Front) retryOwed(ctx context.Context) {
	done := 0
	for _, id := range f.endings.owed.Keys() {
		if f.endInStore(ctx, id) != nil {
			f.endings.owed.Get(id) // the next call begins with another login
			break
		}
		f.endings.owed.Remove(id)
		done++
	}
	if done > 0 {
		f.o.Log.Info("the front has stored the end of logins that its store did not accept before", "logins", done)
	}
}

// readEnded reads the logins that have ended since mark, and returns the next mark.
func (f *Front) readEnded(ctx context.Context, mark string) (next string) {
	ids, next, err := f.o.Store.Ended(ctx, mark)
	if ctx.Err() != nil {
		return mark
	}
	if err != nil {
		if !f.endings.away.Swap(true) {
			f.o.Log.Warn("the front cannot read the ended logins from its store: until it can, access tokens of ended logins stay valid", "err", err)
		}
		return mark
	}
	for _, id := range ids {
		f.markEnded(id)
	}
	f.endings.away.Store(false)
	f.endings.known.Store(true)
	return next
}
