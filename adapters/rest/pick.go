package rest

import "github.com/tidwall/gjson"

// pickArg is the argument by which models choose parts of an answer.
const pickArg = "_pick"

const pickSchema = `{"type":"string","description":"Only this part of the answer, as a gjson path such as items.#.name or items.#.{id,name}"}`

// offerPick gives the tool the argument, unless it has one of that name. What its
// answers look like cannot be said then.
func (t *tool) offerPick() {
	if gjson.GetBytes(t.InputSchema, "properties."+pickArg).Exists() {
		return
	}
	seen, call := *t.Tool, *t.call
	seen.InputSchema = withPick(t.InputSchema)
	seen.OutputSchema, call.OutputSchema = nil, nil
	seen.Wrapped, call.Wrapped = false, false
	if before := t.patch; before != nil {
		t.patch = func(schema []byte) []byte { return withPick(before(schema)) }
	} else {
		t.patch = withPick
	}
	t.Tool, t.call, t.picks = &seen, &call, true
}

// withPick returns an input schema with the argument.
func withPick(schema []byte) []byte {
	properties := []byte(gjson.GetBytes(schema, "properties").Raw)
	if len(properties) == 0 {
		properties = []byte("{}")
	}
	return put(schema, "properties", put(properties, pickArg, []byte(pickSchema)))
}

// withoutPick returns arguments without it: it is not the API's.
func withoutPick(args []byte) []byte {
	return members(args, func(name string, value []byte) (string, []byte) {
		if name == pickArg {
			return name, nil
		}
		return name, value
	})
}
