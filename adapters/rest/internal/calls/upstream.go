package calls

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/tools"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
)

// Revision is the revision of MCP that the API speaks as a server.
const Revision = "2025-11-25"

// upstream is a connection of the bridge to the adapter. It takes calls until Close.
type upstream struct {
	a        *API
	server   *bridge.Greeting
	header   http.Header        // the forwarded headers of the request that opened the connection
	identity *identity.Identity // that of the same request
	rest     bridge.Client      // gets notifications that belong to no call
	ctx      context.Context    // ends with Close
	end      context.CancelCauseFunc

	mu     sync.Mutex // guards closed
	closed bool
	calls  sync.WaitGroup

	notifying   sync.Mutex // guards notifyEnded; held during a notification to rest, so that Close waits for it
	notifyEnded bool       // rest gets no more notifications
}

var _ bridge.Upstream = (*upstream)(nil)

// errClosed is the cause that ends the calls of a closed connection.
var errClosed = errors.New("its connection was closed")

// capabilities returns the capabilities of the server as JSON.
func (a *API) capabilities() string {
	if a.o.Resources {
		return `{"resources":{"listChanged":true},"tools":{"listChanged":true}}`
	}
	return `{"tools":{"listChanged":true}}`
}

// Open opens a connection that greets with the edition in use. There must be one.
func (a *API) Open(from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	e, err := a.acquire()
	if err != nil {
		return nil, err
	}
	defer e.calls.Done()
	capabilities := a.capabilities()
	result := []byte(`{"protocolVersion":"` + Revision + `","capabilities":` + capabilities + `,"serverInfo":`)
	result = append(result, e.Info...)
	if e.About != "" {
		result = gjson.AppendJSONString(append(result, `,"instructions":`...), e.About)
	}
	u := &upstream{
		a:        a,
		rest:     rest,
		header:   from.Header,
		identity: from.Identity,
		server: &bridge.Greeting{
			Revision:     Revision,
			Capabilities: []byte(capabilities),
			Result:       append(result, '}'),
		},
	}
	u.ctx, u.end = context.WithCancelCause(context.Background())
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		u.end(errClosed)
		return nil, a.Unavailable("it was stopped", nil)
	}
	a.open[u] = struct{}{}
	return u, nil
}

// Server implements bridge.Upstream.
func (u *upstream) Server() *bridge.Greeting { return u.server }

// Notify implements bridge.Upstream. It does nothing: a call ends with its context.
func (u *upstream) Notify(context.Context, *bridge.Request) error { return nil }

// Close implements bridge.Upstream. It ends all calls, and returns when they have ended.
func (u *upstream) Close(context.Context) error {
	u.a.mu.Lock()
	delete(u.a.open, u)
	u.a.mu.Unlock()
	u.notifying.Lock()
	u.notifyEnded = true
	u.notifying.Unlock()
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	u.end(errClosed)
	u.calls.Wait()
	return nil
}

// changed notifies the client that the list of kind, "tools" or "resources", has changed.
func (u *upstream) changed(kind string) {
	u.notifying.Lock()
	defer u.notifying.Unlock()
	if !u.notifyEnded {
		u.rest.Notify(jsonrpc.NewNotification(listChanged(kind), nil))
	}
}

// listChanged returns the method of the notification that the list of kind has changed.
func listChanged(kind string) string { return "notifications/" + kind + "/list_changed" }

// enter begins a call, which u.calls.Done ends. It reports false if the connection is closed.
func (u *upstream) enter() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.closed {
		u.calls.Add(1)
	}
	return !u.closed
}

// TakesEdits implements bridge.TakesEdits.
func (u *upstream) TakesEdits() {}

// Call implements bridge.Upstream.
func (u *upstream) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if !u.enter() {
		return nil, &bridge.Error{
			Server: u.a.o.Name,
			Kind:   bridge.ErrUnsent,
			Public: errClosed.Error(),
		}
	}
	defer u.calls.Done()
	switch r.Method {
	case "ping":
		return jsonrpc.NewResult(nil, []byte("{}")), nil
	case "tools/list", "tools/call":
	case "resources/list", "resources/templates/list", "resources/read":
		if !u.a.o.Resources {
			return jsonrpc.NewError(nil, jsonrpc.CodeMethodNotFound, "Method not found: "+r.Method, nil), nil
		}
	default:
		return jsonrpc.NewError(nil, jsonrpc.CodeMethodNotFound, "Method not found: "+r.Method, nil), nil
	}
	e, err := u.a.acquire()
	if err != nil {
		return nil, err
	}
	defer e.calls.Done()
	params := r.Whole()
	if r.Method == "tools/list" {
		page, ok := e.Page(gjson.GetBytes(params, "cursor").String())
		if !ok {
			return jsonrpc.InvalidParams("the cursor is not one that was given for tools/list"), nil
		}
		return jsonrpc.NewResult(nil, page), nil
	}
	if r.Method != "tools/call" {
		return u.resourceCall(ctx, e.Edition, r, params)
	}
	return u.call(ctx, e.Edition, r, params)
}

// call answers tools/call with the tools of e.
func (u *upstream) call(ctx context.Context, e *Edition, r *bridge.Request, params []byte) (*jsonrpc.Message, error) {
	args := memberOf(params, "arguments") // raw, since it may be large
	switch {
	case len(args) == 0 || string(args) == "null":
		args = []byte("{}")
	case args[0] != '{':
		return jsonrpc.InvalidParams("arguments must be an object"), nil
	}
	t := e.ByName[r.Name()]
	if t == nil {
		return jsonrpc.InvalidParams("Unknown tool: " + r.Name()), nil
	}
	ctx, end := u.bound(ctx)
	defer end()
	call := u.newCall(t, r, args)
	call.Resource = u.a.resourceReader(e, func(t *toolset.Tool, args []byte) *wire.Call {
		read := callOf(t, args)
		read.Header, read.Subject = call.Header, call.Subject
		return read
	})
	result, err := e.source.Call(ctx, call)
	if err != nil {
		return nil, u.lostError(ctx, err)
	}
	return jsonrpc.NewToolResult(nil, result, wire.IsError(result)), nil
}

// resourceCall answers requests about resources.
func (u *upstream) resourceCall(ctx context.Context, e *Edition, r *bridge.Request, params []byte) (*jsonrpc.Message, error) {
	if r.Method != "resources/read" {
		if gjson.GetBytes(params, "cursor").Exists() {
			return jsonrpc.InvalidParams("the cursor is not one that was given for " + r.Method), nil
		}
		if r.Method == "resources/list" {
			return jsonrpc.NewResult(nil, e.Plain), nil
		}
		return jsonrpc.NewResult(nil, e.Templates), nil
	}
	uri := gjson.GetBytes(params, "uri").String()
	data := append(gjson.AppendJSONString([]byte(`{"uri":`), uri), '}')
	found, args, err := e.ResourceAt(uri)
	switch {
	case errors.Is(err, tools.ErrNoResource):
		return jsonrpc.NewError(nil, jsonrpc.CodeNoResource, "Resource not found", data), nil
	case err != nil:
		return jsonrpc.InvalidParams(err.Error()), nil
	}
	ctx, end := u.bound(ctx)
	defer end()
	contents, err := e.source.Read(ctx, u.newCall(found.Tool, r, args), uri)
	if failed, ok := errors.AsType[*wire.Failure](err); ok {
		code := jsonrpc.CodeInternal
		switch {
		case failed.Missing:
			code = jsonrpc.CodeNoResource
		case failed.Refused:
			code = jsonrpc.CodeInvalidParams
		}
		return jsonrpc.NewError(nil, code, failed.Text, data), nil
	}
	if err != nil {
		return nil, u.lostError(ctx, err)
	}
	return jsonrpc.NewResult(nil, tools.OneLine(append(append([]byte(`{"contents":`), contents...), '}'))), nil
}

// bound returns a context that ends with ctx or with the connection, and the function that frees it.
func (u *upstream) bound(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(u.ctx, func() { cancel(context.Cause(u.ctx)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// newCall returns the call for package wire, with the headers, the identity, the trace and the
// progress token of the request. If the request has no headers or no identity, it takes those of the
// connection.
func (u *upstream) newCall(t *toolset.Tool, r *bridge.Request, args []byte) *wire.Call {
	call := callOf(t, args)
	if call.Header = r.Header; call.Header == nil {
		call.Header = u.header
	}
	call.Subject = identity.SubjectOf(cmp.Or(r.Identity, u.identity))
	if r.Trace != (bridge.Trace{}) {
		call.Trace = http.Header{}
		r.Trace.Put(call.Trace)
	}
	if token := r.Token(); token != nil && r.Back != nil {
		call.Progress = func(n int, text string) {
			p := strconv.AppendInt(append(append([]byte(`{"progressToken":`), token...), `,"progress":`...), int64(n), 10)
			p = gjson.AppendJSONString(append(p, `,"message":`...), text)
			r.Back.Notify(jsonrpc.NewNotification("notifications/progress", append(p, '}')))
		}
	}
	return call
}

// lostError returns the error of a call without a result: err if the caller ended ctx, and otherwise
// ErrLost, since the connection or the source was closed.
func (u *upstream) lostError(ctx context.Context, err error) error {
	if u.ctx.Err() != nil || ctx.Err() == nil {
		return &bridge.Error{
			Server: u.a.o.Name,
			Kind:   bridge.ErrLost,
			Public: errClosed.Error(),
			Err:    err,
		}
	}
	return err
}

// Tools returns all tools as a JSON list, including tools that tools/list leaves out.
func (a *API) Tools() ([]byte, error) {
	u, err := a.acquire()
	if err != nil {
		return nil, err
	}
	defer u.calls.Done()
	out := []byte{'['}
	for i, t := range u.Set.Tools {
		if i > 0 {
			out = append(out, ',')
		}
		out = tools.AppendEntry(out, t)
	}
	return append(out, ']'), nil
}

// Plan returns the text of the request that a call of the named tool would send, with secrets masked.
func (a *API) Plan(name string, args []byte) (string, error) {
	u, err := a.acquire()
	if err != nil {
		return "", err
	}
	defer u.calls.Done()
	t := u.ByName[name]
	if t == nil {
		return "", errors.New("there is no tool " + name)
	}
	call := callOf(t, args)
	call.Resource = a.resourceReader(u.Edition, callOf)
	p, err := u.source.Plan(call)
	if err != nil {
		return "", err
	}
	return p.String(), nil
}
