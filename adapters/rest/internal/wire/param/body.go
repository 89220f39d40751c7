package param

import (
	"strings"

	"github.com/tidwall/gjson"
	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/internal/httpio"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// bodyValue returns the argument that is the body, or an object of the arguments that are its fields.
// If the body is required and no field is given, the object is empty. ok reports whether there is a
// body.
func (a *assembly) bodyValue() (name string, v gjson.Result, ok bool) {
	var flat []byte
	flattened := false
	for _, arg := range a.tool.Arguments {
		if arg.Place != openapi.InBody {
			continue
		}
		one, has := a.values[arg.Name]
		if arg.Field == "" {
			return arg.Name, one, has
		}
		flattened = true
		if !has {
			continue
		}
		flat = append(append(rawjson.AppendString(append(flat, ','), arg.Field), ':'), one.Raw...)
	}
	if flat == nil {
		if b := a.tool.Operation.Body; !flattened || b == nil || !b.Required {
			return "", gjson.Result{}, false
		}
		flat = []byte{','}
	}
	flat[0] = '{'
	return "body", gjson.ParseBytes(append(flat, '}')), true
}

// body returns the encoded body, and sets Content-Type. The result is nil without a body.
func (a *assembly) body() ([]byte, error) {
	m := a.tool.Body
	name, v, ok := a.bodyValue()
	if m == nil || !ok {
		return nil, nil
	}
	if m.File {
		f, err := a.file(name, v)
		if err != nil {
			return nil, err
		}
		a.header.Set("Content-Type", f.typeAmong(m.Type))
		return f.Data, nil
	}
	if plain := a.tool.Plain; plain != nil && v.IsObject() && !givesFile(v, m.Fields) {
		m = plain
	}
	t := httpio.BaseType(m.Type)
	switch {
	case strings.HasPrefix(t, "multipart/"):
		return a.multipart(name, m, v)
	case t == httpio.Form:
		if !v.IsObject() {
			return nil, Refuse("%s: must be an object", name)
		}
		a.header.Set("Content-Type", m.Type)
		pairs, err := a.formPairs(name, v, m.Fields)
		return []byte(strings.Join(pairs, "&")), err
	}
	a.header.Set("Content-Type", contentType(m.Type, v))
	switch {
	case httpio.IsJSON(t) || t == "*/*" || t == "application/*" && v.Type == gjson.JSON || t == "":
		return []byte(v.Raw), nil
	case httpio.IsLines(t) && v.IsArray():
		var lines []byte
		v.ForEach(func(_, one gjson.Result) bool {
			lines = append(append(lines, rawjson.Compact([]byte(one.Raw))...), '\n')
			return true
		})
		return lines, nil
	case v.Type == gjson.JSON:
		return rawjson.Compact([]byte(v.Raw)), nil
	}
	s, err := text(name, v, false)
	return []byte(s), err
}

// givesFile reports whether a field for a file has a value other than null and an empty list.
func givesFile(v gjson.Result, fields []*openapi.Field) bool {
	files := map[string]bool{}
	for _, f := range fields {
		if f.File {
			files[f.Name] = true
		}
	}
	found := false
	v.ForEach(func(k, one gjson.Result) bool {
		found = files[k.String()] && one.Type != gjson.Null && !(one.IsArray() && one.Get("#").Int() == 0)
		return !found
	})
	return found
}

// contentType returns the Content-Type for a value: the document's type, or one that fits if that has
// a wildcard.
func contentType(t string, v gjson.Result) string {
	switch {
	case t == "" || !httpguts.ValidHeaderFieldValue(t):
		return httpio.JSON
	case !strings.Contains(t, "*"):
		return t
	case v.Type == gjson.String && strings.HasPrefix(t, "text/"):
		return "text/plain; charset=utf-8"
	}
	return httpio.JSON
}
