package openapi

import (
	"cmp"
	"errors"
	"fmt"
	"html"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/tree"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Options say how operations become tools. The zero value has sensible defaults.
type Options struct {
	Prefix string // before every name
	// NameLimit bounds names with the prefix, in bytes; 64 if 0.
	NameLimit int
	// Expose chooses the operations; see ParseRules. Empty means all.
	Expose Rules
	// Rename, unless nil, returns the name of an operation's tool. name is the name without Rename.
	Rename func(op *Operation, name string) string
	// Budget bounds a tool, in bytes of JSON; 16 KiB if 0, 1 MiB if negative.
	Budget int
	// DescriptionLimit bounds descriptions of tools, in bytes; 1000 if 0.
	DescriptionLimit int
	// StrictOutput keeps output schemas as the document has them. Otherwise, nothing is required,
	// everything may be null, and no text has a format: clients refuse answers that do not fit the
	// schema, and real answers often do not.
	StrictOutput bool
	NoOutput     bool // no output schemas at all
	// FlattenBody makes the properties of the body separate arguments, unless names collide.
	FlattenBody bool
	// Resources allows arguments that are files to be addresses of resources.
	Resources bool
	// Withheld are headers that arguments cannot set.
	Withheld []string
}

const (
	defaultBudget      = 16 << 10
	defaultDescription = 1000
	// longDescription bounds a description within a schema, in bytes. If space is short, the bound is
	// shortDescription.
	longDescription  = 1000
	shortDescription = 160
	// fullLimit bounds the schema of a tool without a budget, in bytes.
	fullLimit = 1 << 20
	// titleLimit bounds titles, in bytes: some documents have a paragraph as summary.
	titleLimit = 120
)

// Tools returns the tools of the exposed operations, in the order of the document.
func Tools(doc *Document, o Options) ([]*Tool, []Warning) {
	o.NameLimit = cmp.Or(o.NameLimit, maxName)
	o.Budget = cmp.Or(o.Budget, defaultBudget)
	if o.Budget < 0 {
		o.Budget = fullLimit
	}
	o.DescriptionLimit = cmp.Or(o.DescriptionLimit, defaultDescription)
	// A name needs 20 bytes after the prefix to be distinct.
	if o.NameLimit < 20 || len(o.Prefix) > o.NameLimit-20 {
		o.NameLimit = len(o.Prefix) + 20
	}
	l := doc.load
	l.mu.Lock()
	defer l.mu.Unlock()
	var warnings []Warning
	l.warned = map[string]bool{}
	l.round++
	l.report = func(w Warning) { warnings = append(warnings, w) }
	l.answers = map[outputKey][]byte{}
	defer func() { l.report, l.answers = func(Warning) {}, nil }()

	matched := make([]bool, len(o.Expose))
	var tools []*Tool
	for _, op := range doc.Operations {
		if o.Expose.match(op, matched) && !op.MCP.Off {
			tools = append(tools, &Tool{
				Operation: op,
				doc:       doc,
				opts:      &o,
			})
		}
	}
	for i, r := range o.Expose {
		if !matched[i] && !r.not { // Idle returns the others
			l.addWarning(Warning{File: l.name(doc.Location), Text: fmt.Sprintf("expose: %q matches no operation", tree.Short(r.text))})
		}
	}
	nameTools(tools, o.Prefix, o.NameLimit, o.Rename)
	for _, t := range tools {
		t.build()
	}
	return tools, warnings
}

// LostOf returns the unusable operations that the rules expose.
func (d *Document) LostOf(expose Rules) []*Operation {
	var out []*Operation
	for _, op := range d.Lost {
		if expose.match(op, make([]bool, len(expose))) {
			out = append(out, op)
		}
	}
	return out
}

// build sets all fields but the name.
func (t *Tool) build() {
	op := t.Operation
	t.Title = cut(strings.TrimSpace(PlainText(cmp.Or(op.MCP.Title, op.Summary))), titleLimit)
	t.Description = t.describe()
	t.Annotations = annotate(op)
	l := t.doc.load
	l.buf = t.AppendItem(l.buf[:0])
	frame := len(l.buf) + len(`,"outputSchema":`)
	t.input(t.opts.Budget - frame)
	if !t.opts.NoOutput {
		t.output(min(t.opts.Budget/4, t.opts.Budget-frame-len(t.InputSchema)))
	}
	l.buf = t.AppendItem(l.buf[:0])
	if t.Size = len(l.buf); t.Size > t.opts.Budget && t.opts.Budget < fullLimit {
		l.addWarning(Warning{
			File: op.File,
			Line: op.Line,
			Text: fmt.Sprintf("the tool of %s takes %d bytes, more than the budget of %d", op.Key(), t.Size, t.opts.Budget),
		})
	}
}

// AppendItem appends the tool as JSON for tools/list (2025-06-18 and later, server/tools: Tool).
func (t *Tool) AppendItem(b []byte) []byte {
	member := func(name string, value []byte) {
		b = append(append(b, name...), value...)
	}
	b = rawjson.AppendString(append(b, `{"name":`...), t.Name)
	if t.Title != "" {
		b = rawjson.AppendString(append(b, `,"title":`...), t.Title)
	}
	b = rawjson.AppendString(append(b, `,"description":`...), t.Description)
	member(`,"inputSchema":`, t.InputSchema)
	if t.OutputSchema != nil {
		member(`,"outputSchema":`, t.OutputSchema)
	}
	b = append(b, `,"annotations":{`...)
	for i, hint := range []struct {
		name string
		is   bool
	}{{"readOnlyHint", t.Annotations.ReadOnly}, {"destructiveHint", t.Annotations.Destructive},
		{"idempotentHint", t.Annotations.Idempotent}, {"openWorldHint", t.Annotations.OpenWorld}} {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendBool(append(rawjson.AppendString(b, hint.name), ':'), hint.is)
	}
	b = rawjson.AppendString(append(b, `},"_meta":{"http":{"method":`...), t.Operation.Method)
	b = rawjson.AppendString(append(b, `,"path":`...), t.Operation.written)
	return append(b, "}}}"...)
}

// describe returns the tool's description: the summary, the description, and what the operation
// returns.
func (t *Tool) describe() string {
	op := t.Operation
	if d := strings.TrimSpace(op.MCP.Description); d != "" {
		return cut(d, t.opts.DescriptionLimit)
	}
	summary, desc := strings.TrimSpace(op.Summary), strings.TrimSpace(op.Description)
	var parts []string
	if summary != "" && !strings.HasPrefix(strings.ToLower(desc), strings.ToLower(strings.TrimRight(summary, "."))) {
		parts = append(parts, summary)
	}
	if desc != "" {
		parts = append(parts, desc)
	}
	if len(parts) == 0 {
		parts = []string{op.Key()}
	}
	text := cut(strings.Join(parts, "\n\n"), t.opts.DescriptionLimit)
	if op.Deprecated {
		text += "\n\nDeprecated."
	}
	if r := op.success(); r != nil && usable(r.Description) {
		said := cut(strings.TrimSpace(r.Description), 200)
		if !strings.HasPrefix(strings.ToLower(said), "return") {
			said = "Returns " + said
		}
		text += "\n\n" + said
		if !strings.HasSuffix(text, ".") && !strings.HasSuffix(text, "…") {
			text += "."
		}
	}
	return text
}

var markup = regexp.MustCompile(`(?i)</?(?:a|abbr|b|blockquote|br|code|div|em|h[1-6]|hr|i|img|li|ol|p|pre|small|span|strong|sub|sup|table|tbody|td|th|thead|tr|u|ul)(?:\s[^<>]*)?/?>`)

// PlainText removes the markup of HTML from a text.
func PlainText(s string) string {
	if !strings.Contains(s, "<") {
		return s
	}
	return html.UnescapeString(markup.ReplaceAllString(s, ""))
}

// usable reports whether a response's description says more than that the call succeeded.
func usable(s string) bool {
	switch strings.ToLower(strings.Trim(strings.TrimSpace(s), ".! ")) {
	case "", "ok", "success", "successful", "successful operation", "successful response", "default response", "200", "created", "200 response":
		return false
	}
	return true
}

// success returns the success response with the lowest status.
func (o *Operation) success() *Response {
	var best *Response
	for i := range o.Responses {
		r := &o.Responses[i]
		if s := strings.ToUpper(r.Status); len(s) == 3 && s[0] == '2' && (best == nil || s < strings.ToUpper(best.Status)) {
			best = r
		}
	}
	return best
}

// AnnotationsOf returns the annotations for a method.
func AnnotationsOf(method string) Annotations {
	switch method {
	case "GET", "HEAD", "OPTIONS", "TRACE", "QUERY":
		return Annotations{
			ReadOnly:   true,
			Idempotent: true,
			OpenWorld:  true,
		}
	}
	return Annotations{
		Destructive: true,
		OpenWorld:   true,
		Idempotent:  method == "PUT" || method == "DELETE",
	}
}

// annotate returns the annotations of an operation: those of its method, unless x-mcp overrides them.
func annotate(op *Operation) Annotations {
	a := AnnotationsOf(op.Method)
	set := func(to *bool, from *bool) {
		if from != nil {
			*to = *from
		}
	}
	set(&a.ReadOnly, op.MCP.ReadOnly)
	if a.ReadOnly && op.MCP.ReadOnly != nil {
		a.Destructive, a.Idempotent = false, true
	}
	set(&a.Destructive, op.MCP.Destructive)
	set(&a.Idempotent, op.MCP.Idempotent)
	set(&a.OpenWorld, op.MCP.OpenWorld)
	return a
}

// choose returns the media type in which to send a body: a multipart type with files, or else JSON, or
// else the type that models write best.
func (b *Body) choose() *MediaType {
	rank := func(m *MediaType) int {
		switch t := base(m.Type); {
		case isMultipart(t) && slices.ContainsFunc(m.Fields, func(f *Field) bool { return f.File }):
			return 0
		case t == "application/json":
			return 1
		case strings.HasSuffix(t, "json-patch+json"): // a list of edits is hard for models
			return 3
		case isJSON(t):
			return 2
		case isAny(t) && !m.File:
			return 4
		case t == "application/x-www-form-urlencoded":
			return 5
		case isMultipart(t):
			return 6
		case strings.HasPrefix(t, "text/"):
			return 7
		case isText(t):
			return 9
		}
		return 8
	}
	return slices.MinFunc(b.Content, func(m, b *MediaType) int { return rank(m) - rank(b) })
}

// plain returns the JSON type for calls without files, if chosen is a type with files. It returns nil
// if no JSON type has all other fields.
func (l *loader) plain(b *Body, chosen *MediaType) *MediaType {
	if !isMultipart(chosen.Type) {
		return nil
	}
	for _, m := range b.Content {
		if !isJSON(m.Type) || strings.HasSuffix(base(m.Type), "json-patch+json") {
			continue
		}
		if kind := l.typeOf(m.schema); kind != "object" && kind != "" {
			continue
		}
		known := map[string]bool{}
		l.eachProperty(m.schema, 0, map[*tree.Node]bool{}, func(name string, _ *tree.Node) { known[name] = true })
		if len(known) == 0 || !slices.ContainsFunc(chosen.Fields, func(f *Field) bool { return !f.File && !known[f.Name] }) {
			return m
		}
	}
	return nil
}

// Rules choose operations. The last rule that matches an operation decides.
type Rules []rule

type rule struct {
	text   string // as written
	not    bool   // the rule excludes
	method string
	path   string   // * stands for text within a part, ** for text across parts
	tags   []string // one of them is enough
	id     string   // an operationId, in which * stands for any text
	all    bool     // the rule matches every operation
}

// ParseRules parses rules, each of which is one of
//
//	all                      every operation
//	none                     no operation
//	tag NAME, NAME           those with one of the tags
//	GET /path/*/x/**         those with the method and the path; a rule may have only one of these
//	NAME                     those with this operationId; * stands for any text
//
// A rule with "not" before it excludes operations. If the first rule includes operations, those that
// no rule matches are excluded; otherwise they are included.
func ParseRules(lines []string) (Rules, error) {
	var out Rules
	var errs []error
	for _, line := range lines {
		r := rule{text: line}
		rest := strings.TrimSpace(line)
		if s, ok := strings.CutPrefix(rest, "not "); ok {
			r.not, rest = true, strings.TrimSpace(s)
		}
		word, after, _ := strings.Cut(rest, " ")
		after = strings.TrimSpace(after)
		isMethod := slices.Contains(methods, strings.ToLower(word)) && word == strings.ToUpper(word)
		switch {
		case rest == "":
			errs = append(errs, fmt.Errorf("rule %q is empty", line))
			continue
		case rest == "all":
			r.all = true
		case rest == "none":
			r.all, r.not = true, !r.not
		case word == "tag" || word == "tags":
			for tag := range strings.SplitSeq(after, ",") {
				if tag = strings.TrimSpace(tag); tag != "" {
					r.tags = append(r.tags, tag)
				}
			}
			if len(r.tags) == 0 {
				errs = append(errs, fmt.Errorf("rule %q names no tag", line))
				continue
			}
		case isMethod && (after == "" || strings.HasPrefix(after, "/")):
			r.method, r.path = word, after
		case strings.HasPrefix(rest, "/"):
			r.path = rest
		default:
			r.id = rest
		}
		out = append(out, r)
	}
	return out, errors.Join(errs...)
}

// Idle returns the rules that exclude operations and match none: most of them are misspelled. Lost
// operations count as operations. A rule with only a method is never idle: it cannot be misspelled,
// and the API may lack the method.
func (r Rules) Idle(d *Document) []string {
	matched := make([]bool, len(r))
	for _, op := range slices.Concat(d.Operations, d.Lost) {
		r.match(op, matched)
	}
	var idle []string
	for i, one := range r {
		if one.not && !matched[i] && !one.all && (one.method == "" || one.path != "") {
			idle = append(idle, one.text)
		}
	}
	return idle
}

// match reports whether an operation is exposed, and marks in fits the rules that match.
func (r Rules) match(op *Operation, fits []bool) bool {
	if len(r) == 0 {
		return true
	}
	in := r[0].not
	for i, rule := range r {
		if rule.matches(op) {
			fits[i] = true
			in = !rule.not
		}
	}
	return in
}

func (r *rule) matches(op *Operation) bool {
	switch {
	case r.all:
		return true
	case r.tags != nil:
		return slices.ContainsFunc(op.Tags, func(t string) bool { return slices.Contains(r.tags, t) })
	case r.id != "":
		return glob(r.id, op.ID, true)
	}
	return (r.method == "" || r.method == op.Method) && (r.path == "" || glob(r.path, op.written, false))
}

// glob reports whether s matches a pattern. ** stands for any text. * stands for any text if any is
// set, and otherwise for text without slashes.
func glob(pattern, s string, any bool) bool {
	// at says for each position of s whether the part of the pattern so far can end there.
	at := make([]bool, len(s)+1)
	at[0] = true
	for i := 0; i < len(pattern); i++ {
		next := make([]bool, len(s)+1)
		if pattern[i] == '*' {
			across := any
			if i+1 < len(pattern) && pattern[i+1] == '*' {
				across = true
				i++
			}
			for j, reached := 0, false; j <= len(s); j++ {
				reached = at[j] || reached && (across || s[j-1] != '/')
				next[j] = reached
			}
			// /search/** matches /search too.
			if across && !any && i == len(pattern)-1 && strings.HasSuffix(pattern, "/**") && s == pattern[:len(pattern)-3] {
				return true
			}
		} else {
			for j := range len(s) {
				next[j+1] = at[j] && s[j] == pattern[i]
			}
		}
		at = next
	}
	return at[len(s)]
}
