// Package share lets several sessions use one lane, or opens a lane for each call.
//
// Each session has a View of its shared lane. The View gets the messages of its own calls and subscriptions. The
// server gets one log level and one subscription for all. Messages that belong to no known session are not
// delivered.
//
// A PerCall opens a lane for each call, and closes it afterwards.
package share

import (
	"context"
	"sync"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Options says which sessions share a lane to a server. All fields are required.
type Options struct {
	Server string
	// All means that all sessions share one lane. Otherwise sessions of one principal with the same capabilities
	// and headers share one.
	All     bool
	Params  []byte           // of initialize, if one lane serves all
	Forward []bridge.Forward // client headers that the server gets
	Budget  *lane.Budget
	Force   context.Context // ends when the time to close lanes is over
	Lanes   Lanes
}

// Lanes makes the shared lanes.
type Lanes interface {
	// SharedLane returns a lane, and the Upstream for calls over it. givenUp is as in lane.Ends.
	SharedLane(from *bridge.Caller, to bridge.Client, givenUp func()) (*lane.Lane, bridge.Upstream)
}

// Hubs holds the shared lanes of one server.
type Hubs struct {
	o  Options
	wg sync.WaitGroup // awaits lanes that are closing

	mu   sync.Mutex // guards hubs
	hubs map[bridge.ConnectionKey]*hub
}

// New returns the shared lanes of a server, of which none is open yet.
func New(o Options) *Hubs { return &Hubs{o: o, hubs: map[bridge.ConnectionKey]*hub{}} }

// MaxHubs bounds the shared lanes of one principal at one server.
const MaxHubs = 8

// Join returns a session's view of its shared lane. Messages go to the client to. stateless means that the view
// serves stateless clients. If all sessions share the lane, such a view also gets the completion of each elicitation
// that was sent to no view. Its client gets Gone if the connection stays lost for long.
func (h *Hubs) Join(from bridge.Caller, to bridge.Client, stateless bool) (*View, error) {
	key, capabilities := bridge.SessionKey(&from, h.o.Forward)
	from.Params = rawjson.Set(from.Params, "capabilities", capabilities)
	if h.o.All {
		// Clients of both eras share the lane. If the server's era is unknown, the first client decides which era the
		// bridge tries first.
		own := bridge.Caller{Revision: era.LatestLegacy, Params: h.o.Params}
		if from.Modern() {
			own.Revision, own.Capabilities = era.LatestModern, []byte("{}")
		}
		key, from = "", own
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.hubs[key]
	if one == nil {
		if int64(len(h.hubs)) >= h.o.Budget.Most() {
			h.evict(func(*hub) bool { return true })
		}
		own := func(item *hub) bool { return item.lane.Caller().Principal == from.Principal }
		if h.count(own) >= MaxHubs && !h.evict(own) {
			return nil, &bridge.Error{
				Server: h.o.Server,
				Kind:   bridge.ErrUnavailable,
				Err:    bridge.ErrOverloaded,
				Public: bridge.OverLimit("it has too many connections for clients of different revisions and capabilities", MaxHubs),
			}
		}
		one = newHub(&h.o, &from)
		h.hubs[key] = one
	}
	return one.join(to, stateless), nil
}

// count returns the number of hubs that which accepts. The caller holds h.mu.
func (h *Hubs) count(which func(*hub) bool) (n int) {
	for _, one := range h.hubs {
		if which(one) {
			n++
		}
	}
	return n
}

// Release starts to close the hub of that key, unless a session uses it.
func (h *Hubs) Release(key bridge.ConnectionKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if one := h.hubs[key]; one != nil {
		h.evict(func(h *hub) bool { return h == one })
	}
}

// evict starts to close one unused hub that which accepts. The caller holds h.mu.
func (h *Hubs) evict(which func(*hub) bool) bool {
	for key, one := range h.hubs {
		if which(one) && one.unused() {
			delete(h.hubs, key)
			closed := h.o.Budget.Closing()
			h.wg.Go(func() {
				defer closed()
				_ = one.lane.Close(h.o.Force)
			})
			return true
		}
	}
	return false
}

// Close closes all hubs and waits. When ctx ends, Close stops waiting for servers.
func (h *Hubs) Close(ctx context.Context) {
	h.mu.Lock()
	hubs := h.hubs
	h.hubs = map[bridge.ConnectionKey]*hub{}
	h.mu.Unlock()
	for _, one := range hubs {
		h.wg.Go(func() { _ = one.lane.Close(ctx) })
	}
	h.wg.Wait()
}
