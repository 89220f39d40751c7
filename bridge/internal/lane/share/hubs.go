// Package share lets several sessions use one lane, or opens a lane for each call.
//
// Each session has a View of its shared lane. It gets what belongs to its own calls and subscriptions. The
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
	// Open returns a lane, and the Upstream for calls over it. givenUp is as in lane.Ends.
	Open func(from *bridge.Caller, to bridge.Client, givenUp func()) (*lane.Lane, bridge.Upstream)
}

// Hubs holds the shared lanes of one server.
type Hubs struct {
	o  Options
	wg sync.WaitGroup // awaits lanes that are closing

	mu   sync.Mutex // guards hubs
	hubs map[string]*hub
}

// New returns the shared lanes of a server, of which none is open yet.
func New(o Options) *Hubs { return &Hubs{o: o, hubs: map[string]*hub{}} }

// MaxHubs bounds the shared lanes of one principal at one server.
const MaxHubs = 8

// Join returns a session's view of its shared lane. Messages go to to. stateless means that the view serves
// stateless clients. They also get completed elicitations that no view asked for, and Gone when their connection
// stays lost for long.
func (s *Hubs) Join(from bridge.Caller, to bridge.Client, stateless bool) (*View, error) {
	capabilities := era.CanonicalCapabilities(rawjson.Delete(from.Capabilities, "tasks")) // tasks are relayed 1:1 only (D3)
	from.Params = rawjson.Set(from.Params, "capabilities", capabilities)
	key := from.Principal + "\x00" + from.Revision + "\x00" + string(capabilities)
	for _, f := range bridge.Lasting(s.o.Forward) {
		for _, value := range from.Header[f.To] {
			key += "\x00" + f.To + ":" + value
		}
	}
	if s.o.All {
		// Clients of both eras share it. The first one decides in which era the bridge tries the server first,
		// if that is unknown.
		own := bridge.Caller{Revision: era.LatestLegacy, Params: s.o.Params}
		if from.Modern() {
			own.Revision, own.Capabilities = era.LatestModern, []byte("{}")
		}
		key, from = "", own
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.hubs[key]
	if h == nil {
		if int64(len(s.hubs)) >= s.o.Budget.Most() {
			s.evict(func(*hub) bool { return true })
		}
		own := func(h *hub) bool { return h.lane.Caller().Principal == from.Principal }
		if s.count(own) >= MaxHubs && !s.evict(own) {
			return nil, &bridge.Error{Server: s.o.Server, Kind: bridge.ErrUnavailable, Err: bridge.ErrOverloaded,
				Public: bridge.OverLimit("it has too many connections for clients of different revisions and capabilities", MaxHubs)}
		}
		h = newHub(&s.o, &from)
		s.hubs[key] = h
	}
	return h.join(to, stateless), nil
}

// count returns how many hubs which accepts. The caller holds s.mu.
func (s *Hubs) count(which func(*hub) bool) (n int) {
	for _, h := range s.hubs {
		if which(h) {
			n++
		}
	}
	return n
}

// Leave starts to close the hub of that key, unless a session uses it.
func (s *Hubs) Leave(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.hubs[key]; h != nil {
		s.evict(func(o *hub) bool { return o == h })
	}
}

// evict starts to close one unused hub that which accepts. The caller holds s.mu.
func (s *Hubs) evict(which func(*hub) bool) bool {
	for key, h := range s.hubs {
		if which(h) && h.unused() {
			delete(s.hubs, key)
			left := s.o.Budget.Closing()
			s.wg.Go(func() {
				defer left()
				_ = h.lane.Close(s.o.Force)
			})
			return true
		}
	}
	return false
}

// Close closes all hubs and waits. When ctx ends, it stops waiting for servers.
func (s *Hubs) Close(ctx context.Context) {
	s.mu.Lock()
	hubs := s.hubs
	s.hubs = map[string]*hub{}
	s.mu.Unlock()
	for _, h := range hubs {
		s.wg.Go(func() { _ = h.lane.Close(ctx) })
	}
	s.wg.Wait()
}
