package gateway

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/lane"
	"github.com/mcp-bridge/bridge/bridge/list"
)

// cache keeps what one server has listed, for all who may see it: its lists, and
// of a modern server what it says of itself and the resources that it says for
// how long they hold (protocol.md B13, D1.3). What is kept are whole answers, as
// the server gave them: filters and translations are above.
//
// A change that the server announces is noted before anybody is told of it, and
// from then on nothing from before is given out: neither what is kept, nor the
// answer to what was asked before. That is why everything that is asked
// is entered here before it is sent.
type cache struct {
	r    *route
	o    Cache           // with its defaults
	ctx  context.Context // of the fetches; ends with close
	stop context.CancelCauseFunc
	wg   sync.WaitGroup // fetches

	hits, misses, joined, served atomic.Uint64 // served ones were stale
	origins                      atomic.Uint64 // numbers them

	// announced says that the adapter announces changes itself: they are heard
	// whatever is open. It is set once.
	announced bool
	unfollow  func() // ends that

	mu      sync.Mutex // guards the rest, and all origins
	ears    ears
	kept    *simplelru.LRU[string, *entry]
	bytes   int64
	shared  [matters]map[string]*entry // those of kept that belong to no single connection
	fetches map[string]*fetch          // that can be joined, by key
	asked   map[*fetch]struct{}        // all that may be kept once it is there
	old     bool                       // what is stale is given out
	closed  bool
}

// What is kept beyond lists.
const (
	contents  = list.Kinds + iota // of a resource
	greetings                     // answers to server/discover
	matters
)

// Limits of what is kept (protocol.md F).
const (
	maxKept        = 16_384           // answers of one server
	maxKey         = 8 << 10          // bytes that tell what was asked, and by whom
	maxFresh       = 24 * time.Hour   // whatever the server says
	emptyFor       = time.Second      // a list with nothing in it: the server may be about to fill it
	passFor        = 10 * time.Second // for so long nobody waits for what another asks that must not be kept
	maxFetch       = 5 * time.Minute  // the adapter's own time-outs are mostly shorter
	doubtEvery     = time.Second      // how often one list is fetched for the errors of calls
	announcedFor   = time.Minute      // lists of legacy servers, whose changes are announced
	unannouncedFor = 5 * time.Second
)

// newCache returns what keeps the lists of a server; nil when nothing is to be
// kept.
func newCache(r *route) *cache {
	if r.o.Cache.Off {
		return nil
	}
	c := &cache{r: r, o: r.o.Cache, fetches: map[string]*fetch{}, asked: map[*fetch]struct{}{}}
	c.o.Stale = or(c.o.Stale, time.Hour)
	c.o.Bytes = or(c.o.Bytes, 16<<20)
	for i := range c.shared {
		c.shared[i] = map[string]*entry{}
	}
	c.ctx, c.stop = context.WithCancelCause(context.Background())
	var err error
	if c.kept, err = simplelru.NewLRU(maxKept, c.dropped); err != nil {
		panic(err) // the size is positive
	}
	c.unfollow = c.follow(r.o.Adapter)
	return c
}

// keeper is an Upstream whose lists are kept.
type keeper struct {
	bridge.Upstream
	cache  *cache
	from   *bridge.Caller // whose connection it is
	lane   *lane.Lane     // nil when each call has a connection of its own
	origin *origin
}

// over returns up with its lists kept. from is on whose behalf its connection is
// opened; l is the connection, and o its observer, or both are nil when each call
// has one of its own.
func (c *cache) over(up bridge.Upstream, from *bridge.Caller, l *lane.Lane, o *origin) bridge.Upstream {
	if c == nil {
		return up
	}
	return &keeper{Upstream: up, cache: c, from: from, lane: l, origin: o}
}

// matter returns what the answer to a request for method is about, if it is
// something that may be kept.
func matter(method string) (list.Kind, bool) {
	switch method {
	case "tools/list":
		return list.Tools, true
	case "prompts/list":
		return list.Prompts, true
	case "resources/list":
		return list.Resources, true
	case "resources/templates/list":
		return list.Templates, true
	case "resources/read":
		return contents, true
	case "server/discover":
		return greetings, true
	}
	return 0, false
}

// Call makes a call, unless its answer is kept.
func (c *keeper) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	what, may := matter(r.Method)
	switch {
	case r.Method == era.Listen && r.Back != nil:
		inner := *r
		inner.Back = &overheard{r.Back, c.cache}
		return c.Upstream.Call(ctx, &inner)
	case !may:
		return c.pass(ctx, r)
	}
	p, may := c.place(r, what, c.Server())
	switch {
	case !may:
		return c.pass(ctx, r)
	case what == contents:
		return c.read(ctx, r, p)
	}
	return c.list(ctx, r, p)
}

// pass makes a call of which nothing is kept.
func (c *keeper) pass(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	a, err := c.Upstream.Call(ctx, r)
	if err == nil && a.Error != nil {
		c.doubt(r, a)
	}
	return a, err
}

// list answers a request for a list. Who asks for what is being fetched waits
// for that, for a while also if it is fetched over another connection.
func (c *keeper) list(ctx context.Context, r *bridge.Request, p *spot) (*jsonrpc.Message, error) {
	after := r.NotBefore // when what to wait for has begun
	for tries := 1; ; tries++ {
		v := c.cache.visit(c, p, r, after)
		switch {
		case v.why != nil:
			c.cache.tell(v.e, v.why, v.first)
			c.cache.r.b.tracing.Note(ctx, "stale from the cache")
			return v.e.answer(r, v.now), nil
		case v.e != nil:
			c.cache.r.b.tracing.Note(ctx, "from the cache")
			return v.e.answer(r, v.now), nil
		case v.f == nil:
			return c.own(ctx, r, p)
		}
		f := v.f
		other := f.c.lane != c.lane
		if other && tries == maxTries {
			c.cache.leave(f, nil)
			return c.own(ctx, r, p)
		}
		c.cache.r.b.tracing.Note(ctx, "fetched for all who ask")
		if !await(ctx, f, other) {
			c.cache.leave(f, context.Cause(ctx))
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			after = f.began.Add(1) // all who have waited for that one go on to the same other one
			continue
		}
		switch {
		case other && f.bound, f.alone, f.principal != p.principal && f.personal():
			return c.own(ctx, r, p)
		case other && (f.moot || f.void): // that connection has gone, or its list is only its own now
			continue
		case f.err != nil:
			return c.instead(r, p, f.err)
		}
		return f.e.answer(r, time.Now()), nil
	}
}

// How long and how often a call waits for what is fetched over another's
// connection before it uses its own: that may hang, and this one not.
const (
	joinPatience = 2 * time.Second
	maxTries     = 3
)

// await waits until a fetch is done. It reports false when it is not, and is to
// be left. other says that it goes over another's connection.
func await(ctx context.Context, f *fetch, other bool) bool {
	var enough <-chan time.Time // never, of our own
	if other {
		timer := time.NewTimer(joinPatience)
		defer timer.Stop()
		enough = timer.C
	}
	select {
	case <-f.done:
		return true
	case <-enough:
	case <-ctx.Done():
	}
	return false
}

// own makes the call as it is, for want of a fetch to wait for.
func (c *keeper) own(ctx context.Context, r *bridge.Request, p *spot) (*jsonrpc.Message, error) {
	a, err := c.direct(ctx, r, p)
	if err != nil {
		return c.instead(r, p, err)
	}
	return a, nil
}

// instead returns what is kept although it is stale, in place of an error if it
// is such that this will do.
func (c *keeper) instead(r *bridge.Request, p *spot, err error) (*jsonrpc.Message, error) {
	if !excused(err) {
		return nil, err
	}
	e, first := c.cache.stale(p, r.NotBefore)
	if e == nil {
		return nil, err
	}
	c.cache.tell(e, err, first)
	return e.answer(r, time.Now()), nil
}

// read reads a resource. It may be that the server has to ask something for it:
// nobody waits for the reading of another.
func (c *keeper) read(ctx context.Context, r *bridge.Request, p *spot) (*jsonrpc.Message, error) {
	c.cache.mu.Lock()
	now := time.Now()
	e := c.cache.get(p)
	c.cache.mu.Unlock()
	if e != nil && now.Before(e.fresh) {
		c.cache.hits.Add(1)
		return e.answer(r, now), nil
	}
	c.cache.misses.Add(1)
	a, err := c.own(ctx, r, p)
	if err == nil && a.Error != nil {
		c.doubt(r, a)
	}
	return a, err
}

// direct makes the call as it is, and keeps the answer if it may be kept.
func (c *keeper) direct(ctx context.Context, r *bridge.Request, p *spot) (*jsonrpc.Message, error) {
	f := &fetch{c: c, spot: p}
	c.cache.mu.Lock()
	c.cache.enter(f)
	c.cache.mu.Unlock()
	a, err := c.Upstream.Call(ctx, r)
	f.err = err
	var e *entry
	if err == nil && a.Error == nil {
		if t := c.terms(p, a); t.fresh > 0 {
			e = c.entry(p, a, t)
		}
	}
	c.cache.left(f, e)
	return a, err
}

// holds reports whether a call would be answered without the connection, to a
// server that has said s. failed says that there can be none.
func (c *keeper) holds(r *bridge.Request, s *bridge.Greeting, failed bool) bool {
	what, may := matter(r.Method)
	if !may {
		return false
	}
	p, may := c.place(r, what, s)
	if !may {
		return false
	}
	c.cache.mu.Lock()
	defer c.cache.mu.Unlock()
	e, now := c.cache.get(p), time.Now()
	return e != nil && !e.pass && e.since(r.NotBefore) && (now.Before(e.fresh) || now.Before(e.until) && (failed || what != contents && c.away(s) != present))
}

// absence is why a connection is not there.
type absence int

const (
	present absence = iota
	asleep          // nobody needs it: a list is no reason to start a process
	down            // it was lost
)

// away says whether the connection to a server that has said s is there. What is
// only closed, and is opened again by sending a few messages, counts as there, and
// so does what is opened for each call.
func (c *keeper) away(s *bridge.Greeting) absence {
	if c.lane == nil || c.cache.r.share == ShareCall && !s.Modern() {
		return present
	}
	switch s := c.lane.State(); {
	case s == lane.Lost:
		return down
	case s == lane.Asleep && c.cache.r.o.Process:
		return asleep
	}
	return present
}

// doubt drops a list that has what the server says it does not have.
func (c *keeper) doubt(r *bridge.Request, a *jsonrpc.Message) {
	var k list.Kind
	var key string
	switch r.Method {
	case "tools/call":
		k, key = list.Tools, r.Name()
	case "prompts/get":
		k, key = list.Prompts, r.Name()
	case "resources/read":
		k, key = list.Resources, r.URI()
	default:
		return
	}
	switch gjson.GetBytes(a.Error, "code").Int() {
	case jsonrpc.CodeInvalidParams, jsonrpc.CodeMethodNotFound, jsonrpc.CodeNoResource:
		c.cache.doubt(c.origin, r.From.Principal, k, key)
	}
}

// excused reports whether what is stale may be given out for an error: it says
// that the server cannot be had, and nothing about who asks.
func excused(err error) bool {
	for _, not := range []error{bridge.ErrShutdown, bridge.ErrEnded, bridge.ErrIdle, bridge.ErrDenied, bridge.ErrCredentials, bridge.ErrCancelled, bridge.ErrReplaced, context.Canceled} {
		if errors.Is(err, not) {
			return false
		}
	}
	return true
}

// terms are on what an answer may be kept.
type terms struct {
	fresh     time.Duration // not at all when it is 0
	announced bool          // so long because a change would be announced
	everybody bool          // it may be given to other principals
	empty     bool          // it lists nothing
}

// terms returns those of an answer. The server's word counts, as far as it makes
// sense; a legacy one has none to say it.
func (c *keeper) terms(p *spot, a *jsonrpc.Message) (t terms) {
	s := c.Server()
	if s == nil || s.Revision != p.revision || int64(len(a.Result)) > c.cache.o.Bytes/4 {
		return terms{}
	}
	t.everybody = p.everybody
	if s.Modern() {
		f := a.Found()
		ms, err := strconv.ParseInt(string(f.TTL.Of(a.Result)), 10, 64)
		if err != nil || ms <= 0 || f.Twice || era.ResultType(a) != era.ResultComplete {
			return terms{}
		}
		t.fresh = time.Duration(min(ms, maxFresh.Milliseconds())) * time.Millisecond
		t.everybody = t.everybody || string(f.Scope.Of(a.Result)) == `"public"`
	} else {
		t.fresh = c.cache.o.Lists
		if t.fresh == 0 && (c.cache.announced || c.cache.r.share != ShareCall) && p.what.Announces(s.Capabilities) {
			t.fresh, t.announced = announcedFor, true
		}
		t.fresh = min(or(t.fresh, unannouncedFor), maxFresh)
	}
	if p.what < list.Kinds {
		list := gjson.GetBytes(a.Result, p.what.Member())
		if !list.IsArray() {
			return terms{}
		}
		if t.empty = list.Get("0").Raw == ""; t.empty {
			t.fresh = min(t.fresh, emptyFor)
		}
	}
	return t
}

// close ends the fetches, and returns when they have ended.
func (c *cache) close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.unfollow()
	c.stop(bridge.ErrShutdown)
	c.wg.Wait()
}
