package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
)

// breakers keep hosts that fail again and again from being called. Each host has a
// circuit; the settings are the server's, as for all kinds of servers.
type breakers struct {
	o   breaker.Options
	log *slog.Logger

	mu     sync.Mutex // guards byHost
	byHost map[string]*breaker.Circuit
}

// maxHosts bounds the circuits. The hosts come from the document.
const maxHosts = 64

var (
	// errExcluded is the outcome of a request that says nothing about the host.
	errExcluded = errors.New("not the host's fault")
	errSlow     = errors.New("an answer took too long")
)

func newBreakers(o breaker.Options, log *slog.Logger) *breakers {
	return &breakers{o: o, log: log, byHost: map[string]*breaker.Circuit{}}
}

// allow returns how the outcome of a request to a host is told: nil, the fault,
// or errExcluded. It must be called once.
func (b *breakers) allow(host string) (settle func(error), err error) {
	if b.o.Off {
		return func(error) {}, nil
	}
	c, began := b.of(host), time.Now()
	a, ok := c.Begin()
	if !ok {
		if probe, mine := c.Try(); mine {
			return func(err error) { b.probed(host, probe, b.judge(began, err)) }, nil
		}
		if a, ok = c.Begin(); !ok { // unless a probe has just closed it
			left, _ := c.Left()
			return nil, &Fault{Text: "was not sent: the API keeps failing, and its circuit breaker is open", After: left}
		}
	}
	return func(err error) { b.count(host, a, b.judge(began, err)) }, nil
}

// of returns the circuit of a host.
func (b *breakers) of(host string) *breaker.Circuit {
	b.mu.Lock()
	defer b.mu.Unlock()
	one, ok := b.byHost[host]
	if !ok {
		if len(b.byHost) >= maxHosts {
			clear(b.byHost)
		}
		one = breaker.NewCircuit(b.o)
		b.byHost[host] = one
	}
	return one
}

// judge returns the outcome of a request that began at that time.
func (b *breakers) judge(began time.Time, err error) error {
	if err == nil && b.o.Slow > 0 && time.Since(began) > b.o.Slow {
		return errSlow
	}
	return err
}

// count notes how a request did.
func (b *breakers) count(host string, a breaker.Attempt, err error) {
	switch {
	case errors.Is(err, errExcluded):
		a.Void()
	case err == nil:
		a.Good()
	default:
		late := errors.Is(err, errTimeout) || errors.Is(err, context.DeadlineExceeded)
		if pause := a.Bad(late, ""); pause > 0 {
			b.log.Warn("circuit breaker open: the host keeps failing", "host", host, "for", pause.String(), "err", err)
		}
	}
}

// probed notes how the host did when it was tried.
func (b *breakers) probed(host string, p *breaker.Probe, err error) {
	switch {
	case errors.Is(err, errExcluded):
		p.Dropped() // the next finds out
	case err == nil:
		p.Worked()
		b.log.Info("the host is used again", "host", host)
	default:
		b.log.Warn("circuit breaker stays open: the host still fails", "host", host, "for", p.Failed("").String(), "err", err)
	}
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
