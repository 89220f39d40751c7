package tools

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// Explained says where each part of a tool comes from.
type Explained struct {
	Name  string // as clients see it
	Key   string // of the entry in Settings.Entries; empty if there is none
	Lines []Line // one for each setting in effect
}

// Line is a part of a tool with its origin.
type Line struct {
	What string // the part, such as "description"
	Text string // the value of the part
	From string // the origin: a file with a line, or words
}

// Explain says where each part of the selected tools comes from. match selects tools by the names
// that clients see, by keys of the configuration, or by operation IDs. file is the path of the
// configuration, and redact masks secrets in values.
func (s *Settings) Explain(m *Made, file string, match func(name string) bool, redact func(string) string) []Explained {
	var all []Explained
	rules := toolset.RuleLines(s.Rules)
	for i := range s.Entries {
		if e := &s.Entries[i]; e.Off && match(e.Key) {
			all = append(all, Explained{
				Name:  "none",
				Key:   e.Key,
				Lines: []Line{{"off", "the operation is not a tool", at(file, e.Line)}},
			})
		}
	}
	uris := map[*toolset.Tool]string{}
	list := slices.Clone(m.Tools)
	for _, r := range m.Resources {
		list, uris[r.Tool] = append(list, r.Tool), r.uri
	}
	for _, t := range list {
		key := ""
		if t.Entry != nil && !t.Entry.Ruled {
			key = t.Entry.Key
		}
		if match(t.Name) || match(key) || match(t.Operation.ID) {
			e := explainer{
				s:      s,
				doc:    m.Document,
				uri:    uris[t],
				file:   file,
				t:      t,
				e:      t.Entry,
				rules:  rules,
				redact: redact,
			}
			all = append(all, Explained{t.Name, key, e.lines()})
		}
	}
	return all
}

// explainer writes the lines of a tool.
type explainer struct {
	s    *Settings
	doc  *openapi.Document // nil without a document
	uri  string            // of a resource; empty for a tool
	file string            // the path of the configuration
	t    *toolset.Tool
	e    *toolset.Entry // nil if the configuration has no entry
	out  []Line

	rules map[int]int // by line of the configuration: the number of the rule

	redact func(string) string // masks secrets
}

// generated is the origin of parts that the bridge makes itself.
const generated = "generated"

func (e *explainer) add(what, text, from string) {
	if text = strings.Join(strings.Fields(e.redact(text)), " "); text != "" {
		e.out = append(e.out, Line{what, sanitize.Short(text, 120), from})
	}
}

// config returns the origin of a key of the entry.
func (e *explainer) config(key string) string { return e.at(e.e.LineOf(key)) }

// at returns the origin of a line in the configuration.
func (e *explainer) at(line int) string {
	if rule := e.rules[line]; rule > 0 {
		return fmt.Sprintf("%s (rule %d)", at(e.file, line), rule)
	}
	return at(e.file, line)
}

func at(file string, line int) string {
	if line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d", file, line)
}

// own reports whether the configuration, and no document, has the tool's operation.
func (e *explainer) own() bool { return e.e != nil && e.e.Request != "" }

// source returns the origin of the tool's operation.
func (e *explainer) source() string {
	switch op := e.t.Operation; {
	case e.own():
		return e.config("request")
	case op.File != "":
		return at(op.File, op.Line)
	}
	return "catalogue"
}

func (e *explainer) lines() []Line {
	e.head()
	e.arguments()
	e.templates()
	e.calls()
	return e.out
}

// head explains the name, the request, the texts and the hints.
func (e *explainer) head() {
	t, op, entry := e.t, e.t.Operation, e.e
	if entry == nil {
		entry = &toolset.Entry{}
	}
	name := generated + " of method and path"
	switch {
	case entry.Name != "", entry.Lines["name"] > 0:
		name = e.config("name")
	case e.own():
		name = at(e.file, entry.Line)
	case op.MCP.Name != "":
		name = e.source() + " (x-mcp)"
	case op.ID == t.Name, op.File == "":
		name = e.source()
	case op.ID != "":
		name = generated + " of " + op.ID + " at " + e.source()
	}
	e.add("name", t.Name, name)
	if e.uri != "" {
		e.add("resource", e.uri, e.config("as"))
	}
	e.add("request", toolset.RequestOf(op), e.source())
	said := func(key, own, extension string) string {
		switch {
		case own != "":
			return e.config(key)
		case extension != "":
			return e.source() + " (x-mcp)"
		case e.own(), op.Summary == "" && op.Description == "":
			return generated
		}
		return e.source()
	}
	e.add("title", t.Title, said("title", entry.Title, op.MCP.Title))
	e.add("description", t.Description, said("about", entry.About, op.MCP.Description))
	hints := generated + " of " + op.Method
	if entry.Writes != nil {
		hints = e.config("writes")
	} else if m := op.MCP; m.ReadOnly != nil || m.Destructive != nil || m.Idempotent != nil || m.OpenWorld != nil {
		hints = e.source() + " (x-mcp)"
	}
	a := t.Annotations
	e.add("hints", fmt.Sprintf("read-only: %t, destructive: %t, idempotent: %t", a.ReadOnly, a.Destructive, a.Idempotent), hints)
}

// arguments explains the visible and the hidden arguments.
func (e *explainer) arguments() {
	places := map[string]openapi.Argument{}
	for _, a := range e.t.Arguments {
		places[a.Name] = a
	}
	entries, seen := map[string]*toolset.Arg{}, map[string]string{}
	for i := range e.t.Args {
		a := &e.t.Args[i]
		entries[a.Name] = a
		seen[cmp.Or(a.As, a.Name)] = a.Name
	}
	required := gjson.GetBytes(e.t.InputSchema, "required").Array()
	gjson.GetBytes(e.t.InputSchema, "properties").ForEach(func(k, v gjson.Result) bool {
		shown := k.String()
		name := cmp.Or(seen[shown], shown)
		text := v.Raw
		if slices.ContainsFunc(required, func(one gjson.Result) bool { return one.String() == shown }) {
			text = "required, " + text
		}
		if where := where(places[name]); where != "" {
			text = where + ", " + text
		}
		e.add("argument "+shown, text, e.argument(places[name], shown, entries[name]))
		return true
	})
	for _, a := range e.t.Args {
		switch {
		case a.Off:
			e.add("no argument "+a.Name, "off", e.at(a.Line))
		case a.Value != nil:
			e.add("no argument "+a.Name, "always "+string(a.Value), e.at(a.Line))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.t.Filled)) {
		key, verb := e.t.Filled[name], "sends"
		if key == "headers" {
			verb = "send"
		}
		e.add("no argument "+name, key+" of the API "+verb+" it", e.file)
	}
	for _, name := range slices.Sorted(maps.Keys(e.t.Hidden)) {
		key, what := e.t.Hidden[name], " sets what it is for"
		if key == "headers" {
			what = " set what it is for"
		}
		e.add("no argument "+name, key+what, e.config(key))
	}
}

// where returns the place of an argument in the request.
func where(a openapi.Argument) string {
	switch {
	case a.Field != "":
		return "body." + a.Field
	case a.Parameter != nil:
		return string(a.Place) + " " + a.Parameter.Name
	}
	return string(a.Place)
}

// argument returns the origin of an argument.
func (e *explainer) argument(a openapi.Argument, shown string, arg *toolset.Arg) string {
	from := e.source()
	switch {
	case shown == toolset.PickArg && e.t.Picks:
		return generated + " (pick)"
	case arg != nil && (e.own() || a.Place == ""): // the document does not have the argument
		return e.at(arg.Line)
	case a.Parameter != nil && e.doc != nil:
		if file, line := e.doc.Where(a.Parameter); line > 0 {
			from = at(file, line)
		}
	}
	if arg != nil {
		from += ", " + e.at(arg.Line)
	}
	if a.Place == openapi.InBody && e.e != nil && len(e.e.Body) > 0 && !e.own() {
		from += ", without what is set at " + e.config("body")
	}
	return from
}

// templates explains what the configuration adds to the request.
func (e *explainer) templates() {
	if e.e == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(e.e.Headers)) {
		e.add("header "+name, e.e.Headers[name], e.config("headers: "+name))
	}
	gjson.ParseBytes(e.e.Query).ForEach(func(k, v gjson.Result) bool {
		e.add("query "+k.String(), v.Raw, e.config("query: "+k.String()))
		return true
	})
	body := gjson.ParseBytes(e.e.Body)
	if !body.IsObject() {
		e.add("body", body.Raw, e.config("body"))
		return
	}
	body.ForEach(func(k, v gjson.Result) bool {
		e.add("body."+k.String(), v.Raw, e.config("body: "+k.String()))
		return true
	})
}

// calls explains the settings of calls.
func (e *explainer) calls() {
	t, s := e.t, e.s
	entry := cmp.Or(e.e, t.Published, &toolset.Entry{})
	from := func(key string) string {
		if e.e == nil {
			return e.source()
		}
		return e.config(key)
	}
	set := func(key string, own, api bool) string {
		switch {
		case own:
			return from(key)
		case api:
			return "as for the API"
		}
		return "default"
	}
	timeout := cmp.Or(entry.Timeout, s.API.Timeout)
	if most := s.API.MaxTimeout; most > 0 {
		timeout = min(timeout, most)
	}
	e.add("timeout", timeout.String(), set("timeout", entry.Timeout > 0, true))
	attempts := cmp.Or(entry.Attempts, s.API.Attempts)
	text := fmt.Sprintf("%d attempts", attempts)
	switch {
	case !wire.Idempotent(t.Operation.Method) && !t.Settings.Repeat && !entry.SendsKey(t.Operation):
		text, attempts = "none: a "+t.Operation.Method+" is not made twice", 1
		e.add("retry", text, generated)
	case attempts == 1:
		e.add("retry", "off", set("retry", entry.Attempts > 0, true))
	default:
		var standard wire.Options
		standard.Fill()
		e.add("retry", text, set("retry", entry.Attempts > 0, s.API.Attempts != standard.Attempts))
	}
	if t.Operation.Method == "GET" {
		text := "off"
		if !t.Settings.Uncached {
			text = "as the answers allow"
			if entry.KeepFor > 0 {
				text += ", otherwise " + entry.KeepFor.String()
			}
		}
		e.add("cache", text, set("cache", entry.Cache != nil, s.Cache > 0))
	}
	if most := t.Settings.MaxAnswer; most > 0 {
		e.add("answer", fmt.Sprintf("at most %d bytes", most), from("limits: answer"))
	}
	e.add("result", entry.Result, from("result"))
	e.add("error", entry.Error, from("error: text"))
	e.add("error when", entry.ErrorIf, from("error: when"))
	switch {
	case t.OutputSchema != nil:
		e.add("output", string(t.OutputSchema), e.source())
	case entry.Output != nil && !*entry.Output:
		e.add("output", "no schema: off", from("output"))
	case entry.Result != "":
		e.add("output", "no schema: result changes answers", from("result"))
	case t.OutputOmitted:
		e.add("output", "no schema: the list would be too long", generated)
	}
}
