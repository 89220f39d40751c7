package front

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/mcp-bridge/bridge/internal/backoff"
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
	// End notes that a login has ended, for as long. More than once is as good as once.
	End(ctx context.Context, id string, life time.Duration) error
	// Ended returns the logins that End has noted since the call that has returned the mark,
	// perhaps with some from before, and the next mark. Without one it is all that are noted
	// still.
	Ended(ctx context.Context, mark string) (ids []string, next string, err error)
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
	mu    sync.Mutex // guards the rest
	all   map[string]*simplelru.LRU[string, kept]
	ended []ending // the oldest first
	gone  int      // how many were before these
}

// ending is a login that has ended, and how long that is noted.
type ending struct {
	id    string
	until time.Time
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

// End implements Store.
func (m *Memory) End(_ context.Context, id string, life time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for len(m.ended) >= maxEnded || len(m.ended) > 0 && !now.Before(m.ended[0].until) {
		m.ended, m.gone = m.ended[1:], m.gone+1
	}
	m.ended = append(m.ended, ending{id, now.Add(life)})
	return nil
}

// Ended implements Store. The mark is how many had ended.
func (m *Memory) Ended(_ context.Context, mark string) (ids []string, next string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen, _ := strconv.Atoi(mark) // the empty one is none
	for _, e := range m.ended[min(max(seen-m.gone, 0), len(m.ended)):] {
		if time.Now().Before(e.until) {
			ids = append(ids, e.id)
		}
	}
	return ids, strconv.Itoa(m.gone + len(m.ended)), nil
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
		_ = backoff.For(ctx, backoff.Grown(firstTry, maxRetry, n)) // ctx does not end
	}
}

// tell notes for others, and for after a restart, that a login has ended.
func (f *Front) tell(ctx context.Context, id string) (err error) {
	for n := 1; ; n++ {
		if err = f.o.Store.End(ctx, id, endLife); err == nil || n >= twice || backoff.For(ctx, backoff.Grown(firstTry, maxRetry, n)) != nil {
			return err
		}
	}
}

// lookEvery is how soon the tokens of a login that has ended do so at other instances.
const lookEvery = 2 * time.Second

// lastWait is how long the store may take, when the process stops, to be told what it did not
// take before.
const lastWait = 3 * time.Second

// endLife is how long it is noted that a login has ended: longer than its access tokens
// count at an instance with a clock that is behind.
const endLife = aloneLife + 10*time.Minute

// endings is what is known of the logins that have ended elsewhere, or before this process
// began.
type endings struct {
	known atomic.Bool // the store was asked
	away  atomic.Bool // it did not answer the last time
	// owed are logins that have ended here, which the store could not be told, or not all of
	// it.
	owed *lru.Cache[string, struct{}]
}

// Watch hears of logins that end at other instances, until ctx ends: their access tokens
// count here no more (I-110). It tells the store again what it could not be told, in the end
// for the last time: nobody else knows of it.
func (f *Front) Watch(ctx context.Context) {
	for mark := f.look(ctx, ""); backoff.For(ctx, lookEvery) == nil; mark = f.look(ctx, mark) {
		f.settle(ctx)
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWait)
	defer cancel()
	f.settle(last)
	if left := f.endings.owed.Len(); left > 0 {
		f.o.Log.Warn("ends of logins are lost that the store of the front did not take: access tokens of these logins count elsewhere, or after a restart, until they end by themselves", "logins", left)
	}
}

// settle ends logins in the store that it did not take the end of, until it fails again.
func (f *Front) settle(ctx context.Context) {
	done := 0
	for _, id := range f.endings.owed.Keys() {
		if f.finish(ctx, id) != nil {
			f.endings.owed.Get(id) // others come first the next time
			break
		}
		f.endings.owed.Remove(id)
		done++
	}
	if done > 0 {
		f.o.Log.Info("ends of logins are noted in the store of the front that it did not take before", "logins", done)
	}
}

// look asks the store which logins have ended since the mark, and returns the next one.
func (f *Front) look(ctx context.Context, mark string) (next string) {
	ids, next, err := f.o.Store.Ended(ctx, mark)
	if ctx.Err() != nil {
		return mark
	}
	if err != nil {
		if !f.endings.away.Swap(true) {
			f.o.Log.Warn("the store of the front does not say which logins have ended elsewhere: their access tokens count until it does", "err", err)
		}
		return mark
	}
	for _, id := range ids {
		f.end(id)
	}
	f.endings.away.Store(false)
	f.endings.known.Store(true)
	return next
}
