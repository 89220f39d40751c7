package toolset

import (
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// PickArg is the argument with which models choose a part of an answer.
const PickArg = "_pick"

const pickSchema = `{"type":"string","description":"Only this part of the answer, as a gjson path such as items.#.name or items.#.{id,name}"}`

// OfferPick adds PickArg to the tool and removes the output schema, since answers then vary. If the
// tool already has an argument of that name, OfferPick does nothing.
func (t *Tool) OfferPick() {
	if gjson.GetBytes(t.InputSchema, "properties."+PickArg).Exists() {
		return
	}
	seen, call := *t.Tool, *t.Call
	seen.InputSchema = withPick(t.InputSchema)
	t.Tool, t.Call, t.Picks = &seen, &call, true
	t.LeaveOutput()
}

func (t *Tool) LeaveOutput() {
	if t.OutputSchema == nil && t.Call.OutputSchema == nil {
		return
	}
	seen, call := *t.Tool, *t.Call
	seen.OutputSchema, call.OutputSchema = nil, nil
	seen.Wrapped, call.Wrapped = false, false
	t.Tool, t.Call = &seen, &call
}

func withPick(schema []byte) []byte {
	properties := []byte(gjson.GetBytes(schema, "properties").Raw)
	if len(properties) == 0 {
		properties = []byte("{}")
	}
	return rawjson.Set(schema, "properties", rawjson.Set(properties, PickArg, []byte(pickSchema)))
}

// WithoutPick returns arguments without PickArg, which the API does not have.
func WithoutPick(args []byte) []byte {
	return rawjson.Rewrite(args, func(name string, value []byte) (string, []byte) {
		if name == PickArg {
			return name, nil
		}
		return name, value
	})
}
