package toolset

import (
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// additions are what an entry adds to the requests of an operation of the document: headers, query
// parameters, and members of the body or the whole body. Clients do not see arguments whose place
// the entry sets. An argument that the body's template uses goes only into its placeholders.
type additions struct {
	body    *template
	headers map[string]*template
	query   []pair
	used    map[string]bool    // arguments that the body uses
	fields  map[string]string  // by argument: the member of the body that the argument is
	hidden  map[string]string  // by argument that clients do not see: the key that sets its place
	patches bool               // the template is merged into the body that the client gives
	media   *openapi.MediaType // of the body
}

// additions parses the body, the headers and the query of an entry for a tool of the document. args
// are the entry's arguments by name. added are the arguments that the document lacks. The result is
// nil if the entry has no body, headers and query, or if a template has a fault.
func (e *Entry) additions(t *openapi.Tool, args map[string]*Arg, added []*Arg) (*additions, Faults) {
	if len(e.Body) == 0 && len(e.Headers) == 0 && len(e.Query) == 0 {
		return nil, e.unused(t, added, nil)
	}
	o := &additions{
		used:   map[string]bool{},
		fields: map[string]string{},
		hidden: map[string]string{},
	}
	for _, a := range t.Arguments {
		if a.Place == openapi.InBody && a.Field != "" {
			o.fields[a.Name] = a.Field
		}
	}
	var faults Faults
	everywhere := map[string]bool{}
	add := func(key, format string, args ...any) { faults = append(faults, e.KeyFault(key, format, args...)) }
	use := func(key string, into map[string]bool) func(string) bool {
		return func(name string) bool {
			if a := args[name]; a != nil && a.Off {
				add(key, "%s uses {%s}, but that argument is off", key, name)
			}
			if into != nil {
				into[name] = true
			}
			everywhere[name] = true
			return slices.ContainsFunc(added, func(a *Arg) bool { return a.Name == name }) || slices.ContainsFunc(t.Arguments, func(a openapi.Argument) bool { return a.Name == name })
		}
	}
	var wrong Faults
	o.headers, wrong = e.headerTemplates(use("headers", nil))
	faults = append(faults, wrong...)
	o.query, wrong = e.queryTemplates(use("query", nil))
	faults = append(faults, wrong...)
	standIn := func(name string) gjson.Result {
		return args[name].fallback([]byte(gjson.GetBytes(t.InputSchema, "properties."+gjson.Escape(name)).Raw))
	}
	for _, header := range o.headers {
		header.setFallbacks(standIn)
	}
	for i := range o.query {
		p := &o.query[i]
		p.value.setFallbacks(standIn)
		p.parameter = p.described(t, args)
	}
	if len(e.Body) > 0 {
		var err error
		if o.body, err = parseTemplate(gjson.ParseBytes(e.Body), use("body", o.used), 0); err != nil {
			faults = append(faults, e.bodyFault(err))
		} else if why := o.fits(t); why != "" {
			add("body", "body %s", why)
		}
	}
	faults = append(faults, e.unused(t, added, everywhere)...)
	if len(faults) > 0 {
		return nil, faults
	}
	if o.body != nil {
		shown := map[string]string{}
		for seen, own := range t.Keys {
			shown[own] = seen
		}
		o.body.rename(shown, o.bodyIsOne())
	}
	o.hide(t)
	for _, header := range slices.Sorted(maps.Keys(o.headers)) {
		for _, name := range o.headers[header].args() {
			if o.hidden[name] != "" {
				add("headers: "+header, "headers: %s: uses {%s}, which clients do not see: the entry sets its place", header, name)
			}
		}
	}
	for _, p := range o.query {
		for _, name := range p.value.args() {
			if o.hidden[name] != "" {
				add("query: "+p.name, "query: %s: uses {%s}, which clients do not see: the entry sets its place", p.name, name)
			}
		}
	}
	if o.body != nil {
		for _, name := range o.body.args() {
			if o.hidden[name] != "" {
				add("body", "body uses {%s}, which clients do not see: the entry sets its place", name)
			}
		}
	}
	for name := range o.hidden {
		if a := args[name]; a != nil && !a.Off {
			faults = append(faults, e.argFault(a, "clients do not see it: body, headers or query of the entry set its place"))
		}
	}
	return o, faults
}

// unused returns a fault for each added argument that no template uses. Most of them are misspelled
// names of the document's arguments.
func (e *Entry) unused(t *openapi.Tool, added []*Arg, used map[string]bool) Faults {
	var faults Faults
	for _, a := range added {
		if used[a.Name] {
			continue
		}
		f := e.argFault(a, "%s has no such argument, and no template uses it: put {%s} into query, headers or body", t.Operation.Key(), a.Name)
		if near := validate.Nearest(a.Name, argumentNames(t)); near != "" {
			f.Text += "; or did you mean " + near + "?"
		}
		faults = append(faults, f)
	}
	return faults
}

// fits says why the template cannot be the body of an operation; empty if it can. It sets media and
// patches.
func (a *additions) fits(t *openapi.Tool) string {
	method := t.Operation.Method
	if a.media = t.Body; a.media == nil && t.Operation.Body != nil { // no argument is in the body
		a.media = t.Operation.Body.Content[0]
	}
	if a.media == nil {
		if !Methods[method] {
			return "is there, and a " + method + " of this API has none"
		}
		a.media = &openapi.MediaType{Type: "application/json"}
		return ""
	}
	kind, _, _ := strings.Cut(strings.ToLower(a.media.Type), ";")
	kind = strings.TrimSpace(kind)
	form := strings.HasPrefix(kind, "multipart/") || kind == "application/x-www-form-urlencoded"
	json := strings.HasSuffix(kind, "json") || kind == "*/*" || kind == ""
	switch {
	case a.media.File:
		return "is there, and that of the API is a file, which no template can make"
	case form && !a.body.object:
		return "must be a mapping: that of the API is a form (" + kind + ")"
	case !form && !json && (a.body.object || a.body.isList):
		return "must be text: that of the API is " + kind
	}
	a.patches = a.body.object && !a.used["body"]
	if given := gjson.GetBytes(t.InputSchema, "properties.body.type"); a.patches && len(a.fields) == 0 && given.Type == gjson.String && given.Str != "object" {
		return "is a mapping, and that of the API is of the type " + given.Str + ": put {body} into it, or write all of it"
	}
	return ""
}

// hide records the arguments that clients do not see, since the additions set their places.
func (a *additions) hide(t *openapi.Tool) {
	for _, argument := range t.Arguments {
		switch {
		case argument.Place == openapi.InHeader:
			if header := a.headerOf(argument); header != nil && !slices.Contains(header.args(), argument.Name) {
				a.hidden[argument.Name] = "headers"
			}
		case argument.Place == openapi.InQuery:
			if i := a.queryIndex(argument); i >= 0 && !slices.Contains(a.query[i].value.args(), argument.Name) {
				a.hidden[argument.Name] = "query"
			}
		case argument.Place != openapi.InBody || a.body == nil || a.used[argument.Name]:
		case !a.patches, argument.Field != "" && slices.Contains(a.body.names, argument.Field):
			a.hidden[argument.Name] = "body"
		case argument.Field == "" && !gjson.GetBytes(a.without(t.InputSchema), "properties."+gjson.Escape(argument.Name)).Exists():
			a.hidden[argument.Name] = "body" // the template sets all members
		}
	}
}

// queryIndex returns the index of the query parameter that replaces an argument, or -1.
func (a *additions) queryIndex(argument openapi.Argument) int {
	return slices.IndexFunc(a.query, func(p pair) bool { return argument.Place == openapi.InQuery && p.name == argument.Parameter.Name })
}

// headerOf returns the header that replaces an argument, or nil.
func (a *additions) headerOf(argument openapi.Argument) *template {
	if argument.Place == openapi.InHeader {
		for name, header := range a.headers {
			if openapi.SameHeader(name, argument.Parameter.Name) {
				return header
			}
		}
	}
	return nil
}

// sets reports whether the additions set the place of an argument.
func (a *additions) sets(arg string) bool { return a != nil && a.hidden[arg] != "" }

// without returns an input schema without the arguments and the body's members that the additions
// set.
func (a *additions) without(schema []byte) []byte {
	if a == nil {
		return schema
	}
	gone := &template{object: true}
	add := func(name string, inner *template) {
		gone.names, gone.inner = append(gone.names, name), append(gone.inner, inner)
	}
	for _, name := range slices.Sorted(maps.Keys(a.hidden)) {
		add(name, &template{})
	}
	if a.patches && len(a.fields) == 0 {
		add("body", a.body)
	}
	defs := gjson.GetBytes(schema, "$defs")
	left, _ := withoutSet(schema, gone, defs, 0)
	return left
}

// withoutSet returns an object schema without the members that a template sets. empty reports
// whether no member is left.
func withoutSet(schema []byte, t *template, defs gjson.Result, depth int) (left []byte, empty bool) {
	if ref, ok := strings.CutPrefix(gjson.GetBytes(schema, "$ref").String(), "#/$defs/"); ok {
		if meant := defs.Get(gjson.Escape(ref)); meant.IsObject() {
			schema = rawjson.Rewrite(schema, func(name string, value []byte) (string, []byte) {
				if name == "$ref" {
					return name, nil
				}
				return name, value
			}, membersOf([]byte(meant.Raw))...)
		}
	}
	if depth > maxNesting || !gjson.GetBytes(schema, "properties").IsObject() {
		return schema, false
	}
	gone, loose := map[string]bool{}, map[string]bool{}
	empty = true
	schema = rawjson.Rewrite(schema, func(name string, value []byte) (string, []byte) {
		if name != "properties" {
			return name, value
		}
		return name, rawjson.Rewrite(value, func(own string, one []byte) (string, []byte) {
			i := slices.Index(t.names, own)
			if i < 0 {
				empty = false
				return own, one
			}
			loose[own] = true // not required from clients, since the template sets it
			if inner := t.inner[i]; inner.object {
				if one, none := withoutSet(one, inner, defs, depth+1); !none {
					empty = false
					if len(gjson.GetBytes(one, "required").Array()) > 0 {
						loose[own] = false
					}
					return own, one
				}
			}
			gone[own] = true
			return own, nil
		})
	})
	return rawjson.Rewrite(schema, func(name string, value []byte) (string, []byte) {
		if name != "required" {
			return name, value
		}
		var required []string
		for _, one := range gjson.ParseBytes(value).Array() {
			if own := one.String(); !gone[own] && !loose[own] {
				required = append(required, own)
			}
		}
		if len(required) == 0 {
			return name, nil
		}
		return name, rawjson.List(required)
	}), empty
}

// membersOf returns the members of an object.
func membersOf(schema []byte) []rawjson.Member {
	var all []rawjson.Member
	gjson.ParseBytes(schema).ForEach(func(k, v gjson.Result) bool {
		all = append(all, rawjson.Member{Name: k.String(), Value: []byte(v.Raw)})
		return true
	})
	return all
}

// equip replaces arguments of the tool for package wire by those that fill makes.
func (a *additions) equip(call *openapi.Tool) {
	if a == nil {
		return
	}
	own := call.Arguments
	call.Arguments = nil
	for _, argument := range own {
		if (a.body == nil || argument.Place != openapi.InBody) && a.queryIndex(argument) < 0 && a.headerOf(argument) == nil {
			call.Arguments = append(call.Arguments, argument)
		}
	}
	if a.body != nil {
		call.Body = a.media
		call.Arguments = append(call.Arguments, openapi.Argument{Name: BodyArg, Place: openapi.InBody})
	}
	call.Arguments = append(call.Arguments, queryArguments(a.query)...)
	call.Arguments = append(call.Arguments, headerArguments(a.headers)...)
}

// fill returns the arguments of a request with the additions. args have the document's names.
func (a *additions) fill(args []byte) ([]byte, error) {
	if a == nil {
		return args, nil
	}
	values := valuesOf(args)
	more, err := filledHeaders(a.headers, values)
	if err != nil {
		return nil, err
	}
	more = append(more, filledQuery(a.query, values)...)
	var given []byte // the client's body
	var flat []rawjson.Member
	args = rawjson.Rewrite(args, func(name string, value []byte) (string, []byte) {
		field, isField := a.fields[name]
		switch {
		case strings.HasPrefix(name, ":") || strings.HasPrefix(name, queryArg) || a.hidden[name] != "":
			return name, nil // clients must not set it
		case a.body == nil:
			return name, value
		case isField:
			if !a.used[name] {
				flat = append(flat, rawjson.Member{Name: field, Value: value})
			}
			return name, nil
		case name == "body" && a.bodyIsOne():
			given = value
			return name, nil
		}
		return name, value
	})
	if a.body != nil {
		if flat != nil {
			given = rawjson.Rewrite([]byte("{}"), nil, flat...)
		}
		body, ok := a.body.append(nil, values)
		if a.patches {
			body, ok = a.body.merge(gjson.ParseBytes(given), values)
		}
		if ok {
			more = append(more, rawjson.Member{Name: BodyArg, Value: body})
		}
	}
	return rawjson.Rewrite(args, nil, more...), nil
}

// rename replaces the API's names of members by the names that clients see, which package wire
// expects. If top is set, it replaces the outermost names as well.
func (t *template) rename(shown map[string]string, top bool) {
	for i, inner := range t.inner {
		if name, ok := shown[t.name(i)]; ok && top {
			t.names[i] = name
		}
		inner.rename(shown, true)
	}
}

// name returns the name of the member with index i; it is empty for an item of a list.
func (t *template) name(i int) string {
	if !t.object {
		return ""
	}
	return t.names[i]
}

// bodyIsOne reports whether the body is a single argument.
func (a *additions) bodyIsOne() bool { return len(a.fields) == 0 }

// merge returns the given value with the members that the template sets. If either is no object, the
// template replaces the given value. merge reports false if there is neither value.
func (t *template) merge(given gjson.Result, values map[string]gjson.Result) ([]byte, bool) {
	if !t.object || !given.IsObject() {
		if out, ok := t.append(nil, values); ok {
			return out, true
		}
		return []byte(given.Raw), given.Exists()
	}
	set := map[string][]byte{}
	var more []rawjson.Member
	for i, inner := range t.inner {
		name := t.names[i]
		if value, ok := inner.merge(given.Get(gjson.Escape(name)), values); ok {
			set[name] = value
			more = append(more, rawjson.Member{Name: name, Value: value})
		}
	}
	return rawjson.Rewrite([]byte(given.Raw), func(name string, value []byte) (string, []byte) {
		if own, ok := set[name]; ok {
			return name, own
		}
		return name, value
	}, more...), true
}
