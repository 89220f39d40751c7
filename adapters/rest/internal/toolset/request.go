package toolset

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// builder builds a tool from an entry with a request.
type builder struct {
	entry  *Entry
	op     *openapi.Operation
	args   []openapi.Argument
	used   map[string]bool // by argument: a template uses it
	query  bool            // the request's template has a query
	places places
	faults Faults
}

// Build returns the tool of an entry with a Request, or the faults of the entry.
func (e *Entry) Build() (*Tool, Faults) {
	b := &builder{entry: e, used: map[string]bool{}}
	if !plainName.MatchString(e.Shown()) {
		b.fault("a tool's name has 1 to 64 letters, digits, '_', '.' and '-'")
	}
	b.request()
	b.faults = append(b.faults, argFaults(e.Args, ownList, e)...)
	b.templates()
	b.rest()
	if b.op.Method != "" {
		_, wrong := e.settings(b.op)
		b.faults = append(b.faults, wrong...)
	}
	if len(b.faults) > 0 {
		return nil, b.faults
	}
	return b.tool(), nil
}

// Shown returns the name of the tool of an entry with a Request.
func (e *Entry) Shown() string { return cmp.Or(e.Name, e.Key) }

func (b *builder) fault(format string, args ...any) {
	b.faults = append(b.faults, b.entry.Fault(format, args...))
}

// arg returns the argument of that name, and marks it as used. It returns nil if there is none.
func (b *builder) arg(name string) *Arg {
	for i := range b.entry.Args {
		if a := &b.entry.Args[i]; a.Name == name {
			b.used[name] = true
			return a
		}
	}
	return nil
}

// request parses the method and the template of Request.
func (b *builder) request() {
	b.op = &openapi.Operation{}
	method, target, _ := strings.Cut(strings.TrimSpace(b.entry.Request), " ")
	target = strings.TrimSpace(target)
	_, known := Methods[method]
	switch {
	case !known:
		b.fault("request must begin with one of %s, and then a path: GET /items/{id}", strings.Join(slices.Sorted(maps.Keys(Methods)), ", "))
		return
	case !strings.HasPrefix(target, "/"):
		b.fault("request must have a path that begins with a slash: %s /items/{id}; base_url names the server", method)
		return
	case strings.ContainsAny(target, "# \t"):
		b.fault("request must not contain a blank or a #")
		return
	}
	b.op.Method = method
	path, query := target, ""
	if i := strings.IndexByte(target, '?'); i >= 0 {
		if i > 0 && target[i-1] == '{' {
			i--
		}
		path, query = target[:i], target[i:]
	}
	b.op.Path = b.inPath(path)
	if fixed := b.inQuery(query); fixed != "" {
		b.op.Path += "?" + fixed
	}
}

// inPath adds the variables of the path as parameters, and returns the path as OpenAPI writes it.
func (b *builder) inPath(path string) string {
	out := inPath.ReplaceAllStringFunc(path, func(expression string) string {
		spec := expression[1 : len(expression)-1]
		p := &openapi.Parameter{
			In:       openapi.InPath,
			Required: true,
			Style:    "simple",
		}
		if rest := strings.TrimLeft(spec, "+;."); len(spec)-len(rest) == 1 {
			switch spec[0] {
			case '+':
				p.AllowReserved = true
			case ';':
				p.Style = "matrix"
			case '.':
				p.Style = "label"
			}
			spec = rest
		}
		m := variable.FindStringSubmatch(spec)
		if m == nil {
			b.fault("request has %s in its path: write {name}, {name*}, {+name}, {;name} or {.name}", expression)
			return ""
		}
		p.Name, p.Explode = m[1], m[2] != ""
		a := b.parameter(p, m[1])
		if a != nil && a.Optional {
			b.faults = append(b.faults, a.fault(b.entry, "must not be optional: it is a part of the path"))
		}
		return "{" + m[1] + "}"
	})
	if strings.ContainsAny(inPath.ReplaceAllString(out, ""), "{}") {
		b.fault("request has an unmatched brace")
	}
	return out
}

// inQuery adds the variables of the query as parameters, and returns the fixed part of the query.
func (b *builder) inQuery(query string) string {
	b.query = query != ""
	add := func(name, arg, star string) {
		b.parameter(&openapi.Parameter{
			Name:    name,
			In:      openapi.InQuery,
			Style:   "form",
			Explode: star != "",
		}, arg)
	}
	var fixed []string
	pairs := func(text string) {
		for pair := range strings.SplitSeq(strings.TrimLeft(text, "?"), "&") {
			name, value, _ := strings.Cut(pair, "=")
			m := wholePair.FindStringSubmatch(value)
			switch {
			case pair == "":
			case m != nil && !strings.ContainsAny(name, "{}"):
				add(name, m[1], m[2])
			case strings.ContainsAny(pair, "{}"):
				b.fault("request has %s in its query, which is neither fixed nor of the form name={argument}", pair)
			default:
				fixed = append(fixed, pair)
			}
		}
	}
	at := 0
	for _, span := range inQuery.FindAllStringIndex(query, -1) {
		pairs(query[at:span[0]])
		at = span[1]
		expression := query[span[0]:span[1]]
		for spec := range strings.SplitSeq(expression[2:len(expression)-1], ",") {
			if m := variable.FindStringSubmatch(spec); m != nil {
				add(m[1], m[1], m[2])
			} else {
				b.fault("request has %s in its query, which is not of the form {?name,name*}", expression)
			}
		}
	}
	pairs(query[at:])
	return strings.Join(fixed, "&")
}

// parameter adds a parameter that the named argument fills, and returns the argument. It returns nil
// if there is none.
func (b *builder) parameter(p *openapi.Parameter, name string) *Arg {
	again := b.used[name] && slices.ContainsFunc(b.args, func(a openapi.Argument) bool { return a.Name == name && a.Place == p.In })
	a := b.arg(name)
	switch {
	case a == nil:
		b.fault("request has {%s}, and no argument is called that", name)
		return nil
	case again:
		b.fault("request uses {%s} twice", name)
	}
	p.Type = gjson.GetBytes(a.Schema, "type").String()
	b.op.Parameters = append(b.op.Parameters, p)
	b.args = append(b.args, openapi.Argument{
		Name:      name,
		Place:     p.In,
		Required:  p.Required,
		Parameter: p,
	})
	return a
}

// templates parses the body and the headers.
func (b *builder) templates() {
	var wrong Faults
	b.places, wrong = b.entry.places(func(_, name string) bool { return b.arg(name) != nil })
	b.faults = append(b.faults, wrong...)
	if has, known := Methods[b.op.Method]; known && !has && len(b.entry.Body) > 0 {
		b.faults = append(b.faults, b.entry.KeyFault("body", "a %s has no body: use POST, PUT or PATCH, or put arguments into the query", b.op.Method))
	}
	b.places.setFallbacks(func(name string) gjson.Result { return b.arg(name).fallback(nil) })
}

// rest makes each argument without a place a query parameter, or a member of the body if the method
// has one. If a template sets the query or the body, an argument without a place is a fault.
func (b *builder) rest() {
	if b.op.Method == "" {
		return
	}
	hasBody := Methods[b.op.Method]
	for i := range b.entry.Args {
		a := &b.entry.Args[i]
		switch {
		case b.used[a.Name]:
		case hasBody && len(b.entry.Body) > 0, !hasBody && b.query:
			b.faults = append(b.faults, a.fault(b.entry, "is not used: put {"+a.Name+"} into the request, the body or a header"))
		case hasBody:
			b.args = append(b.args, openapi.Argument{
				Name:     a.Name,
				Place:    openapi.InBody,
				Field:    a.Name,
				Required: !a.Optional,
			})
		default:
			b.parameter(&openapi.Parameter{
				Name:    a.Name,
				In:      openapi.InQuery,
				Style:   "form",
				Explode: true,
			}, a.Name)
		}
	}
}

// tool returns the tool after the other steps have found no fault.
func (b *builder) tool() *Tool {
	e := b.entry
	var properties []rawjson.Member
	var required []string
	var fixed []rawjson.Member
	for i := range e.Args {
		a := &e.Args[i]
		if a.Value != nil {
			fixed = append(fixed, rawjson.Member{Name: a.Name, Value: a.Value})
			continue
		}
		properties = append(properties, rawjson.Member{Name: a.Name, Value: a.change().Described(a.Schema)})
		if !a.Optional {
			required = append(required, a.Name)
		}
	}
	schema := rawjson.Set([]byte(`{"type":"object"}`), "properties", rawjson.Rewrite([]byte("{}"), nil, properties...))
	if len(required) > 0 {
		schema = rawjson.Set(schema, "required", rawjson.List(required))
	}
	schema = rawjson.Set(schema, "additionalProperties", []byte("false"))
	seen := &openapi.Tool{
		Name:        e.Shown(),
		Title:       e.Title,
		Description: cmp.Or(e.About, RequestOf(b.op)),
		InputSchema: schema,
		Operation:   b.op,
		Arguments:   b.args,
		Annotations: annotations(openapi.AnnotationsOf(b.op.Method), e.Writes),
	}
	for _, a := range b.args {
		if a.Place == openapi.InBody {
			seen.Body = &openapi.MediaType{Type: "application/json"}
		}
	}
	out := &Tool{
		Tool:   seen,
		Call:   seen,
		Result: e.Result,
		Entry:  e,
		Args:   e.Args,
	}
	out.Settings, _ = e.settings(b.op) // Build reports its faults
	if len(b.places) == 0 && len(fixed) == 0 {
		return out
	}
	call := *seen
	call.Arguments = slices.Clone(b.args)
	b.places.equip(&call, &openapi.MediaType{Type: "application/json"})
	out.Call, out.Prepare = &call, func(args []byte) ([]byte, error) { return b.fill(args, fixed) }
	return out
}

// fill returns the arguments of a request: those of the client, the fixed ones, and the filled
// templates. It drops values of the client that only the entry may set.
func (b *builder) fill(args []byte, fixed []rawjson.Member) ([]byte, error) {
	args = rawjson.Rewrite(args, func(name string, value []byte) (string, []byte) {
		if strings.HasPrefix(name, ":") || slices.ContainsFunc(fixed, func(m rawjson.Member) bool { return m.Name == name }) {
			return name, nil
		}
		return name, value
	})
	args = rawjson.Rewrite(args, nil, fixed...)
	more, err := b.places.fill(valuesOf(args))
	if err != nil {
		return nil, err
	}
	return rawjson.Rewrite(args, nil, more...), nil
}

// moreArg is the argument of a request whose members are query parameters that no schema names.
const moreArg = queryArg + "arguments"

// OpenTo lets a tool send arguments that its input schema allows but does not name. They go into the
// body, together with arguments that have no other place, or into the query if the method has no
// body.
func (t *Tool) OpenTo(e *Entry) {
	inBody := Methods[t.Operation.Method]
	elsewhere := map[string]bool{}
	call := *t.Call
	call.Arguments = nil
	for _, a := range t.Call.Arguments {
		if a.Place != openapi.InBody {
			call.Arguments = append(call.Arguments, a)
			elsewhere[a.Name] = true
		}
	}
	for _, a := range e.Args {
		for _, header := range e.Headers {
			elsewhere[a.Name] = elsewhere[a.Name] || strings.Contains(header, "{"+a.Name+"}")
		}
	}
	open := openapi.Argument{Name: BodyArg, Place: openapi.InBody}
	if inBody {
		call.Body = &openapi.MediaType{Type: "application/json"}
	} else {
		open = openapi.Argument{
			Name:  moreArg,
			Place: openapi.InQuery,
			Parameter: &openapi.Parameter{
				In:      openapi.InQuery,
				Style:   "form",
				Explode: true,
			},
		}
	}
	call.Arguments = append(call.Arguments, open)
	before := t.Prepare
	t.Call, t.Prepare = &call, func(args []byte) ([]byte, error) {
		more := rawjson.Rewrite(args, func(name string, value []byte) (string, []byte) {
			if elsewhere[name] {
				return name, nil
			}
			return name, value
		})
		if before != nil {
			var err error
			if args, err = before(args); err != nil {
				return nil, err
			}
		}
		return rawjson.Set(args, open.Name, more), nil
	}
}

// Check returns the faults that can be found without a document.
func (e *Entry) Check() Faults {
	faults := append(schemaFaults(e.Args, e), e.BoundFaults()...)
	if e.Request != "" {
		if len(e.Query) > 0 {
			faults = append(faults, e.KeyFault("query", "query is for operations of the document: write it into the request, as GET /items{?a} or GET /items?a=1"))
		}
		_, wrong := e.Build()
		return append(faults, wrong...)
	}
	if e.Name != "" && !plainName.MatchString(e.Name) {
		faults = append(faults, e.Fault("name must have 1 to 64 letters, digits, '_', '.' and '-'"))
	}
	if len(e.Query) > 0 && !gjson.ParseBytes(e.Query).IsObject() {
		faults = append(faults, e.KeyFault("query", "query must be a mapping of parameters to values, such as { since: \"{since}\" }"))
	}
	return append(faults, argFaults(e.Args, entryList, e)...)
}
