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

// relay makes the call of a client without a session to a server of its own
// era: it goes as it is, but for the handles that only the client may use that
// was given them (protocol.md D4). named says that the request has chosen its
// connection.
func (l *slot) relay(ctx context.Context, r *bridge.Request, named bool, again *lower.Round) (*jsonrpc.Message, error) {
	inner := *r
	if named {
		place := cap(r.Params) - cap(r.Meta())
		edits, _ := jsonrpc.Omit(r.Meta(), place, func(name string) bool { return name == era.KeyLane })
		inner.Message = r.Edited(edits...)
	}
	if again.Ours() { // it is the bridge's own, of when the server was a legacy one
		return jsonrpc.InvalidParams("the call that this requestState belongs to is gone: the server has become another"), nil
	}
	up := l.line.Checked()
	h := handles{p: l.p, from: r.From}
	no := h.unwrap(&inner, again)
	if no != nil {
		return no, nil
	}
	if r.Method == era.Listen {
		return relisten(ctx, l.lost, up, &inner, &h)
	}
	inner.Back = &relayed{r.Back, l, era.LogLevel(r.Meta())}
	a, err := up.Call(ctx, &inner)
	switch {
	case err != nil:
		return a, err
	case a.Error != nil && r.Method == "server/discover":
		return l.remembered(a), nil
	case a.Error != nil:
		if e := era.Error(r.Method, r.URI(), a.Error, era.LatestModern, era.LatestModern); !rawjson.Same(e, a.Error) {
			a.Error = slices.Clone(e)
		}
		return a, nil
	case r.Method == "server/discover":
		return rediscovered(a), nil
	case a.Found().Type.End == 0:
		a.Edit(jsonrpc.First(a.Result, `"resultType":"complete"`))
	default:
		return h.wrap(r, a), nil
	}
	return a, nil
}

// relayed is the Client of a call to a modern server.
type relayed struct {
	bridge.Client
	slot  *slot
	level string // from which on the client wants log messages; empty means none
}

// Notify passes on what the server says about the call, which may be anything
//
func (c *relayed) Notify(n *jsonrpc.Message) {
	c.slot.p.o.Heard(n)
	if era.Wanted(n, c.level) {
		c.Client.Notify(n)
	}
}

// Ask takes a question, which a modern server has no business to ask.
func (c *relayed) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	return c.slot.lower.Ask(q, reply)
}

// Gone is of no interest: the call itself fails.
func (c *relayed) Gone(error) {}

// remembered returns in place of an error what the server said when it was found
// to be a modern one: to a client, an error would say that it is none, although
// it passes, or is that of a server without server/discover.
func (l *slot) remembered(a *jsonrpc.Message) *jsonrpc.Message {
	s := l.line.Server()
	if !s.Modern() { // it has just become another one
		return a
	}
	a.Release()
	return rediscovered(jsonrpc.NewResult(nil, rawjson.SetFirst(s.Result, "ttlMs", []byte("0"))))
}

// rediscovered returns the answer to server/discover with the revisions that
// the bridge serves in place of the server's own (protocol.md D4, C4).
func rediscovered(a *jsonrpc.Message) *jsonrpc.Message {
	versions := `["` + strings.Join(era.Supported(), `","`) + `"]`
	result := rawjson.SetFirst(a.Whole(), "supportedVersions", []byte(versions))
	for _, must := range [][2]string{{"resultType", `"complete"`}, {"capabilities", "{}"}, {"ttlMs", "0"}, {"cacheScope", `"private"`}} {
		if !gjson.GetBytes(result, must[0]).Exists() {
			result = rawjson.SetFirst(result, must[0], []byte(must[1]))
		}
	}
	b := a.WithResult(result)
	b.ID = slices.Clone(a.ID)
	a.Release()
	return b
}
