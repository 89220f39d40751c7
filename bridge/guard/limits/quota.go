package limits

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Quota bounds what one principal may use of the whole bridge. Without access rules there are no
// principals, and only totals are bounded.
type Quota struct {
	now     atomic.Pointer[bounds]
	limiter *limiter
	refused struct{ sessions, calls, listens atomic.Uint64 }

	mu      sync.Mutex // guards the rest, and the usages
	callers map[string]*usage
}

type usage struct{ sessions, calls, listens int }

// bounds are the bounds in force. They are never changed, only replaced.
type bounds struct {
	PerPrincipal
	rates []limit // one, or none
}

// NewQuota returns the quota of all principals.
func NewQuota(o PerPrincipal) *Quota {
	d := &Quota{limiter: newLimiter(), callers: map[string]*usage{}}
	d.Set(o)
	return d
}

// Set replaces the bounds. A principal that exceeds the new ones loses nothing.
func (d *Quota) Set(o PerPrincipal) {
	o.Sessions, o.Calls = cmp.Or(o.Sessions, 1000), cmp.Or(o.Calls, DefaultCalls)
	now := &bounds{PerPrincipal: o}
	if o.Rate.PerSecond > 0 {
		now.rates = []limit{{o.Rate, 0}}
	}
	d.now.Store(now)
}

// change adds n to a count of a principal. It reports false if the count would exceed most.
func (d *Quota) change(principal string, field func(*usage) *int, n, most int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	has := d.callers[principal]
	if has == nil {
		has = &usage{}
		d.callers[principal] = has
	}
	v := field(has)
	fits := n < 0 || *v+n <= most
	if fits {
		*v += n
	}
	if *has == (usage{}) && len(d.callers) > keptCallers {
		delete(d.callers, principal)
	}
	return fits
}

// keptCallers is how many entries of principals without any use stay, so that the next call need not
// allocate one.
const keptCallers = 64

func sessionsOf(b *usage) *int { return &b.sessions }
func callsOf(b *usage) *int    { return &b.calls }
func listensOf(b *usage) *int  { return &b.listens }

// full returns the error of an exceeded limit, and counts it.
func full(counter *atomic.Uint64, format string, args ...any) error {
	counter.Add(1)
	return &bridge.Error{Kind: bridge.ErrOverloaded, After: Again, Public: fmt.Sprintf(format, args...)}
}

// Enter admits a call of a principal. Every success needs a Leave.
func (d *Quota) Enter(from *bridge.Caller, m *jsonrpc.Message) error {
	if from.Principal == "" {
		return nil
	}
	if most := d.now.Load().Calls; !d.change(from.Principal, callsOf, 1, most) {
		return full(&d.refused.calls, "one caller may have %d calls under way (per_principal: calls)", most)
	}
	if err := d.tooOften(from, m); err != nil {
		d.Leave(from)
		return err
	}
	return nil
}

// Leave ends what Enter began.
func (d *Quota) Leave(from *bridge.Caller) {
	if from.Principal != "" {
		d.change(from.Principal, callsOf, -1, 0)
	}
}

// tooOften returns why the rate of a principal forbids a call now, or nil.
func (d *Quota) tooOften(from *bridge.Caller, m *jsonrpc.Message) error {
	rates := d.now.Load().rates
	if len(rates) == 0 || from.Principal == "" {
		return nil
	}
	wait, by := d.limiter.take(from.Principal, rates, func() bool { return isNextRound(from, m) })
	if wait == 0 {
		return nil
	}
	d.limiter.refused.Add(1)
	return &bridge.Error{Kind: bridge.ErrLimited, After: wait, Public: "the bridge may be called " + tooOften(from.Principal, by.Rate, "per_principal: rate", wait)}
}

// Listen admits a subscription of a stateless client. Every success needs an Unlisten.
func (d *Quota) Listen(from *bridge.Caller, m *jsonrpc.Message) error {
	most := MaxListens
	if from.Principal == "" {
		most = MaxAllListens
	} else if err := d.tooOften(from, m); err != nil {
		return err
	}
	if !d.change(from.Principal, listensOf, 1, most) {
		return full(&d.refused.listens, "one caller may have %d subscriptions", most)
	}
	return nil
}

// Unlisten ends what Listen began.
func (d *Quota) Unlisten(from *bridge.Caller) { d.change(from.Principal, listensOf, -1, 0) }

// AddSession admits a session. Every success needs a Depart.
func (d *Quota) AddSession(from *bridge.Caller) error {
	most := d.now.Load().Sessions
	if from.Principal == "" || d.change(from.Principal, sessionsOf, 1, most) {
		return nil
	}
	return full(&d.refused.sessions, "one caller may have %d sessions open (per_principal: sessions); end those that are not used", most)
}

// RemoveSession ends what Stay began.
func (d *Quota) RemoveSession(from *bridge.Caller) {
	if from.Principal != "" {
		d.change(from.Principal, sessionsOf, -1, 0)
	}
}

// Subscriptions returns the number of subscriptions.
func (d *Quota) Subscriptions() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, has := range d.callers {
		n += has.listens
	}
	return n
}

// Refused returns the numbers of refusals by the limit.
func (d *Quota) Refused() map[string]uint64 {
	return map[string]uint64{
		"sessions": d.refused.sessions.Load(), "calls": d.refused.calls.Load(), "listens": d.refused.listens.Load(), "rate": d.limiter.refused.Load(),
	}
}

// Idle reports whether no principal uses anything.
func (d *Quota) Idle() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, has := range d.callers {
		if *has != (usage{}) {
			return false
		}
	}
	return true
}

// Sweep removes the rate buckets that are full again.
func (d *Quota) Sweep(now time.Time) { d.limiter.sweep(now) }

// Limits of the subscriptions of stateless clients.
const (
	MaxListens    = 32     // of one caller
	MaxAllListens = 10_000 // of all without access rules; as many as sessions
)
