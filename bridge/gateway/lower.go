package gateway

import (
	"context"
	"slices"
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

// lower lets clients without sessions use one connection to a legacy server
// (protocol.md D1). It is the Client of the connection: it finds the call, or
// the subscription, that something from the server belongs to.
type lower struct {
	p       *pool
	circle  *circle
	key     string // by which requests find it
	group   string // of those that do when it does not matter what can be asked
	once    bool   // it serves one request
	keyed   bool   // its clients have chosen it, and are as one
	asks    bool   // the server may ask its clients something
	lane    *lane
	up      bridge.Upstream             // the lane with its guards: what clients' calls go through
	checked bridge.Upstream             // up, with what the tools ask of calls
	part    func(context.Context) error // ends the lane, or with share: all this part in it
	about   atomic.Pointer[legacy]
	ctx     context.Context // ends with close
	cancel  context.CancelCauseFunc
	wg      sync.WaitGroup // calls

	// Guarded by p.mu.
	users int
	calls int    // of these, requests about which the server may ask something
	use   uint64 // the last one
	used  time.Time
	timer *time.Timer // until the next look whether it is used

	told chan struct{} // held while the server is told a level

	mu      sync.Mutex           // guards the rest, and what is said of the fields of others
	order   uint64               // numbers sent and resumed calls
	asking  map[*parked]struct{} // calls about which its clients can be asked
	visits  map[*visit]struct{}  // requests under way
	held    []*heldAsk
	tasks   map[string]*parked // by the server's id of the task
	level   string             // as the server was told; empty when it was not
	urls    map[string]chan struct{}
	listens map[*list.Listener]struct{}
	watched map[string]*watch // resources, by URI
	lost    chan struct{}     // closed when the server is gone for good
	closed  bool

	cancelled time.Time   // when the last call ended without its answer
	doubted   atomic.Bool // the server may not have heard of that
	settling  bool        // it is being pinged
	again     bool        // another call has ended since
}

var _ bridge.Client = (*lower)(nil)

func newLower(p *pool, c *circle, key string, from *bridge.Caller) *lower {
	l := &lower{
		p: p, circle: c, key: key, told: make(chan struct{}, 1), lost: make(chan struct{}),
		asking: map[*parked]struct{}{}, visits: map[*visit]struct{}{}, listens: map[*list.Listener]struct{}{}, watched: map[string]*watch{},
	}
	l.asks = askableOf(era.LegacyCapabilities(from.Capabilities))
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	if p.r.share == ShareAll {
		if v, err := p.r.join(*from, l); err == nil { // there is one for everybody, so there is room for it
			l.lane, l.up, l.checked, l.part = v.h.lane, v, p.r.tools.Wrap(v), v.Close
			return l
		}
	}
	l.lane, l.up = p.r.guarded(from, l)
	l.checked = p.r.tools.Wrap(l.up)
	l.lane.give = func() { l.Gone(nil) }
	l.part = l.lane.Close
	return l
}

// visit is a request of a client that is under way, and the Client of its call
// unless that can be parked.
type visit struct {
	r      *bridge.Request
	level  string      // from which on the client wants log messages; empty means none
	out    chan upshot // takes one
	l      *lower      // nil when the call can be parked
	rounds int         // in which URLs had to be visited

	relayed bool // to a modern server
}

var _ bridge.Client = (*visit)(nil)

func newVisit(r *bridge.Request) *visit {
	v := &visit{r: r, out: make(chan upshot, 1)}
	if rawjson.Mentions(r.Meta(), "logLevel") {
		v.level = gjson.GetBytes(r.Meta(), gjson.Escape(era.KeyLogLevel)).Str
	}
	return v
}

// Notify passes on what the server says about the call.
func (v *visit) Notify(n *jsonrpc.Message) {
	if v.l != nil { // a modern server may say it anywhere
		v.l.p.r.cache.heard(nil, n)
		if !v.relayed && v.l.keeps(n) {
			return
		}
	}
	if n.Method == "notifications/message" {
		level := gjson.GetBytes(n.Params, "level").Str
		if v.level == "" || era.Severity(level) < era.Severity(v.level) {
			return
		}
	}
	v.r.Back.Notify(n)
}

// Ask takes what the server asks about a call that cannot carry a question.
func (v *visit) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	return v.l.stray(q, reply)
}

// Gone is of no interest: the call itself fails.
func (v *visit) Gone(error) {}

// Call makes the call of a client without a session to the legacy server that
// has said s.
func (l *lower) Call(ctx context.Context, r *bridge.Request, said *bridge.Greeting, again *nextRound, state *requestState) (*jsonrpc.Message, error) {
	s := l.legacy(said)
	switch {
	case r.Method == "server/discover":
		return jsonrpc.NewResult(nil, slices.Clone(s.discover)), nil
	case r.Method == era.Listen:
		return l.listen(ctx, r, s)
	case !s.carries(r):
		return jsonrpc.NewError(nil, jsonrpc.CodeMethodNotFound, "the server has no method "+r.Method, nil), nil
	}
	v := newVisit(r)
	rounds := 0
	if state != nil { // the URLs that had to be visited first
		if no := l.visited(ctx, s, r, again, state); no != nil {
			return no, nil
		}
		rounds = state.Round
	}
	if !holds(l.up, r, s.Greeting) { // otherwise there may be no connection, and no need of one
		if err := l.verbose(ctx, v, s); err != nil && !cached[r.Method] { // it may be answered all the same
			return nil, err
		}
	}
	inner := *r
	inner.Message, inner.Mirror = lowered(r.Message, s.Revision), nil
	v.rounds = rounds
	if l.asks && era.MayAsk(r.Method) {
		return l.begin(ctx, v, &inner, s)
	}
	v.l, inner.Back = l, v
	l.mu.Lock()
	l.visits[v] = struct{}{}
	l.mu.Unlock()
	a, err := l.perform(ctx, &inner, s, nil)
	l.mu.Lock()
	delete(l.visits, v)
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return l.conclude(v, s, a)
}

// carries reports whether a request goes to the server: its method is one that
// both eras have, or may be one of an extension that both sides have declared.
// Whether the server has announced tools, prompts or resources is not asked: some
// have the methods and announce nothing, and the others refuse by themselves.
func (s *legacy) carries(r *bridge.Request) bool {
	if era.InBoth(r.Method) {
		return true
	}
	if era.IsTask(r.Method) {
		return false
	}
	for _, kind := range []string{"extensions", "experimental"} {
		theirs := gjson.GetBytes(s.Capabilities, kind)
		shared := false
		gjson.GetBytes(r.From.Capabilities, kind).ForEach(func(name, _ gjson.Result) bool {
			shared = name.Str != era.TasksExtension && theirs.Get(gjson.Escape(name.Str)).Exists()
			return !shared
		})
		if shared {
			return true
		}
	}
	return false
}

// conclude makes the answer that a client gets of the one of the server's.
func (l *lower) conclude(v *visit, s *legacy, a *jsonrpc.Message) (*jsonrpc.Message, error) {
	if now := l.lane.Server(); now != nil {
		l.circle.learn(now)
	}
	switch {
	case a.Error != nil:
		if m := l.urlsNeeded(v, s, a); m != nil {
			a.Release()
			return m, nil
		}
	case v.r.Method == list.Tools.Method():
		l.circle.noted.At(a, func() bool {
			l.circle.note(v.r, a.Result)
			return true
		})
	}
	return s.upgrade(v.r, a), nil
}

// verbose makes the server send the log messages that a request wants: those of
// the most verbose level that any has wanted (protocol.md D1.7).
func (l *lower) verbose(ctx context.Context, v *visit, s *legacy) error {
	if v.level == "" || !s.logging || l.tells(v.level) {
		return nil
	}
	select {
	case l.told <- struct{}{}:
		defer func() { <-l.told }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if l.tells(v.level) {
		return nil
	}
	ask := jsonrpc.NewRequest("logging/setLevel", []byte(`{"level":`+rawjson.Quote(v.level)+`}`))
	short, stop := context.WithTimeout(ctx, greetPatience)
	defer stop()
	a, err := l.up.Call(short, &bridge.Request{Message: ask, From: l.lane.caller})
	switch {
	case err == nil && a.Error == nil:
		a.Release()
	case err == nil || ctx.Err() == nil && short.Err() != nil: // one that does not answer this is used all the same
		l.p.r.log.Debug("the server does not take a log level", "level", v.level)
		a.Release()
	default:
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.level = v.level // of a server that refuses it too: it will not like it any better the next time
	return nil
}

// tells reports whether the server says all that is of that level.
func (l *lower) tells(level string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.level != "" && era.Severity(l.level) <= era.Severity(level)
}

// Notify takes what the server says that does not belong to a call of which it
// is known.
func (l *lower) Notify(n *jsonrpc.Message) {
	switch n.Method {
	case "notifications/message":
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.visits) != 1 {
			return // it cannot be told whose it is (D8.12)
		}
		for v := range l.visits {
			v.Notify(n)
		}
	case "notifications/elicitation/complete":
		l.urlDone(gjson.GetBytes(n.Params, "elicitationId").Str)
	default:
		l.changed(n)
	}
}

// keeps reports whether what a legacy server says about a call is not for the
// client: 2026-07-28 has progress and log messages there and nothing else.
func (l *lower) keeps(n *jsonrpc.Message) bool {
	switch n.Method {
	case "notifications/progress", "notifications/message":
		return false
	case "notifications/elicitation/complete":
		l.urlDone(gjson.GetBytes(n.Params, "elicitationId").Str)
	default:
		l.p.r.log.Debug("notification not passed on: the client's revision has none of it", "method", n.Method)
	}
	return true
}

// Gone says that the server has ended for good, or came back another: requests
// to come use a new connection.
func (l *lower) Gone(error) {
	l.mu.Lock()
	select {
	case <-l.lost:
	default:
		close(l.lost)
	}
	l.mu.Unlock()
	l.p.forget(l)
}

// close ends the connection and all calls.
func (l *lower) close(ctx context.Context) {
	l.mu.Lock()
	l.closed = true
	held := l.held
	l.held = nil
	l.mu.Unlock()
	for _, h := range held {
		h.refuse()
	}
	l.cancel(bridge.ErrShutdown)
	_ = l.part(ctx)
	l.wg.Wait()
}
