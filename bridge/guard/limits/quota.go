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

// Quota bounds the use of the whole bridge by one principal. Without access rules there are no
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
func NewQuota(p PerPrincipal) *Quota {
	q := &Quota{limiter: newLimiter(), callers: map[string]*usage{}}
	q.Set(p)
	return q
}

// Set replaces the bounds. A principal that exceeds the new ones loses nothing.
func (q *Quota) Set(p PerPrincipal) {
	p.Sessions, p.Calls = cmp.Or(p.Sessions, 1000), cmp.Or(p.Calls, DefaultCalls)
	now := &bounds{PerPrincipal: p}
	if p.Rate.PerSecond > 0 {
		now.rates = []limit{{p.Rate, 0}}
	}
	q.now.Store(now)
}

// change adds n to a count of a principal. It reports false if the count would exceed most.
func (q *Quota) change(principal string, field func(*usage) *int, n, most int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	has := q.callers[principal]
	if has == nil {
		has = &usage{}
		q.callers[principal] = has
	}
	v := field(has)
	fits := n < 0 || *v+n <= most
	if fits {
		*v += n
	}
	if *has == (usage{}) && len(q.callers) > keptCallers {
		delete(q.callers, principal)
	}
	return fits
}

// keptCallers is how many entries of principals without any use stay, so that the next call need not
// allocate one.
const keptCallers = 64

func sessionsOf(u *usage) *int { return &u.sessions }
func callsOf(u *usage) *int    { return &u.calls }
func listensOf(u *usage) *int  { return &u.listens }

// full adds 1 to counter, and returns the error of an exceeded limit.
func full(counter *atomic.Uint64, format string, args ...any) error {
	counter.Add(1)
	return &bridge.Error{
		Kind:   bridge.ErrOverloaded,
		After:  Again,
		Public: fmt.Sprintf(format, args...),
	}
}

// Enter admits a call of a principal. Every success needs a Leave.
func (q *Quota) Enter(from *bridge.Caller, m *jsonrpc.Message) error {
	if from.Principal == "" {
		return nil
	}
	if most := q.now.Load().Calls; !q.change(from.Principal, callsOf, 1, most) {
		return full(&q.refused.calls, "one caller may have %d calls under way (per_principal: calls)", most)
	}
	if err := q.tooOften(from, m); err != nil {
		q.Leave(from)
		return err
	}
	return nil
}

// Leave ends what Enter began.
func (q *Quota) Leave(from *bridge.Caller) {
	if from.Principal != "" {
		q.change(from.Principal, callsOf, -1, 0)
	}
}

// tooOften returns why the rate of a principal forbids a call now, or nil.
func (q *Quota) tooOften(from *bridge.Caller, m *jsonrpc.Message) error {
	rates := q.now.Load().rates
	if len(rates) == 0 || from.Principal == "" {
		return nil
	}
	wait, by := q.limiter.take(from.Principal, rates, func() bool { return isNextRound(from, m) })
	if wait == 0 {
		return nil
	}
	q.limiter.refused.Add(1)
	return &bridge.Error{
		Kind:   bridge.ErrLimited,
		After:  wait,
		Public: "the bridge may be called " + tooOften(from.Principal, by.Rate, "per_principal: rate", wait),
	}
}

// Listen admits a subscription of a stateless client. Every success needs an Unlisten.
func (q *Quota) Listen(from *bridge.Caller, m *jsonrpc.Message) error {
	most := MaxListens
	if from.Principal == "" {
		most = MaxAllListens
	} else if err := q.tooOften(from, m); err != nil {
		return err
	}
	if !q.change(from.Principal, listensOf, 1, most) {
		return full(&q.refused.listens, "one caller may have %d subscriptions", most)
	}
	return nil
}

// Unlisten ends what Listen began.
func (q *Quota) Unlisten(from *bridge.Caller) { q.change(from.Principal, listensOf, -1, 0) }

// AddSession admits a session. Every success needs a RemoveSession.
func (q *Quota) AddSession(from *bridge.Caller) error {
	most := q.now.Load().Sessions
	if from.Principal == "" || q.change(from.Principal, sessionsOf, 1, most) {
		return nil
	}
	return full(&q.refused.sessions, "one caller may have %d sessions open (per_principal: sessions); end those that are not used", most)
}

// RemoveSession ends what AddSession began.
func (q *Quota) RemoveSession(from *bridge.Caller) {
	if from.Principal != "" {
		q.change(from.Principal, sessionsOf, -1, 0)
	}
}

// Subscriptions returns the number of subscriptions.
func (q *Quota) Subscriptions() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, has := range q.callers {
		n += has.listens
	}
	return n
}

// Refused returns the numbers of refusals by the limit.
func (q *Quota) Refused() map[string]uint64 {
	return map[string]uint64{
		"sessions": q.refused.sessions.Load(), "calls": q.refused.calls.Load(), "listens": q.refused.listens.Load(), "rate": q.limiter.refused.Load(),
	}
}

// Idle reports whether no principal uses anything.
func (q *Quota) Idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, has := range q.callers {
		if *has != (usage{}) {
			return false
		}
	}
	return true
}

// Sweep removes the rate buckets that are full again.
func (q *Quota) Sweep(now time.Time) { q.limiter.sweep(now) }

// Limits of the subscriptions of stateless clients.
const (
	MaxListens    = 32     // of one caller
	MaxAllListens = 10_000 // of all without access rules; as many as sessions
)
