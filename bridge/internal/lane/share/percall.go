package share

import (
	"context"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// PerCall is an Upstream that opens a connection for each request and closes it afterwards. Nothing that a server
// holds in memory survives the request.
type PerCall struct {
	Name   string
	Client bridge.Client // Gone is called if the server comes back with another revision
	Budget *lane.Budget
	Force  context.Context // ends when the time to close connections is over
	// Open returns a lane whose server first gets that level, as params of logging/setLevel, and the Upstream
	// for one call.
	Open func(level []byte) (*lane.Lane, bridge.Upstream)

	wg sync.WaitGroup // awaits connections that are closing

	mu     sync.Mutex // guards the rest
	server *bridge.Greeting
	level  []byte // params of the last logging/setLevel
	closed bool
}

// Server returns the greeting of the first handshake, or nil.
func (p *PerCall) Server() *bridge.Greeting {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.server
}

// Call opens a connection, makes the call and closes the connection.
func (p *PerCall) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	switch r.Method {
	case "resources/subscribe", "resources/unsubscribe":
		return jsonrpc.NewError(nil, jsonrpc.CodeMethodNotFound, "this server starts anew for each call: it has no subscriptions", nil), nil
	}
	p.mu.Lock()
	level := p.level
	if p.closed {
		p.mu.Unlock()
		return nil, bridge.ErrEnded
	}
	p.wg.Add(1)
	p.mu.Unlock()
	l, up := p.Open(level)
	defer func() { // the caller does not wait until the process ends
		closed := p.Budget.Closing()
		go func() {
			defer p.wg.Done()
			defer closed()
			_ = l.Close(p.Force)
		}()
	}()
	if err := p.checkRevision(ctx, l); err != nil {
		return nil, err
	}
	m, err := up.Call(ctx, r)
	if err != nil || m.Error != nil {
		return m, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch r.Method {
	case "initialize":
		p.server = l.Server()
		m = jsonrpc.NewResult(nil, perCallResult(m.Result))
	case "logging/setLevel":
		p.level = append([]byte(nil), r.Params...)
	}
	return m, nil
}

// checkRevision opens the connection and checks that the server still uses the session's revision.
func (p *PerCall) checkRevision(ctx context.Context, l *lane.Lane) error {
	before := p.Server()
	if before == nil {
		return nil
	}
	now, _, err := l.Known(ctx)
	if err != nil || now.Revision == before.Revision {
		return err
	}
	err = &bridge.Error{
		Server: p.Name,
		Kind:   bridge.ErrUnavailable,
		Public: "it came back with another revision: initialize again",
	}
	p.Client.Gone(err)
	return err
}

// perCallResult removes features from a result of initialize that need a connection between calls.
func perCallResult(result []byte) []byte {
	caps := capabilities(result)
	for _, kind := range []string{"tools", "prompts", "resources"} {
		if c := gjson.GetBytes(caps, kind); c.IsObject() {
			caps = rawjson.Set(caps, kind, rawjson.Delete(rawjson.Delete([]byte(c.Raw), "listChanged"), "subscribe"))
		}
	}
	return rawjson.Set(result, "capabilities", caps)
}

// Notify drops the notification, because there is no connection.
func (p *PerCall) Notify(context.Context, *bridge.Request) error { return nil }

// Close waits until the connections of ended calls are closed.
func (p *PerCall) Close(context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.wg.Wait()
	return nil
}
