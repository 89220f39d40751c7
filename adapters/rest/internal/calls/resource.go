package calls

import (
	"context"
	"errors"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/tools"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire/param"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// resourceReader returns the function for wire.Call.Resource, or nil if there are no resources. A
// resource that clients may not read counts as missing.
func (a *API) resourceReader(e *Edition, equip func(*toolset.Tool, []byte) *wire.Call) func(string) (*wire.Call, error) {
	if !e.HasResources() {
		return nil
	}
	return func(uri string) (*wire.Call, error) {
		if a.o.Reads != nil && !a.o.Reads(uri) {
			return nil, param.Refusal(tools.ErrNoResource.Error())
		}
		r, args, err := e.ResourceAt(uri)
		if err != nil {
			return nil, param.Refusal(err.Error())
		}
		return equip(r.Tool, args), nil
	}
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
