package list

import (
	"encoding/json"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Unknown returns the error for an unknown tool or prompt (A14).
func (k Kind) Unknown(name string) *jsonrpc.Message {
	what := map[Kind]string{Tools: "tool", Prompts: "prompt"}[k]
	return jsonrpc.InvalidParams("Unknown " + what + ": " + name)
}

// NoResource returns the error for an unknown resource (A14). 2026-07-28 has no code of its own for it
//
func NoResource(modern bool, uri string) *jsonrpc.Message {
	code := jsonrpc.CodeNoResource
	if modern {
		code = jsonrpc.CodeInvalidParams
	}
	return jsonrpc.NewError(nil, code, "Resource not found", []byte(`{"uri":`+rawjson.Quote(uri)+`}`))
}

// Reference is the subject of a completion request: a prompt, or a resource or template.
type Reference struct {
	Name, URI string // one of them is empty

	m           *jsonrpc.Message
	params, ref map[string]json.RawMessage
}

// ReferenceOf parses params.ref of a completion request. If it has none, the returned message is the error
// answer. A member that occurs twice, or whose name differs in case only, is ambiguous and is removed. A
// reference to both a prompt and a resource is an error: servers might choose differently.
func ReferenceOf(m *jsonrpc.Message) (*Reference, *jsonrpc.Message) {
	r := &Reference{m: m, params: rawjson.Members(m.Params, "ref")}
	r.ref = rawjson.Members(r.params["ref"], "name", "uri")
	_, named := r.ref["name"]
	_, located := r.ref["uri"]
	if r.ref == nil || named && located {
		return nil, jsonrpc.InvalidParams("params.ref must be an object with either name, for a prompt, or uri, for a resource")
	}
	r.Name, r.URI = gjson.ParseBytes(r.ref["name"]).Str, gjson.ParseBytes(r.ref["uri"]).Str
	return r, nil
}

// Named returns the request with another prompt name.
func (r *Reference) Named(name string) *jsonrpc.Message { return r.with("name", name) }

// Located returns the request with the URI of its resource or template.
func (r *Reference) Located() *jsonrpc.Message { return r.with("uri", r.URI) }

func (r *Reference) with(member, text string) *jsonrpc.Message {
	r.ref[member] = []byte(rawjson.Quote(text))
	var params []byte
	ref, err := json.Marshal(r.ref)
	if err == nil {
		r.params["ref"] = ref
		params, err = json.Marshal(r.params)
	}
	if err != nil {
		panic(err) // raw members that were just decoded always encode
	}
	m := &jsonrpc.Message{
		ID:     r.m.ID,
		Method: r.m.Method,
		Params: params,
	}
	return m.Clone() // parsed, so that its progress token is known
}
