package access

import (
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"

	"github.com/mcp-bridge/bridge/internal/address"
)

// limit counts wrong keys by address, in memory. It logs addresses that show too many, for
// programs that block them. Its methods may be called concurrently.
//
// A good key is accepted also when the limit is reached. Otherwise a client could use invented keys to lock out
// others behind the same NAT or proxy. The limit therefore does not slow down guessing, which is hopeless anyway:
// keys have 16 characters or more.
type limit struct {
	log *slog.Logger

	mu sync.Mutex // guards by
	by simplelru.LRUCache[netip.Prefix, *addressState]
}

type addressState struct {
	rate *rate.Limiter
	next time.Time // when the next line about the address may be logged
}

const (
	// WrongAtOnce is the number of wrong keys that one address may show at once. WrongEvery is the time after which
	// the address may show another wrong key.
	WrongAtOnce = 20
	WrongEvery  = 3 * time.Second
	// WrongAddresses bounds the addresses that are counted. The address that showed no wrong key for the longest time
	// makes room for a new address.
	WrongAddresses = 4096
	// lineEvery is the least time between two lines about one address.
	lineEvery = 10 * time.Second
)

func newLimit(log *slog.Logger) *limit {
	by, _ := simplelru.NewLRU[netip.Prefix, *addressState](WrongAddresses, nil) // the size is positive
	return &limit{log: log, by: by}
}

// Take counts a wrong key. Take returns the time that the sender has to wait before the next key; 0 means not at all.
func (l *limit) Take(from netip.Addr) time.Duration {
	wait, say := l.count(address.Network(from), time.Now())
	if say { // docs/security.md describes this line
		l.log.Warn("too many wrong keys", "from", from.String(), "retry_after", wait.Round(time.Millisecond).String())
	}
	return wait
}

// Wait returns the time that the sender has to wait before it may show another wrong key.
func (l *limit) Wait(from netip.Addr) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	of, ok := l.by.Get(address.Network(from))
	if !ok {
		return 0
	}
	now := time.Now()
	r := of.rate.ReserveN(now, 1)
	defer r.CancelAt(now)
	return r.DelayFrom(now)
}

// count is Take without the log line. say reports whether the line is due.
func (l *limit) count(from netip.Prefix, now time.Time) (wait time.Duration, say bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of, ok := l.by.Get(from)
	if !ok {
		of = &addressState{rate: rate.NewLimiter(rate.Every(WrongEvery), WrongAtOnce)}
		l.by.Add(from, of)
	}
	r := of.rate.ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait == 0 {
		return 0, false
	}
	r.CancelAt(now)
	if say = !now.Before(of.next); say {
		of.next = now.Add(lineEvery)
	}
	return wait, say
}
