package lift

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// capabilities is a modern server's greeting as the session uses it.
type capabilities struct {
	changes   map[string]bool // announced notifications of changed lists, by method
	subscribe bool            // the server accepts subscriptions to resources
	logging   bool
	extended  bool // both sides share an extension, whose methods pass
}

// meet answers initialize from a modern server's greeting (protocol.md D2.2). meet also subscribes to the announced
// changes. meet does not wait for notifications/initialized, which some clients and the aggregate never send. The
// session stores messages that come before the client is ready.
func (l *Lift) meet(m *jsonrpc.Message) *jsonrpc.Message {
	result := era.InitializeResult(m.Result, l.from.Revision, l.o.Server)
	caps := gjson.GetBytes(result, "capabilities")
	c := &capabilities{
		changes:   map[string]bool{},
		subscribe: caps.Get("resources.subscribe").Type == gjson.True,
		logging:   caps.Get("logging").Exists(),
		extended:  shared(caps, gjson.ParseBytes(era.ModernCapabilities(l.from.Capabilities, l.from.Revision))),
	}
	for _, kind := range list.Announced {
		if kind.Announces([]byte(caps.Raw)) {
			c.changes[kind.Changed()] = true
		}
	}
	l.caps.Store(c)
	if len(c.changes) > 0 {
		l.listen(c)
	}
	return jsonrpc.NewResult(m.ID, result)
}

// shared reports whether two sides declare the same extension.
func shared(a, b gjson.Result) bool {
	for _, where := range []string{"extensions", "experimental"} {
		theirs := b.Get(where).Map()
		for id := range a.Get(where).Map() {
			if theirs[id].Exists() {
				return true
			}
		}
	}
	return false
}

// carries reports whether a request goes to the server: if both eras have its method, or if the method may belong to
// an extension that both sides share. Requests about tasks never go (D0.5, D8.10). Methods that start with bridge/
// are for the adapter: instances use them.
func (c *capabilities) carries(method string) bool {
	switch {
	case era.InBoth(method), strings.HasPrefix(method, "bridge/"):
		return true
	case method == era.Listen, method == "server/discover", era.IsRemoved(method), strings.HasPrefix(method, "tasks/"):
		return false
	}
	return c.extended
}

// modern makes a call to a modern server.
func (l *Lift) modern(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	k := l.caps.Load()
	switch {
	case r.Method == "logging/setLevel" && k.logging:
		return l.setLevel(r), nil
	case r.Method == "resources/subscribe" && k.subscribe:
		return l.subscribe(ctx, r.URI())
	case r.Method == "resources/unsubscribe" && k.subscribe:
		return l.change(ctx, &change{
			uri:    r.URI(),
			end:    true,
			answer: make(chan outcome, 1),
		})
	case !k.carries(r.Method):
		return jsonrpc.NewError(nil, jsonrpc.CodeMethodNotFound, "server "+l.o.Server+" has no method "+r.Method, nil), nil
	}
	if k, is := list.Of(r.Method); is {
		if s := l.listening(); s != nil {
			s.listing(ctx, k)
		}
	}
	c := &call{
		l:    l,
		r:    r,
		meta: l.metadata(),
	}
	if r.Method == "resources/read" {
		c.uri = r.URI()
	}
	m := edited(r.Message, func(params []byte) []byte {
		params = era.Params(r.Method, params, l.from.Revision, era.LatestModern)
		if era.MayAsk(r.Method) {
			params = era.StripMRTR(params) // the client's revision does not define these members
		}
		return params
	})
	c.m = c.meta.into(m)
	if r.Back != nil && (r.Token() != nil || c.meta.level != "") { // the client wants notifications of the call
		c.back = &callClient{Client: r.Back, l: l}
	}
	a, err := c.send(ctx, nil)
	if err == nil && a.Error == nil && era.ResultType(a) == era.ResultInput && era.MayAsk(r.Method) {
		a, err = c.converse(ctx, a)
	}
	if err != nil {
		return nil, err
	}
	return c.lowered(a), nil
}

// setLevel stores the log level for the session's next calls.
func (l *Lift) setLevel(r *bridge.Request) *jsonrpc.Message {
	level, fault := era.Level(r.Params)
	if fault != "" {
		return jsonrpc.InvalidParams(fault)
	}
	l.meta.Store(newMetadata(l.from, level))
	return jsonrpc.NewResult(nil, []byte("{}"))
}

// call is a session's call to a modern server.
type call struct {
	l    *Lift
	r    *bridge.Request  // from the client
	m    *jsonrpc.Message // for the server
	uri  string           // of a resource that is read
	meta *metadata
	back *callClient // nil if no notification is wanted
}

// send makes the call. more holds additional members of params, each with a trailing comma (2026-07-28, multi
// round-trip requests).
func (c *call) send(ctx context.Context, more []byte) (*jsonrpc.Message, error) {
	inner := *c.r
	inner.Message, inner.Back, inner.Logs = c.m, nil, c.meta.level != ""
	if more != nil {
		at := bytes.IndexByte(c.m.Params, '{') + 1
		inner.Message = c.m.Edited(jsonrpc.Edit{
			From: at,
			To:   at,
			Text: more,
		})
	}
	if c.back != nil {
		inner.Back = c.back
	}
	return c.l.Upstream.Call(ctx, &inner)
}

// metadata is sent with each request of a session: its client and log level, as text to insert.
type metadata struct {
	level   string
	members []byte // of _meta
	before  []byte // members and a comma, to insert into a _meta that has members
	meta    []byte // the whole _meta and a comma, to insert into params that have members
}

func newMetadata(from *bridge.Caller, level string) *metadata {
	meta := from.Meta()
	meta.LogLevel = level
	m := meta.Members()
	return &metadata{
		level:   level,
		members: m,
		before:  slices.Concat(m, []byte(",")),
		meta:    slices.Concat([]byte(`"_meta":{`), m, []byte("},")),
	}
}

// metadata returns the current metadata.
func (l *Lift) metadata() *metadata {
	if m := l.meta.Load(); m != nil {
		return m
	}
	l.meta.CompareAndSwap(nil, newMetadata(l.from, ""))
	return l.meta.Load()
}

// into returns the request with the metadata (protocol.md D2.3). into replaces the client's own reserved members
// . If there are none, into does not copy the request.
func (m *metadata) into(message *jsonrpc.Message) *jsonrpc.Message {
	if message.Params == nil || rawjson.IsEmpty(message.Params) {
		return &jsonrpc.Message{
			ID:     message.ID,
			Method: message.Method,
			Params: slices.Concat([]byte(`{"_meta":{`), m.members, []byte("}}")),
		}
	}
	meta := message.Meta()
	if meta == nil {
		at := bytes.IndexByte(message.Params, '{') + 1
		return message.Edited(jsonrpc.Edit{
			From: at,
			To:   at,
			Text: m.meta,
		})
	}
	if meta[0] != '{' || bytes.IndexByte(meta, '\\') >= 0 || bytes.Contains(meta, []byte(era.Reserved)) {
		return message.WithParams(era.Inject(message.Whole(), m.members))
	}
	text := m.before
	if rawjson.IsEmpty(meta) {
		text = m.members
	}
	at := cap(message.Params) - cap(meta) + 1 // meta is a part of params' backing array
	return message.Edited(jsonrpc.Edit{
		From: at,
		To:   at,
		Text: text,
	})
}

// callClient is the Client of a call to a modern server.
type callClient struct {
	bridge.Client
	l *Lift

	mu       sync.Mutex // guards the rest
	repeated bool       // the call was repeated
	highest  float64    // the highest progress that the client got
	some     bool       // the client got progress
}

// Notify passes on progress of the call, and log messages of the session's level.
func (c *callClient) Notify(m *jsonrpc.Message) {
	switch m.Method {
	case "notifications/progress":
		if !c.rises(gjson.GetBytes(m.Params, "progress").Num) {
			return
		}
	case "notifications/message":
		if level := c.l.metadata().level; level == "" || era.Severity(gjson.GetBytes(m.Params, "level").Str) < era.Severity(level) {
			return
		}
	default:
		c.l.o.Log.Debug("notification dropped: the client's revision does not define it", "method", m.Method)
		return
	}
	c.Client.Notify(m.WithParams(era.Notification(m.Method, m.Params, era.LatestModern, c.l.from.Revision)))
}

// rises reports whether the client may get this progress. If the call is repeated, progress must exceed the highest
// value that the client got: each attempt starts anew, but the client has only one call.
func (c *callClient) rises(progress float64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.some && c.repeated && progress <= c.highest {
		return false
	}
	if !c.some || progress > c.highest {
		c.highest = progress
	}
	c.some = true
	return true
}

// repeat records that the call is repeated.
func (c *callClient) repeat() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.repeated = true
}
