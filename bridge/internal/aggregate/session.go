package aggregate

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// session is an Upstream that offers all servers as one. It serves one session, or the stateless clients of one
// principal. Tools and prompts are found by their server's prefix, resources by their URI. If two servers list
// the same resource, the first in the configuration gets it. The first call to a server opens its connection.
type session struct {
	a         *Aggregate
	caller    *bridge.Caller
	to        bridge.Client
	current   atomic.Pointer[snapshot]
	listeners *listeners                    // of stateless clients; nil for a session
	last      atomic.Pointer[bridge.Caller] // the last stateless client
	ctx       context.Context               // ends when Close is called
	cancel    context.CancelFunc
	wg        sync.WaitGroup
	level     atomic.Pointer[[]byte] // params of the last logging/setLevel

	mu     sync.Mutex // guards the rest
	closed bool
	subs   map[string]*member // the server of each subscription, by URI
}

// snapshot is an immutable set of the servers that the caller may use. update replaces it.
type snapshot struct {
	*view
	members []*member // in the order of the configuration
	of      map[*server]*member
	next    chan struct{} // closed when another snapshot replaces this one
}

func newSession(a *Aggregate, from *bridge.Caller, to bridge.Client) *session {
	g := &session{a: a, caller: from, to: to, subs: map[string]*member{}}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	a.mu.Lock()
	defer a.mu.Unlock()
	r, _ := g.snapshotOf(a.now, nil)
	g.current.Store(r)
	a.open[g] = struct{}{}
	return g
}

// snapshotOf returns the caller's snapshot of v, and the members that before does not have.
func (g *session) snapshotOf(v *view, before map[*server]*member) (r *snapshot, added []*member) {
	r = &snapshot{view: v, of: map[*server]*member{}, next: make(chan struct{})}
	for _, s := range v.servers {
		if !s.Serves(g.caller.Principal) {
			continue
		}
		m := before[s]
		if m == nil {
			m = &member{g: g, s: s, catalog: s.catalog(g.caller.Principal)}
			added = append(added, m)
		}
		r.members = append(r.members, m)
		r.of[s] = m
	}
	return r, added
}

// update replaces the snapshot by that of v and notifies the client. It returns the removed members, which the
// caller closes.
func (g *session) update(v *view) (left []*member) {
	was := g.current.Load()
	r, changed := g.snapshotOf(v, was.of)
	for s, m := range was.of {
		if r.of[s] == nil {
			left = append(left, m)
		}
	}
	g.current.Store(r)
	g.mu.Lock()
	renewed := map[*member]struct{}{} // members of new connections, which have no subscriptions yet
	for uri, m := range g.subs {
		if r.of[m.s] != nil {
			continue
		}
		if next := r.of[r.view.named[m.s.Name]]; next != nil {
			g.subs[uri], renewed[next] = next, struct{}{}
		} else {
			delete(g.subs, uri)
		}
	}
	g.mu.Unlock()
	for m := range renewed {
		m.mu.Lock()
		m.resubscribe = true
		m.mu.Unlock()
		g.spawn(func() { _, _ = m.ready(g.ctx) }) // if this fails, the next call subscribes
	}
	close(was.next)
	for _, m := range append(changed, left...) {
		m.changed()
	}
	return left
}

func (g *session) members() []*member { return g.current.Load().members }

// byName returns the server of that name, or nil if the caller has none.
func (g *session) byName(name string) *member {
	r := g.current.Load()
	return r.of[r.view.named[name]]
}

// request makes the bridge's own request to a server. For stateless clients it is on behalf of the last one, so
// that both use the same connection.
func (g *session) request(method string, params []byte) *bridge.Request {
	if from := g.last.Load(); from != nil {
		return &bridge.Request{Message: from.Request(method, params), From: from}
	}
	return &bridge.Request{Message: jsonrpc.NewRequest(method, params), From: g.caller}
}

// spawn runs f in a goroutine that Close awaits.
func (g *session) spawn(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.wg.Go(f)
	}
	return !g.closed
}

// Server returns nil: each client gets a greeting of its own.
func (g *session) Server() *bridge.Greeting { return nil }

// Close closes the session's connections to all servers.
func (g *session) Close(ctx context.Context) error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.cancel()
	g.a.mu.Lock()
	delete(g.a.open, g)
	g.a.mu.Unlock()
	var wg sync.WaitGroup
	for _, m := range g.members() {
		if m.begun() {
			wg.Go(func() { m.close(ctx) })
		}
	}
	wg.Wait()
	g.wg.Wait()
	return nil
}

// Call passes a call to the server that it is for, or to all.
func (g *session) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if k, ok := list.Of(r.Method); ok {
		return g.list(ctx, k, r)
	}
	switch r.Method {
	case "initialize":
		return g.initialize(ctx)
	case "tools/call":
		return g.callNamed(ctx, list.Tools, r)
	case "prompts/get":
		return g.callNamed(ctx, list.Prompts, r)
	case era.Complete:
		return g.complete(ctx, r)
	case "resources/read":
		return g.read(ctx, r)
	case "resources/subscribe":
		return g.subscribe(ctx, r)
	case "resources/unsubscribe":
		return g.unsubscribe(ctx, r)
	case "logging/setLevel":
		return g.setLevel(ctx, r)
	}
	return jsonrpc.NewError(nil, jsonrpc.CodeMethodNotFound,
		"this address serves several servers, and "+r.Method+" does not name one: use that server's own address", nil), nil
}

// Notify passes a notification to all servers that the client has used.
func (g *session) Notify(ctx context.Context, r *bridge.Request) error {
	if r.Method == "notifications/progress" {
		m, own := g.byToken(r.Token())
		if m == nil {
			return nil // the token belongs to no question
		}
		theirs, err := jsonrpc.Parse(r.Append(nil, nil, own))
		if err != nil {
			return err
		}
		inner := *r
		inner.Message = theirs
		return m.notify(ctx, &inner)
	}
	var first error
	for _, m := range g.members() {
		if !m.begun() {
			continue // ready brings it up to date before its first call
		}
		inner := *r
		if err := m.notify(ctx, &inner); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// callNamed passes a call of a tool or a prompt to its server.
func (g *session) callNamed(ctx context.Context, k list.Kind, r *bridge.Request) (*jsonrpc.Message, error) {
	m, own := g.find(ctx, k, r.Name())
	if m == nil || !m.s.Shows(k, own, r.From.Principal) {
		return k.Unknown(r.Name()), nil
	}
	inner := *r
	inner.Message = r.Renamed(own)
	a, err := m.call(ctx, &inner)
	if err == nil && k == list.Tools && g.listeners != nil {
		a = m.created(a)
	}
	return a, err
}

// find returns the server of an external name, and the server's own name for it. Normally the prefix decides;
// otherwise the catalogues do.
func (g *session) find(ctx context.Context, k list.Kind, external string) (*member, string) {
	by := g.byPrefix(external)
	formers := g.oldPrefixes(external)
	if by != nil && !by.conflicting() && !hashed(external) && len(formers) == 0 {
		return by, external[len(by.s.Prefix):]
	}
	look := func() (*member, string) {
		for _, m := range g.members() {
			if own, ok := m.catalog.internal(k, external); ok {
				return m, own
			}
		}
		return nil, ""
	}
	if m, own := look(); m != nil {
		return m, own
	}
	short, cancel := ctx, func() {}
	if by == nil || by.conflicting() { // a slow server must not hold up what another may have
		short, cancel = context.WithTimeout(ctx, listPatience)
	}
	defer cancel()
	g.fetch(short, k, func(m *member) bool { return m.conflicting() || m == by })
	if m, own := look(); m != nil {
		return m, own
	}
	for _, f := range formers {
		m := g.byName(f.server)
		if m == nil {
			continue // it was removed meanwhile
		}
		g.fetch(short, k, func(o *member) bool { return o == m })
		if own, ok := m.catalog.behind(k, f.prefix, external); ok {
			return m, own
		}
	}
	if by != nil {
		return by, external[len(by.s.Prefix):] // it may have tools that it does not list
	}
	return nil, ""
}

// oldPrefixes returns, newest first, the old prefixes that external may carry. If another server has that prefix
// now, no old one counts.
func (g *session) oldPrefixes(external string) (all []oldPrefix) {
	r := g.current.Load()
	holder := r.holder(external, func(*server) bool { return true })
	for _, f := range slices.Backward(r.old) {
		if s := r.named[f.server]; r.of[s] != nil && (holder == nil || holder == s) && time.Now().Before(f.until) {
			all = append(all, f)
		}
	}
	return all
}

// byPrefix returns the server with the longest prefix of the name.
func (g *session) byPrefix(external string) *member {
	r := g.current.Load()
	return r.of[r.holder(external, func(s *server) bool { return r.of[s] != nil })]
}

// holder returns the server with the longest prefix of a name, among those that may accepts.
func (v *view) holder(external string, may func(*server) bool) *server {
	for _, n := range v.lengths {
		if n < len(external) {
			if s := v.prefixes[external[:n]]; s != nil && may(s) {
				return s
			}
		}
	}
	return nil
}

// hashed reports whether a name looks as if externalName changed it.
func hashed(external string) bool {
	i := len(external) - 9
	return i > 0 && external[i] == '_' && strings.Trim(external[i+1:], "0123456789abcdef") == ""
}

// fetch reads unknown lists of the servers that want selects, all at once.
func (g *session) fetch(ctx context.Context, k list.Kind, want func(*member) bool) {
	var wg sync.WaitGroup
	for _, m := range g.members() {
		if want(m) && !m.catalog.listed(k) && m.offers(k) && m.leftOut() == nil {
			wg.Go(func() { m.fetch(ctx, k) })
		}
	}
	wg.Wait()
}

// complete passes on a completion of an argument.
func (g *session) complete(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	ref, no := list.ReferenceOf(r.Message)
	if no != nil {
		return no, nil
	}
	inner := *r
	if ref.URI != "" {
		m := g.owner(ctx, list.Templates, ref.URI)
		if m == nil {
			return list.NoResource(r.From.Modern(), ref.URI), nil
		}
		inner.Message = ref.Located()
		return m.call(ctx, &inner)
	}
	m, own := g.find(ctx, list.Prompts, ref.Name)
	if m == nil {
		return list.Prompts.Unknown(ref.Name), nil
	}
	inner.Message = ref.Named(own)
	return m.call(ctx, &inner)
}

// owner returns the server of a resource: the first that lists it, else the first with a template that matches.
// It returns nil if there is none.
func (g *session) owner(ctx context.Context, k list.Kind, uri string) *member {
	look := func() *member {
		for _, kind := range []list.Kind{k, list.Resources} {
			for _, m := range g.members() {
				if _, ok := m.catalog.internal(kind, uri); ok {
					return m
				}
			}
		}
		for _, m := range g.members() {
			if m.catalog.matches(uri) {
				return m
			}
		}
		return nil
	}
	if m := look(); m != nil {
		return m
	}
	everybody := func(*member) bool { return true }
	short, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { g.fetch(short, list.Resources, everybody) })
	wg.Go(func() { g.fetch(short, list.Templates, everybody) })
	wg.Wait()
	return look()
}

// likelyOwner returns the owner of the resource, else the first server that lists something of the same scheme.
// It returns nil if there is none.
func (g *session) likelyOwner(ctx context.Context, uri string) *member {
	if m := g.owner(ctx, list.Resources, uri); m != nil {
		return m
	}
	for _, m := range g.members() {
		if m.catalog.hasScheme(uri) {
			return m
		}
	}
	return nil
}

// read passes on a call about a resource. Tools may name resources that no server lists. Such a resource is
// requested from each server that lists something of its scheme, one after the other. An unreachable server does
// not stop this, because reading does no harm.
func (g *session) read(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	uri := r.URI()
	owner := g.owner(ctx, list.Resources, uri)
	asked := make([]*member, 0, 1)
	if owner != nil {
		asked = append(asked, owner)
	}
	for _, m := range g.members() {
		if m != owner && m.catalog.hasScheme(uri) {
			asked = append(asked, m)
		}
	}
	var no *jsonrpc.Message
	var lost error // the last unreachable server, which may have the resource
	for _, m := range asked {
		inner := *r
		a, err := m.call(ctx, &inner)
		switch {
		case err != nil && ctx.Err() != nil:
			no.Release()
			return nil, err
		case err != nil:
			lost = err
			continue
		case a.Error == nil, m == owner: // the owner's error is final
			no.Release()
			return a, nil
		}
		no.Release()
		no = a
	}
	switch {
	case lost != nil: // nobody knows whether the resource exists
		no.Release()
		return nil, lost
	case no == nil:
		no = list.NoResource(r.From.Modern(), uri)
	}
	return no, nil
}

func (g *session) subscribe(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	uri := r.URI()
	m := g.likelyOwner(ctx, uri)
	if m == nil {
		return list.NoResource(r.From.Modern(), uri), nil
	}
	g.mu.Lock()
	if _, known := g.subs[uri]; !known && len(g.subs) >= subscribe.MaxSubscriptions {
		g.mu.Unlock()
		return jsonrpc.NewError(nil, jsonrpc.CodeInternal, bridge.OverLimit("too many subscriptions", subscribe.MaxSubscriptions), nil), nil
	}
	g.mu.Unlock()
	inner := *r
	a, err := m.call(ctx, &inner)
	if err == nil && a.Error == nil {
		g.mu.Lock()
		g.subs[uri] = m
		g.mu.Unlock()
	}
	return a, err
}

func (g *session) unsubscribe(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	uri := r.URI()
	g.mu.Lock()
	m := g.subs[uri]
	delete(g.subs, uri)
	g.mu.Unlock()
	if m == nil {
		return jsonrpc.NewResult(nil, []byte("{}")), nil
	}
	inner := *r
	return m.call(ctx, &inner)
}

// subscriptions returns the URIs that the client has subscribed at m.
func (g *session) subscriptions(m *member) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var uris []string
	for uri, of := range g.subs {
		if of == m {
			uris = append(uris, uri)
		}
	}
	return uris
}

// setLevel stores the level. It updates servers in use at once; others get the level before their first call.
func (g *session) setLevel(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if _, fault := era.Level(r.Params); fault != "" {
		return jsonrpc.InvalidParams(fault), nil
	}
	level := slices.Clone(r.Params)
	g.level.Store(&level)
	ctx, cancel := context.WithTimeout(ctx, greetPatience)
	defer cancel()
	var wg sync.WaitGroup
	for _, m := range g.members() {
		if m.begun() {
			wg.Go(func() {
				if _, err := m.ready(ctx); err != nil {
					m.s.Log.Debug("could not set the level", "err", err) // the next call sets it
				}
			})
		}
	}
	wg.Wait()
	return jsonrpc.NewResult(nil, []byte("{}")), nil
}

// These bound the wait for slow servers. List_changed announces what comes later.
const (
	greetPatience = 5 * time.Second
	retryPatience = time.Second // for servers that failed recently
	listPatience  = 10 * time.Second
)
