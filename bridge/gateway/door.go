package gateway

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// door bounds what one principal may have in the whole bridge. Without access
// rules there are no principals, and only what all have together is bounded.
type door struct {
	o       PerPrincipal
	pace    *pace
	rates   []pacer // one, or none
	refused struct{ sessions, calls, listens atomic.Uint64 }

	mu      sync.Mutex // guards the rest, and what it points at
	callers map[string]*belongings
	guests  map[string]*guestCall // calls of clients without sessions, by principal; the newest
	out     map[string]struct{}   // principals whose key was taken away
}

// belongings are what a principal has.
type belongings struct{ sessions, calls, listens int }

func newDoor(o PerPrincipal) *door {
	o.Sessions, o.Calls = or(o.Sessions, 1000), or(o.Calls, defaultCalls)
	d := &door{o: o, pace: newPace(), callers: map[string]*belongings{}}
	if o.Rate.PerSecond > 0 {
		d.rates = []pacer{{o.Rate, 0}}
	}
	return d
}

// change counts n of something of a principal, and refuses what is above the
// limit.
func (d *door) change(principal string, field func(*belongings) *int, n, most int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	has := d.callers[principal]
	if has == nil {
		has = &belongings{}
		d.callers[principal] = has
	}
	v := field(has)
	fits := n < 0 || *v+n <= most
	if fits {
		*v += n
	}
	if *has == (belongings{}) && len(d.callers) > keptCallers {
		delete(d.callers, principal)
	}
	return fits
}

// keptCallers is of how many principals it is remembered that they have nothing:
// the next call need not make room for that again.
const keptCallers = 64

func sessionsOf(b *belongings) *int { return &b.sessions }
func callsOf(b *belongings) *int    { return &b.calls }
func listensOf(b *belongings) *int  { return &b.listens }

// full is the error of a limit that was reached.
func full(counter *atomic.Uint64, format string, args ...any) error {
	counter.Add(1)
	return &bridge.Error{Kind: bridge.ErrOverloaded, After: again, Public: fmt.Sprintf(format, args...)}
}

// enter admits a call, whatever kind of client makes it. Every success needs a
// leave.
func (b *Gateway) enter(from *bridge.Caller, m *jsonrpc.Message) error {
	if err := b.flight.enter(); err != nil {
		return err
	}
	if err := b.door.enter(from, m); err != nil {
		b.flight.leave()
		return err
	}
	return nil
}

// leave ends what enter began.
func (b *Gateway) leave(from *bridge.Caller) {
	b.door.leave(from)
	b.flight.leave()
}

// enter admits a call of a principal. Every success needs a leave.
func (d *door) enter(from *bridge.Caller, m *jsonrpc.Message) error {
	if from.Principal == "" {
		return nil
	}
	if !d.change(from.Principal, callsOf, 1, d.o.Calls) {
		return full(&d.refused.calls, "one caller may have %d calls under way (per_principal: calls)", d.o.Calls)
	}
	if err := d.tooOften(from, m); err != nil {
		d.leave(from)
		return err
	}
	return nil
}

// leave ends what enter began.
func (d *door) leave(from *bridge.Caller) {
	if from.Principal != "" {
		d.change(from.Principal, callsOf, -1, 0)
	}
}

// tooOften returns why a principal may not call now, or nil.
func (d *door) tooOften(from *bridge.Caller, m *jsonrpc.Message) error {
	if len(d.rates) == 0 || from.Principal == "" {
		return nil
	}
	wait, by := d.pace.take(from.Principal, d.rates, func() bool { return goesOn(from, m) })
	if wait == 0 {
		return nil
	}
	d.pace.refused.Add(1)
	return &bridge.Error{Kind: bridge.ErrLimited, After: wait, Public: "the bridge may be called " + tooOften(from.Principal, by.Rate, "per_principal: rate", wait)}
}

// listen admits a subscription of a client without a session. Every success
// needs an unlisten.
func (d *door) listen(from *bridge.Caller, m *jsonrpc.Message) error {
	most := maxListens
	if from.Principal == "" {
		most = maxAllListens
	} else if err := d.tooOften(from, m); err != nil {
		return err
	}
	if !d.change(from.Principal, listensOf, 1, most) {
		return full(&d.refused.listens, "one caller may have %d subscriptions", most)
	}
	return nil
}

func (d *door) unlisten(from *bridge.Caller) { d.change(from.Principal, listensOf, -1, 0) }

// stay admits a session. Every success needs a depart.
func (d *door) stay(from *bridge.Caller) error {
	if from.Principal == "" || d.change(from.Principal, sessionsOf, 1, d.o.Sessions) {
		return nil
	}
	return full(&d.refused.sessions, "one caller may have %d sessions open (per_principal: sessions); end those that are not used", d.o.Sessions)
}

// depart ends what stay began.
func (d *door) depart(from *bridge.Caller) {
	if from.Principal != "" {
		d.change(from.Principal, sessionsOf, -1, 0)
	}
}

// subscriptions returns how many there are.
func (d *door) subscriptions() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, has := range d.callers {
		n += has.listens
	}
	return n
}

// refusals returns what was refused, by the limit.
func (d *door) refusals() map[string]uint64 {
	return map[string]uint64{
		"sessions": d.refused.sessions.Load(), "calls": d.refused.calls.Load(), "listens": d.refused.listens.Load(), "rate": d.pace.refused.Load(),
	}
}
