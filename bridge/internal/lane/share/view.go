package share

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// hub lets several sessions share one lane. It is the lane's Client: it finds
// the session that something from the server belongs to (D0, D3).
type hub struct {
	lane *lane.Lane
	up   bridge.Upstream // the lane with its guards: what calls go through
	all  bool            // sessions of different principals share it
	turn chan struct{}   // held while the server is told a level
	subs subscribe.Watched[*View]

	mu    sync.Mutex // guards the rest
	views map[*View]struct{}
	level string           // as the server was told; empty when it was not
	said  map[string]*View // elicitationId -> who was asked
}

// View is one session's share of a hub.
type View struct {
	h         *hub
	client    bridge.Client
	calls     atomic.Int64 // under way
	stateless bool         // it is for clients without sessions
	level     string       // guarded by h.mu; empty means none was set
}

func newHub(o *Options, from *bridge.Caller) *hub {
	h := &hub{all: o.All, turn: make(chan struct{}, 1), views: map[*View]struct{}{}}
	h.lane, h.up = o.Open(from, h, h.givenUp)
	return h
}

func (h *hub) join(to bridge.Client, stateless bool) *View {
	v := &View{h: h, client: to, stateless: stateless}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.views[v] = struct{}{}
	return v
}

func (h *hub) unused() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.views) == 0
}

// everybody returns the views there are.
func (h *hub) everybody() []*View {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*View, 0, len(h.views))
	for v := range h.views {
		all = append(all, v)
	}
	return all
}

// busy returns the only view with calls under way, if there is exactly one.
func (h *hub) busy() *View {
	h.mu.Lock()
	defer h.mu.Unlock()
	var only *View
	for v := range h.views {
		if v.calls.Load() == 0 {
			continue
		}
		if only != nil {
			return nil
		}
		only = v
	}
	return only
}

// Notify passes on a notification to those it is for.
func (h *hub) Notify(n *jsonrpc.Message) {
	switch n.Method {
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
		for _, v := range h.everybody() {
			v.client.Notify(n)
		}
	case "notifications/resources/updated":
		to := map[*View]struct{}{}
		h.subs.Of(n.URI(), func(v *View) { to[v] = struct{}{} })
		for v := range to {
			v.client.Notify(n)
		}
	case "notifications/message":
		h.log(n)
	case "notifications/elicitation/complete":
		if v := h.asked(n); v != nil {
			v.client.Notify(n)
		} else if h.all { // they know themselves what they wait for
			for _, l := range h.sessionless() {
				l.Notify(n)
			}
		}
	default:
		if only := h.busy(); only != nil {
			only.client.Notify(n)
		} // otherwise it cannot be told whose it is
	}
}

// asked returns who was asked what a notification says is complete, or nil.
func (h *hub) asked(n *jsonrpc.Message) *View {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.said[gjson.GetBytes(n.Params, "elicitationId").String()]
}

// log passes on a log message. The server does not say which call it is about:
// with one session calling it is that one's. Otherwise all sessions of the one
// principal may see it, and of several principals nobody may.
func (h *hub) log(n *jsonrpc.Message) {
	to := h.everybody()
	if only := h.busy(); only != nil {
		to = []*View{only}
	} else if h.all {
		return
	}
	level := gjson.GetBytes(n.Params, "level").String()
	for _, v := range to {
		if v.wants(level) {
			v.client.Notify(n)
		}
	}
}

// wants reports whether the session wants log messages of that level.
func (v *View) wants(level string) bool {
	v.h.mu.Lock()
	defer v.h.mu.Unlock()
	return v.level == "" || era.Severity(level) >= era.Severity(v.level)
}

var _ bridge.Client = (*hub)(nil)

// viewCall is the Client of a call that is made over a shared connection.
type viewCall struct {
	bridge.Client
	v *View
}

// Notify passes on what the server says about the call. That a question of
// another session's is complete, only that one is told, on whatever stream the
// server says it.
func (c *viewCall) Notify(n *jsonrpc.Message) {
	switch n.Method {
	case "notifications/message":
		if !c.v.wants(gjson.GetBytes(n.Params, "level").String()) {
			return
		}
	case "notifications/elicitation/complete":
		if v := c.v.h.asked(n); v != c.v {
			c.v.h.Notify(n)
			if v != nil {
				return
			}
		}
	}
	c.Client.Notify(n)
}

// Ask passes on what the server asks about the call.
func (c *viewCall) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	return c.v.h.ask(c.v, q, reply, c.Client)
}

// Ask passes on a question to the session whose call it must be about.
func (h *hub) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	v := h.busy()
	if v == nil {
		if all := h.everybody(); len(all) == 1 {
			v = all[0]
		}
	}
	if v == nil && !h.all {
		reply(jsonrpc.NewError(nil, jsonrpc.CodeInternal, "several clients share this server and it cannot be told which of them to ask", nil))
		return nil
	}
	if h.all {
		return h.ask(nil, q, reply, nil)
	}
	return h.ask(v, q, reply, v.client)
}

// ask passes on a question about a call of v's to to.
func (h *hub) ask(v *View, q *jsonrpc.Message, reply func(*jsonrpc.Message), to bridge.Client) func(string) {
	if h.all {
		reply(jsonrpc.NewError(nil, jsonrpc.CodeMethodNotFound, "this server is shared by all clients: there is nobody to ask", nil))
		return nil
	}
	if id := gjson.GetBytes(q.Params, "elicitationId"); id.Exists() {
		h.mu.Lock()
		if h.said == nil || len(h.said) >= bridge.MaxQuestions {
			h.said = map[string]*View{}
		}
		h.said[id.String()] = v
		h.mu.Unlock()
	}
	return to.Ask(q, reply)
}

// sessionless returns those that stand for clients without sessions.
func (h *hub) sessionless() (all []bridge.Client) {
	for _, v := range h.everybody() {
		if v.stateless {
			all = append(all, v.client)
		}
	}
	return all
}

// givenUp ends the subscriptions of clients without sessions, whose connection could
// not be opened again for long.
func (h *hub) givenUp() {
	for _, l := range h.sessionless() {
		l.Gone(nil)
	}
}

// Gone tells all sessions that the server has ended and will not be replaced.
func (h *hub) Gone(err error) {
	for _, v := range h.everybody() {
		v.client.Gone(err)
	}
}

// Keep keeps the shared connection open: see lane.Lane.
func (v *View) Keep(ctx context.Context) (release func(), err error) { return v.h.lane.Keep(ctx) }

// Lane returns the lane that is shared.
func (v *View) Lane() *lane.Lane { return v.h.lane }

// Guarded returns the lane with what calls over it go through.
func (v *View) Guarded() bridge.Upstream { return v.h.up }

// Server returns what the shared handshake said, less what does not work when
// shared.
func (v *View) Server() *bridge.Greeting { return v.h.lane.Server() }

// Call makes a call over the shared connection.
func (v *View) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	switch r.Method {
	case "logging/setLevel":
		return v.setLevel(ctx, r)
	case "resources/subscribe":
		return v.subscribe(ctx, r)
	case "resources/unsubscribe":
		return v.unsubscribe(ctx, r)
	}
	v.calls.Add(1)
	defer v.calls.Add(-1)
	inner := *r
	if r.Back != nil {
		inner.Back = &viewCall{r.Back, v}
	}
	m, err := v.h.up.Call(ctx, &inner)
	if err == nil && r.Method == "initialize" && m.Result != nil {
		m = jsonrpc.NewResult(nil, rawjson.Set(m.Result, "capabilities", capabilities(m.Result)))
	}
	return m, err
}

// Notify passes on a notification. Those about a client's own state are not
// the server's business when it serves everybody.
func (v *View) Notify(ctx context.Context, r *bridge.Request) error {
	if v.h.all {
		return nil
	}
	return v.h.lane.Notify(ctx, r)
}

// capabilities returns those of a result of initialize, without tasks.
func capabilities(result []byte) []byte {
	return era.WithoutTasks(rawjson.Get(result, "capabilities"))
}

// setLevel notes the session's level. The server is told the most verbose one
// that any session wants.
func (v *View) setLevel(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	wanted, fault := era.Level(r.Params)
	if fault != "" {
		return jsonrpc.InvalidParams(fault), nil
	}
	h := v.h
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	h.mu.Lock()
	told := h.level != "" && era.Severity(h.level) <= era.Severity(wanted)
	h.mu.Unlock()
	m := jsonrpc.NewResult(nil, []byte("{}"))
	if !told {
		var err error
		if m, err = h.up.Call(ctx, r); err != nil || m.Error != nil {
			return m, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	v.level = wanted
	if !told {
		h.level = wanted
	}
	return m, nil
}

// subscribe tells the server about the first subscriber only.
func (v *View) subscribe(ctx context.Context, r *bridge.Request) (m *jsonrpc.Message, err error) {
	h, uri := v.h, r.URI()
	m = jsonrpc.NewResult(nil, []byte("{}"))
	in := h.subs.Add(ctx, uri, v, func() bool {
		m, err = h.up.Call(ctx, r)
		return err == nil && m.Error == nil
	})
	if !in && err == nil && m.Error == nil {
		return nil, context.Cause(ctx)
	} else if !in {
		return m, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, in := h.views[v]; !in { // the session has ended meanwhile
		h.lane.Go(func(ctx context.Context) { v.abandon(ctx, uri) })
	}
	return m, nil
}

// abandon ends a subscription of a session that has ended.
func (v *View) abandon(ctx context.Context, uri string) {
	m := jsonrpc.NewRequest("resources/unsubscribe", []byte(`{"uri":`+rawjson.Quote(uri)+`}`))
	if a, err := v.unsubscribe(ctx, &bridge.Request{Message: m, From: v.h.lane.Caller()}); err == nil {
		a.Release()
	}
}

// unsubscribe tells the server about the last subscriber only.
func (v *View) unsubscribe(ctx context.Context, r *bridge.Request) (m *jsonrpc.Message, err error) {
	m = jsonrpc.NewResult(nil, []byte("{}"))
	if !v.h.subs.Remove(ctx, r.URI(), v, func() { m, err = v.h.up.Call(ctx, r) }) {
		return nil, context.Cause(ctx)
	}
	return m, err
}

// Close leaves the hub. The subscriptions that only this session had are
// ended in the background; the connection stays for the others, or until it
// was idle for long enough.
func (v *View) Close(context.Context) error {
	h := v.h
	h.mu.Lock()
	delete(h.views, v)
	for id, of := range h.said {
		if of == v {
			delete(h.said, id)
		}
	}
	h.mu.Unlock()
	for _, uri := range h.subs.Leave(v) {
		h.lane.Go(func(ctx context.Context) { v.abandon(ctx, uri) })
	}
	return nil
}
