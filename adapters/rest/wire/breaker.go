package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
)

// breakers keep hosts that fail again and again from being called. Each host has
// one; the settings are the server's, as for all kinds of servers.
//
// The counting is gobreaker's. Its pause does not grow, and it counts as many in a
// row what fails together, so these two are here.
type breakers struct {
	o   breaker.Options // with its defaults
	log *slog.Logger

	mu     sync.Mutex // guards byHost
	byHost map[string]*hostBreaker
}

// hostBreaker is that of a host.
type hostBreaker struct {
	all  *breakers
	host string

	mu     sync.Mutex // guards the rest
	score  *gobreaker.CircuitBreaker[struct{}]
	row    int       // failures one after the other
	failed time.Time // when the last of them was told
	hung   time.Time // when the last of them was sent that had no answer in time
	pause  time.Duration
	until  time.Time // the host is left alone; the zero time when it is not
	trying bool      // a request finds out whether it works again
}

// maxHosts bounds the breakers. The hosts come from the document.
const maxHosts = 64

const (
	maxBreak = 2 * time.Minute // how long a pause grows
	buckets  = 10              // of a window
	apart    = time.Second     // between requests that are not made together
	never    = 100 * 365 * 24 * time.Hour
)

var (
	// errExcluded is the outcome of a request that says nothing about the host.
	errExcluded = errors.New("not the host's fault")
	errSlow     = errors.New("an answer took too long")
)

// newBreakers makes them with the defaults that bridge.Breaker names.
func newBreakers(o breaker.Options, log *slog.Logger) *breakers {
	setDefault(&o.Failures, 5)
	setDefault(&o.Percent, 60)
	setDefault(&o.Calls, 20)
	setDefault(&o.Window, 30*time.Second)
	setDefault(&o.Pause, 5*time.Second)
	return &breakers{o: o, log: log, byHost: map[string]*hostBreaker{}}
}

// allow returns how the outcome of a request to a host is told: nil, the fault,
// or errExcluded. It must be called once.
func (b *breakers) allow(host string) (settle func(error), err error) {
	if b.o.Off {
		return func(error) {}, nil
	}
	return b.of(host).allow(time.Now())
}

func (b *breakers) of(host string) *hostBreaker {
	b.mu.Lock()
	defer b.mu.Unlock()
	if one, ok := b.byHost[host]; ok {
		return one
	}
	if len(b.byHost) >= maxHosts {
		clear(b.byHost)
	}
	one := &hostBreaker{all: b, host: host}
	one.fresh()
	b.byHost[host] = one
	return one
}

// fresh begins to count anew.
func (b *hostBreaker) fresh() {
	o := b.all.o
	b.row, b.until, b.pause = 0, time.Time{}, o.Pause
	b.failed, b.hung = time.Time{}, time.Time{}
	b.score = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Interval: o.Window, BucketPeriod: o.Window / buckets, Timeout: never,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return b.row >= o.Failures || uint64(c.Requests) >= uint64(o.Calls) && 100*uint64(c.TotalFailures) >= uint64(o.Percent)*uint64(c.Requests)
		},
	})
}

func (b *hostBreaker) allow(now time.Time) (settle func(error), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := time.Duration(0)
	switch {
	case b.until.IsZero():
		return b.settler(now, b.score), nil
	case b.trying:
		left = time.Second
	case now.Before(b.until):
		left = b.until.Sub(now)
	default:
		b.trying = true
		return b.settler(now, nil), nil
	}
	return nil, &Fault{Text: "was not sent: the API has failed again and again and is left alone for a while", After: left}
}

// settler returns how the outcome of a request that begins now is told. score is
// what counts it, and nil for the one that finds out whether the host works.
func (b *hostBreaker) settler(began time.Time, score *gobreaker.CircuitBreaker[struct{}]) func(error) {
	return func(err error) {
		now := time.Now()
		if slow := b.all.o.Slow; err == nil && slow > 0 && now.Sub(began) > slow {
			err = errSlow
		}
		if score == nil {
			b.tried(now, err)
		} else if !errors.Is(err, errExcluded) {
			b.count(began, now, score, err)
		}
	}
}

// tried notes how the host did when it was tried.
func (b *hostBreaker) tried(now time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trying = false
	switch {
	case errors.Is(err, errExcluded): // the next finds out
	case err == nil:
		b.fresh()
		b.all.log.Info("the host is used again", "host", b.host)
	default:
		b.pause = min(2*b.pause, max(maxBreak, b.all.o.Pause))
		b.until = now.Add(b.pause)
		b.all.log.Warn("the host is left alone for longer: it fails still", "host", b.host, "for", b.pause.String(), "err", err)
	}
}

// count notes how a request did. What began before the host was left alone last
// does not count.
func (b *hostBreaker) count(began, now time.Time, score *gobreaker.CircuitBreaker[struct{}], err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if score != b.score || !b.until.IsZero() {
		return
	}
	if err == nil {
		b.row, b.hung = 0, time.Time{}
	} else if b.another(began, err) {
		b.row++
		b.failed = now
	}
	_, _ = score.Execute(func() (struct{}, error) { return struct{}{}, err })
	if score.State() == gobreaker.StateOpen {
		b.until = now.Add(b.pause)
		b.all.log.Warn("the host is left alone: it has failed again and again", "host", b.host, "for", b.pause.String(), "err", err)
	}
}

// another reports whether a failure is one more in a row, and not together with
// the one before: the request was made after that was known. Where the host says
// nothing any more, each waits for its deadline: there it is enough that one was
// made a moment after the other.
func (b *hostBreaker) another(began time.Time, err error) bool {
	late := errors.Is(err, errTimeout) || errors.Is(err, context.DeadlineExceeded)
	if !began.Before(b.failed) || late && !b.hung.IsZero() && began.Sub(b.hung) >= apart {
		if late {
			b.hung = began
		}
		return true
	}
	return false
}

// verdict is what the status of an answer says about the host: that it, or what
// stands before it, cannot answer now. A plain 500 is an answer: most often it is
// about the arguments of one call, and others must not suffer for that.
func verdict(status int) error {
	switch status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fmt.Errorf("status %d", status)
	}
	return nil
}
