package toolset

import (
	"cmp"
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
	places
	fields  map[string]string  // by argument: the member of the body that the argument is
	hidden  map[string]string  // by argument that clients do not see: the key that sets its place
	patches bool               // the template is merged into the body that the client gives
	media   *openapi.MediaType // of the body
}

// additions parses the body, the headers and the query of an entry for a tool of the document, whose
// arguments have these settings. The result is nil if the entry has no body, headers and query, or if a
// template has a fault.
func (e *Entry) additions(c *changes) (*additions, Faults) {
	used, off := map[string]bool{}, Faults{}
	places, faults := e.places(func(root, name string) bool {
		if a := c.arg(name); a != nil && a.Off {
			off = append(off, e.KeyFault(root, "%s uses {%s}, but that argument is off", root, name))
		}
		used[name] = true
		return slices.Contains(c.names, name)
	})
	faults = append(off, faults...)
	o := &additions{
		places: places,
		fields: map[string]string{},
		hidden: map[string]string{},
	}
	for _, a := range c.t.Arguments {
		if a.Place == openapi.InBody && a.Field != "" {
			o.fields[a.Name] = a.Field
		}
	}
	for i := range places {
		places[i].describe(c)
	}
	if o.body() != nil {
		if why := o.fits(c.t); why != "" {
			faults = append(faults, e.KeyFault("body", "body %s", why))
		}
	}
	faults = append(faults, e.unused(c, used)...)
	if len(faults) > 0 || len(places) == 0 {
		return nil, faults
	}
	places.setFallbacks(func(name string) gjson.Result {
		return c.arg(name).fallback([]byte(gjson.GetBytes(c.t.InputSchema, "properties."+gjson.Escape(name)).Raw))
	})
	if body := o.body(); body != nil {
		shown := map[string]string{}
		for seen, own := range c.t.Keys {
			shown[own] = seen
		}
		body.rename(shown, o.bodyIsOne())
	}
	o.hide(c.t)
	return o, e.hiddenFaults(o, c)
}

// hiddenFaults returns a fault for each argument that clients do not see, and that a place uses or the
// configuration changes.
func (e *Entry) hiddenFaults(o *additions, c *changes) (faults Faults) {
	for _, p := range o.places {
		label := strings.TrimPrefix(p.key+":", "body:")
		for _, name := range p.value.args() {
			if o.hidden[name] != "" {
				faults = append(faults, e.KeyFault(p.key, "%s uses {%s}, which clients do not see: the entry sets its place", cmp.Or(label, "body"), name))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.hidden)) {
		if a := c.arg(name); a != nil && !a.Off {
			faults = append(faults, a.fault(e, "clients do not see it: body, headers or query of the entry set its place"))
		}
	}
	return faults
}

// unused returns a fault for each added argument that no template uses. Most of them are misspelled names of
// the document's arguments.
func (e *Entry) unused(c *changes, used map[string]bool) (faults Faults) {
	var known []string
	for _, a := range c.t.Arguments {
		known = append(known, a.Name)
	}
	for _, a := range c.added() {
		if used[a.Name] {
			continue
		}
		text := c.t.Operation.Key() + " has no such argument, and no template uses it: put {" + a.Name + "} into query, headers or body"
		if near := validate.Nearest(a.Name, known); near != "" {
			text += "; or did you mean " + near + "?"
		}
		faults = append(faults, a.fault(e, text))
	}
	return faults
}

// describe takes the document's parameter for a query parameter. If there is none, a template that is a
// whole argument gives it the type of the argument.
func (p *place) describe(c *changes) {
	if p.argument.Place != openapi.InQuery {
		return
	}
	own := p.argument.Parameter
	for _, a := range c.t.Arguments {
		if a.Place == openapi.InQuery && a.Parameter.Name == own.Name {
			p.argument.Parameter = a.Parameter
			return
		}
	}
	if p.value.asGiven {
		name := p.value.parts[0].arg
		own.Type = gjson.GetBytes(c.t.InputSchema, "properties."+gjson.Escape(name)+".type").String()
		if a := c.arg(name); a != nil && gjson.GetBytes(a.Schema, "type").Exists() {
			own.Type = gjson.GetBytes(a.Schema, "type").String()
		}
	}
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
	body := a.body()
	form := strings.HasPrefix(kind, "multipart/") || kind == "application/x-www-form-urlencoded"
	json := strings.HasSuffix(kind, "json") || kind == "*/*" || kind == ""
	switch {
	case a.media.File:
		return "is there, and that of the API is a file, which no template can make"
	case form && !body.object:
		return "must be a mapping: that of the API is a form (" + kind + ")"
	case !form && !json && (body.object || body.isList):
		return "must be text: that of the API is " + kind
	}
	a.patches = body.object && !slices.Contains(body.args(), "body")
	if given := gjson.GetBytes(t.InputSchema, "properties.body.type"); a.patches && len(a.fields) == 0 && given.Type == gjson.String && given.Str != "object" {
		return "is a mapping, and that of the API is of the type " + given.Str + ": put {body} into it, or write all of it"
	}
	return ""
}

// hide records the arguments that clients do not see, since the additions set their places.
func (a *additions) hide(t *openapi.Tool) {
	for _, argument := range t.Arguments {
		at := a.of(argument)
		switch {
		case at == nil || at.uses(argument.Name):
		case argument.Place != openapi.InBody, !a.patches,
			argument.Field != "" && slices.Contains(at.value.names, argument.Field),
			argument.Field == "" && !gjson.GetBytes(a.without(t.InputSchema), "properties."+gjson.Escape(argument.Name)).Exists(): // the template sets all members
			a.hidden[argument.Name] = at.root()
		}
	}
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
		add("body", a.body())
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
	if a != nil {
		call.Arguments = slices.DeleteFunc(slices.Clone(call.Arguments), func(one openapi.Argument) bool { return a.of(one) != nil })
		a.places.equip(call, a.media)
	}
}

// fill returns the arguments of a request with the additions. args have the document's names.
func (a *additions) fill(args []byte) ([]byte, error) {
	if a == nil {
		return args, nil
	}
	values := valuesOf(args)
	more, err := a.places.fill(values)
	if err != nil {
		return nil, err
	}
	body := a.body()
	var given []byte // the client's body
	var flat []rawjson.Member
	args = rawjson.Rewrite(args, func(name string, value []byte) (string, []byte) {
		field, isField := a.fields[name]
		switch {
		case strings.HasPrefix(name, ":") || strings.HasPrefix(name, queryArg) || a.hidden[name] != "":
			return name, nil // clients must not set it
		case body == nil:
			return name, value
		case isField:
			if !slices.Contains(body.args(), name) {
				flat = append(flat, rawjson.Member{Name: field, Value: value})
			}
			return name, nil
		case name == "body" && a.bodyIsOne():
			given = value
			return name, nil
		}
		return name, value
	})
	if a.patches {
		if flat != nil {
			given = rawjson.Rewrite([]byte("{}"), nil, flat...)
		}
		more = slices.DeleteFunc(more, func(m rawjson.Member) bool { return m.Name == BodyArg })
		if whole, ok := body.merge(gjson.ParseBytes(given), values); ok {
			more = append(more, rawjson.Member{Name: BodyArg, Value: whole})
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
