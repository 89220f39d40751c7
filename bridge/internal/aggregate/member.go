package aggregate

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// member is one server of a session, and the Client of the connection to it.
type member struct {
	g       *session
	s       *server
	catalog *catalog

	mu          sync.Mutex        // guards the rest
	up          bridge.Upstream   // nil until the first call
	closed      bool              // close was called
	level       *[]byte           // the params of logging/setLevel that the server got last; nil before the first
	resubscribe bool              // the last connection was lost: the next one needs the subscriptions
	calls       []bridge.Client   // the Clients of calls in flight, for progress and questions
	absent      error             // why lists leave the server out; nil if they include it
	stop        func()            // ends the wait that leaveOut began; nil without a wait
	late        [list.Kinds]*late // by kind; nil if no page is awaited
}

// late is a first page that did not arrive in time.
type late struct {
	done chan struct{} // closed when the page arrives or fails
	page []byte        // nil until the page arrives, and for an error; guarded by the member's mu
	err  error         // set before done is closed
}

var _ bridge.Client = (*member)(nil)

// begun reports whether the session has used the server.
func (m *member) begun() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.up != nil || m.stop != nil
}

// upstream returns the connection to the server, which the first call of upstream makes.
func (m *member) upstream() (bridge.Upstream, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.up != nil {
		return m.up, nil
	}
	if m.closed || m.g.ctx.Err() != nil {
		return nil, bridge.ErrEnded
	}
	if m.g.caller.Modern() {
		m.up = noClose{m.s.Stateless}
		return m.up, nil
	}
	up, err := m.s.Session(m.g.caller, m)
	if err == nil {
		m.up = up
	}
	return up, err
}

// ready returns the connection. If the server has not got the current level, or has lost the subscriptions, ready
// first sends them.
func (m *member) ready(ctx context.Context) (bridge.Upstream, error) {
	up, err := m.upstream()
	if err != nil {
		return nil, err
	}
	level := m.g.level.Load()
	m.mu.Lock()
	sent, resubscribe := m.level, m.resubscribe
	m.mu.Unlock()
	if sent == level && !resubscribe {
		return up, nil
	}
	if sent != level {
		if err := m.send(ctx, up, "initialize", m.g.caller.Params); err != nil {
			return nil, err // without a greeting it is unknown whether the server has logging
		}
		if g := m.greeting(); g != nil && gjson.GetBytes(g.Capabilities, "logging").Exists() {
			short, cancel := context.WithTimeout(ctx, greetPatience)
			err := m.send(short, up, "logging/setLevel", *level)
			cancel()
			if err != nil && (ctx.Err() != nil || short.Err() == nil) { // a server that does not answer logging/setLevel in time is used nevertheless
				return nil, err
			}
		}
	}
	if resubscribe {
		for _, uri := range m.g.subscriptions(m) {
			if err := m.send(ctx, up, "resources/subscribe", subscribe.Params(uri)); err != nil {
				return nil, err
			}
			m.g.to.Notify(subscribe.Updated(uri)) // the resource may have changed meanwhile
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.up == up {
		m.level, m.resubscribe = level, false
	}
	return up, nil
}

// send makes a call on behalf of the bridge itself. send ignores JSON-RPC errors.
func (m *member) send(ctx context.Context, up bridge.Upstream, method string, params []byte) error {
	a, err := up.Call(ctx, &bridge.Request{Message: jsonrpc.NewRequest(method, params), From: m.g.caller})
	a.Release()
	return err
}

// call passes a call to the server.
func (m *member) call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Call != nil {
		r.Call.At(m.s.Name)
	}
	up, err := m.ready(ctx)
	if next := m.g.byName(m.s.Name); errors.Is(err, bridge.ErrEnded) && next != nil && next != m {
		return next.call(ctx, r) // the server's settings changed before anything was sent
	}
	if err != nil {
		return nil, err
	}
	if r.Back != nil {
		m.mu.Lock()
		m.calls = append(m.calls, r.Back)
		m.mu.Unlock()
		defer m.done(r.Back)
		inner := *r
		inner.Back = &memberCall{r.Back, m}
		r = &inner
	}
	return up.Call(ctx, r)
}

func (m *member) done(back bridge.Client) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, c := range m.calls {
		if c == back {
			last := len(m.calls) - 1
			m.calls[i], m.calls[last] = m.calls[last], nil
			m.calls = m.calls[:last]
			return
		}
	}
}

// sole returns the Client of the only call in flight, or nil if there are none or several.
func (m *member) sole() bridge.Client {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.calls) != 1 {
		return nil
	}
	return m.calls[0]
}

func (m *member) notify(ctx context.Context, r *bridge.Request) error {
	up, err := m.upstream()
	if err != nil {
		return err
	}
	return up.Notify(ctx, r)
}

// Notify passes on a notification of the server. If exactly one call is in flight, the call gets log messages.
func (m *member) Notify(n *jsonrpc.Message) {
	m.outdate(n.Method)
	if n.Method == "notifications/message" {
		if c := m.sole(); c != nil {
			c.Notify(n)
			return
		}
	}
	m.g.to.Notify(n)
}

// Ask passes on a question of the server: to the call in flight if there is exactly one, and otherwise to the
// session.
func (m *member) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	if c := m.sole(); c != nil {
		return c.Ask(m.marked(q), reply)
	}
	return m.g.to.Ask(m.marked(q), reply)
}

// marked returns the question with the server's name in its progress token, because two servers may use the same
// token.
func (m *member) marked(q *jsonrpc.Message) *jsonrpc.Message {
	token := q.Token()
	if token == nil {
		return q
	}
	ours := rawjson.Quote(url.PathEscape(m.s.Name) + " " + string(token))
	if marked, err := jsonrpc.Parse(q.Append(nil, q.ID, []byte(ours))); err == nil {
		return marked
	}
	return q
}

// memberCall is the Client of a call to one of the servers.
type memberCall struct {
	bridge.Client
	m *member
}

// Ask passes on a question about the call.
func (m *memberCall) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	return m.Client.Ask(m.m.marked(q), reply)
}

// byToken returns the server that a progress token names, and the server's own token. The server is nil if the token
// names none.
func (s *session) byToken(token []byte) (*member, []byte) {
	escaped, own, _ := strings.Cut(gjson.ParseBytes(token).Str, " ")
	name, err := url.PathUnescape(escaped)
	if err != nil {
		return nil, nil
	}
	return s.byName(name), []byte(own)
}

// Gone drops the connection after its server ended. The next call opens a new connection. Gone announces changes of
// the lists, because the client's lists may be stale.
func (m *member) Gone(err error) {
	m.mu.Lock()
	up := m.up
	m.up, m.level, m.resubscribe = nil, nil, true
	m.late = [list.Kinds]*late{}
	m.mu.Unlock()
	m.s.Log.Warn("connection ended", "err", err)
	if up != nil {
		m.g.spawn(func() { _ = up.Close(m.g.a.o.Force) })
	}
	m.changed()
}

// changed notifies the client that the server's lists may have changed.
func (m *member) changed() {
	g := m.greeting()
	for _, k := range list.Announced {
		if g == nil || gjson.GetBytes(g.Capabilities, k.Capability()).Exists() {
			m.g.to.Notify(jsonrpc.NewNotification(k.Changed(), nil))
		}
	}
}

// leaveOut leaves the server out of lists until it works again, unless err means that the session or the bridge ends.
func (m *member) leaveOut(err error) {
	if errors.Is(err, bridge.ErrEnded) || errors.Is(err, bridge.ErrShutdown) {
		return
	}
	m.mu.Lock()
	if m.closed || m.g.ctx.Err() != nil { // after this check, close finds stop
		m.mu.Unlock()
		return
	}
	again := m.stop != nil
	m.absent = err
	if !again {
		m.stop = m.s.Await(m.g.caller, m.back)
	}
	m.mu.Unlock()
	if !again {
		m.s.Log.Debug("left out of the aggregate until it works", "err", err) // the server logs the warning
	}
}

// back puts the server into the lists again, and announces the change.
func (m *member) back() {
	m.mu.Lock()
	was, stop := m.absent, m.stop
	m.absent, m.stop = nil, nil
	m.mu.Unlock()
	if stop != nil {
		stop() // the wait may still run: it is not the only caller of back
	}
	if was != nil {
		m.changed()
	}
}

func (m *member) close(ctx context.Context) {
	m.mu.Lock()
	up, stop := m.up, m.stop
	m.up, m.stop, m.closed = nil, nil, true
	m.mu.Unlock()
	if stop != nil {
		stop()
	}
	if up != nil {
		_ = up.Close(ctx)
	}
}

// offers reports whether the server may have a list of kind k. A server that announces no list at all may have
// any, because some servers do not announce their tools.
func (m *member) offers(k list.Kind) bool {
	g := m.greeting()
	if g == nil || gjson.GetBytes(g.Capabilities, k.Capability()).Exists() {
		return true
	}
	return !slices.ContainsFunc(list.Announced[:], func(k list.Kind) bool { return gjson.GetBytes(g.Capabilities, k.Capability()).Exists() })
}

// greeting returns the server's greeting for the caller, or nil.
func (m *member) greeting() *bridge.Greeting { return m.s.Greeting(m.g.caller.Principal) }

// leftOut returns why the server is left out of lists, or nil.
func (m *member) leftOut() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.absent
}

// external returns the function that maps the server's own names to external names. If the external name belongs to
// another server by its prefix, or if the prefixes conflict and an earlier server lists the same external name, the
// item gets this server's name in place of the prefix.
func (m *member) external(k list.Kind) func(key string) string {
	return func(key string) string {
		if k == list.Resources || k == list.Templates {
			return key
		}
		external := externalName(m.prefix(), key)
		if by := m.g.byPrefix(external); by != nil && by != m {
			return externalName(m.s.Name+"__", key)
		}
		if m.conflicting() {
			for _, other := range m.before() {
				if _, taken := other.catalog.internal(k, external); taken {
					return externalName(m.s.Name+"__", key)
				}
			}
		}
		return external
	}
}

// prefix returns the prefix of the server's external names.
func (m *member) prefix() string { return m.g.current.Load().prefix[m.s] }

// conflicting reports whether names of this server can collide with those of another server.
func (m *member) conflicting() bool { return m.g.current.Load().conflicting[m.s] }

// before returns the members before m, in the order of the configuration.
func (m *member) before() []*member {
	all := m.g.members()
	return all[:max(slices.Index(all, m), 0)] // -1 if m was removed
}

// show returns the item as clients see it, or nil if an earlier server has the same resource.
func (m *member) show(k list.Kind, item []byte, key string) []byte {
	if k == list.Tools || k == list.Prompts {
		return rawjson.SetFirst(item, "name", []byte(rawjson.Quote(m.external(k)(key))))
	}
	for _, other := range m.before() {
		if _, taken := other.catalog.internal(k, key); taken {
			if strings.HasPrefix(key, "ui://") && !m.s.covered.Swap(true) {
				m.s.Log.Warn("two servers have the same user interface: clients of the address of all servers get that of the earlier one, "+
					"also for tools of this one; they need this server's own address", "uri", sanitize.Short(key, 200), "earlier", other.s.Name)
			}
			return nil
		}
	}
	return item
}

// fetch reads the whole list into the catalogue.
func (m *member) fetch(ctx context.Context, k list.Kind) {
	_, cut := k.Pages(func(params []byte) (*jsonrpc.Message, error) { // an error shows as missing entries
		return m.call(ctx, m.g.request(k.Method(), params))
	}, func(page []byte, first, last bool) {
		m.catalog.learn(k, bytes.Clone(page), m.external(k), first, last)
	})
	m.s.cutOff(k, cut)
}
