package lift

import (
	"context"

	"github.com/google/uuid"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// grade makes a call to a legacy server of another revision than the client's (protocol.md D3, D5). Messages
// that both understand pass unchanged.
func (l *Lift) grade(ctx context.Context, g *bridge.Greeting, r *bridge.Request) (*jsonrpc.Message, error) {
	mine, theirs := l.from.Revision, g.Revision
	inner := *r
	uri := ""
	if r.Method == "resources/read" {
		uri = r.URI()
	}
	inner.Message = edited(r.Message, func(params []byte) []byte { return era.Params(r.Method, params, mine, theirs) })
	if r.Back != nil {
		inner.Back = &graded{r.Back, l.from, theirs}
	}
	m, err := l.Upstream.Call(ctx, &inner)
	if err != nil {
		return nil, err
	}
	return l.downgraded(m, r.Method, uri, theirs, mine), nil
}

// downgraded returns an answer of revision from for a client of revision to. downgraded releases m if it returns
// another message.
func (l *Lift) downgraded(m *jsonrpc.Message, method, uri, from, to string) *jsonrpc.Message {
	var b *jsonrpc.Message
	switch {
	case m.Error != nil:
		if e := era.Error(method, uri, m.Error, from, to); !rawjson.Same(e, m.Error) {
			b = &jsonrpc.Message{Error: e}
		}
	default:
		if result := l.o.Rewrites.Result(m, method, from, to); !rawjson.Same(result, m.Result) {
			b = &jsonrpc.Message{Result: result}
		}
	}
	if b == nil {
		return m
	}
	b.ID = []byte("0") // the session sets the id
	b = b.Clone()      // Clone parses b, so that its members are known
	m.Release()
	return b
}

// edited returns the message with its params mapped by f. edited returns m if f changes nothing.
func edited(m *jsonrpc.Message, f func(params []byte) []byte) *jsonrpc.Message {
	if rawjson.Same(f(m.Params), m.Params) {
		return m
	}
	m = m.Clone() // Clone applies the other edits of m
	return m.WithParams(f(m.Params))
}

// graded is the Client of a connection whose server has another revision than the client from.
type graded struct {
	bridge.Client
	from   *bridge.Caller
	server string
}

func (g *graded) Notify(m *jsonrpc.Message) {
	g.Client.Notify(m.WithParams(era.Notification(m.Method, m.Params, g.server, g.from.Revision)))
}

// Ask passes on a question and its answer, or rejects a question that the client cannot be asked.
func (g *graded) Ask(m *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	params, no := era.Question(m.Method, m.Params, g.server, g.from.Revision, g.from.Capabilities, uuid.NewString)
	if no != nil {
		reply(no.Answer())
		return nil
	}
	method := m.Method
	return g.Client.Ask(m.WithParams(params), func(m *jsonrpc.Message) {
		if m.Error == nil {
			result, no := era.Answer(method, m.Result, g.from.Revision, g.server)
			switch {
			case no != nil:
				m = no.Answer()
			case !rawjson.Same(result, m.Result):
				m = m.WithResult(result)
			}
		}
		reply(m)
	})
}
