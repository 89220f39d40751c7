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
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// member is one of the servers that are offered as one, and the Client that
// its connection speaks to.
type member struct {
	g       *combined
	s       *server
	catalog *catalog

	mu     sync.Mutex      // guards the rest
	up     bridge.Upstream // nil until something is wanted of it
	closed bool            // nothing is wanted any more
	told   *[]byte         // the level that it was told
	owes   bool            // it has ended: its next connection knows of no subscriptions
	calls  []bridge.Client // where progress of the calls under way goes
	absent error           // why it is left out until it can be had; nil when it is not
	stop   func()          // ends the waiting for that
	late   [list.Kinds]*late
}

// late is a first page that was not there in time.
type late struct {
	done chan struct{} // closed when it has come, or will not
	page []byte        // nil while it is awaited, and if it will not do; guarded by the member's mu
	err  error         // why it will not come; set before done is closed
}

var _ bridge.Client = (*member)(nil)

// begun reports whether anything was wanted of the server yet.
func (m *member) begun() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.up != nil || m.stop != nil
}

// upstream returns the connection, which is opened by the first call.
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
		m.up = kept{m.s.Stateless}
		return m.up, nil
	}
	up, err := m.s.Session(m.g.caller, m)
	if err == nil {
		m.up = up
	}
	return up, err
}

// ready returns the connection when the server has been told the level and,
// when it has made a new start, the subscriptions.
func (m *member) ready(ctx context.Context) (bridge.Upstream, error) {
	up, err := m.upstream()
	if err != nil {
		return nil, err
	}
	level := m.g.level.Load()
	m.mu.Lock()
	told, owes := m.told, m.owes
	m.mu.Unlock()
	if told == level && !owes {
		return up, nil
	}
	if told != level {
		if err := m.tell(ctx, up, "initialize", m.g.caller.Params); err != nil {
			return nil, err // it says whether there is logging
		}
		if s := m.greeting(); s != nil && gjson.GetBytes(s.Capabilities, "logging").Exists() {
			short, cancel := context.WithTimeout(ctx, greetPatience)
			err := m.tell(short, up, "logging/setLevel", *level)
			cancel()
			if err != nil && (ctx.Err() != nil || short.Err() == nil) { // one that does not answer this is used all the same
				return nil, err
			}
		}
	}
	if owes {
		for _, uri := range m.g.subscriptions(m) {
			if err := m.tell(ctx, up, "resources/subscribe", []byte(`{"uri":`+rawjson.Quote(uri)+`}`)); err != nil {
				return nil, err
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.up == up {
		m.told, m.owes = level, false
	}
	return up, nil
}

// tell makes a call of the bridge's own. A refusal is no reason not to go on.
func (m *member) tell(ctx context.Context, up bridge.Upstream, method string, params []byte) error {
	a, err := up.Call(ctx, &bridge.Request{Message: jsonrpc.NewRequest(method, params), From: m.g.caller})
	a.Release()
	return err
}

// call makes a call.
func (m *member) call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Call != nil {
		r.Call.At(m.s.Name)
	}
	up, err := m.ready(ctx)
	if next := m.g.named(m.s.Name); errors.Is(err, bridge.ErrEnded) && next != nil && next != m {
		return next.call(ctx, r) // it got other settings when the call was on its way: nothing was sent
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

// sole returns the Client of the only call under way, if there is exactly one.
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

// Notify passes on what the server says by itself.
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

// Ask passes on what the server asks.
func (m *member) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	if c := m.sole(); c != nil {
		return c.Ask(m.marked(q), reply)
	}
	return m.g.to.Ask(m.marked(q), reply)
}

// marked returns the question with a progress token that says which server it
// is of: two of them may use the same.
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

// memberCall is the Client of a call that one of the servers has got.
type memberCall struct {
	bridge.Client
	m *member
}

// Ask passes on what the server asks about the call.
func (c *memberCall) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	return c.Client.Ask(c.m.marked(q), reply)
}

// asker returns the server that a progress token is of, and its own token.
func (g *combined) asker(token []byte) (*member, []byte) {
	escaped, own, _ := strings.Cut(gjson.ParseBytes(token).Str, " ")
	name, err := url.PathUnescape(escaped)
	if err != nil {
		return nil, nil
	}
	return g.named(name), []byte(own)
}

// Gone notes that the server has ended and will not come back as it was. The
// next call makes a new start; what the client knew of it may be wrong.
func (m *member) Gone(err error) {
	m.mu.Lock()
	up := m.up
	m.up, m.told, m.owes = nil, nil, true
	m.late = [list.Kinds]*late{}
	m.mu.Unlock()
	m.s.Log.Warn("connection ended", "err", err)
	if up != nil {
		m.g.spawn(func() { _ = up.Close(m.g.a.o.Force) })
	}
	m.changed()
}

// changed tells the client to look again at what this server may have.
func (m *member) changed() {
	s := m.greeting()
	for _, k := range list.Announced {
		if s == nil || gjson.GetBytes(s.Capabilities, k.Capability()).Exists() {
			m.g.to.Notify(jsonrpc.NewNotification(k.Changed(), nil))
		}
	}
}

// leaveOut leaves the server out of lists until it can be had.
func (m *member) leaveOut(err error) {
	if errors.Is(err, bridge.ErrEnded) || errors.Is(err, bridge.ErrShutdown) {
		return
	}
	m.mu.Lock()
	if m.closed || m.g.ctx.Err() != nil { // later, close finds stop
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
		m.s.Log.Debug("left out of what all servers offer as one, until it works", "err", err) // the server itself warns of why
	}
}

// back notes that the server can be had again.
func (m *member) back() {
	m.mu.Lock()
	was, stop := m.absent, m.stop
	m.absent, m.stop = nil, nil
	m.mu.Unlock()
	if stop != nil {
		stop() // it need not be the waiting that has told us
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

// offers reports whether the server may have something of that kind to list:
// nothing says that it has not. One that announces nothing at all which could be
// listed may have everything: some servers have tools and do not say so.
func (m *member) offers(k list.Kind) bool {
	s := m.greeting()
	if s == nil || gjson.GetBytes(s.Capabilities, k.Capability()).Exists() {
		return true
	}
	return !slices.ContainsFunc(list.Announced[:], func(k list.Kind) bool { return gjson.GetBytes(s.Capabilities, k.Capability()).Exists() })
}

// greeting returns what the server has said of itself to the caller, or nil.
func (m *member) greeting() *bridge.Greeting { return m.s.Greeting(m.g.caller.Principal) }

// leftOut returns why the server is left out of lists, or nil.
func (m *member) leftOut() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.absent
}

// external returns the name under which clients see what the server calls key. A
// name with a server's prefix is that server's, whether it has one like it now
// or not. Of two servers without a prefix that have the same name, the first in
// the order of the configuration has it. In both cases the other's is made with
// the server's own name.
func (m *member) external(k list.Kind) func(key string) string {
	return func(key string) string {
		if k == list.Resources || k == list.Templates {
			return key
		}
		external := externalName(m.s.Prefix, key)
		if by := m.g.byPrefix(external); by != nil && by != m {
			return externalName(m.s.Name+"__", key)
		}
		if m.rivals() {
			for _, other := range m.before() {
				if _, taken := other.catalog.internal(k, external); taken {
					return externalName(m.s.Name+"__", key)
				}
			}
		}
		return external
	}
}

// rivals reports whether names of this server and of another can be the same.
func (m *member) rivals() bool { return m.g.now.Load().rivals[m.s] }

// before returns the servers that come before this one in the order of the
// configuration.
func (m *member) before() []*member {
	all := m.g.members()
	return all[:max(slices.Index(all, m), 0)] // it may be there no more
}

// show returns the item as clients see it; nil when another server's has its
// place.
func (m *member) show(k list.Kind, item []byte, key string) []byte {
	if k == list.Tools || k == list.Prompts {
		return rawjson.SetFirst(item, "name", []byte(rawjson.Quote(m.external(k)(key))))
	}
	for _, other := range m.before() {
		if _, taken := other.catalog.internal(k, key); taken {
			return nil
		}
	}
	return item
}

// fetch reads the whole list into the catalogue.
func (m *member) fetch(ctx context.Context, k list.Kind) {
	_, cut := k.Pages(func(params []byte) (*jsonrpc.Message, error) { // whoever needs what does not come finds out
		return m.call(ctx, m.g.request(k.Method(), params))
	}, func(page []byte, first, last bool) {
		m.catalog.learn(k, bytes.Clone(page), m.external(k), first, last)
	})
	m.s.cutOff(k, cut)
}
