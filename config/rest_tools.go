package config

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest"
)

// toolKeys is how a file writes a rest.Tool, and argKeys what is not JSON Schema
// of a rest.Arg.
type toolKeys struct {
	Name    string            `yaml:"name"`
	Title   string            `yaml:"title"`
	About   string            `yaml:"about"`
	Request string            `yaml:"request"`
	Args    []rest.Arg        `yaml:"args"`
	Body    tree              `yaml:"body"`
	Headers map[string]string `yaml:"headers"`
	Query   tree              `yaml:"query"`
	Result  string            `yaml:"result"`
	Error   failure           `yaml:"error"`
	As      string            `yaml:"as"`
	Writes  bool              `yaml:"writes"`
	Timeout time.Duration     `yaml:"timeout"`
	Retry   attempts          `yaml:"retry"`
	Cache   keeping           `yaml:"cache"`
	Limits  rest.ToolLimits   `yaml:"limits"`
}

// failure is a path, or a mapping of several.
type failure struct {
	Text string `yaml:"text"`
	When string `yaml:"when"`
}

// attempts is a number, or "off", which is 1.
type attempts int

// keeping is true, "off", or a duration.
type keeping struct {
	on  bool
	age time.Duration
}

type argKeys struct {
	Value   tree   `yaml:"value"`
	As      string `yaml:"as"`
	About   string `yaml:"about"`
	Default tree   `yaml:"default"`
}

// isOff reports whether a node is the word off, or false, which older YAML takes
// it for.
func (d *decoder) isOff(n ast.Node) bool {
	switch v := d.resolve(n).(type) {
	case *ast.StringNode:
		return v.Value == "off"
	case *ast.BoolNode:
		return !v.Value
	}
	return false
}

// failure reads where answers say what is wrong.
func (d *decoder) failure(x *slot, n ast.Node, into *failure) bool {
	if _, mapping := d.resolve(n).(ast.MapNode); mapping {
		before := len(d.faults)
		if _, ok := d.inner(x, n, into); !ok || len(d.faults) > before {
			return false
		}
		if into.When == "" && into.Text == "" {
			d.fault(x.line, "%s%s needs text or when, which are gjson paths", x.sec.where, x.label)
			return false
		}
		return true
	}
	got, ok := d.scalar(x, n, reflect.TypeFor[string]())
	into.Text = got.value
	return ok
}

// attempts reads how often a request is made.
func (d *decoder) attempts(x *slot, n ast.Node, into *attempts) bool {
	if d.isOff(n) {
		*into = 1
		return true
	}
	if v, ok := d.resolve(n).(*ast.IntegerNode); ok {
		if times, err := strconv.Atoi(v.GetToken().Value); err == nil && times >= 1 && times <= 10 {
			*into = attempts(times)
			return true
		}
	}
	d.fault(x.line, "%s%s is %s: expected how often the request is made, 1 to 10, or off", x.sec.where, x.label, d.shown(n))
	return false
}

// keeping reads whether answers are kept, and for how long.
func (d *decoder) keeping(x *slot, n ast.Node, into *keeping) bool {
	if d.isOff(n) {
		return true
	}
	into.on = true
	switch v := d.resolve(n).(type) {
	case *ast.BoolNode:
		return true
	case *ast.StringNode:
		if v.Value == "on" {
			return true
		}
		if age, err := time.ParseDuration(v.Value); err == nil && age > 0 {
			into.age = age
			return true
		}
	}
	d.fault(x.line, "%s%s is %s: expected true, off, or how long answers are kept that do not say it themselves, such as 60s", x.sec.where, x.label, d.shown(n))
	return false
}

// restTools reads the tools of an API, with their own faults.
func (d *decoder) restTools(x *slot, n ast.Node, into *[]rest.Tool) bool {
	list, ok := d.entries(x.sec.where+x.label+": ", n)
	if !ok {
		return d.mistyped(x, n, "a mapping of operations, or of names of tools, such as { getPet: { about: … } }")
	}
	for _, e := range list {
		t := rest.Tool{Key: e.key, Line: e.line}
		if d.isOff(e.value) {
			t.Off = true
			*into = append(*into, t)
			continue
		}
		var k toolKeys
		at := &slot{sec: x.sec, label: x.label + ": " + e.key, line: e.line}
		before := len(d.faults)
		sec, good := d.inner(at, e.value, &k)
		if !good || len(d.faults) > before {
			ok = false
			continue
		}
		t.Name, t.Title, t.About, t.Request, t.Args = k.Name, k.Title, k.About, k.Request, k.Args
		t.Body, t.Headers, t.Result = json.RawMessage(k.Body), k.Headers, k.Result
		t.Query = json.RawMessage(k.Query)
		t.As, t.Limits = k.As, k.Limits
		t.Error, t.ErrorIf = k.Error.Text, k.Error.When
		t.Timeout, t.Attempts, t.KeepFor = k.Timeout, int(k.Retry), k.Cache.age
		if _, set := sec.marks["writes"]; set {
			t.Writes = &k.Writes
		}
		if _, set := sec.marks["cache"]; set {
			t.Cache = &k.Cache.on
		}
		t.Lines = map[string]int{}
		for key, m := range sec.marks {
			t.Lines[key] = m.line
		}
		for _, f := range t.Check() {
			d.fault(f.Line, "%s%s", x.sec.where, f)
			ok = false
		}
		*into = append(*into, t)
	}
	return ok
}

// restArgs reads the arguments of a tool.
func (d *decoder) restArgs(x *slot, n ast.Node, into *[]rest.Arg) bool {
	list, ok := d.entries(x.sec.where+x.label+": ", n)
	if !ok {
		return d.mistyped(x, n, "a mapping of arguments to types, such as { city: string }")
	}
	for _, e := range list {
		a := rest.Arg{Line: e.line}
		a.Name, a.Optional = strings.CutSuffix(e.key, "?")
		at := &slot{sec: x.sec, label: x.label + ": " + e.key, line: e.line, loose: true}
		good := true
		switch v := d.resolve(e.value).(type) {
		case ast.MapNode:
			good = d.restArg(at, v.(ast.Node), &a)
		case *ast.SequenceNode:
			if len(v.Values) != 1 {
				good = d.mistyped(at, e.value, "a type, such as string or [string]")
				break
			}
			good = d.argType(at, v.Values[0], "[", "]", &a)
		default:
			if a.Off = d.isOff(e.value); !a.Off {
				good = d.argType(at, e.value, "", "", &a)
			}
		}
		ok = good && ok
		*into = append(*into, a)
	}
	return ok
}

// argType reads the short form of a type.
func (d *decoder) argType(x *slot, n ast.Node, before, after string, a *rest.Arg) bool {
	got, ok := d.scalar(x, n, reflect.TypeFor[string]())
	if !ok {
		return false
	}
	schema, def, err := rest.ParseArg(before + got.value + after)
	if err != nil {
		d.fault(x.line, "%s%s: %s", x.sec.where, x.label, d.redact(err.Error()))
		return false
	}
	a.Schema = schema
	if def != nil {
		a.Default = def
	}
	return true
}

// restArg reads the long form of an argument: our keys, and JSON Schema.
func (d *decoder) restArg(x *slot, n ast.Node, a *rest.Arg) bool {
	list, ok := d.entries(x.sec.where+x.label+": ", n)
	if !ok {
		return false
	}
	var k argKeys
	ours := keysOf(reflect.TypeFor[argKeys]())
	var own, schema []entry
	for _, e := range list {
		if slices.Contains(ours, e.key) {
			own = append(own, e)
		} else {
			schema = append(schema, e)
		}
	}
	sec := &section{where: x.sec.where + x.label + ": ", line: x.line}
	before := len(d.faults)
	d.fields(sec, own, reflect.ValueOf(&k).Elem())
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
		at := &slot{sec: sec, label: e.key, line: e.line, loose: true}
		if _, short := d.resolve(e.value).(*ast.StringNode); e.key == "type" && short {
			if ok = d.argType(at, e.value, "", "", a) && ok; ok {
				add(a.Schema[1 : len(a.Schema)-1])
			}
			continue
		}
		left := maxTree
		raw, good := d.jsonOf(at, e.value, 0, &left)
		ok = good && ok
		add(append(append(gjson.AppendJSONString(nil, e.key), ':'), raw...))
	}
	if out = append(out, '}'); len(out) > 2 {
		a.Schema = out
	}
	return ok && len(d.faults) == before
}
