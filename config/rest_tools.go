package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/internal/setting"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// toolKeys is the form of a rest.Tool in a file, and argKeys that of a rest.Arg, apart from its JSON Schema.
type toolKeys struct {
	Name    string            `yaml:"name"`
	Title   string            `yaml:"title"`
	About   string            `yaml:"about"`
	Request string            `yaml:"request"`
	Args    []rest.Arg        `yaml:"args"`
	Body    strict.JSON       `yaml:"body"`
	Headers map[string]string `yaml:"headers" names:"header"`
	Query   strict.JSON       `yaml:"query"`
	Result  string            `yaml:"result"`
	Error   failure           `yaml:"error"`
	As      string            `yaml:"as"`
	Writes  bool              `yaml:"writes"`
	Timeout time.Duration     `yaml:"timeout"`
	Retry   attempts          `yaml:"retry"`
	Cache   caching           `yaml:"cache"`
	Limits  rest.ToolLimits   `yaml:"limits"`
	Output  onOff             `yaml:"output"`
}

// ruleKeys is the form of a rest.Rule in a file.
type ruleKeys struct {
	Match   rest.Match      `yaml:"match"`
	Name    string          `yaml:"name"`
	Args    []rest.Arg      `yaml:"args"`
	As      string          `yaml:"as"`
	Output  onOff           `yaml:"output"`
	Timeout time.Duration   `yaml:"timeout"`
	Retry   attempts        `yaml:"retry"`
	Cache   caching         `yaml:"cache"`
	Limits  rest.ToolLimits `yaml:"limits"`
	Result  string          `yaml:"result"`
	Error   failure         `yaml:"error"`
	Writes  bool            `yaml:"writes"`
}

// onOff is "on" or "off".
type onOff bool

// failure is where an answer has its error text: a gjson path, or a mapping of two paths.
type failure struct {
	Text string `yaml:"text"`
	When string `yaml:"when"`
}

// attempts is a number of attempts. "off" means 1.
type attempts int

// caching is true, "off", or how long answers are kept.
type caching struct {
	on  bool
	age time.Duration
}

type argKeys struct {
	Value   strict.JSON `yaml:"value"`
	As      string      `yaml:"as"`
	About   string      `yaml:"about"`
	Default strict.JSON `yaml:"default"`
}

// failure reads a failure.
func (d *decoder) failure(s *strict.Slot, n *yaml.Node, into *failure) bool {
	if strict.Kind(n) == strict.Map {
		if _, ok := d.whole(s, n, into); !ok {
			return false
		}
		if into.When == "" && into.Text == "" {
			d.Fault(s.Line, "%s%s needs text or when, which are gjson paths", s.Section.Where, s.Label)
			return false
		}
		return true
	}
	got, ok := d.Scalar(s, n, reflect.TypeFor[string]())
	into.Text = got.Value
	return ok
}

// restTools reads the tools of an HTTP API, and adds the faults that rest finds in them.
func (d *decoder) restTools(s *strict.Slot, n *yaml.Node, into *[]rest.Tool) bool {
	list, ok := d.Entries(s.Section.Where+s.Label+": ", n)
	if !ok {
		return d.Mistyped(s, n, "a mapping of operations, or of names of tools, such as { getPet: { about: … } }")
	}
	for _, e := range list {
		t := rest.Tool{Key: e.Key, Line: e.Line}
		if strict.IsOff(e.Value) {
			t.Off = true
			*into = append(*into, t)
			continue
		}
		var k toolKeys
		at := &strict.Slot{
			Section: s.Section,
			Label:   s.Label + ": " + e.Key,
			Line:    e.Line,
		}
		sec, good := d.whole(at, e.Value, &k)
		if !good {
			ok = false
			continue
		}
		t.Name, t.Title, t.About, t.Request, t.Args = k.Name, k.Title, k.About, k.Request, k.Args
		t.Body, t.Headers, t.Result = json.RawMessage(k.Body), k.Headers, k.Result
		t.Query = json.RawMessage(k.Query)
		settings(&t, sec, &ruleKeys{
			As:      k.As,
			Output:  k.Output,
			Timeout: k.Timeout,
			Retry:   k.Retry,
			Cache:   k.Cache,
			Limits:  k.Limits,
			Error:   k.Error,
			Writes:  k.Writes,
		})
		for _, f := range t.Check() {
			d.Fault(f.Line, "%s%s", s.Section.Where, d.Redact(f.String()))
			ok = false
		}
		*into = append(*into, t)
	}
	return ok
}

// settings copies the keys that tools and rules share to t.
func settings(t *rest.Tool, sec *strict.Section, r *ruleKeys) {
	t.As, t.Limits = r.As, r.Limits
	t.Error, t.ErrorIf = r.Error.Text, r.Error.When
	t.Timeout, t.Attempts, t.KeepFor = r.Timeout, int(r.Retry), r.Cache.age
	if _, set := sec.Marks["writes"]; set {
		t.Writes = &r.Writes
	}
	if _, set := sec.Marks["cache"]; set {
		t.Cache = &r.Cache.on
	}
	if _, set := sec.Marks["output"]; set {
		t.Output = (*bool)(&r.Output)
	}
	t.Lines = map[string]int{}
	for key, m := range sec.Marks {
		t.Lines[key] = m.Line
	}
}

// restRules reads rules about many operations, and adds the faults that rest finds in them.
func (d *decoder) restRules(s *strict.Slot, n *yaml.Node, into *[]rest.Rule) bool {
	if strict.Kind(n) != strict.List {
		return d.Mistyped(s, n, "a list of rules, such as [{ match: { tag: pets }, timeout: 5s }]")
	}
	unread := map[string]bool{} // rules with a faulty value, as rest.Fault.Key
	for i, item := range strict.Resolve(n).Content {
		var k ruleKeys
		at := &strict.Slot{
			Section: s.Section,
			Label:   fmt.Sprintf("%s: item %d", s.Label, i+1),
			Line:    item.Line,
		}
		if keys := strict.Resolve(item).Content; strict.Kind(item) == strict.Map && len(keys) > 0 {
			at.Line = keys[0].Line
		}
		sec, fine := d.whole(at, item, &k)
		if !fine {
			unread[at.Label+": "] = true
			*into = append(*into, rest.Rule{})
			continue
		}
		r := rest.Rule{Match: k.Match, Entry: rest.Tool{
			Line:   at.Line,
			Name:   k.Name,
			Args:   k.Args,
			Result: k.Result,
		}}
		settings(&r.Entry, sec, &k)
		*into = append(*into, r)
	}
	good := len(unread) == 0
	for _, f := range rest.RuleFaults(*into) {
		if !unread[f.Key] {
			d.Fault(f.Line, "%s%s", s.Section.Where, d.Redact(f.String()))
			good = false
		}
	}
	return good
}

// restArgs reads the arguments of a tool, or of a rule.
func (d *decoder) restArgs(s *strict.Slot, n *yaml.Node, into *[]rest.Arg) bool {
	list, ok := d.Entries(s.Section.Where+s.Label+": ", n)
	if !ok {
		return d.Mistyped(s, n, "a mapping of arguments to types, such as { city: string }")
	}
	for _, e := range list {
		a := rest.Arg{Line: e.Line}
		a.Name, a.Optional = strings.CutSuffix(e.Key, "?")
		at := &strict.Slot{
			Section: s.Section,
			Label:   s.Label + ": " + e.Key,
			Line:    e.Line,
			Loose:   true,
		}
		good := true
		switch items := strict.Resolve(e.Value).Content; strict.Kind(e.Value) {
		case strict.Map:
			good = d.restArg(at, e.Value, &a)
		case strict.List:
			if len(items) != 1 {
				good = d.Mistyped(at, e.Value, "a type, such as string or [string]")
				break
			}
			good = d.argType(at, items[0], "[", "]", &a)
		default:
			if a.Off = strict.IsOff(e.Value); !a.Off {
				good = d.argType(at, e.Value, "", "", &a)
			}
		}
		ok = good && ok
		*into = append(*into, a)
	}
	return ok
}

// argType reads the short form of a type. before and after stand around its text for ParseArg.
func (d *decoder) argType(s *strict.Slot, n *yaml.Node, before, after string, a *rest.Arg) bool {
	got, ok := d.Scalar(s, n, reflect.TypeFor[string]())
	if !ok {
		return false
	}
	schema, def, err := rest.ParseArg(before + got.Value + after)
	if err != nil {
		d.Fault(s.Line, "%s%s: %s", s.Section.Where, s.Label, d.Redact(err.Error()))
		return false
	}
	a.Schema = schema
	if def != nil {
		a.Default = def
	}
	return true
}

// restArg reads the long form of an argument: our keys and those of JSON Schema.
func (d *decoder) restArg(s *strict.Slot, n *yaml.Node, a *rest.Arg) bool {
	list, ok := d.Entries(s.Section.Where+s.Label+": ", n)
	if !ok {
		return false
	}
	var k argKeys
	ours := setting.Keys(reflect.TypeFor[argKeys]())
	var own, schema []strict.Entry
	for _, e := range list {
		if slices.Contains(ours, e.Key) {
			own = append(own, e)
		} else {
			schema = append(schema, e)
		}
	}
	sec := &strict.Section{Where: s.Section.Where + s.Label + ": ", Line: s.Line}
	before := len(d.Faults)
	d.Fields(sec, own, reflect.ValueOf(&k).Elem())
	a.As, a.About = k.As, k.About
	if k.Value != nil {
		a.Value = json.RawMessage(k.Value)
	}
	if k.Default != nil {
		a.Default = json.RawMessage(k.Default)
	}
	out := []byte{'{'}
	add := func(members []byte) {
		if len(out) > 1 && len(members) > 0 {
			out = append(out, ',')
		}
		out = append(out, members...)
	}
	for _, e := range schema {
		at := &strict.Slot{
			Section: sec,
			Label:   e.Key,
			Line:    e.Line,
			Loose:   true,
		}
		if e.Key == "type" && strict.Kind(e.Value) == strict.String {
			if ok = d.argType(at, e.Value, "", "", a) && ok; ok {
				add(a.Schema[1 : len(a.Schema)-1])
			}
			continue
		}
		raw, good := d.JSON(at, e.Value)
		ok = good && ok
		add(append(append(gjson.AppendJSONString(nil, e.Key), ':'), raw...))
	}
	if out = append(out, '}'); len(out) > 2 {
		a.Schema = out
	}
	return ok && len(d.Faults) == before
}
