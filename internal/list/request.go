package list

import (
	"encoding/json"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Unknown returns the error about a tool or prompt that does not exist (A14).
func (k Kind) Unknown(name string) *jsonrpc.Message {
	what := map[Kind]string{Tools: "tool", Prompts: "prompt"}[k]
	return jsonrpc.InvalidParams("Unknown " + what + ": " + name)
}

// NoResource returns the error about a resource that does not exist (A14). 2026-07-28 has no code of its own for that
//
func NoResource(modern bool, uri string) *jsonrpc.Message {
	code := jsonrpc.CodeNoResource
	if modern {
		code = jsonrpc.CodeInvalidParams
	}
	return jsonrpc.NewError(nil, code, "Resource not found", []byte(`{"uri":`+rawjson.Quote(uri)+`}`))
}

// Reference is what a completion/complete is about: a prompt, or a resource or template.
type Reference struct {
	Name, URI string // one of them is empty

	m           *jsonrpc.Message
	params, ref map[string]json.RawMessage
}

// ReferenceOf reads params.ref of a completion/complete. If it has no valid reference, ReferenceOf returns the error
// for the client. A member that is duplicated, or whose name differs only in case, is ambiguous and removed. A
// reference with both a name and a URI is an error, since servers may choose either.
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

// Named returns the request with another name of a prompt.
func (r *Reference) Named(name string) *jsonrpc.Message { return r.with("name", name) }

// Located returns the request with the URI of the reference, and without ambiguous members.
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
		panic(err) // decoded raw members always encode
	}
	m := &jsonrpc.Message{
		ID:     r.m.ID,
		Method: r.m.Method,
		Params: params,
	}
	return m.Clone() // Clone parses the message, which finds its progress token
}
