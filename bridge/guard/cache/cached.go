package cache

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// Cached is an Upstream whose lists are kept.
type Cached struct {
	bridge.Upstream
	cache  *Cache
	from   *bridge.Caller // whose connection it is
	lane   Lane           // nil when each call has a connection of its own
	source *Source        // nil when each call has a connection of its own
}

// subject returns what the answer to a request for method is about, if it is
// something that may be kept.
func subject(method string) (list.Kind, bool) {
	switch method {
	case "resources/read":
		return contents, true
	case "server/discover":
		return greetings, true
	}
	return list.Of(method)
}

// Call makes a call, unless its answer is kept.
func (u *Cached) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	what, may := subject(r.Method)
	switch {
	case r.Method == era.Listen && r.Back != nil:
		inner := *r
		inner.Back = &listener{r.Back, u.cache}
		return u.Upstream.Call(ctx, &inner)
	case !may:
		return u.pass(ctx, r)
	}
	p, may := u.key(r, what, u.Server())
	switch {
	case !may:
		return u.pass(ctx, r)
	case what == contents:
		return u.read(ctx, r, p)
	}
	return u.list(ctx, r, p)
}

// pass makes a call of which nothing is kept.
func (u *Cached) pass(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	a, err := u.Upstream.Call(ctx, r)
	if err == nil && a.Error != nil {
		u.doubt(r, a)
	}
	return a, err
}

// list answers a request for a list. Who asks for what is being fetched waits
// for that, for a while also if it is fetched over another connection.
func (u *Cached) list(ctx context.Context, r *bridge.Request, p *key) (*jsonrpc.Message, error) {
	after := r.NotBefore // when what to wait for has begun
	for tries := 1; ; tries++ {
		v := u.cache.find(u, p, r, after)
		switch {
		case v.why != nil:
			u.cache.tell(v.e, v.why, v.first)
			u.cache.server.Tracing.Note(ctx, "stale from the cache")
			return v.e.answer(r, v.now), nil
		case v.e != nil:
			u.cache.server.Tracing.Note(ctx, "from the cache")
			return v.e.answer(r, v.now), nil
		case v.f == nil:
			return u.own(ctx, r, p)
		}
		f := v.f
		other := f.c.lane != u.lane
		if other && tries == maxTries {
			u.cache.leave(f, nil)
			return u.own(ctx, r, p)
		}
		u.cache.server.Tracing.Note(ctx, "fetched for all who ask")
		if !await(ctx, f, other) {
			u.cache.leave(f, context.Cause(ctx))
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			after = f.began.Add(1) // all who have waited for that one go on to the same other one
			continue
		}
		switch {
		case other && f.bound, f.alone, f.principal != p.principal && f.personal():
			return u.own(ctx, r, p)
		case other && (f.moot || f.void): // that connection has gone, or its list is only its own now
			continue
		case f.err != nil:
			return u.instead(r, p, f.err)
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
		enough = time.After(joinPatience)
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
func (u *Cached) own(ctx context.Context, r *bridge.Request, p *key) (*jsonrpc.Message, error) {
	a, err := u.direct(ctx, r, p)
	if err != nil {
		return u.instead(r, p, err)
	}
	return a, nil
}

// instead returns what is kept although it is stale, in place of an error if it
// is such that this will do.
func (u *Cached) instead(r *bridge.Request, p *key, err error) (*jsonrpc.Message, error) {
	if !excused(err) {
		return nil, err
	}
	e, first := u.cache.stale(p, r.NotBefore)
	if e == nil {
		return nil, err
	}
	u.cache.tell(e, err, first)
	return e.answer(r, time.Now()), nil
}

// read reads a resource. It may be that the server has to ask something for it:
// nobody waits for the reading of another.
func (u *Cached) read(ctx context.Context, r *bridge.Request, p *key) (*jsonrpc.Message, error) {
	u.cache.mu.Lock()
	now := time.Now()
	e := u.cache.get(p)
	u.cache.mu.Unlock()
	if e != nil && now.Before(e.fresh) {
		u.cache.hits.Add(1)
		return e.answer(r, now), nil
	}
	u.cache.misses.Add(1)
	a, err := u.own(ctx, r, p)
	if err == nil && a.Error != nil {
		u.doubt(r, a)
	}
	return a, err
}

// direct makes the call as it is, and keeps the answer if it may be kept.
func (u *Cached) direct(ctx context.Context, r *bridge.Request, p *key) (*jsonrpc.Message, error) {
	f := &fetch{c: u, key: p}
	u.cache.mu.Lock()
	u.cache.begin(f)
	u.cache.mu.Unlock()
	a, err := u.Upstream.Call(ctx, r)
	f.err = err
	var e *entry
	if err == nil && a.Error == nil {
		if t := u.terms(p, a); t.fresh > 0 {
			e = u.entry(p, a, t)
		}
	}
	u.cache.end(f, e)
	return a, err
}

// Holds reports whether a call would be answered without the connection, to a
// server that has said s. why, if it is not nil, is why there can be none. A nil
// Cached holds nothing.
func (u *Cached) Holds(r *bridge.Request, s *bridge.Greeting, why error) bool {
	if u == nil || s == nil || why != nil && !excused(why) {
		return false
	}
	what, may := subject(r.Method)
	if !may {
		return false
	}
	p, may := u.key(r, what, s)
	if !may {
		return false
	}
	u.cache.mu.Lock()
	defer u.cache.mu.Unlock()
	e, now := u.cache.get(p), time.Now()
	return e != nil && !e.pass && e.since(r.NotBefore) && (now.Before(e.fresh) || now.Before(e.until) && (why != nil || what != contents && u.away(s) != present))
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
func (u *Cached) away(s *bridge.Greeting) absence {
	if u.lane == nil || u.cache.server.PerCall && !s.Modern() {
		return present
	}
	switch s := u.lane.State(); {
	case s == lane.Lost:
		return down
	case s == lane.Asleep && u.cache.server.Process:
		return asleep
	}
	return present
}

// doubt drops a list that has what the server says it does not have.
func (u *Cached) doubt(r *bridge.Request, a *jsonrpc.Message) {
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
		u.cache.doubt(u.source, r.From.Principal, k, key)
	}
}

// excused reports whether what is stale may be given out for an error: it says
// that the server cannot be had, and nothing about who asks.
func excused(err error) bool {
	not := []error{bridge.ErrShutdown, bridge.ErrEnded, bridge.ErrIdle, bridge.ErrDenied, bridge.ErrCredentials, bridge.ErrCancelled, bridge.ErrReplaced, context.Canceled}
	return !slices.ContainsFunc(not, func(one error) bool { return errors.Is(err, one) })
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
func (u *Cached) terms(p *key, a *jsonrpc.Message) (t terms) {
	s := u.Server()
	if s == nil || s.Revision != p.revision || int64(len(a.Result)) > p.o.Bytes/4 {
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
		t.fresh = p.o.Lists
		if t.fresh == 0 && (u.cache.announced || !u.cache.server.PerCall) && p.what.Announces(s.Capabilities) {
			t.fresh, t.announced = announcedFor, true
		}
		t.fresh = min(cmp.Or(t.fresh, unannouncedFor), maxFresh)
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
