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

// hub lets several sessions share one lane. It is the lane's Client, and finds the session of each message (D0,
// D3).
type hub struct {
	lane *lane.Lane
	up   bridge.Upstream // the lane with its guards, for calls
	all  bool            // sessions of different principals share the hub
	turn chan struct{}   // a lock, held while a level is sent
	subs subscribe.Watched[*View]

	mu           sync.Mutex // guards the rest
	views        map[*View]struct{}
	level        string           // the server's level; empty before the first one
	elicitations map[string]*View // the view that was asked, by elicitationId
}

// View is one session's share of a hub.
type View struct {
	h         *hub
	client    bridge.Client
	calls     atomic.Int64 // in flight
	stateless bool         // the view serves stateless clients
	level     string       // guarded by h.mu; empty if none was set
}

func newHub(o *Options, from *bridge.Caller) *hub {
	h := &hub{
		all:   o.All,
		turn:  make(chan struct{}, 1),
		views: map[*View]struct{}{},
	}
	h.lane, h.up = o.Lanes.SharedLane(from, h, h.givenUp)
	return h
}

func (h *hub) join(to bridge.Client, stateless bool) *View {
	v := &View{
		h:         h,
		client:    to,
		stateless: stateless,
	}
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

// allViews returns the current views.
func (h *hub) allViews() []*View {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*View, 0, len(h.views))
	for v := range h.views {
		all = append(all, v)
	}
	return all
}

// soleCaller returns the only view with calls in flight, or nil if there are none or several.
func (h *hub) soleCaller() *View {
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

// Notify passes a notification to the views that it is for.
func (h *hub) Notify(m *jsonrpc.Message) {
	switch m.Method {
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
		for _, v := range h.allViews() {
			v.client.Notify(m)
		}
	case "notifications/resources/updated":
		to := map[*View]struct{}{}
		h.subs.Of(m.URI(), func(v *View) { to[v] = struct{}{} })
		for v := range to {
			v.client.Notify(m)
		}
	case "notifications/message":
		h.log(m)
	case "notifications/elicitation/complete":
		if v := h.elicited(m); v != nil {
			v.client.Notify(m)
		} else if h.all { // each client handles its own elicitations
			for _, c := range h.statelessClients() {
				c.Notify(m)
			}
		}
	default:
		if only := h.soleCaller(); only != nil {
			only.client.Notify(m)
		} // otherwise the owner of the elicitation is unknown
	}
}

// elicited returns the view that was asked the elicitation of a notification, or nil.
func (h *hub) elicited(m *jsonrpc.Message) *View {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.elicitations[gjson.GetBytes(m.Params, "elicitationId").String()]
}

// log passes on a log message, which names no call. If only one session has calls in flight, that session gets the
// message. Otherwise all sessions get it if they have one principal. Sessions of different principals do not get it.
func (h *hub) log(m *jsonrpc.Message) {
	to := h.allViews()
	if only := h.soleCaller(); only != nil {
		to = []*View{only}
	} else if h.all {
		return
	}
	level := gjson.GetBytes(m.Params, "level").String()
	for _, v := range to {
		if v.wants(level) {
			v.client.Notify(m)
		}
	}
}

// wants reports whether the session gets log messages of that level. A session that has set no level gets all.
func (v *View) wants(level string) bool {
	v.h.mu.Lock()
	defer v.h.mu.Unlock()
	return v.level == "" || era.Severity(level) >= era.Severity(v.level)
}

var _ bridge.Client = (*hub)(nil)

// viewCall is the Client of a call over a shared connection.
type viewCall struct {
	bridge.Client
	v *View
}

// Notify passes on a notification about the call. The completion of an elicitation goes to the session that was
// asked, on any stream.
func (v *viewCall) Notify(m *jsonrpc.Message) {
	switch m.Method {
	case "notifications/message":
		if !v.v.wants(gjson.GetBytes(m.Params, "level").String()) {
			return
		}
	case "notifications/elicitation/complete":
		if view := v.v.h.elicited(m); view != v.v {
			v.v.h.Notify(m)
			if view != nil {
				return
			}
		}
	}
	v.Client.Notify(m)
}

// Ask passes on a question about the call.
func (v *viewCall) Ask(m *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	return v.v.h.ask(v.v, m, reply, v.Client)
}

// Ask passes a question to the only session with calls in flight, or to the only session. Ask refuses the question if
// there is no such session, or if all clients share the server.
func (h *hub) Ask(m *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	v := h.soleCaller()
	if v == nil {
		if all := h.allViews(); len(all) == 1 {
			v = all[0]
		}
	}
	if v == nil && !h.all {
		reply(jsonrpc.NewError(nil, jsonrpc.CodeInternal, "several clients share this server, and the question names no call", nil))
		return nil
	}
	if h.all {
		return h.ask(nil, m, reply, nil)
	}
	return h.ask(v, m, reply, v.client)
}

// ask passes a question about a call of v to the client to.
func (h *hub) ask(v *View, m *jsonrpc.Message, reply func(*jsonrpc.Message), to bridge.Client) func(string) {
	if h.all {
		reply(jsonrpc.NewError(nil, jsonrpc.CodeMethodNotFound, "this server is shared by all clients: it cannot ask one of them", nil))
		return nil
	}
	if id := gjson.GetBytes(m.Params, "elicitationId"); id.Exists() {
		h.mu.Lock()
		if h.elicitations == nil || len(h.elicitations) >= bridge.MaxQuestions {
			h.elicitations = map[string]*View{}
		}
		h.elicitations[id.String()] = v
		h.mu.Unlock()
	}
	return to.Ask(m, reply)
}

// statelessClients returns the clients of views that serve stateless clients.
func (h *hub) statelessClients() (all []bridge.Client) {
	for _, v := range h.allViews() {
		if v.stateless {
			all = append(all, v.client)
		}
	}
	return all
}

// givenUp ends the subscriptions of stateless clients after their connection stayed lost for long.
func (h *hub) givenUp() {
	for _, c := range h.statelessClients() {
		c.Gone(nil)
	}
}

// Gone notifies all sessions that the server has ended for good.
func (h *hub) Gone(err error) {
	for _, v := range h.allViews() {
		v.client.Gone(err)
	}
}

// Keep keeps the shared connection open: see lane.Lane.
func (v *View) Keep(ctx context.Context) (release func(), err error) { return v.h.lane.Keep(ctx) }

// Lane returns the shared lane.
func (v *View) Lane() *lane.Lane { return v.h.lane }

// Guarded returns the Upstream for calls over the lane.
func (v *View) Guarded() bridge.Upstream { return v.h.up }

// Server returns the greeting of the shared connection.
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

// Notify passes on a notification. A lane that serves all clients gets no notifications, because each notification is
// about the state of one client.
func (v *View) Notify(ctx context.Context, r *bridge.Request) error {
	if v.h.all {
		return nil
	}
	return v.h.lane.Notify(ctx, r)
}

// capabilities returns the capabilities of a result of initialize, without tasks.
func capabilities(result []byte) []byte {
	return era.WithoutTasks(rawjson.Get(result, "capabilities"))
}

// setLevel stores the session's level. The server gets the most verbose level of all sessions.
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
	loudest := v.level == h.level
	v.level = wanted
	if !told {
		h.level = wanted
	} else if loudest {
		h.lane.Go(h.relax)
	}
	return m, nil
}

// relax sets the server's level to the most verbose level that sessions still want. If no session wants a level, the
// level stays, because the level that the server had by itself is unknown.
func (h *hub) relax(ctx context.Context) {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return
	}
	h.mu.Lock()
	wanted, was := "", h.level
	for v := range h.views {
		if v.level != "" && (wanted == "" || era.Severity(v.level) < era.Severity(wanted)) {
			wanted = v.level
		}
	}
	h.mu.Unlock()
	if wanted == "" || wanted == was {
		return
	}
	params := []byte(`{"level":` + rawjson.Quote(wanted) + `}`)
	if !h.lane.SetLevel(params) {
		m, err := h.up.Call(ctx, &bridge.Request{Message: jsonrpc.NewRequest("logging/setLevel", params), From: h.lane.Caller()})
		good := err == nil && m.Error == nil
		if m.Release(); !good {
			return // the level stays more verbose than necessary, which is harmless
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.level = wanted
}

// subscribe sends the request for the first subscriber only.
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
	if _, in := h.views[v]; !in { // the session ended meanwhile
		h.lane.Go(func(ctx context.Context) { v.abandon(ctx, uri) })
	}
	return m, nil
}

// abandon ends a subscription of a session that has ended.
func (v *View) abandon(ctx context.Context, uri string) {
	m := jsonrpc.NewRequest("resources/unsubscribe", subscribe.Params(uri))
	if a, err := v.unsubscribe(ctx, &bridge.Request{Message: m, From: v.h.lane.Caller()}); err == nil {
		a.Release()
	}
}

// unsubscribe sends the request for the last subscriber only.
func (v *View) unsubscribe(ctx context.Context, r *bridge.Request) (m *jsonrpc.Message, err error) {
	m = jsonrpc.NewResult(nil, []byte("{}"))
	if !v.h.subs.Remove(ctx, r.URI(), v, func() { m, err = v.h.up.Call(ctx, r) }) {
		return nil, context.Cause(ctx)
	}
	return m, err
}

// Close leaves the hub. Close ends the session's own subscriptions in the background. The connection stays for other
// sessions until it is idle.
func (v *View) Close(context.Context) error {
	h := v.h
	h.mu.Lock()
	delete(h.views, v)
	for id, of := range h.elicitations {
		if of == v {
			delete(h.elicitations, id)
		}
	}
	loudest := v.level != "" && v.level == h.level
	h.mu.Unlock()
	if loudest {
		h.lane.Go(h.relax)
	}
	for _, uri := range h.subs.Drop(v) {
		h.lane.Go(func(ctx context.Context) { v.abandon(ctx, uri) })
	}
	return nil
}
