package admin

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/health"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
)

// These constants bound Clients. A slot lasts from one call of Tick to the next. Beyond a bound, the least recently
// used entry is dropped. One principal has at most a quarter of the entries: beyond that, its new clients count as
// Unnamed, and its new uses and sessions do not count.
const (
	clientSlots = 6   // slots of which rates are computed
	clientKept  = 180 // slots without a call after which an entry is dropped

	maxClients = 4096
	maxUses    = 4 * maxClients // pairs of a client and a server, and sessions of such pairs
	maxShown   = 512            // clients in an answer
	maxNames   = 512            // entries of Clients.names
	maxNamed   = 4 << 10        // bytes of a key of Clients.names
)

// Unnamed is the name of a client that does not say its own.
const Unnamed = "unnamed"

// consoleName is the client name of the console's page (see mcp.js). runName is the client name of "mcp-bridge run",
// which lists the tools of its server once, on a pipe.
const (
	consoleName = "mcp-bridge-console"
	runName     = "mcp-bridge"
)

// Clients counts the calls of each client to each server. A call costs 200 to 270 ns, and up to 300 ns with two
// processors at once (BenchmarkClients). Its methods may be called concurrently.
type Clients struct {
	mu       sync.Mutex // guards the rest
	tick     time.Time  // when the current slot began
	slot     int
	names    map[string]string // of clients, by Caller.Params
	clients  counts[client, *uses]
	servers  counts[serverOf, *uses]
	sessions counts[sessionOf, int] // the slot of the last call
}

// counts holds the most recently used entries. One principal has at most a quarter of the most entries.
type counts[K owned, V any] struct {
	simplelru.LRUCache[K, V]
	most int
	of   map[string]int // the number of entries, by principal
}

type owned interface {
	comparable
	owner() string // a principal
}

func newCounts[K owned, V any](most int) counts[K, V] {
	c := counts[K, V]{most: most, of: map[string]int{}}
	c.LRUCache, _ = simplelru.NewLRU(most, func(k K, _ V) { // the size is positive
		if c.of[k.owner()]--; c.of[k.owner()] == 0 {
			delete(c.of, k.owner())
		}
	})
	return c
}

// full reports whether a principal may have no more entries.
func (c *counts[K, V]) full(principal string) bool { return c.of[principal] >= c.most/4 }

// put adds an entry.
func (c *counts[K, V]) put(k K, v V) {
	c.of[k.owner()]++
	c.Add(k, v)
}

// client identifies clients that are counted together.
type client struct {
	name, principal, transport string
	address                    string // the server or group whose address they use; empty for the address of all servers
}

func (c client) owner() string { return c.principal }

// serverOf identifies the use of a server by a client.
type serverOf struct {
	principal string
	client    *uses
	server    string
}

func (s serverOf) owner() string { return s.principal }

// sessionOf identifies the use of a server in a session.
type sessionOf struct {
	principal string
	server    *uses
	id        string
}

func (s sessionOf) owner() string { return s.principal }

type uses struct {
	slots [clientSlots + 1]uint32 // slot n is at n % len(slots)
	last  int                     // the slot of the last call
	total uint64
}

// add counts a call in a slot. add clears the slots that passed without a call.
func (u *uses) add(slot int) {
	for i := u.last + 1; i <= slot && i <= u.last+len(u.slots); i++ {
		u.slots[i%len(u.slots)] = 0
	}
	u.last = slot
	u.slots[slot%len(u.slots)]++
	u.total++
}

// rate returns the calls of the last slots divided by seconds.
func (u *uses) rate(slot int, seconds float64) float64 {
	sum := uint32(0)
	for i := max(0, slot-clientSlots); i <= u.last; i++ {
		sum += u.slots[i%len(u.slots)]
	}
	return float64(sum) / seconds
}

// NewClients returns the counts of a bridge that begins now.
func NewClients(now time.Time) *Clients {
	return &Clients{
		tick:     now,
		names:    map[string]string{},
		clients:  newCounts[client, *uses](maxClients),
		servers:  newCounts[serverOf, *uses](maxUses),
		sessions: newCounts[sessionOf, int](maxUses),
	}
}

// Take counts a report. A request to several servers counts once, and for no server: a list of all servers does not
// show which of them the client uses. The bridge's own requests do not count.
func (c *Clients) Take(r *report.Report) {
	a, ok := r.Call.(*report.Arrival)
	if !ok || a == nil || a.Wire() == "" || r.From == nil || r.Part > 1 || r.Request.Method == era.Listen {
		return
	}
	name := ""
	if len(r.From.Params) > maxNamed { // parsed before the lock, because it takes long
		name = named(health.Client(r.From))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if name == "" {
		name = c.name(r.From)
	}
	k := client{name, r.Principal, a.Wire(), a.Address()}
	if isOwn(name, r.Network == bridge.Pipe) {
		return
	}
	of := c.client(k)
	of.add(c.slot)
	if r.Server == "" || r.Part > 0 {
		return
	}
	key := serverOf{r.Principal, of, r.Server}
	to, ok := c.servers.Get(key)
	if !ok {
		if c.servers.full(r.Principal) {
			return
		}
		to = &uses{last: c.slot}
		c.servers.put(key, to)
	}
	to.add(c.slot)
	if r.Session == "" {
		return
	}
	switch in := (sessionOf{r.Principal, to, r.Session}); {
	case c.sessions.Contains(in):
		c.sessions.Add(in, c.slot)
	case !c.sessions.full(r.Principal):
		c.sessions.put(in, c.slot)
	}
}

// client returns the counts of a client. The caller holds c.mu.
func (c *Clients) client(k client) *uses {
	one, ok := c.clients.Get(k)
	if !ok && c.clients.full(k.principal) {
		k.name = Unnamed
		one, ok = c.clients.Get(k)
	}
	if !ok {
		one = &uses{last: c.slot}
		c.clients.put(k, one)
	}
	return one
}

// name returns the name of a client, from names if it is there. The caller holds c.mu.
func (c *Clients) name(from *bridge.Caller) string {
	if name, ok := c.names[string(from.Params)]; ok {
		return name
	}
	name := named(health.Client(from))
	if len(c.names) >= maxNames {
		clear(c.names)
	}
	c.names[string(from.Params)] = name
	return name
}

func named(client string) string {
	if client == "" || client == health.Unnamed {
		return Unnamed
	}
	return client
}

// isOwn reports whether the client of that name is the bridge itself. pipe means that the client is on a pipe.
func isOwn(name string, pipe bool) bool {
	return strings.HasPrefix(name, consoleName+" ") || pipe && strings.HasPrefix(name, runName+" ")
}

// Tick begins another slot, and drops the entries that were not used for clientKept slots.
func (c *Clients) Tick(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slot++
	c.tick = now
	old := func(u *uses) bool { return c.slot-u.last > clientKept }
	forget(c.clients.LRUCache, old)
	forget(c.servers.LRUCache, old)
	forget(c.sessions.LRUCache, func(last int) bool { return c.slot-last > clientKept })
}

// forget removes the oldest entries while they are old.
func forget[K comparable, V any](all simplelru.LRUCache[K, V], old func(V) bool) {
	for _, v, ok := all.GetOldest(); ok && old(v); _, v, ok = all.GetOldest() {
		all.RemoveOldest()
	}
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
	Rate      float64 `json:"rate"` // calls a second, in the last 30 s
	Calls     uint64  `json:"calls"`
	// Servers are the servers that these clients called, the busiest first.
	Servers []ServerUse `json:"servers"`
}

// ServerUse is the use of one server by the clients of a ClientUse.
type ServerUse struct {
	Server string  `json:"server"`
	Rate   float64 `json:"rate"`
	Calls  uint64  `json:"calls"`
}

// Address returns the path of the MCP endpoint of a server or group below the base path; the empty name means the
// endpoint of all servers.
func Address(server string) string {
	if server == "" {
		return "/mcp"
	}
	return "/" + server + "/mcp"
}

// Groups returns the clients of the sessions, and those of the last 15 minutes whose principal sees accepts: the
// busiest first, at most maxShown. Each element of all has only the servers that shows accepts. clients is the number
// of clients by server: an element counts as the number of its open sessions that called the server, and at least as
// one.
func (c *Clients) Groups(now time.Time, sees, shows func(name string) bool, sessions []gateway.SessionStatus) (all []ClientUse, clients map[string]int) {
	c.mu.Lock()
	slot, tick := c.slot, c.tick
	counted, served, called := copied(c.clients.LRUCache), copied(c.servers.LRUCache), c.sessions.Keys()
	c.mu.Unlock() // unlocked early: calls wait for the lock
	of := map[client]*ClientUse{}
	group := func(c client) *ClientUse {
		if of[c] == nil {
			of[c] = &ClientUse{
				Client:    c.name,
				Principal: c.principal,
				Transport: c.transport,
				Address:   Address(c.address),
				Servers:   []ServerUse{},
			}
		}
		return of[c]
	}
	open := map[string]bool{}
	for i := range sessions {
		s := &sessions[i]
		if c := (client{named(s.Client), s.Principal, s.Transport, s.Server}); !isOwn(c.name, c.transport == gateway.WireStdio) {
			open[s.ID] = true
			one := group(c)
			one.Sessions++
			one.Calls += s.Total
		}
	}
	seconds := max(now.Sub(tick)+time.Duration(min(slot, clientSlots))*slotLength, time.Second).Seconds()
	by := map[*uses]*ClientUse{}
	for _, e := range counted {
		if sees(e.key.principal) {
			one := group(e.key)
			one.Rate, one.Calls = e.now.rate(slot, seconds), max(one.Calls, e.now.total)
			by[e.uses] = one
		}
	}
	used := map[*uses]int{} // how many open sessions have called the server
	for _, s := range called {
		if open[s.id] {
			used[s.server]++
		}
	}
	clients = map[string]int{}
	for _, e := range served {
		if one := by[e.key.client]; one != nil && shows(e.key.server) {
			one.Servers = append(one.Servers, ServerUse{e.key.server, e.now.rate(slot, seconds), e.now.total})
			clients[e.key.server] += max(1, used[e.uses])
		}
	}
	all = []ClientUse{}
	for _, one := range of {
		slices.SortFunc(one.Servers, func(s, b ServerUse) int {
			return cmp.Or(cmp.Compare(b.Rate, s.Rate), cmp.Compare(b.Calls, s.Calls), cmp.Compare(s.Server, b.Server))
		})
		all = append(all, *one)
	}
	slices.SortFunc(all, func(c, b ClientUse) int {
		return cmp.Or(cmp.Compare(b.Rate, c.Rate), cmp.Compare(b.Sessions, c.Sessions), cmp.Compare(b.Calls, c.Calls),
			cmp.Compare(c.Client, b.Client), cmp.Compare(c.Principal, b.Principal), cmp.Compare(c.Transport, b.Transport), cmp.Compare(c.Address, b.Address))
	})
	return all[:min(len(all), maxShown)], clients
}

// entry is a copy of uses, with the key and the original.
type entry[K comparable] struct {
	key  K
	uses *uses
	now  uses
}

// copied returns copies of all counts.
func copied[K comparable](all simplelru.LRUCache[K, *uses]) []entry[K] {
	values := all.Values()
	out := make([]entry[K], len(values))
	for i, k := range all.Keys() {
		out[i] = entry[K]{k, values[i], *values[i]}
	}
	return out
}
