package results

import (
	"crypto/rand"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
)

// keptFor is how long a whole result is kept.
const keptFor = 30 * time.Minute

// perCaller is the part of the store that one caller may fill, as a divisor.
const perCaller = 4

// Store keeps whole results of all servers for a while, in memory. A result belongs to the principal that got it, and to
// the session if there is one: for others it does not exist.
type Store struct {
	prefix string       // of the URIs of results, before the id
	usual  atomic.Int64 // Options.Max of servers without one

	mu    sync.Mutex // guards the rest
	max   int64      // bytes
	all   []*kept    // the oldest first
	bytes int64
}

// kept is a whole result.
type kept struct {
	id, principal, session string
	result                 []byte
	limit                  int // bytes of the part that the caller got, and of each part that it reads
	until                  time.Time
}

// NewStore returns a store for max bytes; 0 means 256 MiB. prefix begins the URIs of results.
func NewStore(max int64, prefix string) *Store {
	s := &Store{prefix: prefix}
	s.Set(max)
	return s
}

// SetUsual sets the Options of servers that have none.
func (s *Store) SetUsual(o Options) { s.usual.Store(int64(o.Max)) }

// Set changes the bound of NewStore.
func (s *Store) Set(max int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.max = max; max == 0 {
		s.max = 256 << 20
	}
	s.trim("", 0, time.Now())
}

// keep keeps a result, which the caller must not change, and returns its id. It returns an empty id if the result is too
// large to be kept.
func (s *Store) keep(from *bridge.Caller, result []byte, limit int) (id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size, now := int64(len(result)), time.Now()
	if size > s.max/perCaller {
		return ""
	}
	s.trim(from.Principal, size, now)
	k := &kept{
		id:        rand.Text(),
		principal: from.Principal,
		session:   from.Session,
		result:    result,
		limit:     limit,
		until:     now.Add(keptFor),
	}
	s.all, s.bytes = append(s.all, k), s.bytes+size
	return k.id
}

// trim removes what is too old, and then the oldest results until more bytes of the principal fit. The caller holds
// s.mu.
func (s *Store) trim(principal string, more int64, now time.Time) {
	own := more
	for _, k := range s.all {
		if k.principal == principal {
			own += int64(len(k.result))
		}
	}
	s.all = slices.DeleteFunc(s.all, func(k *kept) bool {
		size, its := int64(len(k.result)), k.principal == principal
		gone := !now.Before(k.until) || s.bytes+more > s.max || its && own > s.max/perCaller
		if gone {
			s.bytes -= size
		}
		if gone && its {
			own -= size
		}
		return gone
	})
}

// Sweep removes the results that are too old.
func (s *Store) Sweep(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trim("", 0, now)
}

// find returns the caller's result of that id; nil if there is none.
func (s *Store) find(from *bridge.Caller, id string) *kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.all {
		if k.id == id && k.principal == from.Principal && k.session == from.Session && time.Now().Before(k.until) {
			return k
		}
	}
	return nil
}
