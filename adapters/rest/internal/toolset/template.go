package toolset

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire/param"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// template is a JSON value with placeholders for arguments.
type template struct {
	raw     []byte      // JSON of a value that is no text, object or list
	parts   []part      // of a text
	names   []string    // of the members of an object
	inner   []*template // the members of an object, or the items of a list
	object  bool
	isList  bool
	asGiven bool // the text is only a placeholder, so that the argument keeps its type
}

// part is a piece of a text: a literal, or the name of an argument.
type part struct {
	literal, arg string
	fallback     gjson.Result // replaces a missing argument in a header or the query
}

// placeholder matches {name}, and {{name}}, which becomes the text {name}. Other braces are plain
// text.
var placeholder = regexp.MustCompile(`\{\{[A-Za-z_][A-Za-z0-9_.-]*\}\}|\{[A-Za-z_][A-Za-z0-9_.-]*\}`)

// These match the placeholders in the template of a request.
var (
	inPath    = regexp.MustCompile(`\{[^{}]*\}`)
	inQuery   = regexp.MustCompile(`\{[?&][^{}]*\}`)
	variable  = regexp.MustCompile(`^([a-zA-Z0-9_.-]+)(\*?)$`)
	wholePair = regexp.MustCompile(`^\{([a-zA-Z0-9_.-]+)(\*?)\}$`)
)

// maxNesting bounds the depth of templates.
const maxNesting = 50

// templateFault is a fault in a template.
type templateFault struct {
	path string // the members that lead to the fault, each after a colon and a blank
	text string
}

func (t *templateFault) Error() string { return t.text }

// parseTemplate parses a JSON value. It calls use with the name in each placeholder; use reports
// whether that argument exists. depth is how deep v is in the whole template.
func parseTemplate(v gjson.Result, use func(name string) bool, depth int) (*template, error) {
	if depth > maxNesting {
		return nil, &templateFault{text: "is nested too deep"}
	}
	switch {
	case v.IsObject() || v.IsArray():
		t := &template{object: v.IsObject(), isList: v.IsArray()}
		var err error
		v.ForEach(func(k, one gjson.Result) bool {
			var inner *template
			inner, err = parseTemplate(one, use, depth+1)
			if wrong, ok := errors.AsType[*templateFault](err); ok && t.object {
				wrong.path = ": " + k.String() + wrong.path
			}
			t.names, t.inner = append(t.names, k.String()), append(t.inner, inner)
			return err == nil
		})
		return t, err
	case v.Type == gjson.String:
		return parseText(v.String(), use)
	}
	return &template{raw: []byte(v.Raw)}, nil
}

// parseText parses a text; use is as for parseTemplate.
func parseText(s string, use func(name string) bool) (*template, error) {
	t := &template{}
	literal := ""
	end := func() {
		if literal != "" {
			t.parts = append(t.parts, part{literal: literal})
		}
		literal = ""
	}
	at := 0
	for _, span := range placeholder.FindAllStringIndex(s, -1) {
		literal += s[at:span[0]]
		at = span[1]
		name := s[span[0]+1 : span[1]-1]
		if name[0] == '{' {
			literal += name
			continue
		}
		if !use(name) {
			return nil, &templateFault{text: fmt.Sprintf("has {%s}, and no argument is called that; write {{%s}} for the text itself", name, name)}
		}
		end()
		t.parts = append(t.parts, part{arg: name})
	}
	literal += s[at:]
	end()
	t.asGiven = len(t.parts) == 1 && t.parts[0].arg != ""
	return t, nil
}

// append appends the value with its placeholders filled. It reports false if the value is a single
// placeholder whose argument is missing; objects and lists leave out such a value.
func (t *template) append(dst []byte, values map[string]gjson.Result) ([]byte, bool) {
	switch {
	case t.raw != nil:
		return append(dst, t.raw...), true
	case t.asGiven:
		v, ok := values[t.parts[0].arg]
		return append(dst, v.Raw...), ok
	case !t.object && !t.isList:
		return gjson.AppendJSONString(dst, t.text(values)), true
	}
	open, end := byte('['), byte(']')
	if t.object {
		open, end = '{', '}'
	}
	dst = append(dst, open)
	first := true
	for i, inner := range t.inner {
		before := len(dst)
		if !first {
			dst = append(dst, ',')
		}
		if t.object {
			dst = append(gjson.AppendJSONString(dst, t.names[i]), ':')
		}
		var ok bool
		if dst, ok = inner.append(dst, values); !ok {
			dst = dst[:before]
			continue
		}
		first = false
	}
	return append(dst, end), true
}

// args returns the names of the template's arguments, each once.
func (t *template) args() []string {
	var all []string
	for _, p := range t.parts {
		if p.arg != "" && !slices.Contains(all, p.arg) {
			all = append(all, p.arg)
		}
	}
	for _, inner := range t.inner {
		for _, name := range inner.args() {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// TextOf returns a value as text. Numbers keep their digits.
func TextOf(v gjson.Result) string {
	if v.Type == gjson.Number {
		return param.Plain(v.Raw)
	}
	return v.String()
}

// text returns the text with its placeholders filled. Missing arguments are empty.
func (t *template) text(values map[string]gjson.Result) string {
	s := ""
	for _, p := range t.parts {
		s += p.literal
		if p.arg != "" {
			s += TextOf(values[p.arg])
		}
	}
	return s
}

// valuesOf returns the arguments by name.
func valuesOf(args []byte) map[string]gjson.Result {
	values := map[string]gjson.Result{}
	gjson.ParseBytes(args).ForEach(func(k, v gjson.Result) bool {
		values[k.String()] = v
		return true
	})
	return values
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
