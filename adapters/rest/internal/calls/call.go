package calls

import (
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/tools"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire/param"
)

// callOf returns the call for package wire with args, and nothing else of the caller.
func callOf(t *toolset.Tool, args []byte) *wire.Call {
	c := &wire.Call{
		Tool:     t.Call,
		Args:     args,
		Result:   t.Result,
		Settings: t.Settings,
	}
	if t.Picks {
		c.Pick, c.PickName = gjson.GetBytes(args, toolset.PickArg).String(), toolset.PickArg
	}
	if t.Picks || t.Prepare != nil {
		c.Rewrite = func(args []byte) ([]byte, error) {
			if t.Picks {
				args = toolset.WithoutPick(args)
			}
			if t.Prepare != nil {
				return t.Prepare(args)
			}
			return args, nil
		}
	}
	return c
}

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
