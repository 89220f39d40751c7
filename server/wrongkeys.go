package server

import (
	"log/slog"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"

	"github.com/mcp-bridge/bridge/jsonrpc"
)

// wrongKeys limits how many wrong keys are shown from one address, and has the log
// name addresses that show too many, for programs that lock them out.
//
// A good key is good also where the limit is reached: otherwise anybody behind the
// same NAT or proxy could lock others out, with keys that he makes up. The price is
// that guessing goes on as fast as requests can be sent. It is hopeless all the same:
// keys have 16 characters or more.
type wrongKeys struct {
	log *slog.Logger

	mu sync.Mutex // guards by
	by *simplelru.LRU[netip.Prefix, *wrongFrom]
}

// wrongFrom is what is known of one address.
type wrongFrom struct {
	rate *rate.Limiter
	next time.Time // when there may be another line about it
}

const (
	// wrongAtOnce is how many wrong keys may be shown from one address at once, and
	// wrongEvery how long it takes until another one may be.
	wrongAtOnce = 20
	wrongEvery  = 3 * time.Second
	// wrongAddresses is of how many addresses that is known. Of those beyond, the
	// one goes that has shown none for the longest time.
	wrongAddresses = 4096
)

func newWrongKeys(log *slog.Logger) *wrongKeys {
	by, _ := simplelru.NewLRU[netip.Prefix, *wrongFrom](wrongAddresses, nil) // the size is positive
	return &wrongKeys{log: log, by: by}
}

// take counts a wrong key. It returns how long the sender has to wait until it may
// show another one; 0 while it may.
func (w *wrongKeys) take(from netip.Addr) time.Duration {
	wait, say := w.count(networkOf(from), time.Now())
	if say { // docs/security.md has what to look for in this line
		w.log.Warn("too many wrong keys", "from", from.String(), "retry_after", wait.Round(time.Millisecond).String())
	}
	return wait
}

// wait returns how long the sender has to wait until it may show another one.
func (w *wrongKeys) wait(from netip.Addr) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	of, ok := w.by.Get(networkOf(from))
	if !ok {
		return 0
	}
	now := time.Now()
	r := of.rate.ReserveN(now, 1)
	defer r.CancelAt(now)
	return r.DelayFrom(now)
}

// count is take, without its line; say is whether one is due.
func (w *wrongKeys) count(from netip.Prefix, now time.Time) (wait time.Duration, say bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of, ok := w.by.Get(from)
	if !ok {
		of = &wrongFrom{rate: rate.NewLimiter(rate.Every(wrongEvery), wrongAtOnce)}
		w.by.Add(from, of)
	}
	r := of.rate.ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait == 0 {
		return 0, false
	}
	r.CancelAt(now)
	if say = !now.Before(of.next); say {
		of.next = now.Add(complainEvery)
	}
	return wait, say
}

// tooMany answers a request with a wrong key from an address that has shown too
// many.
func tooMany(w http.ResponseWriter, wait time.Duration) {
	seconds := strconv.Itoa(int(math.Ceil(wait.Seconds())))
	w.Header().Set("Retry-After", seconds)
	why := "too many wrong keys were shown from this address: show a good one, or try again in " + seconds + " s"
	more := `{"bridge":"rate_limited","retryAfterMs":` + seconds + `000}`
	data(w, http.StatusTooManyRequests, "application/json", jsonrpc.NewError(nil, jsonrpc.CodeInvalidRequest, why, []byte(more)).Append(nil, nil, nil))
}
