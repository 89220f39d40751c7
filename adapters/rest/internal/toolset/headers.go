package toolset

import (
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

// headerTemplates parses the headers of an entry. use reports whether an argument exists.
func (e *Entry) headerTemplates(use func(name string) bool) (map[string]*template, Faults) {
	all := map[string]*template{}
	var faults Faults
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		add := func(format string, args ...any) {
			faults = append(faults, e.KeyFault("headers: "+name, "headers: "+format, args...))
		}
		one, err := parseText(e.Headers[name], use)
		switch {
		case err != nil:
			add("%s: %s", name, err)
		case !httpguts.ValidHeaderFieldName(name):
			add("%q is not the name of a header", name)
		case remote.Reserved(name) || strings.EqualFold(name, "Cookie"):
			add("%s is set by the bridge itself: remove it", name)
		}
		if one != nil {
			all[name] = one
		}
	}
	return all, faults
}

// headerArguments returns one argument of the request for each header with a template.
func headerArguments(headers map[string]*template) []openapi.Argument {
	var all []openapi.Argument
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		p := &openapi.Parameter{
			Name:  name,
			In:    openapi.InHeader,
			Style: "simple",
			Type:  "string",
		}
		all = append(all, openapi.Argument{
			Name:      headerArg + name,
			Place:     openapi.InHeader,
			Parameter: p,
		})
	}
	return all
}

// setFallbacks records the defaults that replace missing arguments within other text, in a header
// or the query. of returns an argument's default.
func (t *template) setFallbacks(of func(name string) gjson.Result) {
	for i := range t.parts {
		if p := &t.parts[i]; p.arg != "" && !t.asGiven {
			p.fallback = of(p.arg)
		}
	}
	for _, inner := range t.inner {
		inner.setFallbacks(of)
	}
}

// header returns the text of a header or a query parameter. It reports false if an argument without
// a default is missing: nothing is sent then, since a text with a gap, such as the Idempotency-Key
// "order-", would be the same for different calls.
func (t *template) header(values map[string]gjson.Result) (string, bool) {
	s := ""
	for _, p := range t.parts {
		s += p.literal
		if p.arg == "" {
			continue
		}
		v := values[p.arg]
		if v.Type == gjson.Null { // null counts as missing
			v = p.fallback
		}
		if v.Type == gjson.Null {
			return "", false
		}
		s += TextOf(v)
	}
	return s, true
}

// filledHeaders returns the values for headerArguments. Its error names the header, since several
// arguments may have caused the invalid text.
func filledHeaders(headers map[string]*template, values map[string]gjson.Result) ([]rawjson.Member, error) {
	var all []rawjson.Member
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		t := headers[name]
		text, ok := t.header(values)
		if !ok {
			continue
		}
		if !httpguts.ValidHeaderFieldValue(text) {
			return nil, param.Refusal(fmt.Sprintf("%s: what comes into the header %s has a line break or another character that a header cannot have", strings.Join(t.args(), ", "), name))
		}
		all = append(all, rawjson.Member{Name: headerArg + name, Value: []byte(rawjson.Quote(text))})
	}
	return all, nil
}
