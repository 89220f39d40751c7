package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
)

// breakers hold back requests to hosts that keep failing. Each host has a circuit, and all circuits
// have the same settings.
type breakers struct {
	o   breaker.Options
	log *slog.Logger

	mu     sync.Mutex // guards byHost
	byHost simplelru.LRUCache[string, *breaker.Circuit]
}

// maxHosts bounds the circuits, since a document could name any number of hosts. The least recently
// used circuit is dropped first.
const maxHosts = 64

var (
	// errExcluded is the outcome of a request that does not count for the host.
	errExcluded = errors.New("not the host's fault")
	// errSlow is the outcome of an answer that took longer than breaker.Options.Slow.
	errSlow = errors.New("an answer took too long")
)

func newBreakers(o breaker.Options, log *slog.Logger) *breakers {
	byHost, _ := simplelru.NewLRU[string, *breaker.Circuit](maxHosts, nil) // the size is positive
	return &breakers{
		o:      o,
		log:    log,
		byHost: byHost,
	}
}

// allow asks the circuit of a host. The caller must call settle once with the outcome: nil, the
// fault, or errExcluded.
func (b *breakers) allow(host string) (settle func(error), err error) {
	if b.o.Off {
		return func(error) {}, nil
	}
	c, began := b.circuit(host), time.Now()
	a, ok := c.Begin()
	if !ok {
		if probe, mine := c.Try(); mine {
			return func(err error) { b.probed(host, probe, b.judge(began, err)) }, nil
		}
		if a, ok = c.Begin(); !ok { // a probe may have just closed the circuit
			left, _ := c.Left()
			return nil, &Fault{Text: "was not sent: the API keeps failing, and its circuit breaker is open", After: left}
		}
	}
	return func(err error) { b.count(host, a, b.judge(began, err)) }, nil
}

func (b *breakers) circuit(host string) *breaker.Circuit {
	b.mu.Lock()
	defer b.mu.Unlock()
	one, ok := b.byHost.Get(host)
	if !ok {
		one = breaker.NewCircuit(b.o)
		b.byHost.Add(host, one)
	}
	return one
}

// judge returns the outcome of a request that began at that time: err, or errSlow.
func (b *breakers) judge(began time.Time, err error) error {
	if err == nil && b.o.Slow > 0 && time.Since(began) > b.o.Slow {
		return errSlow
	}
	return err
}

// count reports the outcome of a request to the circuit of its host.
func (b *breakers) count(host string, a breaker.Attempt, err error) {
	switch {
	case errors.Is(err, errExcluded):
		a.Void()
	case err == nil:
		a.Good()
	default:
		late := errors.Is(err, errTimeout) || errors.Is(err, context.DeadlineExceeded)
		if pause := a.Bad(late, ""); pause > 0 {
			b.log.Warn("circuit breaker open: host keeps failing", "host", host, "for", pause.String(), "err", err)
		}
	}
}

// probed reports the outcome of a probe to the circuit of its host.
func (b *breakers) probed(host string, p *breaker.Probe, err error) {
	switch {
	case errors.Is(err, errExcluded):
		p.Dropped() // the next request probes again
	case err == nil:
		p.Worked()
		b.log.Info("circuit breaker closed: host answers again", "host", host)
	default:
		b.log.Warn("circuit breaker stays open: host still fails", "host", host, "for", p.Failed("").String(), "err", err)
	}
}

// verdict judges a host by the status of its answer: whether the host, or a proxy before it, cannot
// answer now. A plain 500 is an answer. Mostly one call's arguments caused it, and other calls must
// not suffer for that.
func verdict(status int) error {
	switch status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fmt.Errorf("status %d", status)
	}
	return nil
}
