package metatools

import (
	"context"
	"slices"
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Check refuses calls of one server's tools that their definitions do not allow. A call through ReadTool passes only if
// the caller's list says that the tool only reads: without that list, or without the tool in it, the call is refused. A
// call through ReadTool or CallTool never reaches a tool that is not for models. A Check is safe for concurrent use.
type Check struct {
	pages *lru.Cache[list.Page, map[string]manner] // by tool; for lists of one page that come from a cache
}

// NewCheck returns the Check of a server.
func NewCheck() *Check {
	pages, err := lru.New[list.Page, map[string]manner](maxIndexes)
	if err != nil {
		panic(err) // the size is above zero
	}
	return &Check{pages}
}

// Wrap wraps up, a chain of the server with the names and the definitions that clients see.
func (c *Check) Wrap(up bridge.Upstream) bridge.Upstream { return &checked{up, c.pages} }

type checked struct {
	bridge.Upstream
	pages *lru.Cache[list.Page, map[string]manner]
}

// manner holds what a tool's definition says about calls through ReadTool and CallTool.
type manner struct{ reads, visible bool }

// Call implements bridge.Upstream.
func (c *checked) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Through == "" {
		return c.Upstream.Call(ctx, r)
	}
	tool, listed, no, err := c.manner(ctx, r)
	if err != nil {
		return nil, err
	}
	refuse := ""
	switch {
	case no != nil && gjson.GetBytes(no, "code").Int() != jsonrpc.CodeMethodNotFound: // otherwise it has no list
		refuse = "It is not known what " + r.Name() + " does, since its server's list of tools failed: " + gjson.GetBytes(no, "message").Str
	case listed && !tool.visible:
		refuse = r.Name() + " is not for models: its server keeps it for the user interface of its app."
	case r.Through == ReadTool && !listed:
		return list.Tools.Unknown(r.Name()), nil
	case r.Through == ReadTool && !tool.reads:
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

// manner returns what the caller's list says about the called tool. listed reports whether the list has the tool. no is
// the JSON-RPC error of the list. An error means that the caller has cancelled the call, or that the server cannot be
// used.
func (c *checked) manner(ctx context.Context, r *bridge.Request) (tool manner, listed bool, no []byte, err error) {
	first, err := c.Upstream.Call(ctx, own(r, []byte("{}")))
	if err != nil {
		return manner{}, false, nil, err
	}
	page := list.PageOf(first)
	tools, known := c.pages.Get(page)
	if !known {
		tools = map[string]manner{}
		_, more := list.Next(first.Result)
		_, _ = list.Tools.Pages(func(params []byte) (*jsonrpc.Message, error) {
			a := first
			if first = nil; a == nil {
				a, err = c.Upstream.Call(ctx, own(r, params))
			}
			if err == nil && a.Error != nil {
				no = slices.Clone(a.Error)
			}
			return a, err
		}, func(page []byte, _, _ bool) {
			list.Tools.Each(page, func(item []byte, name string) {
				d := gjson.ParseBytes(item)
				tools[strings.Clone(name)] = manner{reads(d), visible(d)} // name is a part of the whole list
			})
		})
		if page != (list.Page{}) && !more {
			c.pages.Add(page, tools)
		}
	}
	tool, listed = tools[r.Name()]
	return tool, listed, no, err
}
