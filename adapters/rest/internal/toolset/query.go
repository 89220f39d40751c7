package toolset

import (
	"slices"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// pair is a query parameter that an entry sets.
type pair struct {
	name      string
	value     *template
	parameter *openapi.Parameter
}

// queryArg is the prefix for names of these parameters among the arguments of a request. Messages
// show the prefix. Names of other arguments have no blank.
const queryArg = "query "

// queryTemplates parses the Query of an entry; use is as for parseTemplate.
func (e *Entry) queryTemplates(use func(name string) bool) ([]pair, Faults) {
	var all []pair
	var faults Faults
	add := func(name, format string, args ...any) {
		faults = append(faults, e.KeyFault("query: "+name, "query: "+name+": "+format, args...))
	}
	gjson.ParseBytes(e.Query).ForEach(func(k, v gjson.Result) bool {
		name := k.String()
		one, err := parseTemplate(v, use, 0)
		switch {
		case name == "":
			faults = append(faults, e.KeyFault("query", "query has a parameter without a name"))
		case err != nil:
			add(name, "%s", err)
		case !one.flat(true):
			add(name, "must be text, a number, true or false, or a list of these")
		default:
			all = append(all, pair{name: name, value: one})
		}
		return true
	})
	return all, faults
}

// flat reports whether the value is a scalar or, if list is set, a list of scalars.
func (t *template) flat(list bool) bool {
	switch {
	case t.raw != nil:
		return string(t.raw) != "null"
	case t.isList:
		return list && !slices.ContainsFunc(t.inner, func(inner *template) bool { return !inner.flat(false) })
	}
	return !t.object
}

// sent returns the value of a query parameter as JSON. It reports false if an argument is missing,
// so that the parameter is not sent. A list leaves out items whose argument is missing.
func (t *template) sent(values map[string]gjson.Result) ([]byte, bool) {
	switch {
	case t.raw != nil:
		return t.raw, true
	case t.asGiven:
		v := values[t.parts[0].arg]
		return []byte(v.Raw), v.Type != gjson.Null
	case !t.isList:
		text, ok := t.header(values)
		return []byte(rawjson.Quote(text)), ok
	}
	out := []byte{'['}
	for _, inner := range t.inner {
		if item, ok := inner.sent(values); ok {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, item...)
		}
	}
	return append(out, ']'), true
}

// described returns the document's parameter of that name. If there is none, it returns a form
// parameter, with the type of the argument that is the whole value.
func (p *pair) described(t *openapi.Tool, args map[string]*Arg) *openapi.Parameter {
	for _, a := range t.Arguments {
		if a.Place == openapi.InQuery && a.Parameter.Name == p.name {
			return a.Parameter
		}
	}
	parameter := &openapi.Parameter{
		Name:    p.name,
		In:      openapi.InQuery,
		Style:   "form",
		Explode: true,
	}
	if p.value.asGiven {
		name := p.value.parts[0].arg
		parameter.Type = gjson.GetBytes(t.InputSchema, "properties."+gjson.Escape(name)+".type").String()
		if a := args[name]; a != nil && gjson.GetBytes(a.Schema, "type").Exists() {
			parameter.Type = gjson.GetBytes(a.Schema, "type").String()
		}
	}
	return parameter
}

// queryArguments returns one argument of the request for each of these parameters.
func queryArguments(query []pair) []openapi.Argument {
	var all []openapi.Argument
	for _, p := range query {
		all = append(all, openapi.Argument{
			Name:      queryArg + p.name,
			Place:     openapi.InQuery,
			Parameter: p.parameter,
		})
	}
	return all
}

// filledQuery returns the values for queryArguments.
func filledQuery(query []pair, values map[string]gjson.Result) []rawjson.Member {
	var all []rawjson.Member
	for _, p := range query {
		if value, ok := p.value.sent(values); ok {
			all = append(all, rawjson.Member{Name: queryArg + p.name, Value: value})
		}
	}
	return all
}
