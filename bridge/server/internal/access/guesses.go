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

// limit counts wrong keys by address, and has the log name addresses that show too many, for
// programs that lock them out. It decides nothing about good keys, and keeps what it knows
// in memory. Its methods may be called concurrently.
//
// A good key is good also where the limit is reached: otherwise anybody behind the
// same NAT or proxy could lock others out, with keys that he makes up. The price is
// that guessing goes on as fast as requests can be sent. It is hopeless all the same:
// keys have 16 characters or more.
type limit struct {
	log *slog.Logger

	mu sync.Mutex // guards by
	by *simplelru.LRU[netip.Prefix, *guesser]
}

// guesser is what is known of one address.
type guesser struct {
	rate *rate.Limiter
	next time.Time // when there may be another line about it
}

const (
	// WrongAtOnce is how many wrong keys may be shown from one address at once, and
	// WrongEvery how long it takes until another one may be.
	WrongAtOnce = 20
	WrongEvery  = 3 * time.Second
	// WrongAddresses is of how many addresses that is known. Of those beyond, the
	// one goes that has shown none for the longest time.
	WrongAddresses = 4096
	// lineEvery is how often a line may be logged about one address.
	lineEvery = 10 * time.Second
)

// newLimit makes a limit that logs to log.
func newLimit(log *slog.Logger) *limit {
	by, _ := simplelru.NewLRU[netip.Prefix, *guesser](WrongAddresses, nil) // the size is positive
	return &limit{log: log, by: by}
}

// Take counts a wrong key. It returns how long the sender has to wait until it may
// show another one; 0 while it may.
func (l *limit) Take(from netip.Addr) time.Duration {
	wait, say := l.count(address.Network(from), time.Now())
	if say { // docs/security.md has what to look for in this line
		l.log.Warn("too many wrong keys", "from", from.String(), "retry_after", wait.Round(time.Millisecond).String())
	}
	return wait
}

// Wait returns how long the sender has to wait until it may show another one.
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

// count is Take, without its line; say is whether one is due.
func (l *limit) count(from netip.Prefix, now time.Time) (wait time.Duration, say bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of, ok := l.by.Get(from)
	if !ok {
		of = &guesser{rate: rate.NewLimiter(rate.Every(WrongEvery), WrongAtOnce)}
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
