package rest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// Explained is a tool, line by line.
type Explained struct {
	Name  string // as clients see it
	Key   string // of the entry of Config.Tools; empty if there is none
	Lines []Line // from its description to its request
}

// Line is a fact about a tool and its origin: a line of a file, or words.
type Line struct {
	What string // the part, such as "description"
	Text string // its value
	From string // its origin
}

// Explain says why tools are as they are. match selects them by the names that clients see, or by
// keys of the configuration. file is the configuration, and redact masks secrets in its values. An
// API whose document was not read has no tools.
func (r *Report) Explain(file string, match func(name string) bool, redact func(string) string) []Explained {
	if r.Unread {
		return nil
	}
	var all []Explained
	rules := toolset.RuleLines(r.config.Rules)
	for i := range r.config.Tools {
		if e := &r.config.Tools[i]; e.Off && match(e.Key) {
			all = append(all, Explained{Name: "none", Key: e.Key, Lines: []Line{{"off", "the operation is not a tool", at(file, e.Line)}}})
		}
	}
	for _, t := range r.tools {
		key := ""
		if t.Entry != nil && !t.Entry.Ruled {
			key = t.Entry.Key
		}
		if match(t.Name) || match(key) || match(t.Operation.ID) {
			x := explainer{r: r, file: file, t: t, e: t.Entry, rules: rules, redact: redact}
			all = append(all, Explained{t.Name, key, x.lines()})
		}
	}
	return all
}

// explainer writes the lines of a tool.
type explainer struct {
	r    *Report
	file string // the path of the configuration
	t    *toolset.Tool
	e    *toolset.Entry // nil if the configuration has no entry
	out  []Line

	rules map[int]int // the rule at each line of the configuration

	redact func(string) string
}

// generated is the origin of what the bridge makes itself.
const generated = "generated"

func (x *explainer) add(what, text, from string) {
	if text = strings.Join(strings.Fields(x.redact(text)), " "); text != "" {
		x.out = append(x.out, Line{what, sanitize.Short(text, 120), from})
	}
}

// config returns the origin of a key of the entry.
func (x *explainer) config(key string) string { return x.at(x.e.LineOf(key)) }

// at returns the origin of a line in the configuration.
func (x *explainer) at(line int) string {
	if rule := x.rules[line]; rule > 0 {
		return fmt.Sprintf("%s (rule %d)", at(x.file, line), rule)
	}
	return at(x.file, line)
}

func at(file string, line int) string {
	if line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d", file, line)
}

// own reports whether the tool comes from the configuration and not from an operation.
// operation's.
func (x *explainer) own() bool { return x.e != nil && x.e.Request != "" }

// source returns the origin of a tool that the configuration changes.
func (x *explainer) source() string {
	switch op := x.t.Operation; {
	case x.own():
		return x.config("request")
	case op.File != "":
		return at(op.File, op.Line)
	}
	return "catalogue"
}

func (x *explainer) lines() []Line {
	x.head()
	x.arguments()
	x.templates()
	x.calls()
	return x.out
}

// head explains what clients see of the tool itself.
func (x *explainer) head() {
	t, op, e := x.t, x.t.Operation, x.e
	if e == nil {
		e = &toolset.Entry{}
	}
	name := generated + " of method and path"
	switch {
	case e.Name != "", e.Lines["name"] > 0:
		name = x.config("name")
	case x.own():
		name = at(x.file, e.Line)
	case op.MCP.Name != "":
		name = x.source() + " (x-mcp)"
	case op.ID == t.Name, op.File == "":
		name = x.source()
	case op.ID != "":
		name = generated + " of " + op.ID + " at " + x.source()
	}
	x.add("name", t.Name, name)
	if uri := x.r.uris[t]; uri != "" {
		x.add("resource", uri, x.config("as"))
	}
	x.add("request", toolset.RequestOf(op), x.source())
	said := func(key, own, extension string) string {
		switch {
		case own != "":
			return x.config(key)
		case extension != "":
			return x.source() + " (x-mcp)"
		case x.own(), op.Summary == "" && op.Description == "":
			return generated
		}
		return x.source()
	}
	x.add("title", t.Title, said("title", e.Title, op.MCP.Title))
	x.add("description", t.Description, said("about", e.About, op.MCP.Description))
	hints := generated + " of " + op.Method
	if e.Writes != nil {
		hints = x.config("writes")
	} else if m := op.MCP; m.ReadOnly != nil || m.Destructive != nil || m.Idempotent != nil || m.OpenWorld != nil {
		hints = x.source() + " (x-mcp)"
	}
	a := t.Annotations
	x.add("hints", fmt.Sprintf("read-only: %t, destructive: %t, idempotent: %t", a.ReadOnly, a.Destructive, a.Idempotent), hints)
}

// arguments explains the arguments that clients see, and those that are hidden.
func (x *explainer) arguments() {
	places := map[string]openapi.Argument{}
	for _, a := range x.t.Arguments {
		places[a.Name] = a
	}
	entries, seen := map[string]*toolset.Arg{}, map[string]string{}
	if x.e != nil {
		for i := range x.e.Args {
			a := &x.e.Args[i]
			entries[a.Name] = a
			seen[cmp.Or(a.As, a.Name)] = a.Name
		}
	}
	for i := range x.t.Shared.Args {
		a := &x.t.Shared.Args[i]
		entries[a.Name] = a
		seen[cmp.Or(a.As, a.Name)] = a.Name
	}
	required := gjson.GetBytes(x.t.InputSchema, "required").Array()
	gjson.GetBytes(x.t.InputSchema, "properties").ForEach(func(k, v gjson.Result) bool {
		shown := k.String()
		name := cmp.Or(seen[shown], shown)
		text := v.Raw
		if slices.ContainsFunc(required, func(one gjson.Result) bool { return one.String() == shown }) {
			text = "required, " + text
		}
		if where := where(places[name]); where != "" {
			text = where + ", " + text
		}
		x.add("argument "+shown, text, x.argument(places[name], shown, entries[name]))
		return true
	})
	gone := func(all []toolset.Arg) {
		for i := range all {
			switch a := &all[i]; {
			case a.Off:
				x.add("no argument "+a.Name, "off", x.at(a.Line))
			case a.Value != nil:
				x.add("no argument "+a.Name, "always "+string(a.Value), x.at(a.Line))
			}
		}
	}
	gone(x.t.Shared.Args)
	for _, name := range slices.Sorted(maps.Keys(x.t.Shared.Filled)) {
		key, verb := x.t.Shared.Filled[name], "sends"
		if key == "headers" {
			verb = "send"
		}
		x.add("no argument "+name, key+" of the API "+verb+" it", x.file)
	}
	if x.e == nil {
		return
	}
	gone(x.e.Args)
	for _, name := range slices.Sorted(maps.Keys(x.t.Hidden)) {
		key, what := x.t.Hidden[name], " sets what it is for"
		if key == "headers" {
			what = " set what it is for"
		}
		x.add("no argument "+name, key+what, x.config(key))
	}
}

// where returns the place of an argument.
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
func (x *explainer) argument(a openapi.Argument, shown string, e *toolset.Arg) string {
	from := x.source()
	switch {
	case shown == toolset.PickArg && x.t.Picks:
		return generated + " (pick)"
	case e != nil && (x.own() || a.Place == ""): // the document does not have it
		return x.at(e.Line)
	case a.Parameter != nil && x.r.doc != nil:
		if file, line := x.r.doc.Where(a.Parameter); line > 0 {
			from = at(file, line)
		}
	}
	if e != nil {
		from += ", " + x.at(e.Line)
	}
	if a.Place == openapi.InBody && x.e != nil && len(x.e.Body) > 0 && !x.own() {
		from += ", without what is set at " + x.config("body")
	}
	return from
}

// templates explains what the configuration adds to the request.
func (x *explainer) templates() {
	if x.e == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(x.e.Headers)) {
		x.add("header "+name, x.e.Headers[name], x.config("headers: "+name))
	}
	gjson.ParseBytes(x.e.Query).ForEach(func(k, v gjson.Result) bool {
		x.add("query "+k.String(), v.Raw, x.config("query: "+k.String()))
		return true
	})
	body := gjson.ParseBytes(x.e.Body)
	if !body.IsObject() {
		x.add("body", body.Raw, x.config("body"))
		return
	}
	body.ForEach(func(k, v gjson.Result) bool {
		x.add("body."+k.String(), v.Raw, x.config("body: "+k.String()))
		return true
	})
}

// calls explains the settings of calls.
func (x *explainer) calls() {
	t, c := x.t, x.r.config
	e := cmp.Or(x.e, t.Published, &toolset.Entry{})
	from := func(key string) string {
		if x.e == nil {
			return x.source()
		}
		return x.config(key)
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
	timeout := cmp.Or(e.Timeout, x.r.timeout)
	if x.r.most > 0 {
		timeout = min(timeout, x.r.most)
	}
	x.add("timeout", timeout.String(), set("timeout", e.Timeout > 0, true))
	attempts := cmp.Or(e.Attempts, c.Attempts, toolset.DefaultAttempts)
	text := fmt.Sprintf("%d attempts", attempts)
	switch {
	case !toolset.Repeatable(t.Operation.Method) && !t.Settings.Repeat && !e.SendsKey(t.Operation):
		text, attempts = "none: a "+t.Operation.Method+" is not made twice", 1
		x.add("retry", text, generated)
	case attempts == 1:
		x.add("retry", "off", set("retry", e.Attempts > 0, true))
	default:
		x.add("retry", text, set("retry", e.Attempts > 0, c.Attempts > 0))
	}
	if t.Operation.Method == "GET" {
		text := "off"
		if !t.Settings.Uncached {
			text = "as the answers allow"
			if e.KeepFor > 0 {
				text += ", otherwise " + e.KeepFor.String()
			}
		}
		x.add("cache", text, set("cache", e.Cache != nil, c.Cache > 0))
	}
	if most := t.Settings.MaxAnswer; most > 0 {
		x.add("answer", fmt.Sprintf("at most %d bytes", most), from("limits: answer"))
	}
	x.add("result", e.Result, from("result"))
	x.add("error", e.Error, from("error: text"))
	x.add("error when", e.ErrorIf, from("error: when"))
	switch {
	case t.OutputSchema != nil:
		x.add("output", string(t.OutputSchema), x.source())
	case e.Output != nil && !*e.Output:
		x.add("output", "no schema: off", from("output"))
	case e.Result != "":
		x.add("output", "no schema: result changes answers", from("result"))
	case t.OutputOmitted:
		x.add("output", "no schema: the list would be too long", generated)
	}
}
