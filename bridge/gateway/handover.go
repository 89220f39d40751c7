package gateway

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// handover restores the state of a session on a fresh connection before the first call: the handshake, the log level
// and the subscriptions.
type handover struct {
	turn      chan struct{} // holds one token; the goroutine that restores has it
	done      atomic.Bool
	announced bool        // announceKept already notified the client of changes
	waiting   atomic.Bool // see Waits
}

// newHandover returns the handover of an adopted session.
func newHandover() *handover {
	h := &handover{turn: make(chan struct{}, 1)}
	h.turn <- struct{}{}
	return h
}

// resumedHandover returns the handover of a session that gets a new connection at this instance. announceKept has
// already notified its client.
func resumedHandover() *handover {
	h := newHandover()
	h.announced = true
	return h
}

// Done reports whether the state is restored. It is true for a nil handover.
func (h *handover) Done() bool { return h == nil || h.done.Load() }

// Waits sets whether a goroutine of restore runs or waits for the end of a drain, and returns the former value.
func (h *handover) Waits(now bool) (before bool) { return h.waiting.Swap(now) }

// maxIntroduction limits the params of initialize to 256 KiB, since the session keeps them.
const maxIntroduction = 256 << 10

// introductionTooLong is the error text for a client that exceeds maxIntroduction.
var introductionTooLong = bridge.OverLimit("the client's capabilities and clientInfo are too long", maxIntroduction)

// newCaller reads the caller from initialize. If the string is not empty, the request is faulty and the string is the
// error text.
func newCaller(principal string, m *jsonrpc.Message) (*bridge.Caller, string) {
	asked := gjson.GetBytes(m.Params, "protocolVersion")
	if asked.Type != gjson.String {
		return nil, "initialize: params.protocolVersion is missing or not a string"
	}
	caps := gjson.GetBytes(m.Params, "capabilities")
	if caps.Exists() && !caps.IsObject() {
		return nil, "initialize: params.capabilities must be an object"
	}
	if len(m.Params) > maxIntroduction {
		return nil, "initialize: " + introductionTooLong
	}
	c := &bridge.Caller{
		Principal: principal, Revision: era.Negotiate(asked.Str),
		Capabilities: []byte("{}"), Params: m.Clone().Params,
	}
	if caps.Exists() {
		c.Capabilities = []byte(caps.Raw)
	}
	if c.Revision != asked.Str {
		c.Params = rawjson.Set(c.Params, "protocolVersion", []byte(rawjson.Quote(c.Revision)))
	}
	return c, ""
}

// statelessCaller reads the caller from a stateless request. If the request is malformed, it returns the error message
// for the client instead (protocol.md B7.7, B7.8, B7.9).
func statelessCaller(principal string, m *jsonrpc.Message) (*bridge.Caller, *jsonrpc.Message) {
	id := bytes.Clone(m.ID)
	if v := gjson.GetBytes(m.Meta(), era.VersionPath); v.Type == gjson.String && v.Str != "" && v.Str != era.LatestModern {
		return nil, jsonrpc.NewError(id, jsonrpc.CodeUnsupportedVersion, "unsupported protocol version", // with the revisions served (B4)
			[]byte(`{"supported":["`+strings.Join(era.Supported(), `","`)+`"],"requested":`+rawjson.Quote(v.Str)+`}`))
	}
	meta, fault := era.ReadMeta(m.Meta())
	if fault != "" {
		return nil, jsonrpc.NewError(id, jsonrpc.CodeInvalidParams, fault, nil)
	}
	if len(meta.Capabilities)+len(meta.ClientInfo) > maxIntroduction {
		return nil, jsonrpc.NewError(id, jsonrpc.CodeInvalidParams, "params._meta: "+introductionTooLong, nil)
	}
	if era.IsRemoved(m.Method) {
		return nil, jsonrpc.NewError(id, jsonrpc.CodeMethodNotFound, "revision "+era.FirstModern+" has no method "+m.Method, nil)
	}
	c := &bridge.Caller{
		Principal:    principal,
		Revision:     meta.Version,
		Capabilities: bytes.Clone(meta.Capabilities),
	}
	c.Params = introduction(era.LegacyCapabilities(c.Capabilities), meta.ClientInfo)
	return c, nil
}

func callerOf(r *session.Record) *bridge.Caller {
	c := &bridge.Caller{
		Principal:    r.Principal,
		Revision:     r.Revision,
		Capabilities: []byte("{}"),
		Params:       r.Params,
	}
	c.Header, c.Identity = identity.Unpack(r.Header)
	if caps := gjson.GetBytes(r.Params, "capabilities"); caps.IsObject() {
		c.Capabilities = []byte(caps.Raw)
	}
	return c
}

// Resume restores the session's state at the server. Only the first success does so; later calls return nil. Then
// Resume calls changed for each list that may have changed, unless the client knows already, and for each subscribed
// resource. If the server came back with another revision or fewer capabilities, the error is a kind of
// bridge.ErrReplaced.
func (h *handover) Resume(ctx context.Context, up bridge.Upstream, from *bridge.Caller, record func() session.Record, log *slog.Logger, changed func(what string, m *jsonrpc.Message)) error {
	if h.Done() {
		return nil
	}
	select {
	case <-h.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { h.turn <- struct{}{} }()
	if h.Done() {
		return nil
	}
	r := record()
	m, err := callOwn(ctx, up, from, "initialize", from.Params)
	if err == nil && m.Error != nil {
		m.Release()
		err = &bridge.Error{
			Server: r.Server,
			Kind:   bridge.ErrUnavailable,
			Public: "it refused initialize on a new connection",
		}
	}
	if err != nil {
		return err
	}
	now := keptGreeting(greetingOf(m.Result))
	m.Release()
	if len(r.Greeting) > 0 && !keptGreeting(r.Greeting).Keeps(now) {
		return &bridge.Error{
			Server: r.Server,
			Kind:   bridge.ErrLost,
			Err:    bridge.ErrReplaced,
			Public: "it came back with another revision or fewer capabilities: initialize again",
		}
	}
	if r.Level != nil {
		notifyServer(ctx, up, from, "logging/setLevel", r.Level, log)
	}
	for _, uri := range r.Subs {
		notifyServer(ctx, up, from, "resources/subscribe", subscribe.Params(uri), log)
	}
	h.done.Store(true)
	if !h.announced {
		announceLists(now, changed)
	}
	for _, uri := range r.Subs {
		m := subscribe.Updated(uri)
		changed(subscribe.Changed(m), m)
	}
	return nil
}

// awaitRun passes f to run, which reports false if it does not run f, and waits until f returns or ctx ends.
func awaitRun(ctx context.Context, run func(func()) bool, f func()) {
	done := make(chan struct{})
	if !run(func() {
		defer close(done)
		f()
	}) {
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// notifyServer repeats a request that set state at the server. It only logs a failure: the call can go on without that
// state.
func notifyServer(ctx context.Context, up bridge.Upstream, from *bridge.Caller, method string, params []byte, log *slog.Logger) {
	m, err := callOwn(ctx, up, from, method, params)
	if err == nil && m.Error != nil {
		err = errors.New(string(m.Error))
	}
	if err != nil {
		log.Warn("could not restore the state of a session", "method", method, "err", err)
	}
	m.Release()
}

// callOwn makes a request of the bridge itself on behalf of from.
func callOwn(ctx context.Context, up bridge.Upstream, from *bridge.Caller, method string, params []byte) (*jsonrpc.Message, error) {
	return up.Call(ctx, &bridge.Request{Message: jsonrpc.NewRequest(method, params), From: from})
}

// pickedHeaders returns a copy of those headers of h that names lists.
func pickedHeaders(h http.Header, names []string) http.Header {
	out := http.Header{}
	for _, name := range names {
		if values := h[name]; len(values) > 0 {
			out[name] = slices.Clone(values)
		}
	}
	return out
}

// announceKept calls changed for each list that kept, the result of greetingOf, announces.
func announceKept(kept []byte, changed func(what string, m *jsonrpc.Message)) {
	announceLists(keptGreeting(kept), changed)
}

func announceLists(of *bridge.Greeting, changed func(what string, m *jsonrpc.Message)) {
	for _, k := range list.Announced {
		if k.Announces(of.Capabilities) {
			changed(k.Changed(), jsonrpc.NewNotification(k.Changed(), nil))
		}
	}
}

// greetingOf returns the parts of an initialize result that the record keeps: the revision and the capabilities. It
// returns nil if one is missing.
func greetingOf(result []byte) []byte {
	v, caps := gjson.GetBytes(result, "protocolVersion"), gjson.GetBytes(result, "capabilities")
	if v.Type != gjson.String || !caps.IsObject() {
		return nil
	}
	return []byte(`{"protocolVersion":` + v.Raw + `,"capabilities":` + caps.Raw + `}`)
}

// keptGreeting parses the result of greetingOf.
func keptGreeting(kept []byte) *bridge.Greeting {
	return &bridge.Greeting{Revision: gjson.GetBytes(kept, "protocolVersion").Str, Capabilities: []byte(gjson.GetBytes(kept, "capabilities").Raw)}
}

// recordOf returns how the success of m changes the record, or nil if it does not. Resume restores the state from the
// record on a fresh connection.
func recordOf(m *jsonrpc.Message) func(*session.Record) {
	switch m.Method {
	case "logging/setLevel":
		return func(r *session.Record) { r.Level = slices.Clone(m.Params) }
	case "resources/subscribe", "resources/unsubscribe":
		uri := (&bridge.Request{Message: m}).URI()
		return func(r *session.Record) {
			r.Subs = slices.DeleteFunc(slices.Clone(r.Subs), func(old string) bool { return old == uri })
			if m.Method == "resources/subscribe" && len(r.Subs) < subscribe.MaxSubscriptions {
				r.Subs = append(r.Subs, uri)
			}
		}
	}
	return nil
}

// introduction returns the params of initialize on behalf of a stateless client
// (protocol.md D1.2).
func introduction(capabilities, clientInfo []byte) []byte {
	if clientInfo == nil {
		clientInfo = []byte(`{"name":"mcp-bridge","version":"unknown"}`)
	}
	return []byte(`{"protocolVersion":"` + era.LatestLegacy + `","capabilities":` + string(capabilities) + `,"clientInfo":` + string(clientInfo) + `}`)
}
