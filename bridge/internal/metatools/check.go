package metatools

import (
	"context"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/listing"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// Check refuses calls of one server's tools that their definitions do not allow. A call through ReadTool passes only if
// the caller's list says that the tool only reads: without that list, or without the tool in it, the call is refused. A
// call through ReadTool or CallTool never reaches a tool that is not for models. A Check is safe for concurrent use.
type Check struct{ tools *listing.Finder[manner] }

// NewCheck returns the Check of a server.
func NewCheck() *Check {
	return &Check{listing.New(func(tool gjson.Result) manner { return manner{reads(tool), visible(tool)} })}
}

// Wrap wraps up, a chain of the server with the names and the definitions that clients see.
func (c *Check) Wrap(up bridge.Upstream) bridge.Upstream { return &checked{up, c.tools} }

type checked struct {
	bridge.Upstream
	tools *listing.Finder[manner]
}

// manner holds what a tool's definition says about calls through ReadTool and CallTool.
type manner struct{ reads, visible bool }

// Call implements bridge.Upstream.
func (c *checked) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Through == "" {
		return c.Upstream.Call(ctx, r)
	}
	tool, listed, no, err := c.tools.Find(ctx, c.Upstream, r, r.From.Modern())
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
	return era.Refused(r.From.Modern(), r.Message, refuse), nil
}
