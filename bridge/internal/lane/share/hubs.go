// Package share has several sessions use one lane, or each call one of its own.
//
// Where sessions share a lane, each has a View of it: it gets what belongs to its own
// calls and what it has subscribed to, and the server is told one log level and one
// subscription for all. What cannot be told whose it is goes to nobody else.
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

// Options say which sessions share a lane to a server. All are needed.
type Options struct {
	Server string
	// All has all sessions use one lane. Otherwise it is those of one principal whose
	// clients can do the same and were sent here with the same headers.
	All     bool
	Params  []byte           // of initialize, where one lane serves all
	Forward []bridge.Forward // headers of clients that the server gets
	Budget  *lane.Budget
	Force   context.Context // ends when what is closed by itself has no more time
	// Open makes a lane, and returns it also with what calls over it go through.
	// givenUp is as in lane.Ends.
	Open func(from *bridge.Caller, to bridge.Client, givenUp func()) (*lane.Lane, bridge.Upstream)
}

// Hubs are the lanes of one server that sessions share.
type Hubs struct {
	o  Options
	wg sync.WaitGroup // lanes that are being closed

	mu   sync.Mutex // guards hubs
	hubs map[string]*hub
}

// New makes the shared lanes of a server. There is none yet.
func New(o Options) *Hubs { return &Hubs{o: o, hubs: map[string]*hub{}} }

// MaxHubs bounds the lanes to one server that one principal's clients share.
const MaxHubs = 8

// Join returns a session's view of the lane that it shares, and hears of at to.
// stateless says that it stands for clients without sessions: they are told when a
// question is complete that nobody here was asked, and when a connection that they
// need could not be opened again for long.
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
		// Clients of both eras are together: who comes first decides in which the
		// server is spoken to first, if it is not known.
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

// count returns how many there are of some. The caller holds s.mu.
func (s *Hubs) count(which func(*hub) bool) (n int) {
	for _, h := range s.hubs {
		if which(h) {
			n++
		}
	}
	return n
}

// Leave closes the lane of those who are alike in what Join looks at, unless one of them
// uses it. It does not wait for that.
func (s *Hubs) Leave(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.hubs[key]; h != nil {
		s.evict(func(o *hub) bool { return o == h })
	}
}

// evict closes one of some that no session uses. The caller holds s.mu.
func (s *Hubs) evict(which func(*hub) bool) bool {
	for key, h := range s.hubs {
		if which(h) && h.unused() {
			delete(s.hubs, key)
			left := s.o.Budget.Leaving()
			s.wg.Go(func() {
				defer left()
				_ = h.lane.Close(s.o.Force)
			})
			return true
		}
	}
	return false
}

// Close closes all of them, and waits for it. The end of ctx cuts the polite part
// short.
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
