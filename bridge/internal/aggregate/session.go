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
	"github.com/mcp-bridge/bridge/internal/spelling"
)

// session is an Upstream that offers the servers of an Aggregate as one. It serves one session, or the stateless
// clients of one principal. Tools and prompts are found by their server's prefix, resources by their URI. If two
// servers list the same resource, the first in the configuration gets it. The first call to a server opens its
// connection.
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
	level     atomic.Pointer[[]byte]    // params of the last logging/setLevel
	lacking   atomic.Pointer[[]missing] // servers that the last list of tools lacks; nil if it lacks none

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
	s := &session{
		a:      a,
		caller: from,
		to:     to,
		subs:   map[string]*member{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	a.mu.Lock()
	defer a.mu.Unlock()
	r, _ := s.snapshotOf(a.now, nil)
	s.current.Store(r)
	a.open[s] = struct{}{}
	return s
}

// snapshotOf returns the caller's snapshot of v, and the members that before does not have.
func (s *session) snapshotOf(v *view, before map[*server]*member) (r *snapshot, added []*member) {
	r = &snapshot{
		view: v,
		of:   map[*server]*member{},
		next: make(chan struct{}),
	}
	for _, one := range v.servers {
		if !one.Serves(s.caller.Principal) {
			continue
		}
		m := before[one]
		if m == nil {
			m = &member{
				g:       s,
				s:       one,
				catalog: one.catalog(s.caller.Principal),
			}
			added = append(added, m)
		}
		r.members = append(r.members, m)
		r.of[one] = m
	}
	return r, added
}

// update replaces the snapshot by a snapshot of v and notifies the client. update returns the removed members, which
// the caller closes.
func (s *session) update(v *view) (left []*member) {
	was := s.current.Load()
	r, changed := s.snapshotOf(v, was.of)
	for server, m := range was.of {
		if r.of[server] == nil {
			left = append(left, m)
		}
	}
	s.current.Store(r)
	s.mu.Lock()
	renewed := map[*member]struct{}{} // members that replace one of the same name: their connections have no subscriptions yet
	for uri, m := range s.subs {
		if r.of[m.s] != nil {
			continue
		}
		if next := r.of[r.view.named[m.s.Name]]; next != nil {
			s.subs[uri], renewed[next] = next, struct{}{}
		} else {
			delete(s.subs, uri)
		}
	}
	s.mu.Unlock()
	for m := range renewed {
		m.mu.Lock()
		m.resubscribe = true
		m.mu.Unlock()
		s.spawn(func() { _, _ = m.ready(s.ctx) }) // if this fails, the next call subscribes
	}
	close(was.next)
	for one, m := range r.of {
		if was.of[one] != nil && was.prefix[one] != v.prefix[one] {
			m.catalog.forget() // server.forget misses a catalogue that the server has dropped
			changed = append(changed, m)
		}
	}
	for _, m := range append(changed, left...) {
		m.changed()
	}
	return left
}

func (s *session) members() []*member { return s.current.Load().members }

// byName returns the server of that name, or nil if the caller has no such server.
func (s *session) byName(name string) *member {
	r := s.current.Load()
	return r.of[r.view.named[name]]
}

// request makes the bridge's own request to a server. For stateless clients, the request is on behalf of the client
// of the last call, so that both use the same connection.
func (s *session) request(method string, params []byte) *bridge.Request {
	if from := s.last.Load(); from != nil {
		return &bridge.Request{Message: from.Request(method, params), From: from}
	}
	return &bridge.Request{Message: jsonrpc.NewRequest(method, params), From: s.caller}
}

// spawn runs f in a goroutine that Close awaits. If Close was called, spawn reports false and does not run f.
func (s *session) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.wg.Go(f)
	}
	return !s.closed
}

// Server returns nil: each client gets a greeting of its own.
func (s *session) Server() *bridge.Greeting { return nil }

// Close closes the session's connections to all servers.
func (s *session) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.a.mu.Lock()
	delete(s.a.open, s)
	s.a.mu.Unlock()
	var wg sync.WaitGroup
	for _, m := range s.members() {
		if m.begun() {
			wg.Go(func() { m.close(ctx) })
		}
	}
	wg.Wait()
	s.wg.Wait()
	return nil
}

// Call passes a call to its server. Call answers a request for a list, or a handshake, for all servers.
func (s *session) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if k, ok := list.Of(r.Method); ok {
		return s.list(ctx, k, r)
	}
	switch r.Method {
	case "initialize":
		return s.initialize(ctx)
	case "tools/call":
		return s.callNamed(ctx, list.Tools, r)
	case "prompts/get":
		return s.callNamed(ctx, list.Prompts, r)
	case era.Complete:
		return s.complete(ctx, r)
	case "resources/read":
		return s.read(ctx, r)
	case "resources/subscribe":
		return s.subscribe(ctx, r)
	case "resources/unsubscribe":
		return s.unsubscribe(ctx, r)
	case "logging/setLevel":
		return s.setLevel(ctx, r)
	}
	return jsonrpc.NewError(nil, jsonrpc.CodeMethodNotFound,
		"this address serves several servers, and "+r.Method+" does not name one: use that server's own address", nil), nil
}

// Notify passes a notification to all servers that the client has used.
func (s *session) Notify(ctx context.Context, r *bridge.Request) error {
	if r.Method == "notifications/progress" {
		m, own := s.byToken(r.Token())
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
	for _, m := range s.members() {
		if !m.begun() {
			continue // ready brings the member up to date before its first call
		}
		inner := *r
		if err := m.notify(ctx, &inner); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// callNamed passes a call of a tool or a prompt to its server.
func (s *session) callNamed(ctx context.Context, k list.Kind, r *bridge.Request) (*jsonrpc.Message, error) {
	m, own := s.find(ctx, k, r.Name())
	switch {
	case m == nil:
		return s.unknown(k, r.Name(), r.From.Principal), nil
	case !m.s.Shows(k, own, r.From.Principal):
		return k.Unknown(r.Name()), nil
	}
	inner := *r
	inner.Message = r.Renamed(own)
	a, err := m.call(ctx, &inner)
	if err == nil && k == list.Tools && s.listeners != nil {
		a = m.created(a)
	}
	return a, err
}

// find returns the server of an external name, and the server's own name for it. Normally the prefix decides;
// otherwise the catalogues do.
func (s *session) find(ctx context.Context, k list.Kind, external string) (*member, string) {
	by := s.byPrefix(external)
	formers := s.oldPrefixes(external)
	if by != nil && !by.conflicting() && !hashed(external) && len(formers) == 0 {
		return by, external[len(by.prefix()):]
	}
	look := func() (*member, string) {
		for _, m := range s.members() {
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
	if by == nil || by.conflicting() { // a slow server must not hold up an item that another may have
		short, cancel = context.WithTimeout(ctx, listPatience)
	}
	defer cancel()
	s.fetch(short, k, func(m *member) bool { return m.conflicting() || m == by })
	if m, own := look(); m != nil {
		return m, own
	}
	for _, f := range formers {
		m := s.byName(f.server)
		if m == nil {
			continue // the server was removed meanwhile
		}
		s.fetch(short, k, func(o *member) bool { return o == m })
		if own, ok := m.catalog.behind(k, f.prefix, external); ok {
			return m, own
		}
	}
	if by != nil {
		return by, external[len(by.prefix()):] // the server may have tools that it does not list
	}
	return nil, ""
}

// oldPrefixes returns, newest first, the old prefixes that external may carry. An old prefix does not count if
// external starts with the current prefix of another server.
func (s *session) oldPrefixes(external string) (all []oldPrefix) {
	r := s.current.Load()
	holder := r.holder(external, func(*server) bool { return true })
	for _, o := range slices.Backward(r.old) {
		if one := r.named[o.server]; r.of[one] != nil && (holder == nil || holder == one) && time.Now().Before(o.until) {
			all = append(all, o)
		}
	}
	return all
}

// byPrefix returns the caller's server with the longest prefix of the name; nil if there is none.
func (s *session) byPrefix(external string) *member {
	r := s.current.Load()
	return r.of[r.holder(external, func(one *server) bool { return r.of[one] != nil })]
}

// holder returns the server with the longest prefix of a name, among the servers that may accepts; nil if there is
// none.
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
func (s *session) fetch(ctx context.Context, k list.Kind, want func(*member) bool) {
	var wg sync.WaitGroup
	for _, m := range s.members() {
		if want(m) && !m.catalog.listed(k) && m.offers(k) && m.leftOut() == nil {
			wg.Go(func() { m.fetch(ctx, k) })
		}
	}
	wg.Wait()
}

// complete passes on a completion of an argument.
func (s *session) complete(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	ref, no := list.ReferenceOf(r.Message)
	if no != nil {
		return no, nil
	}
	inner := *r
	if ref.URI != "" {
		m := s.owner(ctx, list.Templates, ref.URI)
		if m == nil {
			return list.NoResource(r.From.Modern(), ref.URI), nil
		}
		inner.Message = ref.Located()
		return m.call(ctx, &inner)
	}
	m, own := s.find(ctx, list.Prompts, ref.Name)
	if m == nil {
		return list.Prompts.Unknown(ref.Name), nil
	}
	inner.Message = ref.Named(own)
	return m.call(ctx, &inner)
}

// owner returns the server of a resource: the first that lists it, else the first that lists it in another spelling,
// else the first with a template that matches. owner returns nil if there is none.
func (s *session) owner(ctx context.Context, k list.Kind, uri string) *member {
	look := func() *member {
		for _, kind := range []list.Kind{k, list.Resources} {
			for _, m := range s.members() {
				if _, ok := m.catalog.internal(kind, uri); ok {
					return m
				}
			}
		}
		canonical := spelling.Canonical(uri)
		for _, has := range []func(*catalog, string) bool{(*catalog).lists, (*catalog).matches} {
			for _, m := range s.members() {
				if has(m.catalog, canonical) {
					return m
				}
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
	wg.Go(func() { s.fetch(short, list.Resources, everybody) })
	wg.Go(func() { s.fetch(short, list.Templates, everybody) })
	wg.Wait()
	return look()
}

// likelyOwner returns the owner of the resource, else the first server that lists something of the same scheme.
// likelyOwner returns nil if there is none.
func (s *session) likelyOwner(ctx context.Context, uri string) *member {
	if m := s.owner(ctx, list.Resources, uri); m != nil {
		return m
	}
	for _, m := range s.members() {
		if m.catalog.hasScheme(uri) {
			return m
		}
	}
	return nil
}

// read passes on a resources/read. The owner's answer is final. If there is no owner, or it is unreachable, read asks
// each server that lists something of the scheme, one after the other, because tools may name resources that no
// server lists. An unreachable server does not stop this: to read twice does no harm.
func (s *session) read(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	uri := r.URI()
	owner := s.owner(ctx, list.Resources, uri)
	asked := make([]*member, 0, 1)
	if owner != nil {
		asked = append(asked, owner)
	}
	for _, m := range s.members() {
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
	case lost != nil: // it is unknown whether the resource exists
		no.Release()
		return nil, lost
	case no == nil:
		no = list.NoResource(r.From.Modern(), uri)
	}
	return no, nil
}

func (s *session) subscribe(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	uri := r.URI()
	m := s.likelyOwner(ctx, uri)
	if m == nil {
		return list.NoResource(r.From.Modern(), uri), nil
	}
	s.mu.Lock()
	if _, known := s.subs[uri]; !known && len(s.subs) >= subscribe.MaxSubscriptions {
		s.mu.Unlock()
		return jsonrpc.NewError(nil, jsonrpc.CodeInternal, bridge.OverLimit("too many subscriptions", subscribe.MaxSubscriptions), nil), nil
	}
	s.mu.Unlock()
	inner := *r
	a, err := m.call(ctx, &inner)
	if err == nil && a.Error == nil {
		s.mu.Lock()
		s.subs[uri] = m
		s.mu.Unlock()
	}
	return a, err
}

func (s *session) unsubscribe(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	uri := r.URI()
	s.mu.Lock()
	m := s.subs[uri]
	delete(s.subs, uri)
	s.mu.Unlock()
	if m == nil {
		return jsonrpc.NewResult(nil, []byte("{}")), nil
	}
	inner := *r
	return m.call(ctx, &inner)
}

// subscriptions returns the URIs that the client has subscribed at m.
func (s *session) subscriptions(m *member) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var uris []string
	for uri, of := range s.subs {
		if of == m {
			uris = append(uris, uri)
		}
	}
	return uris
}

// setLevel stores the level. setLevel updates servers in use at once; others get the level before their first call.
func (s *session) setLevel(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if _, fault := era.Level(r.Params); fault != "" {
		return jsonrpc.InvalidParams(fault), nil
	}
	level := slices.Clone(r.Params)
	s.level.Store(&level)
	ctx, cancel := context.WithTimeout(ctx, greetPatience)
	defer cancel()
	var wg sync.WaitGroup
	for _, m := range s.members() {
		if m.begun() {
			wg.Go(func() {
				if _, err := m.ready(ctx); err != nil {
					m.s.Log.Debug("could not set the level", "err", err) // the next call sets the level
				}
			})
		}
	}
	wg.Wait()
	return jsonrpc.NewResult(nil, []byte("{}")), nil
}

// These constants bound the wait for slow servers. A notification (list_changed) announces the items that come later.
const (
	greetPatience = 5 * time.Second
	retryPatience = time.Second      // for servers that failed recently
	listPatience  = 10 * time.Second // of a server whose connection is open
)
