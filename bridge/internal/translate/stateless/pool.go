package stateless

import (
	"bytes"
	"cmp"
	clist "container/list"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lower"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Pool is an Upstream for the stateless clients of one server. It chooses the connection for each request, and
// speaks the server's era.
//
// A legacy server gets its client's capabilities once, but a stateless client sends them with each request. So there
// are connections for each set of capabilities. A call whose client can be asked has a connection of its own (see
// claim), unless the transport shows to which call a question belongs.
type Pool struct {
	o          Options
	wg         sync.WaitGroup // awaits connections that are closing
	attributes atomic.Bool    // the wire attributes questions to calls
	legacy     *lower.Server  // serves the calls if the server is a legacy server

	mu         sync.Mutex // guards the rest
	all        map[*slot]struct{}
	slots      map[string][]*slot // connections that requests find, by key, the oldest first
	queue      clist.List         // *claim: calls that wait for an exclusive connection, in order
	identities map[bridge.ConnectionKey]*identity
	profiles   map[string]profile // by the client's spelling of the capabilities
	uses       uint64             // counts uses, for their order
	closed     bool
}

var _ bridge.Upstream = (*Pool)(nil)

// slot is a connection with its translator.
type slot struct {
	p        *Pool
	identity *identity
	key      string // by which requests find the connection
	group    string // the key without capabilities
	once     bool   // the connection serves one request
	line     Line
	lower    *lower.Translator
	lost     context.Context // ends when the server is gone for good
	lose     context.CancelFunc

	// p.mu guards the rest.
	users   int
	calls   int    // requests about which the server may ask
	use     uint64 // the number of the last use
	used    time.Time
	timer   *time.Timer // until the next check for idleness
	suspect bool        // the server may ask about a call that has ended
}

var _ lower.Slot = (*slot)(nil)

// identity is the state of clients that may share connections: clients of one principal with the same forwarded
// headers.
type identity struct {
	key   bridge.ConnectionKey
	tools list.TaskTools

	mu      sync.Mutex       // guards the rest
	server  *bridge.Greeting // of the last handshake; nil before the first
	meeting *meeting         // the handshake in flight, if each call has a process of its own
}

// These constants bound the stored data of stateless clients (protocol.md F).
const (
	maxProfiles   = 8                // sets of capabilities for which one principal has connections to one server
	maxLaneKey    = 256              // bytes of the handle that chooses a connection
	maxIdentities = 1024             // identities with a stored greeting
	maxSpellings  = 256              // spellings of capabilities with a stored canonical form
	maxSpelling   = 4 << 10          // bytes of a stored spelling
	usualIdle     = 10 * time.Minute // until an unused connection is closed
)

// New returns a Pool. Close ends it.
func New(o Options) *Pool {
	o.Idle = cmp.Or(o.Idle, usualIdle)
	p := &Pool{
		o:          o,
		all:        map[*slot]struct{}{},
		slots:      map[string][]*slot{},
		identities: map[bridge.ConnectionKey]*identity{},
		profiles:   map[string]profile{},
	}
	o.Legacy.Lasting, o.Legacy.Alone = o.Sharing != EachCall, o.Sharing == Apart
	o.Legacy.Forward, o.Legacy.Queue = o.Forward, o.Queue
	p.o.Legacy, p.legacy = o.Legacy, lower.New(o.Legacy)
	return p
}

// Status counts the calls, subscriptions and connections of stateless clients at a server.
type Status struct {
	lower.Status     // of a legacy server
	Open         int // open connections
	Found        int // connections that new requests find
	Queued       int // calls that wait for an exclusive connection
}

func (p *Pool) Status() Status {
	st := Status{Status: p.legacy.Status()}
	p.mu.Lock()
	defer p.mu.Unlock()
	st.Open, st.Queued = len(p.all), p.queue.Len()
	for _, all := range p.slots {
		st.Found += len(all)
	}
	return st
}

// Revoke ends a principal's parked calls with that cause.
func (p *Pool) Revoke(principal string, why error) { p.legacy.Revoke(principal, why) }

// Server returns nil: each client gets a greeting of its own.
func (p *Pool) Server() *bridge.Greeting { return nil }

// Notify drops the notification: the protocol defines none from stateless clients.
func (p *Pool) Notify(context.Context, *bridge.Request) error { return nil }

// Call makes a stateless client's call at the instance of its connection.
func (p *Pool) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if no := p.o.Server.Misheaded(r); no != nil {
		return no, nil
	}
	if r.Back == nil { // a call of the bridge itself may look like a call of a client
		inner := *r
		inner.Back = bridge.Nobody{}
		r = &inner
	}
	if p.o.Places != nil && p.o.Owned {
		return p.placed(ctx, r)
	}
	return p.Here(ctx, r)
}

// Here makes the call over a connection of this instance.
func (p *Pool) Here(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	again, no := p.legacy.Round(r)
	if no != nil {
		return no, nil
	}
	if again.Parked() {
		return p.legacy.Resume(ctx, r, again)
	}
	return p.make(ctx, r, again, true)
}

// make makes a call that is not parked. If here is false, make serves only a modern server: for a legacy one it
// returns errLegacy and does not pass on the call.
func (p *Pool) make(ctx context.Context, r *bridge.Request, again *lower.Round, here bool) (*jsonrpc.Message, error) {
	lane, no := laneKey(r)
	if no != nil {
		return no, nil
	}
	if again != nil && p.isLegacy(r) { // the error needs no connection
		if no := again.Unknown(); no != nil {
			return no, nil
		}
	}
	s, g, held, err := p.connect(ctx, r, lane)
	if err != nil {
		return nil, err
	}
	defer p.leave(s, !unasked[r.Method])
	if g.Modern() {
		return s.relay(ctx, r, lane != "", again)
	}
	if !here {
		p.dropProbe(s)
		return nil, errLegacy
	}
	if no := again.Unknown(); no != nil {
		return no, nil
	}
	m, err := s.lower.Call(ctx, r, g, held, again)
	if now := s.line.Server(); err == nil && now != nil && r.Method != "server/discover" && r.Method != era.Listen {
		s.identity.learn(now)
	}
	return m, err
}

// isLegacy reports whether the server is known to be a legacy server for the client of a request.
func (p *Pool) isLegacy(r *bridge.Request) bool {
	key := bridge.IdentityKey(r.From, p.o.Forward)
	if p.o.Sharing == Everybody {
		key = ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.identity(key).known()
	return g != nil && !g.Modern()
}

// connect returns the connection for a request, in use until leave, with the server's greeting. held means that
// the answer is cached. If the server was replaced, the request gets a new connection, because its client has no
// session to break.
func (p *Pool) connect(ctx context.Context, r *bridge.Request, lane string) (*slot, *bridge.Greeting, bool, error) {
	c := claim{r: r, lane: lane}
	for tried := false; ; {
		s, err := p.slot(ctx, &c)
		if err != nil {
			return nil, nil, false, err
		}
		g, held, err := p.known(ctx, s, r)
		if err == nil && (c.granted || g.Modern() || !c.exclusive) {
			return s, g, held, nil
		}
		full := c.granted && errors.Is(err, bridge.ErrOverloaded)
		if full {
			p.yield(s)
		}
		p.leave(s, !unasked[r.Method])
		switch {
		case err == nil:
			c.legacy = true // the next round claims an exclusive connection
		case full && time.Now().Before(c.until): // the limits allow no other connection now
			c.retry = true
		case tried || !errors.Is(err, bridge.ErrReplaced):
			return nil, nil, false, err
		default:
			tried = true
		}
	}
}

// known returns the server's greeting, and whether the request's answer is cached. known opens a connection if
// necessary, unless the request only reads the stored greeting.
func (p *Pool) known(ctx context.Context, s *slot, r *bridge.Request) (g *bridge.Greeting, held bool, err error) {
	own, common := s.line.Server(), s.identity.known()
	if g = own; g == nil {
		g = common
	}
	if s.line.Holds(r, g, nil) { // a cached list needs no connection
		return g, true, nil
	}
	if r.Method == "server/discover" && own != nil && !own.Modern() {
		return own, false, nil
	}
	if common != nil && (r.Method == "server/discover" && !common.Modern() || p.o.Sharing == EachCall) {
		return common, false, nil
	}
	if p.o.Sharing == EachCall {
		g, err = s.identity.meet(ctx, p, s.line)
		return g, false, err
	}
	now, err := p.greeted(ctx, s.line)
	switch {
	case err == nil:
		s.identity.learn(now)
	case s.line.Holds(r, g, err):
		return g, true, nil
	}
	return now, false, err
}

// greeted returns the greeting of a connection. If there is no open connection, greeted opens one.
func (p *Pool) greeted(ctx context.Context, of Line) (*bridge.Greeting, error) {
	g, told, err := of.Known(ctx)
	if err == nil && told != p.attributes.Load() {
		p.attributes.Store(told)
	}
	return g, err
}

// meeting is the first handshake for an identity.
type meeting struct {
	done      chan struct{} // closed when the other fields are set
	server    *bridge.Greeting
	err       error
	abandoned bool // the caller whose call made the handshake has left
}

// meet returns the greeting of a handshake. Concurrent first calls of an identity share one handshake, so that
// they start one process and not one each.
func (i *identity) meet(ctx context.Context, p *Pool, of Line) (*bridge.Greeting, error) {
	for {
		i.mu.Lock()
		g, m := i.server, i.meeting
		mine := g == nil && m == nil
		if mine {
			m = &meeting{done: make(chan struct{})}
			i.meeting = m
		}
		i.mu.Unlock()
		if g != nil {
			return g, nil
		}
		if mine {
			if m.server, m.err = p.greeted(ctx, of); m.err == nil {
				i.learn(m.server)
			}
			m.abandoned = ctx.Err() != nil
			i.mu.Lock()
			i.meeting = nil
			i.mu.Unlock()
			close(m.done)
			return m.server, m.err
		}
		select {
		case <-m.done:
			if m.err == nil || !m.abandoned {
				return m.server, m.err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (i *identity) known() *bridge.Greeting {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.server
}

// learn stores the greeting for the identity. nil means that the stored greeting is no longer valid.
func (i *identity) learn(g *bridge.Greeting) {
	i.mu.Lock()
	defer i.mu.Unlock()
	before := i.server
	i.server = g
	if before != g && (before == nil || g == nil || before.Revision != g.Revision || !bytes.Equal(before.Result, g.Result)) {
		i.tools.Forget() // if the greeting is the same, the stored rules of the tools stay
	}
}

// laneKey returns the handle of the connection that a request asks for.
func laneKey(r *bridge.Request) (string, *jsonrpc.Message) {
	if !rawjson.Mentions(r.Meta(), "mcp-bridge") {
		return "", nil
	}
	value := gjson.GetBytes(r.Meta(), gjson.Escape(era.KeyLane))
	switch {
	case !value.Exists():
		return "", nil
	case value.Type != gjson.String || value.Str == "" || len(value.Str) > maxLaneKey:
		return "", jsonrpc.InvalidParams(bridge.OverLimit("params._meta: "+era.KeyLane+" must be a string, not empty and not too long", maxLaneKey))
	}
	return value.Str, nil
}

// unasked holds the methods whose requests never lead to questions.
var unasked = map[string]bool{
	"tools/list": true, "prompts/list": true, "resources/list": true, "resources/templates/list": true,
	"server/discover": true, era.Listen: true,
}

// slot returns the connection for a request, in use until leave.
func (p *Pool) slot(ctx context.Context, c *claim) (*slot, error) {
	r := c.r
	from, key, lane := r.From, bridge.IdentityKey(r.From, p.o.Forward), c.lane
	if p.o.Sharing == Everybody {
		key, from = "", &bridge.Caller{Revision: era.LatestModern, Capabilities: []byte("{}")}
		lane = ""
	}
	p.mu.Lock()
	s, err := p.seek(c, from, key, lane)
	p.mu.Unlock()
	if s == nil && err == nil {
		return p.await(ctx, *c)
	}
	return s, err
}

// seek returns the connection for a request of that identity. seek returns nil if the request must wait for an
// exclusive connection. The caller holds p.mu.
func (p *Pool) seek(c *claim, from *bridge.Caller, key bridge.ConnectionKey, lane string) (*slot, error) {
	r := c.r
	if p.closed {
		return nil, bridge.ErrShutdown
	}
	id := p.identity(key)
	server := id.known()
	if p.o.Sharing == EachCall && !server.Modern() {
		s := p.newSlot(id, from, "", "", lower.Clients{Once: true})
		p.enter(s, r)
		return s, nil
	}
	group := string(id.key)
	if lane != "" && !server.Modern() {
		group += "\x00\x01" + lane
	}
	pr := p.profile(from.Capabilities)
	full := group + "\x00\x02" + pr.canonical
	c.exclusive = p.exclusive(r, lane, pr)
	if c.granted = c.exclusive && (c.legacy || server != nil) && !server.Modern(); c.granted {
		c.identity, c.from, c.group, c.key = id, from, group, full
		return p.claim(c)
	}
	var l *slot
	if all := p.slots[full]; len(all) > 0 {
		l = all[0]
	}
	// Lists use the connection of the client's calls, because legacy servers choose tools by capabilities. The
	// greeting of a legacy server does not depend on capabilities.
	if server.Modern() || l == nil && r.Method == "server/discover" {
		if latest := p.latest(group); latest != nil {
			l = latest
		}
	}
	if l != nil {
		p.enter(l, r)
		return l, nil
	}
	if err := p.room(from.Principal, group, full); err != nil {
		s := p.latest(group)
		if s == nil || !era.IsList(r.Method) {
			return nil, err
		}
		// A list for other capabilities is better than no list.
		p.o.Legacy.Log.Debug("list served for another client's capabilities", "err", err)
		p.enter(s, r)
		return s, nil
	}
	l = p.add(id, from, group, full, lane != "")
	p.enter(l, r)
	return l, nil
}

// add adds a connection that requests find. The caller holds p.mu.
func (p *Pool) add(i *identity, from *bridge.Caller, group, key string, keyed bool) *slot {
	s := p.newSlot(i, from, group, key, lower.Clients{Keyed: keyed})
	p.slots[key] = append(p.slots[key], s)
	return s
}

// newSlot returns a slot for these clients. Its connection opens on demand.
func (p *Pool) newSlot(i *identity, from *bridge.Caller, group, key string, of lower.Clients) *slot {
	if from.Handover != nil { // the right to call belongs to a request, not to the connection
		own := *from
		own.Handover, from = nil, &own
	}
	s := &slot{
		p:        p,
		identity: i,
		key:      key,
		group:    group,
		once:     of.Once,
	}
	s.lost, s.lose = context.WithCancel(context.Background())
	of.Tools, of.Group = &i.tools, group
	s.lower = p.legacy.Translator(of, s, func(rest bridge.Client) lower.Line {
		s.line = p.o.Server.Line(from, rest)
		return s.line
	})
	return s
}

// enter counts a use of the connection. The caller holds p.mu.
func (p *Pool) enter(s *slot, r *bridge.Request) {
	p.all[s] = struct{}{}
	p.uses++
	s.users, s.use = s.users+1, p.uses
	if !unasked[r.Method] {
		s.calls++
	}
}

// identity returns the identity of that key. The caller holds p.mu.
func (p *Pool) identity(key bridge.ConnectionKey) *identity {
	i := p.identities[key]
	if i == nil {
		for other := range p.identities {
			if len(p.identities) < maxIdentities {
				break
			}
			delete(p.identities, other) // filled again on demand
		}
		i = &identity{key: key}
		p.identities[key] = i
	}
	return i
}

// profile is the legacy form of a client's capabilities.
type profile struct {
	canonical string // the capabilities in canonical spelling
	asked     bool   // the client can be asked something
}

// profile returns the profile of capabilities, from p.profiles if it is there. The caller holds p.mu.
func (p *Pool) profile(capabilities []byte) profile {
	if known, ok := p.profiles[string(capabilities)]; ok {
		return known
	}
	offered := era.LegacyCapabilities(capabilities)
	pr := profile{string(era.CanonicalCapabilities(offered)), lower.Askable(offered)}
	if len(capabilities) <= maxSpelling {
		if len(p.profiles) >= maxSpellings {
			clear(p.profiles)
		}
		p.profiles[string(capabilities)] = pr
	}
	return pr
}

// latest returns the most recently used connection of the group, or nil. The caller holds p.mu.
func (p *Pool) latest(group string) (s *slot) {
	for _, all := range p.slots {
		for _, other := range all {
			if other.group == group && (s == nil || other.use > s.use) {
				s = other
			}
		}
	}
	return s
}
