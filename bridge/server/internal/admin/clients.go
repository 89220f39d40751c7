package admin

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/health"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
)

// Bounds of Clients. Their slots are as long as the interval between calls of Tick.
const (
	clientSlots  = 6   // of which rates are computed
	clientKept   = 180 // slots without a call, of a client without sessions
	maxClients   = 4096
	maxNames     = 64 // of the clients without a session of one principal; others count as Unnamed
	clientLinger = time.Minute
)

// Unnamed is the name of a client that does not say its own.
const Unnamed = "unnamed"

// Clients counts the calls of each client while somebody looks, and a minute longer. Otherwise, a call costs the read of
// a flag. Its methods may be called concurrently. The zero value is ready for use.
type Clients struct {
	on atomic.Bool

	mu          sync.Mutex // guards the rest
	since, last time.Time  // when counting began, and somebody last looked
	tick        time.Time  // when the current slot began
	slot        int
	of          map[clientKey]*clientCalls
	names       map[string]map[string]bool // in of, of clients without a session, by principal
}

// clientKey identifies a session, or a client without one.
type clientKey struct {
	principal, session string
	name, address      string // of a client without a session
}

// clientCalls are the calls of a client.
type clientCalls struct {
	slots [clientSlots + 1]uint32 // slot n is at n % len(slots)
	last  int                     // the slot of the last call
	total uint64
}

// advance clears the slots that passed without a call.
func (c *clientCalls) advance(slot int) {
	for i := c.last + 1; i <= slot && i <= c.last+len(c.slots); i++ {
		c.slots[i%len(c.slots)] = 0
	}
	c.last = max(c.last, slot)
}

// Take counts a report.
func (c *Clients) Take(p *report.Report) {
	if !c.on.Load() || p.From == nil || p.Request.Method == era.Listen {
		return
	}
	k := clientKey{principal: p.Principal, session: p.Session}
	if a, ok := p.Call.(*report.Arrival); ok && a != nil && p.Session == "" {
		k.name, k.address = named(health.Client(p.From)), a.Address()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.of[k]
	if known := c.names[k.principal]; one == nil && k.session == "" && len(known) >= maxNames && !known[k.name] {
		k.name = Unnamed
		one = c.of[k]
	}
	if one == nil {
		if len(c.of) >= maxClients || !c.on.Load() {
			return
		}
		one = &clientCalls{last: c.slot}
		c.of[k] = one
		c.know(k)
	}
	one.advance(c.slot)
	one.slots[c.slot%len(one.slots)]++
	one.total++
}

// know adds the name in a key to the names of its principal. The caller holds c.mu.
func (c *Clients) know(k clientKey) {
	if k.session != "" {
		return
	}
	if c.names[k.principal] == nil {
		c.names[k.principal] = map[string]bool{}
	}
	c.names[k.principal][k.name] = true
}

func named(client string) string {
	if client == "" || client == health.Unnamed {
		return Unnamed
	}
	return client
}

// Counting reports whether calls are counted.
func (c *Clients) Counting() bool { return c.on.Load() }

// Tick begins another slot. Without anybody who looks, the counting ends.
func (c *Clients) Tick(now time.Time) {
	if !c.on.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slot++
	c.tick = now
	if now.Sub(c.last) > clientLinger {
		c.on.Store(false)
		c.of, c.names = nil, nil
		return
	}
	maps.DeleteFunc(c.of, func(k clientKey, one *clientCalls) bool {
		idle := c.slot - one.last
		return idle > clientKept || k.session != "" && idle > clientSlots
	})
	clear(c.names)
	for k := range c.of {
		c.know(k)
	}
}

// look returns the calls a second of each client, and all of them since counting began. It begins the counting.
func (c *Clients) look(now time.Time) map[clientKey]ClientUse {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = now
	if !c.on.Load() {
		c.since, c.tick, c.of, c.names = now, now, map[clientKey]*clientCalls{}, map[string]map[string]bool{}
		c.on.Store(true)
	}
	window := now.Sub(c.tick) + clientSlots*slotLength
	seconds := max(min(window, now.Sub(c.since)), time.Second).Seconds()
	out := make(map[clientKey]ClientUse, len(c.of))
	for k, one := range c.of {
		sum := uint32(0)
		for i := max(0, c.slot-clientSlots); i <= one.last; i++ {
			sum += one.slots[i%len(one.slots)]
		}
		out[k] = ClientUse{Rate: float64(sum) / seconds, Calls: one.total}
	}
	return out
}

// slotLength is the interval between calls of Clients.Tick.
const slotLength = 5 * time.Second

// ClientUse is one kind of clients at one address.
type ClientUse struct {
	Client    string  `json:"client"`
	Principal string  `json:"principal,omitempty"`
	Transport string  `json:"transport"`
	Address   string  `json:"address"`
	Sessions  int     `json:"sessions"`
	Rate      float64 `json:"rate"`
	Calls     uint64  `json:"calls"`
}

// Address returns the path of a server's MCP endpoint below the base path; the empty name means all servers as one.
func Address(server string) string {
	if server == "" {
		return "/mcp"
	}
	return "/" + server + "/mcp"
}

// Groups returns the clients of the sessions, and the clients without a session whose principal sees accepts, the busiest
// first.
func (c *Clients) Groups(now time.Time, sees func(principal string) bool, sessions []gateway.SessionStatus) []ClientUse {
	of := map[ClientUse]*ClientUse{}
	add := func(k ClientUse, sessions int, rate float64, calls uint64) {
		one := of[k]
		if one == nil {
			copied := k
			one = &copied
			of[k] = one
		}
		one.Sessions, one.Rate, one.Calls = one.Sessions+sessions, one.Rate+rate, one.Calls+calls
	}
	rates := c.look(now)
	for i := range sessions {
		s := &sessions[i]
		k := ClientUse{Client: named(s.Client), Principal: s.Principal, Transport: s.Transport, Address: Address(s.Server)}
		add(k, 1, rates[clientKey{principal: s.Principal, session: s.ID}].Rate, s.Total)
	}
	for k, use := range rates {
		if k.session == "" && sees(k.principal) {
			add(ClientUse{Client: k.name, Principal: k.principal, Transport: "stateless", Address: Address(k.address)}, 0, use.Rate, use.Calls)
		}
	}
	out := []ClientUse{}
	for _, one := range of {
		out = append(out, *one)
	}
	slices.SortFunc(out, func(a, b ClientUse) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(b.Sessions, a.Sessions), cmp.Compare(b.Calls, a.Calls),
			cmp.Compare(a.Client, b.Client), cmp.Compare(a.Principal, b.Principal), cmp.Compare(a.Transport, b.Transport), cmp.Compare(a.Address, b.Address))
	})
	return out
}
