package gateway

import (
	"bytes"
	clist "container/list"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc/rawjson"
	"github.com/mcp-bridge/bridge/bridge/list"
)

// pool is an Upstream for the clients without sessions of one server: it finds
// the connection that a request goes over, and talks to the server in the era
// that it speaks (protocol.md D1.2, D4).
//
// A legacy server is told once what its client can do, and a client without a
// session says it with each request. So there are connections for each set of
// capabilities; requests about which nothing can be asked use whichever there is.
// A call whose client can be asked something has its connection to itself (see
// claim), unless the wire says which call a question is about.
type pool struct {
	r    *route
	idle time.Duration  // after which a connection that nobody uses is closed; 0 means never
	wg   sync.WaitGroup // connections that are being closed

	// told is whether the wire says of each question which call it is about, and
	// stray whether the server has asked something of which it did not, and
	// heedless whether it has asked when its call had been cancelled.
	told, stray, heedless atomic.Bool

	mu        sync.Mutex // guards the rest
	all       map[*lower]struct{}
	lowers    map[string][]*lower // those that new requests find, by key, the oldest first
	queue     clist.List          // *claim: calls that wait for a connection of their own, in their order
	noticed   time.Time           // when it was last logged that questions were refused
	circles   map[string]*circle  // by their key
	profiles  map[string]profile  // capabilities, by how clients write them
	parked    map[string]*parked  // calls that wait for their clients, by id
	waiting   map[string]int      // how many of them, by principal
	keptBytes int                 // of answers that were given and are kept
	uses      uint64              // numbers uses in their order
	closed    bool
}

// circle is the clients whose requests may go over the same connections: those
// of one principal that send the same of the headers that are forwarded.
type circle struct {
	key   string
	noted list.Memo // of lists of tools, for required

	mu       sync.Mutex       // guards the rest
	server   *bridge.Greeting // what the last handshake said; nil before the first
	meeting  *meeting         // with the server, where calls have processes of their own
	required map[string]bool
	whole    bool      // required says of every tool whether it is called as a task
	asked    time.Time // when a list was asked for that says so
}

// keyLane is the member of _meta by which a client asks for connections of its
// own: of two values, each has others (protocol.md D1.2). The server does not
// see it.
const keyLane = "dev.mcp-bridge/lane"

// Limits of what is kept for clients without sessions (protocol.md F).
const (
	maxProfiles  = 8                // connections of one principal to one server
	maxLaneKey   = 256              // bytes
	maxCircles   = 1024             // of which it is kept what the server said to them
	maxSpellings = 256              // of capabilities whose canonical form is kept
	maxSpelling  = 4 << 10          // bytes of one of those
	guestIdle    = 10 * time.Minute // how long a connection is kept that nobody uses
)

func newPool(r *route) *pool {
	p := &pool{
		r: r, all: map[*lower]struct{}{}, lowers: map[string][]*lower{}, circles: map[string]*circle{},
		profiles: map[string]profile{}, parked: map[string]*parked{}, waiting: map[string]int{},
	}
	if p.idle = max(r.o.Idle, 0); r.o.Idle == 0 {
		p.idle = guestIdle
	}
	return p
}

// Server returns nothing: what clients are told is made for each of them.
func (p *pool) Server() *bridge.Greeting { return nil }

// Notify drops the notification: clients without sessions have none that are
// defined.
func (p *pool) Notify(context.Context, *bridge.Request) error { return nil }

// Call makes the call of a client without a session.
func (p *pool) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if no := p.r.tools.Misheaded(r); no != nil {
		return no, nil
	}
	if r.Back == nil { // a call of the bridge's own, which may look like a client's
		inner := *r
		inner.Back = bridge.Nobody{}
		r = &inner
	}
	again, no := reading(r)
	if no != nil {
		return no, nil
	}
	var state *requestState
	if again.repeated() {
		if state = p.opened(again.state); state != nil {
			if no := p.foreign(state, r); no != nil {
				return no, nil
			}
			if state.Kind == stateParked {
				return p.resume(ctx, r, again, state)
			}
		}
	}
	lane, no := laneKey(r)
	if no != nil {
		return no, nil
	}
	if again != nil && p.legacy(r) { // no connection is needed to say so
		if no := again.unknown(state); no != nil {
			return no, nil
		}
	}
	l, s, err := p.connect(ctx, r, lane)
	if err != nil {
		return nil, err
	}
	defer p.leave(l, !unasked[r.Method])
	if s.Modern() {
		return l.relay(ctx, r, lane != "", again, state)
	}
	if no := again.unknown(state); no != nil {
		return no, nil
	}
	return l.Call(ctx, r, s, again, state)
}

// legacy reports whether it is known that the server is a legacy one, for the
// client of a request.
func (p *pool) legacy(r *bridge.Request) bool {
	key := p.identity(r)
	if p.r.share == ShareAll {
		key = ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.circle(key).known()
	return s != nil && !s.Modern()
}

// connect returns the connection for a request, counted as in use until leave,
// and what its server has said. When the server came back as another than it was
// the request goes over a new connection: its client has agreed to nothing.
func (p *pool) connect(ctx context.Context, r *bridge.Request, lane string) (*lower, *bridge.Greeting, error) {
	c := claim{r: r, lane: lane}
	for tried := false; ; {
		l, err := p.lower(ctx, &c)
		if err != nil {
			return nil, nil, err
		}
		s, err := p.known(ctx, l, r)
		if err == nil && (c.alone || s.Modern() || !c.lonely) {
			return l, s, nil
		}
		full := c.alone && errors.Is(err, bridge.ErrOverloaded)
		if full {
			p.forgo(l)
		}
		p.leave(l, !unasked[r.Method])
		switch {
		case err == nil:
			c.legacy = true // so that it needs a connection of its own
		case full && time.Now().Before(c.until): // there is no room for one more now
			c.again = true
		case tried || !errors.Is(err, bridge.ErrReplaced):
			return nil, nil, err
		default:
			tried = true
		}
	}
}

// known returns what the server said in a handshake. A connection is opened for
// it when there is none, but for those who only want to know what is known.
func (p *pool) known(ctx context.Context, l *lower, r *bridge.Request) (*bridge.Greeting, error) {
	s := l.lane.Server()
	if s == nil {
		s = l.circle.known()
	}
	if holds(l.up, r, s) { // a list is no reason to open one
		l.lane.presume(s)
		return s, nil
	}
	if s := l.lane.Server(); s != nil && r.Method == "server/discover" && !s.Modern() {
		return s, nil
	}
	if s := l.circle.known(); s != nil && (r.Method == "server/discover" && !s.Modern() || p.r.share == ShareCall) {
		return s, nil
	}
	if p.r.share == ShareCall {
		return l.circle.meet(ctx, l.lane)
	}
	now, err := l.lane.known(ctx)
	switch {
	case err == nil:
		l.circle.learn(now)
	case spares(l.up, r, s, err):
		l.lane.presume(s)
		return s, nil
	}
	return now, err
}

// meeting is the first handshake for a circle.
type meeting struct {
	done   chan struct{} // closed when the rest is there
	server *bridge.Greeting
	err    error
	moot   bool // the one whose it was has gone
}

// meet returns what the server says in a handshake of the lane, or in one that
// another of the circle is about: the calls that come first start one process and
// not one each, which they would have while they wait in line.
func (c *circle) meet(ctx context.Context, l *lane) (*bridge.Greeting, error) {
	for {
		c.mu.Lock()
		s, m := c.server, c.meeting
		mine := s == nil && m == nil
		if mine {
			m = &meeting{done: make(chan struct{})}
			c.meeting = m
		}
		c.mu.Unlock()
		if s != nil {
			return s, nil
		}
		if mine {
			if m.server, m.err = l.known(ctx); m.err == nil {
				c.learn(m.server)
			}
			m.moot = ctx.Err() != nil
			c.mu.Lock()
			c.meeting = nil
			c.mu.Unlock()
			close(m.done)
			return m.server, m.err
		}
		select {
		case <-m.done:
			if m.err == nil || !m.moot {
				return m.server, m.err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// known returns what the handshake of the lane's connection said. It opens one
// if there is none.
func (l *lane) known(ctx context.Context) (*bridge.Greeting, error) {
	w, err := l.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer l.leave()
	if told := tells(w.raw); told != l.route.pool.told.Load() {
		l.route.pool.told.Store(told)
	}
	return w.up.Server(), nil
}

func (c *circle) known() *bridge.Greeting {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server
}

// learn notes what the server said to one of the circle. nil means that it is
// not true any more.
func (c *circle) learn(s *bridge.Greeting) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.server
	c.server = s
	if before != s && (before == nil || s == nil || before.Revision != s.Revision || !bytes.Equal(before.Result, s.Result)) {
		c.required, c.whole = nil, false
		c.noted.Forget()
	}
}

// laneKey returns what a request says about the connection that it wants.
func laneKey(r *bridge.Request) (string, *jsonrpc.Message) {
	if !rawjson.Mentions(r.Meta(), "mcp-bridge") {
		return "", nil
	}
	value := gjson.GetBytes(r.Meta(), gjson.Escape(keyLane))
	switch {
	case !value.Exists():
		return "", nil
	case value.Type != gjson.String || value.Str == "" || len(value.Str) > maxLaneKey:
		return "", jsonrpc.InvalidParams(bridge.OverLimit("params._meta: "+keyLane+" must be a string, not empty and not too long", maxLaneKey))
	}
	return value.Str, nil
}

// unasked are the methods about whose requests no server asks anything.
var unasked = map[string]bool{
	"tools/list": true, "prompts/list": true, "resources/list": true, "resources/templates/list": true,
	"server/discover": true, era.Listen: true,
}

// lower returns the connection for a request, and counts it as in use until
// leave.
func (p *pool) lower(ctx context.Context, c *claim) (*lower, error) {
	r := c.r
	from, key, lane := p.r.caller(r.From), p.identity(r), c.lane
	if p.r.share == ShareAll {
		key, from = "", &bridge.Caller{Revision: era.LatestModern, Capabilities: []byte("{}"), Params: p.r.b.ownParams}
		lane = ""
	}
	p.mu.Lock()
	l, err := p.seek(c, from, key, lane)
	p.mu.Unlock()
	if l == nil && err == nil {
		return p.await(ctx, *c)
	}
	return l, err
}

// seek returns the connection for a request of the circle of that key, or nothing
// when the request has to wait for one of its own. The caller holds p.mu.
func (p *pool) seek(c *claim, from *bridge.Caller, key, lane string) (*lower, error) {
	r := c.r
	if p.closed {
		return nil, bridge.ErrShutdown
	}
	circle := p.circle(key)
	said := circle.known()
	if p.r.share == ShareCall && !said.Modern() {
		l := newLower(p, circle, "", from)
		l.once = true
		p.enter(l, r)
		return l, nil
	}
	group := circle.key
	if lane != "" && !said.Modern() {
		group += "\x00\x01" + lane
	}
	pr := p.profile(from.Capabilities)
	full := group + "\x00\x02" + pr.canonical
	c.lonely = p.lonely(r, lane, pr)
	if c.alone = c.lonely && (c.legacy || said != nil) && !said.Modern(); c.alone {
		c.circle, c.from, c.group, c.key = circle, from, group, full
		return p.claim(c)
	}
	var l *lower
	if all := p.lowers[full]; len(all) > 0 {
		l = all[0]
	}
	// What a client lists and hears is that of the connection that its calls use.
	if said.Modern() || l == nil && !era.MayAsk(r.Method) && r.Method != era.Listen {
		if latest := p.latest(group); latest != nil {
			l = latest
		}
	}
	if l != nil {
		p.enter(l, r)
		return l, nil
	}
	if err := p.room(from.Principal, group, full); err != nil {
		return nil, err
	}
	l = p.add(circle, from, group, full)
	l.keyed = lane != ""
	p.enter(l, r)
	return l, nil
}

// add makes one more connection that requests find. The caller holds p.mu.
func (p *pool) add(c *circle, from *bridge.Caller, group, key string) *lower {
	l := newLower(p, c, key, from)
	l.group = group
	p.lowers[key] = append(p.lowers[key], l)
	return l
}

// identity says who the client of a request is, as far as it matters to the
// server: the principal, and what is forwarded of the headers.
func (p *pool) identity(r *bridge.Request) string {
	key := r.From.Principal
	for _, f := range p.r.o.Forward {
		for _, value := range r.From.Header[f.From] {
			key += "\x00" + f.To + ":" + value
		}
	}
	return key
}

// enter counts a use of the connection by a request. The caller holds p.mu.
func (p *pool) enter(l *lower, r *bridge.Request) {
	p.all[l] = struct{}{}
	p.uses++
	l.users, l.use = l.users+1, p.uses
	if !unasked[r.Method] {
		l.calls++
	}
}

// circle returns the circle of that key. The caller holds p.mu.
func (p *pool) circle(key string) *circle {
	c := p.circles[key]
	if c == nil {
		for other := range p.circles {
			if len(p.circles) < maxCircles {
				break
			}
			delete(p.circles, other) // it is filled again when it is needed
		}
		c = &circle{key: key}
		p.circles[key] = c
	}
	return c
}

// profile is what a legacy server would be told of a client's capabilities.
type profile struct {
	canonical string // in the one spelling
	asked     bool   // there is something that the client can be asked
}

// profile returns what a legacy server would be told. The caller holds p.mu.
func (p *pool) profile(capabilities []byte) profile {
	if known, ok := p.profiles[string(capabilities)]; ok {
		return known
	}
	offered := era.LegacyCapabilities(capabilities)
	pr := profile{string(era.CanonicalCapabilities(offered)), askableOf(offered)}
	if len(capabilities) <= maxSpelling {
		if len(p.profiles) >= maxSpellings {
			clear(p.profiles)
		}
		p.profiles[string(capabilities)] = pr
	}
	return pr
}

// askableOf reports whether capabilities have anything that a server can ask.
func askableOf(capabilities []byte) bool {
	for _, need := range []string{"roots", "sampling", "elicitation"} {
		if gjson.GetBytes(capabilities, need).Exists() {
			return true
		}
	}
	return false
}

// siblings returns the connections of the same group, this one with them.
func (p *pool) siblings(l *lower) (all []*lower) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for other := range p.all {
		if other.group == l.group && other.circle.key == l.circle.key {
			all = append(all, other)
		}
	}
	return all
}

// latest returns the connection of the group that was used last, or nil. The
// caller holds p.mu.
func (p *pool) latest(group string) (l *lower) {
	for _, all := range p.lowers {
		for _, other := range all {
			if other.group == group && (l == nil || other.use > l.use) {
				l = other
			}
		}
	}
	return l
}
