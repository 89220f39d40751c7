package toolset

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire/param"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// place is a header, a query parameter or the body of a request, for which an entry has a template.
type place struct {
	key      string           // of the entry, such as "headers: X-Trace"
	argument openapi.Argument // of the request: the value goes there
	value    *template
}

// places are the headers by name, the query parameters in order, and the body.
type places []place

// BodyArg is the name of the body among the arguments of a request. headerArg and queryArg are prefixes
// for the names of headers and query parameters. Messages show the prefix of the latter. Names of other
// arguments have neither a colon nor a blank.
const (
	BodyArg   = ":body"
	headerArg = ":header:"
	queryArg  = "query "
)

// places parses the templates of an entry. It calls use with the name in each placeholder, and the key that
// has it: headers, query or body. use reports whether that argument exists.
func (e *Entry) places(use func(root, name string) bool) (all places, faults Faults) {
	in := func(root string) func(string) bool { return func(name string) bool { return use(root, name) } }
	add := func(key, format string, args ...any) { faults = append(faults, e.KeyFault(key, format, args...)) }
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		key := "headers: " + name
		one, err := parseText(e.Headers[name], in("headers"))
		switch {
		case err != nil:
			add(key, "%s: %s", key, err)
		case !httpguts.ValidHeaderFieldName(name):
			add(key, "headers: %q is not the name of a header", name)
		case remote.Reserved(name) || strings.EqualFold(name, "Cookie"):
			add(key, "%s is set by the bridge itself: remove it", key)
		default:
			all = append(all, newPlace(key, headerArg, name, openapi.InHeader, one))
		}
	}
	query := gjson.ParseBytes(e.Query)
	if e.Request != "" {
		query = gjson.Result{} // Check refuses it
	}
	query.ForEach(func(k, v gjson.Result) bool {
		key := "query: " + k.String()
		one, err := parseTemplate(v, in("query"), 0)
		switch {
		case k.String() == "":
			add("query", "query has a parameter without a name")
		case err != nil:
			add(key, "%s: %s", key, err)
		case !one.flat(true):
			add(key, "%s: must be text, a number, true or false, or a list of these", key)
		default:
			all = append(all, newPlace(key, queryArg, k.String(), openapi.InQuery, one))
		}
		return true
	})
	if len(e.Body) == 0 {
		return all, faults
	}
	one, err := parseTemplate(gjson.ParseBytes(e.Body), in("body"), 0)
	if err == nil {
		return append(all, place{
			key:      "body",
			argument: openapi.Argument{Name: BodyArg, Place: openapi.InBody},
			value:    one,
		}), faults
	}
	at := "body"
	if wrong, ok := errors.AsType[*templateFault](err); ok {
		at += wrong.path
	}
	add(at, "body %s", err)
	return all, faults
}

// newPlace returns the place of a header or a query parameter that no document describes.
func newPlace(key, prefix, name string, in openapi.Place, value *template) place {
	p := &openapi.Parameter{
		Name:  name,
		In:    in,
		Style: "simple",
		Type:  "string",
	}
	if in == openapi.InQuery {
		p.Style, p.Type, p.Explode = "form", "", true
	}
	return place{
		key:   key,
		value: value,
		argument: openapi.Argument{
			Name:      prefix + name,
			Place:     in,
			Parameter: p,
		},
	}
}

// root returns the outermost key of the place: headers, query or body.
func (p *place) root() string {
	root, _, _ := strings.Cut(p.key, ":")
	return root
}

// uses reports whether the template has a placeholder for an argument.
func (p *place) uses(arg string) bool { return slices.Contains(p.value.args(), arg) }

// body returns the template of the body, or nil.
func (p places) body() *template {
	if n := len(p); n > 0 && p[n-1].argument.Place == openapi.InBody {
		return p[n-1].value
	}
	return nil
}

// of returns the place that replaces an argument of a document, or nil.
func (p places) of(a openapi.Argument) *place {
	for i := range p {
		one := &p[i].argument
		switch {
		case one.Place != a.Place:
		case a.Place == openapi.InBody,
			a.Place == openapi.InQuery && one.Parameter.Name == a.Parameter.Name,
			a.Place == openapi.InHeader && openapi.SameHeader(one.Parameter.Name, a.Parameter.Name):
			return &p[i]
		}
	}
	return nil
}

// setFallbacks records the defaults that replace missing arguments in headers and the query. of returns
// an argument's default.
func (p places) setFallbacks(of func(arg string) gjson.Result) {
	for _, one := range p {
		if one.argument.Place != openapi.InBody {
			one.value.setFallbacks(of)
		}
	}
}

// equip adds the arguments of the places to a tool for package wire. media, of a request with a body, is
// the media type.
func (p places) equip(call *openapi.Tool, media *openapi.MediaType) {
	if p.body() != nil {
		call.Body = media
	}
	for _, in := range []openapi.Place{openapi.InBody, openapi.InQuery, openapi.InHeader} {
		for _, one := range p {
			if one.argument.Place == in {
				call.Arguments = append(call.Arguments, one.argument)
			}
		}
	}
}

// fill returns the values for the arguments of the places. A place is left out if an argument is missing.
func (p places) fill(values map[string]gjson.Result) (all []rawjson.Member, err error) {
	for i := range p {
		value, ok, err := p[i].fill(values)
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, rawjson.Member{Name: p[i].argument.Name, Value: value})
		}
	}
	return all, nil
}

// fill returns the value of the place. The error names a header, since several arguments may have caused
// the invalid text.
func (p *place) fill(values map[string]gjson.Result) (value []byte, ok bool, err error) {
	switch p.argument.Place {
	case openapi.InQuery:
		value, ok = p.value.sent(values)
	case openapi.InHeader:
		text, full := p.value.header(values)
		if full && !httpguts.ValidHeaderFieldValue(text) {
			return nil, false, param.Refusal(fmt.Sprintf("%s: what comes into the header %s has a line break or another character that a header cannot have", strings.Join(p.value.args(), ", "), p.argument.Parameter.Name))
		}
		value, ok = []byte(rawjson.Quote(text)), full
	default:
		value, ok = p.value.append(nil, values)
	}
	return value, ok, nil
}
