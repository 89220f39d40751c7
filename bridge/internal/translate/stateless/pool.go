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

// Pool is an Upstream for the stateless clients of one server: it finds the
// connection that a request goes over, and talks to the server in the era that it
// speaks.
//
// A legacy server is told once what its client can do, and a stateless client says
// it with each request. So there are connections for each set of capabilities. A call whose
// client can be asked something has its connection to itself (see claim), unless
// the wire says which call a question is about.
type Pool struct {
	o      Options
	wg     sync.WaitGroup // connections that are being closed
	told   atomic.Bool    // whether the wire says of each question which call it is about
	legacy *lower.Server  // what its calls are when the server is a legacy one

	mu         sync.Mutex // guards the rest
	all        map[*slot]struct{}
	slots      map[string][]*slot   // those that new requests find, by key, the oldest first
	queue      clist.List           // *claim: calls that wait for a connection of their own, in their order
	identities map[string]*identity // by their key
	profiles   map[string]profile   // capabilities, by how clients write them
	uses       uint64               // numbers uses in their order
	closed     bool
}

var _ bridge.Upstream = (*Pool)(nil)

// slot is a connection that requests may use, with who translates for it.
type slot struct {
	p        *Pool
	identity *identity
	key      string // by which requests find it
	group    string // of those that do when it does not matter what can be asked
	once     bool   // it serves one request
	line     Line
	lower    *lower.Translator
	lost     context.Context // ends when the server is gone for good
	lose     context.CancelFunc

	// Guarded by p.mu.
	users   int
	calls   int    // of these, requests about which the server may ask something
	use     uint64 // the last one
	used    time.Time
	timer   *time.Timer // until the next look whether it is used
	doubted bool        // the server may ask about a call that has ended
}

var _ lower.Slot = (*slot)(nil)

// identity is the clients whose requests may go over the same connections: those
// of one principal that send the same of the headers that are forwarded.
type identity struct {
	key   string
	tools list.TaskTools

	mu      sync.Mutex       // guards the rest
	server  *bridge.Greeting // what the last handshake said; nil before the first
	meeting *meeting         // with the server, where calls have processes of their own
}

// Limits of what is kept for clients without sessions (protocol.md F).
const (
	maxProfiles   = 8                // connections of one principal to one server
	maxLaneKey    = 256              // bytes
	maxIdentities = 1024             // of which it is kept what the server said to them
	maxSpellings  = 256              // of capabilities whose canonical form is kept
	maxSpelling   = 4 << 10          // bytes of one of those
	usualIdle     = 10 * time.Minute // how long a connection is kept that nobody uses
)

// New returns what the calls of a server's stateless clients go to. Close ends it.
func New(o Options) *Pool {
	o.Idle = cmp.Or(o.Idle, usualIdle)
	p := &Pool{
		o: o, all: map[*slot]struct{}{}, slots: map[string][]*slot{}, identities: map[string]*identity{}, profiles: map[string]profile{},
	}
	o.Legacy.Lasting, o.Legacy.Alone = o.Sharing != EachCall, o.Sharing == Apart
	o.Legacy.Identity, o.Legacy.Refusal = p.identify, o.Queue.Refusal
	p.o.Legacy, p.legacy = o.Legacy, lower.New(o.Legacy)
	return p
}

// Status says what stateless clients have at a server.
type Status struct {
	lower.Status     // while it is a legacy one
	Open         int // connections that are used, or may be
	Found        int // of these, those that new requests may use
	Queued       int // calls that wait for a connection of their own
}

// Status returns what there is.
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

// Revoke ends the calls of a principal that wait for their clients, for that reason.
func (p *Pool) Revoke(principal string, why error) { p.legacy.Revoke(principal, why) }

// identify says who the client of a request is, as far as it matters to the server:
// the principal, and what is forwarded of the headers.
func (p *Pool) identify(r *bridge.Request) string {
	key := r.From.Principal
	for _, f := range bridge.Lasting(p.o.Forward) {
		for _, value := range f.Values(r.From.Header, r.From.Identity) {
			key += "\x00" + f.To + ":" + value
		}
	}
	return key
}

// Server returns nothing: what clients are told is made for each of them.
func (p *Pool) Server() *bridge.Greeting { return nil }

// Notify drops the notification: clients without sessions have none that are
// defined.
func (p *Pool) Notify(context.Context, *bridge.Request) error { return nil }

// Call makes the call of a client without a session, where its connection lives.
func (p *Pool) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if no := p.o.Refuse(r); no != nil {
		return no, nil
	}
	if r.Back == nil { // a call of the bridge's own, which may look like a client's
		inner := *r
		inner.Back = bridge.Nobody{}
		r = &inner
	}
	if p.o.Places != nil && p.o.Homed {
		return p.placed(ctx, r)
	}
	return p.Here(ctx, r)
}

// Here makes the call over a connection of this instance's.
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

// make makes a call that is not parked. Without here it is only made if the server is
// found to be a modern one: errLegacy means that it is not, and was not told of the call.
func (p *Pool) make(ctx context.Context, r *bridge.Request, again *lower.Round, here bool) (*jsonrpc.Message, error) {
	lane, no := laneKey(r)
	if no != nil {
		return no, nil
	}
	if again != nil && p.isLegacy(r) { // no connection is needed to say so
		if no := again.Unknown(); no != nil {
			return no, nil
		}
	}
	l, s, held, err := p.connect(ctx, r, lane)
	if err != nil {
		return nil, err
	}
	defer p.leave(l, !unasked[r.Method])
	if s.Modern() {
		return l.relay(ctx, r, lane != "", again)
	}
	if !here {
		p.part(l)
		return nil, errLegacy
	}
	if no := again.Unknown(); no != nil {
		return no, nil
	}
	a, err := l.lower.Call(ctx, r, s, held, again)
	if now := l.line.Server(); err == nil && now != nil && r.Method != "server/discover" && r.Method != era.Listen {
		l.identity.learn(now)
	}
	return a, err
}

// isLegacy reports whether it is known that the server is a legacy one, for the
// client of a request.
func (p *Pool) isLegacy(r *bridge.Request) bool {
	key := p.identify(r)
	if p.o.Sharing == Everybody {
		key = ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.identity(key).known()
	return s != nil && !s.Modern()
}

// connect returns the connection for a request, counted as in use until leave,
// what its server has said, and whether the answer is kept. When the server came back as another than it was
// the request goes over a new connection: its client has agreed to nothing.
func (p *Pool) connect(ctx context.Context, r *bridge.Request, lane string) (*slot, *bridge.Greeting, bool, error) {
	c := claim{r: r, lane: lane}
	for tried := false; ; {
		l, err := p.slot(ctx, &c)
		if err != nil {
			return nil, nil, false, err
		}
		s, held, err := p.known(ctx, l, r)
		if err == nil && (c.alone || s.Modern() || !c.lonely) {
			return l, s, held, nil
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
			return nil, nil, false, err
		default:
			tried = true
		}
	}
}

// known returns what the server said in a handshake, and whether the answer to the
// request is kept. A connection is opened for it when there is none, but for those
// who only want to know what is known.
func (p *Pool) known(ctx context.Context, l *slot, r *bridge.Request) (s *bridge.Greeting, held bool, err error) {
	own, common := l.line.Server(), l.identity.known()
	if s = own; s == nil {
		s = common
	}
	if l.line.Holds(r, s, nil) { // a list is no reason to open one
		return s, true, nil
	}
	if r.Method == "server/discover" && own != nil && !own.Modern() {
		return own, false, nil
	}
	if common != nil && (r.Method == "server/discover" && !common.Modern() || p.o.Sharing == EachCall) {
		return common, false, nil
	}
	if p.o.Sharing == EachCall {
		s, err = l.identity.meet(ctx, p, l.line)
		return s, false, err
	}
	now, err := p.greeted(ctx, l.line)
	switch {
	case err == nil:
		l.identity.learn(now)
	case l.line.Holds(r, s, err):
		return s, true, nil
	}
	return now, false, err
}

// greeted returns what the handshake of a connection said. It opens one if there
// is none.
func (p *Pool) greeted(ctx context.Context, of Line) (*bridge.Greeting, error) {
	s, told, err := of.Known(ctx)
	if err == nil && told != p.told.Load() {
		p.told.Store(told)
	}
	return s, err
}

// meeting is the first handshake for an identity.
type meeting struct {
	done   chan struct{} // closed when the rest is there
	server *bridge.Greeting
	err    error
	moot   bool // the one whose it was has gone
}

// meet returns what the server says in a handshake of the lane, or in one that
// another of the identity is about: the calls that come first start one process and
// not one each, which they would have while they wait in line.
func (c *identity) meet(ctx context.Context, p *Pool, of Line) (*bridge.Greeting, error) {
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
			if m.server, m.err = p.greeted(ctx, of); m.err == nil {
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

func (c *identity) known() *bridge.Greeting {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server
}

// learn notes what the server said to one of the identity. nil means that it is
// not true any more.
func (c *identity) learn(s *bridge.Greeting) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.server
	c.server = s
	if before != s && (before == nil || s == nil || before.Revision != s.Revision || !bytes.Equal(before.Result, s.Result)) {
		c.tools.Forget() // what says so with each handshake is not asked with each call
	}
}

// laneKey returns what a request says about the connection that it wants.
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

// unasked are the methods about whose requests no server asks anything.
var unasked = map[string]bool{
	"tools/list": true, "prompts/list": true, "resources/list": true, "resources/templates/list": true,
	"server/discover": true, era.Listen: true,
}

// slot returns the connection for a request, and counts it as in use until
// leave.
func (p *Pool) slot(ctx context.Context, c *claim) (*slot, error) {
	r := c.r
	from, key, lane := r.From, p.identify(r), c.lane
	if p.o.Sharing == Everybody {
		key, from = "", &bridge.Caller{Revision: era.LatestModern, Capabilities: []byte("{}")}
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

// seek returns the connection for a request of the identity of that key, or nothing
// when the request has to wait for one of its own. The caller holds p.mu.
func (p *Pool) seek(c *claim, from *bridge.Caller, key, lane string) (*slot, error) {
	r := c.r
	if p.closed {
		return nil, bridge.ErrShutdown
	}
	id := p.identity(key)
	server := id.known()
	if p.o.Sharing == EachCall && !server.Modern() {
		l := p.newSlot(id, from, "", "", lower.Clients{Once: true})
		p.enter(l, r)
		return l, nil
	}
	group := id.key
	if lane != "" && !server.Modern() {
		group += "\x00\x01" + lane
	}
	pr := p.profile(from.Capabilities)
	full := group + "\x00\x02" + pr.canonical
	c.lonely = p.lonely(r, lane, pr)
	if c.alone = c.lonely && (c.legacy || server != nil) && !server.Modern(); c.alone {
		c.identity, c.from, c.group, c.key = id, from, group, full
		return p.claim(c)
	}
	var l *slot
	if all := p.slots[full]; len(all) > 0 {
		l = all[0]
	}
	// Lists come over the connection of the client's calls: legacy servers choose tools by
	// what the client can do. Their greeting is the same for all.
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
		l := p.latest(group)
		if l == nil || !era.IsList(r.Method) {
			return nil, err
		}
		// Better a list for other capabilities than none.
		p.o.Legacy.Log.Debug("a list is made for another client's capabilities", "err", err)
		p.enter(l, r)
		return l, nil
	}
	l = p.add(id, from, group, full, lane != "")
	p.enter(l, r)
	return l, nil
}

// add makes one more connection that requests find. The caller holds p.mu.
func (p *Pool) add(c *identity, from *bridge.Caller, group, key string, keyed bool) *slot {
	l := p.newSlot(c, from, group, key, lower.Clients{Keyed: keyed})
	p.slots[key] = append(p.slots[key], l)
	return l
}

// newSlot makes one for such clients. Its connection is opened when it is needed.
func (p *Pool) newSlot(c *identity, from *bridge.Caller, group, key string, of lower.Clients) *slot {
	if from.Stay != nil { // the right to call is a request's, and not the connection's
		own := *from
		own.Stay, from = nil, &own
	}
	l := &slot{p: p, identity: c, key: key, group: group, once: of.Once}
	l.lost, l.lose = context.WithCancel(context.Background())
	of.Tools, of.Group = &c.tools, group
	l.lower = p.legacy.Translator(of, l, func(rest bridge.Client) lower.Line {
		l.line = p.o.Open(from, rest)
		return l.line
	})
	return l
}

// enter counts a use of the connection by a request. The caller holds p.mu.
func (p *Pool) enter(l *slot, r *bridge.Request) {
	p.all[l] = struct{}{}
	p.uses++
	l.users, l.use = l.users+1, p.uses
	if !unasked[r.Method] {
		l.calls++
	}
}

// identity returns the identity of that key. The caller holds p.mu.
func (p *Pool) identity(key string) *identity {
	c := p.identities[key]
	if c == nil {
		for other := range p.identities {
			if len(p.identities) < maxIdentities {
				break
			}
			delete(p.identities, other) // it is filled again when it is needed
		}
		c = &identity{key: key}
		p.identities[key] = c
	}
	return c
}

// profile is what a legacy server would be told of a client's capabilities.
type profile struct {
	canonical string // in the one spelling
	asked     bool   // there is something that the client can be asked
}

// profile returns what a legacy server would be told. The caller holds p.mu.
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

// latest returns the connection of the group that was used last, or nil. The
// caller holds p.mu.
func (p *Pool) latest(group string) (l *slot) {
	for _, all := range p.slots {
		for _, other := range all {
			if other.group == group && (l == nil || other.use > l.use) {
				l = other
			}
		}
	}
	return l
}
