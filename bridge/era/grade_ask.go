package era

import (
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// Refusal is the error for the sender of a message that cannot be translated. Data is raw JSON, or nil.
type Refusal struct {
	Code    int
	Message string
	Data    []byte
}

func (r *Refusal) Answer() *jsonrpc.Message {
	return jsonrpc.NewError(nil, r.Code, r.Message, r.Data)
}

func invalid(message string) *Refusal {
	return &Refusal{Code: jsonrpc.CodeInvalidParams, Message: message}
}

// asking maps the methods of questions to the client capability that each needs.
var asking = map[string]string{
	"sampling/createMessage": "sampling",
	"elicitation/create":     "elicitation",
	"roots/list":             "roots",
}

// Question returns the params of a question as a client of revision to with these capabilities understands them. If the
// client cannot answer the question, Question returns the reason (R-019, R-120; protocol.md D5, D8). mint makes the
// elicitationId, which 2025-11-25 requires and 2026-07-28 does not have.
func Question(method string, params []byte, from, to string, capabilities []byte, mint func() string) ([]byte, *Refusal) {
	need, known := asking[method]
	if !known {
		return params, nil
	}
	had := rawjson.Get(capabilities, need)
	if !rawjson.Given(had) || had[0] == 'f' {
		return nil, lacks(need)
	}
	var no *Refusal
	switch method {
	case "elicitation/create":
		params, no = elicitation(params, from, to, had, mint)
	case "sampling/createMessage":
		params, no = sampling(params, from, to, had)
	}
	if no != nil {
		return nil, no
	}
	if IsModern(from) != IsModern(to) || from > to {
		params = rawjson.Delete(params, "task")
	}
	if IsModern(to) && !IsModern(from) {
		params = dropMeta(params, "progressToken")
	}
	return params, nil
}

func lacks(capability string) *Refusal {
	return &Refusal{Code: jsonrpc.CodeMethodNotFound, Message: "the client does not have the capability " + capability}
}

func elicitation(params []byte, from, to string, had []byte, mint func() string) ([]byte, *Refusal) {
	older := from > to
	if older && to < Rev20250618 {
		return nil, lacks("elicitation")
	}
	mode := "form"
	if value := rawjson.Get(params, "mode"); rawjson.Given(value) {
		var ok bool
		if mode, ok = rawjson.Text(value); !ok {
			return nil, invalid("params.mode is not a string")
		}
	}
	form := mode == "form" && !rawjson.Given(rawjson.Get(had, "url")) // an empty capability means form (A12)
	if !form && !rawjson.Given(rawjson.Get(had, mode)) || mode == "url" && older && to < Rev20251125 {
		return nil, invalid("the client does not have the capability elicitation." + short(mode))
	}
	switch {
	case mode == "url" && to == Rev20251125:
		if id, _ := rawjson.Text(rawjson.Get(params, "elicitationId")); id == "" && rawjson.IsObject(params) {
			params = rawjson.Set(params, "elicitationId", []byte(rawjson.Quote(mint())))
		}
	case IsModern(to) && !IsModern(from):
		params = rawjson.Delete(params, "elicitationId")
	case older && to < Rev20251125:
		return simpleForm(rawjson.Delete(params, "mode"))
	}
	return params, nil
}

// short cuts a text of a peer to 40 bytes, for an error message.
func short(s string) string { return sanitize.Short(s, 40) }

// simpleForm returns a form as 2025-06-18 has it: with defaults only for booleans, with the titles of choices in a list
// of their own, and without multiple choices.
func simpleForm(params []byte) ([]byte, *Refusal) {
	var no *Refusal
	params = rawjson.Edit(params, func(name, schema []byte) []byte {
		if string(name) != "requestedSchema" {
			return schema
		}
		return rawjson.Edit(schema, func(name, properties []byte) []byte {
			if string(name) != "properties" {
				return properties
			}
			return rawjson.Edit(properties, func(name, p []byte) []byte {
				p, why := simpleField(p)
				if why != "" && no == nil {
					no = invalid("the client's revision cannot express " + short(string(name)) + ": " + why)
				}
				return p
			})
		})
	})
	if no != nil {
		return nil, no
	}
	return params, nil
}

func simpleField(p []byte) (field []byte, why string) {
	if t, _ := rawjson.Text(rawjson.Get(p, "type")); t == "array" {
		return p, "it allows several choices"
	}
	if one := rawjson.Get(p, "oneOf"); one != nil {
		values, names, ok := choices(one)
		if !ok {
			return p, "its choices are not strings"
		}
		p = rawjson.Set(p, "enum", values)
		p = rawjson.Set(p, "enumNames", names)
		p = rawjson.Delete(p, "oneOf")
	}
	return rawjson.Edit(p, func(name, value []byte) []byte {
		if string(name) == "default" && value[0] != 't' && value[0] != 'f' {
			return nil
		}
		return value
	}), ""
}

// choices returns the values and the titles of oneOf as two arrays. It reports false if a value is not a string.
func choices(oneOf []byte) (values, names []byte, ok bool) {
	var v, n [][]byte
	ok = true
	ok = rawjson.Walk(oneOf, '[', func(_, at, end int) bool {
		value, title := rawjson.Get(oneOf[at:end], "const"), rawjson.Get(oneOf[at:end], "title")
		if _, ok = rawjson.Text(value); !ok {
			return false
		}
		if _, titled := rawjson.Text(title); !titled {
			title = value
		}
		v, n = append(v, value), append(n, title)
		return true
	}) && ok && len(v) > 0
	return list(v...), list(n...), ok
}

func sampling(params []byte, from, to string, had []byte) ([]byte, *Refusal) {
	tools, choice := rawjson.Get(params, "tools"), rawjson.Get(params, "toolChoice")
	switch {
	case to >= Rev20251125:
		if (rawjson.Given(tools) || rawjson.Given(choice)) && !rawjson.Given(rawjson.Get(had, "tools")) {
			return nil, invalid("the client does not have the capability sampling.tools")
		}
		return params, nil
	case from <= to:
		return params, nil
	case rawjson.Given(tools) && !(rawjson.IsArray(tools) && len(tools) > 1 && tools[rawjson.Space(tools, 1)] == ']'):
		return nil, invalid("the client does not have the capability sampling.tools")
	}
	var no *Refusal
	params = rawjson.Edit(params, func(name, value []byte) []byte {
		switch string(name) {
		case "tools", "toolChoice":
			return nil
		case "messages":
			var why *Refusal
			if value, why = singles(value, to); why != nil {
				no = why
			}
		}
		return value
	})
	if no != nil {
		return nil, no
	}
	return params, nil
}

// singles returns the messages with one block of content in each, as revisions before 2025-11-25 require.
func singles(messages []byte, to string) ([]byte, *Refusal) {
	var no *Refusal
	refuse := func(m []byte) []byte {
		no = invalid("the client's revision does not allow this content in sampling")
		return m
	}
	messages = rawjson.EditItems(messages, func(m []byte) []byte {
		content := rawjson.Get(m, "content")
		if !rawjson.IsArray(content) {
			if kind, _ := rawjson.Text(rawjson.Get(content, "type")); kind == "tool_use" || kind == "tool_result" || kind == "audio" && to < Rev20250326 {
				return refuse(m)
			}
			return m
		}
		role := rawjson.Get(m, "role")
		if r, _ := rawjson.Text(role); r != "user" && r != "assistant" {
			return refuse(m)
		}
		var all [][]byte
		rawjson.Walk(content, '[', func(_, at, end int) bool {
			b := content[at:end]
			switch kind, _ := rawjson.Text(rawjson.Get(b, "type")); {
			case kind == "text", kind == "image", kind == "audio" && to >= Rev20250326:
			default:
				refuse(m)
				return false
			}
			if len(all) == 0 { // the other members of the message appear only once
				all = append(all, rawjson.Set(m, "content", b))
				return true
			}
			next := append(append([]byte(`{"role":`), role...), `,"content":`...)
			all = append(all, append(append(next, b...), '}'))
			return true
		})
		if no != nil || len(all) == 0 {
			return nil
		}
		out := list(all...)
		return out[1 : len(out)-1] // EditItems puts these items in place of one
	})
	if no != nil {
		return nil, no
	}
	return messages, nil
}
