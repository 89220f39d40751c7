package inprocess

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	sdk "github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// errNone is the error of a caller who gets no server.
var errNone = errors.New("there is no server for this caller")

// connect starts a session with the SDK's server for that caller.
func (a *Adapter) connect(u *session, from *bridge.Caller) (func() error, error) {
	s, err := a.pick(from)
	if err != nil {
		return nil, err
	}
	a.guards.add(s)
	session, err := s.Connect(context.WithValue(u.ctx, upstreamKey{}, u), transport{u}, nil)
	if err != nil {
		return nil, err
	}
	return func() error {
		err := session.Wait()
		_ = session.Close() // stops the keep-alive, which would otherwise run until the next ping
		return err
	}, nil
}

// pick returns the server for that caller. It turns a panic of Adapter.server into an error.
func (a *Adapter) pick(from *bridge.Caller) (s *mcp.Server, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("panic: %v", fault)
		}
	}()
	if s = a.server(from); s == nil {
		return nil, errNone
	}
	return s, nil
}

// transport connects a server of the SDK to a session.
type transport struct{ u *session }

var _ mcp.Transport = transport{}

// Connect implements mcp.Transport.
func (t transport) Connect(context.Context) (mcp.Connection, error) { return connection(t), nil }

// connection is a session as the SDK sees it.
type connection struct{ u *session }

var _ mcp.Connection = connection{}

// SessionID implements mcp.Connection. It returns "", since the bridge has the session ids.
func (c connection) SessionID() string { return "" }

// Close implements mcp.Connection. The SDK's session calls it at its end, which watch reports.
func (c connection) Close() error {
	c.u.queue.Stop(c.u.a.name.Lost("it ended the session", nil), io.EOF)
	return nil
}

// Read implements mcp.Connection. It ignores its context, which never ends. Stopping the queue ends
// Read.
func (c connection) Read(context.Context) (sdk.Message, error) {
	o, err := c.u.queue.Take()
	if err != nil {
		return nil, err
	}
	return incoming(o)
}

// incoming converts a message of the queue to one of the SDK. This takes one pass over the text, a
// fraction of the SDK's own decoding. The payload shares the line's memory, which is left to the
// garbage collector, since a handler may keep its arguments for any time.
func incoming(o conn.Outgoing) (sdk.Message, error) {
	m, err := jsonrpc.Parse(o.Line.B)
	if err != nil {
		return nil, err
	}
	var id sdk.ID
	if m.ID != nil {
		if id, err = number(m.ID); err != nil {
			return nil, err
		}
	}
	if m.IsResponse() {
		r := &sdk.Response{ID: id, Result: m.Result}
		if m.Error != nil {
			r.Error = problem(m.Error)
		}
		return r, nil
	}
	// Tools that were written for the SDK's HTTP server expect Extra.
	return &sdk.Request{
		ID:     id,
		Method: m.Method,
		Params: m.Params,
		Extra:  &mcp.RequestExtra{Header: o.Header},
	}, nil
}

// number converts a raw id to one of the SDK. All ids here are small numbers, from the counters of the
// bridge and the SDK.
func number(raw []byte) (sdk.ID, error) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		return sdk.ID{}, err
	}
	return sdk.MakeID(float64(n))
}

// problem converts a raw error to one of the SDK. A malformed error of a client becomes the data of
// another error, so that it does not end the session.
func problem(raw []byte) *sdk.Error {
	e := new(sdk.Error)
	if err := json.Unmarshal(raw, e); err != nil {
		return &sdk.Error{
			Code:    sdk.CodeInternalError,
			Message: "the client's error is malformed",
			Data:    raw,
		}
	}
	return e
}

// Write implements mcp.Connection.
func (c connection) Write(_ context.Context, msg sdk.Message) error {
	switch msg := msg.(type) {
	case *sdk.Request:
		return c.say(&jsonrpc.Message{
			ID:     raw(msg.ID),
			Method: msg.Method,
			Params: msg.Params,
		})
	case *sdk.Response:
		if msg.Error == nil {
			// The SDK's encoder has made the result, so it is valid JSON on one line.
			return c.u.limited(jsonrpc.NewResult(raw(msg.ID), msg.Result))
		}
		line, err := sdk.EncodeMessage(msg)
		if err != nil {
			return err
		}
		m, err := jsonrpc.Parse(line)
		if err != nil { // not returned, since it would end the session
			c.u.Unanswerable(raw(msg.ID), "its answer cannot be passed on: "+err.Error())
			return nil
		}
		return c.u.limited(m)
	}
	return fmt.Errorf("a message of type %T", msg)
}

// say delivers a request or notification of the server. It parses the text for the spans that the
// bridge reads.
func (c connection) say(m *jsonrpc.Message) error {
	line := jsonrpc.NewBuffer(m.Len())
	line.B = m.Append(line.B, m.ID, nil)
	parsed, err := jsonrpc.Parse(line.B)
	if err != nil {
		// The message may be nested too deeply for the bridge. An error would end the session.
		line.Free()
		c.u.a.o.Log.Warn("message dropped: it cannot be passed on", "method", m.Method, "err", err)
		c.u.refuse(m, "the request cannot be passed on: "+err.Error())
		return nil
	}
	return c.u.limited(parsed.Own(line))
}

// raw returns the id as JSON, or nil if there is none.
func raw(id sdk.ID) []byte {
	n, ok := id.Raw().(int64)
	if !ok {
		return nil
	}
	return strconv.AppendInt(nil, n, 10)
}

// limited delivers a message, or drops it if it is larger than MaxMessage and conn.EnvelopeRoom.
func (s *session) limited(m *jsonrpc.Message) error {
	if size := m.Len(); size > s.a.o.MaxMessage+conn.EnvelopeRoom {
		s.tooLarge(m, size)
		m.Release()
		return nil
	}
	return s.deliver(m)
}
