package limits

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/setting"
)

// Quota bounds what each principal uses of the whole bridge. Without access rules there are no principals, and Quota
// bounds only the number of all subscriptions.
type Quota struct {
	now     atomic.Pointer[bounds]
	limiter *limiter
	refused struct{ sessions, calls, listens atomic.Uint64 }

	mu      sync.Mutex // guards the rest, and each usage
	callers map[string]*usage
}

type usage struct{ sessions, calls, listens int }

// bounds are the bounds in force. They are immutable: Set replaces them.
type bounds struct {
	PerPrincipal
	rates []limit // the rate, if there is one
}

func NewQuota(p PerPrincipal) *Quota {
	q := &Quota{limiter: newLimiter(), callers: map[string]*usage{}}
	q.Set(p)
	return q
}

// Set replaces the bounds. A principal that exceeds them keeps what it has.
func (q *Quota) Set(p PerPrincipal) {
	setting.Fill(&p)
	now := &bounds{PerPrincipal: p}
	if p.Rate.PerSecond > 0 {
		now.rates = []limit{{p.Rate, 0}}
	}
	q.now.Store(now)
}

// change adds n to a count of a principal. If the count would exceed most, change adds nothing and reports false. A
// negative n always fits.
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

// keptCallers is how many entries without any use stay in a map, so that the next call does not have to allocate one.
const keptCallers = 64

func sessionsOf(u *usage) *int { return &u.sessions }
func callsOf(u *usage) *int    { return &u.calls }
func listensOf(u *usage) *int  { return &u.listens }

// full counts a refusal in counter, and returns the error for an exceeded limit.
func full(counter *atomic.Uint64, format string, args ...any) error {
	counter.Add(1)
	return &bridge.Error{
		Kind:   bridge.ErrOverloaded,
		After:  Again,
		Public: fmt.Sprintf(format, args...),
	}
}

// Enter admits a call of a principal. After a nil error, the caller must call Leave.
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

// Leave ends a call that Enter admitted.
func (q *Quota) Leave(from *bridge.Caller) {
	if from.Principal != "" {
		q.change(from.Principal, callsOf, -1, 0)
	}
}

// tooOften returns the error if the rate of the principal forbids the call m now, or nil.
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

// Listen admits a subscription of a stateless client. After a nil error, the caller must call Unlisten.
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

// Unlisten ends a subscription that Listen admitted.
func (q *Quota) Unlisten(from *bridge.Caller) { q.change(from.Principal, listensOf, -1, 0) }

// AddSession admits a session. After a nil error, the caller must call RemoveSession.
func (q *Quota) AddSession(from *bridge.Caller) error {
	most := q.now.Load().Sessions
	if from.Principal == "" || q.change(from.Principal, sessionsOf, 1, most) {
		return nil
	}
	return full(&q.refused.sessions, "one caller may have %d sessions open (per_principal: sessions); end those that are not used", most)
}

// RemoveSession ends a session that AddSession admitted.
func (q *Quota) RemoveSession(from *bridge.Caller) {
	if from.Principal != "" {
		q.change(from.Principal, sessionsOf, -1, 0)
	}
}

// Subscriptions returns the number of open subscriptions of stateless clients.
func (q *Quota) Subscriptions() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, has := range q.callers {
		n += has.listens
	}
	return n
}

// Refused returns the number of refusals by limit: "sessions", "calls", "listens" and "rate".
func (q *Quota) Refused() map[string]uint64 {
	return map[string]uint64{
		"sessions": q.refused.sessions.Load(), "calls": q.refused.calls.Load(), "listens": q.refused.listens.Load(), "rate": q.limiter.refused.Load(),
	}
}

// Idle reports whether no principal has a session, a call or a subscription.
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

// Sweep removes the buckets of the rate that are full.
func (q *Quota) Sweep(now time.Time) { q.limiter.sweep(now) }

// MaxListens and MaxAllListens bound the subscriptions of stateless clients.
const (
	MaxListens    = 32     // of one principal
	MaxAllListens = 10_000 // of all clients together, without access rules; as many as sessions
)
