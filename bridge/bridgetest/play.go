package bridgetest

import (
	"context"
	"sync"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Caller returns a caller of that revision and principal, with these capabilities.
func Caller(revision, principal, capabilities string) *bridge.Caller {
	return &bridge.Caller{
		Revision:     revision,
		Principal:    principal,
		Capabilities: []byte(capabilities),
		Params:       []byte(InitializeParams),
	}
}

// Request returns a request of the caller from, with its own id. back receives the server's messages about it. params
// is a JSON object. If from is modern, the request gets the members of _meta that each modern request has.
func Request(t testing.TB, from *bridge.Caller, back bridge.Client, method, params string) *bridge.Request {
	t.Helper()
	if from.Modern() {
		meta := from.Meta()
		meta.LogLevel = era.LogLevel([]byte(gjson.Get(params, "_meta").Raw))
		params = string(era.Inject([]byte(params), meta.Members()))
	}
	return &bridge.Request{
		Message: Parse(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`),
		From:    from,
		Back:    back,
	}
}

// Upstream is a connection to a server that the test plays. It records the messages to the server.
type Upstream struct {
	// Serve answers a call at once. If Serve is nil or returns nil, the test gets the call from Next.
	Serve func(r *bridge.Request) *jsonrpc.Message

	calls chan *Call

	mu       sync.Mutex // guards the rest
	greeting *bridge.Greeting
	got      []string
	closed   int
}

// NewUpstream returns a connection to a server of that revision with these capabilities.
func NewUpstream(revision, capabilities string) *Upstream {
	u := &Upstream{calls: make(chan *Call)}
	u.Greet(revision, capabilities)
	return u
}

// Greet replaces the server's greeting.
func (u *Upstream) Greet(revision, capabilities string) {
	result := `{"protocolVersion":"` + revision + `","capabilities":` + capabilities + `,"serverInfo":{"name":"fake","version":"1"}}`
	if era.IsModern(revision) {
		result = `{"resultType":"complete","supportedVersions":["` + revision + `"],"capabilities":` + capabilities + `,"ttlMs":0,"cacheScope":"private"}`
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.greeting = &bridge.Greeting{
		Revision:     revision,
		Capabilities: []byte(capabilities),
		Result:       []byte(result),
	}
}

// Server implements bridge.Upstream.
func (u *Upstream) Server() *bridge.Greeting {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.greeting
}

// Call implements bridge.Upstream.
func (u *Upstream) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	u.record(r.Method + " " + string(r.Whole()))
	if u.Serve != nil {
		if m := u.Serve(r); m != nil {
			return m, nil
		}
	}
	c := &Call{
		Request: r,
		Ctx:     ctx,
		done:    make(chan func() (*jsonrpc.Message, error), 1),
	}
	select {
	case u.calls <- c:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case end := <-c.done:
		return end()
	case <-ctx.Done():
		u.record("cancelled " + r.Method)
		return nil, context.Cause(ctx)
	}
}

// Notify implements bridge.Upstream.
func (u *Upstream) Notify(_ context.Context, r *bridge.Request) error {
	u.record(r.Method + " " + string(r.Whole()))
	return nil
}

// Close implements bridge.Upstream.
func (u *Upstream) Close(context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed++
	return nil
}

func (u *Upstream) record(line string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.got = append(u.got, line)
}

// Got returns the messages to the server since the last Got, each as a line of method and params.
func (u *Upstream) Got() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	got := u.got
	u.got = nil
	return got
}

// Closed returns how often Close was called.
func (u *Upstream) Closed() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.closed
}

// Next waits for a call that Serve did not answer, and returns it.
func (u *Upstream) Next() *Call { return <-u.calls }

// Call is a call without an answer. Its Back receives the server's messages about the call.
type Call struct {
	*bridge.Request
	Ctx  context.Context
	done chan func() (*jsonrpc.Message, error)
}

// Answer ends the call with a result, which is raw JSON.
func (c *Call) Answer(t testing.TB, result string) {
	t.Helper()
	m := Result(t, result)
	c.done <- func() (*jsonrpc.Message, error) { return m, nil }
}

// Refuse ends the call with a JSON-RPC error, which is raw JSON.
func (c *Call) Refuse(t testing.TB, e string) {
	t.Helper()
	m := Parse(t, `{"jsonrpc":"2.0","id":1,"error":`+e+`}`)
	c.done <- func() (*jsonrpc.Message, error) { return m, nil }
}

// Fail ends the call without an answer.
func (c *Call) Fail(err error) { c.done <- func() (*jsonrpc.Message, error) { return nil, err } }

// Result returns the answer with a result, which is raw JSON.
func Result(t testing.TB, result string) *jsonrpc.Message {
	t.Helper()
	return Parse(t, `{"jsonrpc":"2.0","id":1,"result":`+result+`}`)
}

// Client is a bridge.Client that records the messages to a client.
type Client struct {
	// Reply answers a question. If Reply or its result is nil, the question stays open.
	Reply func(m *jsonrpc.Message) *jsonrpc.Message

	mu  sync.Mutex // guards got
	got []string
}

var _ bridge.Client = (*Client)(nil)

// Notify implements bridge.Client.
func (c *Client) Notify(m *jsonrpc.Message) { c.record(m.Method + " " + string(m.Whole())) }

// Ask implements bridge.Client.
func (c *Client) Ask(m *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	c.record("asked " + m.Method + " " + string(m.Whole()))
	if c.Reply != nil {
		if a := c.Reply(m); a != nil {
			reply(a)
			return nil
		}
	}
	return func(why string) { c.record("withdrawn " + m.Method + " " + why) }
}

// Gone implements bridge.Client.
func (c *Client) Gone(error) { c.record("gone") }

func (c *Client) record(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got = append(c.got, line)
}

// Got returns the messages to the client since the last Got, each as a line of method and params.
func (c *Client) Got() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	got := c.got
	c.got = nil
	return got
}

// Notification returns a notification. params is raw JSON, or empty for a notification without params.
func Notification(t testing.TB, method, params string) *jsonrpc.Message {
	t.Helper()
	if params != "" {
		params = `,"params":` + params
	}
	return Parse(t, `{"jsonrpc":"2.0","method":"`+method+`"`+params+`}`)
}

// Question returns a request of a server. params is a JSON object.
func Question(t testing.TB, method, params string) *jsonrpc.Message {
	t.Helper()
	return Parse(t, `{"jsonrpc":"2.0","id":"q","method":"`+method+`","params":`+params+`}`)
}

// Calls returns the channel of the calls that Serve did not answer, for a test that plays a server in a goroutine.
func (u *Upstream) Calls() <-chan *Call { return u.calls }
