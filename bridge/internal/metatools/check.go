package metatools

import (
	"context"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Check wraps up, the chain of one server with the names and the definitions that the server's clients see. A call
// through ReadTool passes only if the caller's list says that the tool only reads: without that list, or without the
// tool in it, the call is refused. A call through ReadTool or CallTool never reaches a tool that is not for models.
func Check(up bridge.Upstream) bridge.Upstream { return &checked{up} }

type checked struct{ bridge.Upstream }

// Call implements bridge.Upstream.
func (c *checked) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Through == "" {
		return c.Upstream.Call(ctx, r)
	}
	definition, no, err := c.definition(ctx, r)
	if err != nil {
		return nil, err
	}
	refuse := ""
	switch d := gjson.ParseBytes(definition); {
	case no != nil && gjson.GetBytes(no, "code").Int() != jsonrpc.CodeMethodNotFound: // otherwise it has no list
		refuse = "It is not known what " + r.Name() + " does, since its server's list of tools failed: " + gjson.GetBytes(no, "message").Str
	case definition != nil && !visible(d):
		refuse = r.Name() + " is not for models: its server keeps it for the user interface of its app."
	case r.Through == ReadTool && definition == nil:
		return list.Tools.Unknown(r.Name()), nil
	case r.Through == ReadTool && !reads(d):
		refuse = r.Name() + " may change something: call it with " + CallTool + "."
	default:
		return c.Upstream.Call(ctx, r)
	}
	return Refusal(r.From, r.Message, refuse), nil
}

// Refusal returns the answer to a call of a tool that the bridge refuses. The answer is a result, so that models read
// it. A client that expects a task gets an error.
func Refusal(from *bridge.Caller, m *jsonrpc.Message, why string) *jsonrpc.Message {
	if gjson.GetBytes(m.Params, "task").Exists() && !from.Modern() {
		return jsonrpc.InvalidParams(why)
	}
	result := `"content":[{"type":"text","text":` + rawjson.Quote(why) + `}],"isError":true}`
	if from.Modern() {
		result = `"resultType":"complete",` + result
	}
	return jsonrpc.NewResult(nil, []byte("{"+result))
}

// definition returns the definition of the called tool in the caller's list; nil if the list does not have the tool. no
// is the JSON-RPC error of the list. An error means that the caller has cancelled the call, or that the server cannot be
// used.
func (c *checked) definition(ctx context.Context, r *bridge.Request) (found, no []byte, err error) {
	_, _ = list.Tools.Pages(func(params []byte) (*jsonrpc.Message, error) {
		if found != nil { // further pages do not matter
			return jsonrpc.NewResult(nil, []byte("{}")), nil
		}
		var a *jsonrpc.Message
		if a, err = c.Upstream.Call(ctx, own(r, params)); err == nil && a.Error != nil {
			no = slices.Clone(a.Error)
		}
		return a, err
	}, func(page []byte, _, _ bool) {
		list.Tools.Each(page, func(item []byte, name string) {
			if name == r.Name() {
				found = item
			}
		})
	})
	return found, no, err
}
