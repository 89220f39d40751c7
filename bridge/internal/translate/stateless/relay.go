package stateless

import (
	"context"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lower"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// relay passes a stateless client's call to a modern server. relay changes only the handles that belong to one client
// (protocol.md D4). named means that the request chose its connection.
func (s *slot) relay(ctx context.Context, r *bridge.Request, named bool, again *lower.Round) (*jsonrpc.Message, error) {
	inner := *r
	if named {
		place := cap(r.Params) - cap(r.Meta())
		edits, _ := jsonrpc.Omit(r.Meta(), place, func(name string) bool { return name == era.KeyLane })
		inner.Message = r.Edited(edits...)
	}
	if again.Ours() { // a handle of the bridge, made when the server was a legacy server
		return jsonrpc.InvalidParams("the call of this requestState no longer exists: the server was replaced"), nil
	}
	up := s.line.Checked()
	h := handles{p: s.p, from: r.From}
	no := h.unwrap(&inner, again)
	if no != nil {
		return no, nil
	}
	if r.Method == era.Listen {
		return relisten(ctx, s.lost, up, &inner, &h)
	}
	inner.Back = &relayed{r.Back, s, era.LogLevel(r.Meta())}
	m, err := up.Call(ctx, &inner)
	switch {
	case err != nil:
		return m, err
	case m.Error != nil && r.Method == "server/discover":
		return s.remembered(m), nil
	case m.Error != nil:
		if e := era.Error(r.Method, r.URI(), m.Error, era.LatestModern, era.LatestModern); !rawjson.Same(e, m.Error) { // the client gets only codes that 2026-07-28 defines
			m.Error = slices.Clone(e)
		}
		return m, nil
	case r.Method == "server/discover":
		return rediscovered(m), nil
	case m.Found().Type.End == 0: // without a resultType, the result is complete
		m.Edit(jsonrpc.First(m.Result, `"resultType":"complete"`))
	default:
		return h.wrap(r, m), nil
	}
	return m, nil
}

// relayed is the Client of a call to a modern server.
type relayed struct {
	bridge.Client
	slot  *slot
	level string // the lowest level of log messages that the client requests; empty for none
}

// Notify passes on a notification about the call, of any method.
func (r *relayed) Notify(m *jsonrpc.Message) {
	r.slot.p.o.Server.Heard(m)
	if era.Wanted(m, r.level) {
		r.Client.Notify(m)
	}
}

// Ask takes a question, although a modern server must not ask any.
func (r *relayed) Ask(m *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	return r.slot.lower.Ask(m, reply)
}

// Gone does nothing: the call itself fails.
func (r *relayed) Gone(error) {}

// remembered returns the stored greeting in place of an error of server/discover. The error may be temporary, or the
// server may lack the method. To a client, the error would mean that the server is not modern.
func (s *slot) remembered(m *jsonrpc.Message) *jsonrpc.Message {
	greeting := s.line.Server()
	if !greeting.Modern() { // the server was replaced just now
		return m
	}
	m.Release()
	return rediscovered(jsonrpc.NewResult(nil, rawjson.SetFirst(greeting.Result, "ttlMs", []byte("0"))))
}

// rediscovered returns the answer to server/discover with the bridge's revisions in place of the server's
// (protocol.md D4, C4).
func rediscovered(m *jsonrpc.Message) *jsonrpc.Message {
	versions := `["` + strings.Join(era.Supported(), `","`) + `"]`
	result := rawjson.SetFirst(m.Whole(), "supportedVersions", []byte(versions))
	for _, must := range [][2]string{{"resultType", `"complete"`}, {"capabilities", "{}"}, {"ttlMs", "0"}, {"cacheScope", `"private"`}} { // the fields that are required
		if !gjson.GetBytes(result, must[0]).Exists() {
			result = rawjson.SetFirst(result, must[0], []byte(must[1]))
		}
	}
	b := m.WithResult(result)
	b.ID = slices.Clone(m.ID)
	m.Release()
	return b
}
