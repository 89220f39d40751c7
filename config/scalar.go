package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
)

// A slot is the place that a value is read into, as messages call it.
type slot struct {
	sec   *section
	label string // the key, and the item when it is a list's: "args: item 2"
	line  int
	off   bool // a duration that can be "off"
	loose bool // text that may also be written as a number or true
	rule  func(any) (any, error)
}

// value reads n into v and reports whether it could.
func (d *decoder) value(x *slot, n ast.Node, v reflect.Value) bool {
	switch into := v.Addr().Interface().(type) {
	case *[]Server:
		return d.servers(x, n, into)
	case *gateway.Filter:
		return d.filter(x, n, into)
	case *gateway.Override:
		return d.override(x, n, into)
	case *json.RawMessage:
		return d.raw(x, n, into)
	}
	if ok, known := d.restValue(x, n, v.Addr().Interface()); known {
		return ok
	}
	switch v.Kind() {
	case reflect.Pointer:
		return d.kind(x, n, v)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[netip.Prefix]() || v.Type() == reflect.TypeFor[bridge.Forward]() || v.Type() == reflect.TypeFor[limits.Rate]() {
			break // written as text
		}
		return d.group(x, n, v)
	case reflect.Map:
		return d.table(x, n, v)
	case reflect.Slice:
		return d.items(x, n, v)
	}
	if line := lineOf(d.resolve(n)); line > 0 {
		x.line = line
	}
	got, ok := d.scalar(x, n, v.Type())
	if !ok {
		return false
	}
	value, err := convert(got, v.Type(), x.off)
	if err == nil && x.rule != nil {
		value, err = x.rule(value)
	}
	if err != nil {
		d.fault(x.line, "%s%s is %s%s: %v", x.sec.where, x.label, d.shown(n), got.from(), err)
		return false
	}
	v.Set(reflect.ValueOf(value).Convert(v.Type()))
	return true
}

// items reads a list.
func (d *decoder) items(x *slot, n ast.Node, v reflect.Value) bool {
	seq, ok := d.resolve(n).(*ast.SequenceNode)
	if !ok {
		return d.mistyped(x, n, `a list, such as ["a", "b"]`)
	}
	if len(seq.Values) == 0 && slices.Contains([]string{"access", "servers", "allow", "tools: allow"}, x.label) {
		// Who writes it means nobody, or nothing; it would be everybody, or all.
		d.fault(x.line, "%s%s is empty, which would let all pass: list what may, or leave it out", x.sec.where, x.label)
		return false
	}
	list := reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values))
	for i, item := range seq.Values {
		at := &slot{sec: x.sec, label: fmt.Sprintf("%s: item %d", x.label, i+1), line: x.line, loose: true, rule: x.rule}
		if line := lineOf(d.resolve(item)); line > 0 {
			at.line = line
		}
		good := d.value(at, item, list.Index(i))
		x.sec.marks[at.label] = mark{line: at.line, shown: d.shown(item), bad: !good}
		ok = good && ok
	}
	v.Set(list)
	return ok
}

// table reads a mapping of names to values.
func (d *decoder) table(x *slot, n ast.Node, v reflect.Value) bool {
	list, ok := d.entries(x.sec.where+x.label+": ", n)
	if !ok {
		return d.mistyped(x, n, "a mapping, such as { NAME: value }")
	}
	table := reflect.MakeMapWithSize(v.Type(), len(list))
	for _, e := range list {
		if wrong := checkTableKey(x.label, e.key); wrong != "" {
			d.fault(e.line, "%s%s: %s", x.sec.where, x.label, wrong)
			ok = false
			continue
		}
		value := reflect.New(v.Type().Elem()).Elem()
		at := &slot{sec: x.sec, label: x.label + ": " + e.key, line: e.line, loose: true}
		good := d.value(at, e.value, value)
		x.sec.marks[at.label] = mark{line: at.line, bad: !good}
		ok = good && ok
		table.SetMapIndex(reflect.ValueOf(e.key), value)
	}
	v.Set(table)
	return ok
}

// checkTableKey returns what is wrong with a key of the table of that name.
func checkTableKey(table, key string) string {
	switch table {
	case "env":
		if key == "" || strings.ContainsAny(key, "=\x00") {
			return fmt.Sprintf("%q is no name for a variable: it must not be empty or contain '='", clip(key))
		}
	case "headers":
		if !httpguts.ValidHeaderFieldName(key) {
			return "a key is not the name of a header: write NAME: value" // not shown: it may be NAME=SECRET
		}
	default:
		if key == "" {
			return "a name is empty"
		}
	}
	return ""
}

// kind reads the settings of an adapter, which also checks them itself.
func (d *decoder) kind(x *slot, n ast.Node, v reflect.Value) bool {
	sec, list, ok := d.section(x, n, v.Type().Elem())
	if !ok {
		return false
	}
	d.adapter(sec, list, v)
	x.sec.adopt(x.label, sec)
	return true // faults inside have been reported one by one
}

// inner reads a mapping into a struct of ours.
func (d *decoder) inner(x *slot, n ast.Node, into any) (*section, bool) {
	v := reflect.ValueOf(into).Elem()
	sec, list, ok := d.section(x, n, v.Type())
	if !ok {
		return nil, false
	}
	d.fields(sec, list, v)
	x.sec.adopt(x.label, sec)
	return sec, true
}

// section begins to read n, a mapping with the keys of the struct t.
func (d *decoder) section(x *slot, n ast.Node, t reflect.Type) (sec *section, list []entry, ok bool) {
	sec = &section{where: x.sec.where + x.label + ": ", line: x.line}
	if list, ok = d.entries(sec.where, n); !ok {
		expected := "a mapping with the keys " + strings.Join(keysOf(t), ", ")
		if _, can := t.FieldByName("Off"); can {
			expected += "; or off"
		}
		return nil, nil, d.mistyped(x, n, expected)
	}
	return sec, list, true
}

func (d *decoder) adapter(sec *section, list []entry, v reflect.Value) {
	v.Set(reflect.New(v.Type().Elem()))
	d.fields(sec, list, v.Elem())
	if c, ok := v.Interface().(*rest.Config); ok {
		c.Document = d.documents[&c.OpenAPI]
		c.Secrets = d.sentBy(sec)
	}
	d.validate(sec, v.Interface())
	if d.dir != "" {
		d.visit(sec, v.Interface())
	}
}

// text is a scalar's value with the references replaced.
type text struct {
	value    string
	expanded bool     // came from the environment, in part at least
	node     ast.Node // the scalar
}

// from tells the reader of a message that the value is not what is shown.
func (t text) from() string {
	if t.expanded {
		return " (its value is from the environment and not shown)"
	}
	return ""
}

// scalar returns the value of n for a field of type t.
func (d *decoder) scalar(x *slot, n ast.Node, t reflect.Type) (text, bool) {
	n = d.resolve(n)
	switch v := n.(type) {
	case *ast.StringNode:
		return d.replaced(x, n, v.Value)
	case *ast.LiteralNode:
		return d.replaced(x, n, v.Value.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		if t.Kind() == reflect.String && !x.loose {
			d.fault(x.line, "%s%s is %s: expected text; put it in quotes", x.sec.where, x.label, d.shown(n))
			return text{}, false
		}
		// As written: 1.10 stays 1.10 and 007 stays 007.
		return text{value: n.GetToken().Value, node: n}, true
	}
	return text{}, d.mistyped(x, n, expected(t, x.off))
}

func (d *decoder) replaced(x *slot, n ast.Node, s string) (text, bool) {
	d.looked = nil
	value, expanded, err := d.expand(s)
	d.note(x, value, d.looked)
	if err == nil && strings.ContainsRune(value, 0) {
		err = errors.New("must not contain a zero byte")
	}
	if err != nil {
		for message := range strings.SplitSeq(err.Error(), "\n") {
			d.fault(x.line, "%s%s: %s", x.sec.where, x.label, message)
		}
		return text{}, false
	}
	return text{value, expanded, n}, true
}

// mistyped reports that n is something else than what is expected; it returns false.
func (d *decoder) mistyped(x *slot, n ast.Node, expected string) bool {
	shown := d.shown(n)
	switch d.resolve(n).(type) {
	case *ast.StringNode, *ast.LiteralNode:
		if strings.HasPrefix(expected, "a mapping") { // likely NAME=SECRET, a command line or an address
			shown = "text"
		}
	}
	switch d.resolve(n).(type) {
	case nil:
		d.fault(x.line, "%s%s: there is no anchor for this alias above", x.sec.where, x.label)
	case *ast.NullNode:
		d.fault(x.line, "%s%s has no value: expected %s", x.sec.where, x.label, expected)
	case *ast.TagNode:
		d.fault(x.line, "%s%s has a YAML tag: remove the tag", x.sec.where, x.label)
	default:
		d.fault(x.line, "%s%s is %s: expected %s", x.sec.where, x.label, shown, expected)
	}
	return false
}

// shown returns n as messages show it: as it is written in the file.
func (d *decoder) shown(n ast.Node) string {
	switch v := d.resolve(n).(type) {
	case *ast.StringNode:
		return strconv.Quote(clip(v.Value))
	case *ast.LiteralNode:
		return strconv.Quote(clip(v.Value.Value))
	case *ast.SequenceNode:
		return "a list"
	case ast.MapNode:
		return "a mapping"
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return clip(v.GetToken().Value)
	}
	return "nothing"
}

func expected(t reflect.Type, off bool) string {
	switch {
	case t == reflect.TypeFor[time.Duration]() && off:
		return `a duration such as 90s or 10m, or "off"`
	case t == reflect.TypeFor[time.Duration]():
		return "a duration such as 90s, 5m or 1h30m"
	case t == reflect.TypeFor[Size](), t == reflect.TypeFor[rest.Bytes]():
		return "a number of bytes such as 16777216 or 16MiB"
	case t == reflect.TypeFor[bridge.Forward]():
		return "the name of a header, such as X-Tenant"
	case t == reflect.TypeFor[limits.Rate]():
		return "a rate such as 10/s or 600/m"
	case t == reflect.TypeFor[netip.Prefix]():
		return "an address or a network such as 10.0.0.0/8"
	case t.Kind() == reflect.Int64:
		return "a number of bytes such as 16777216 or 16MiB"
	case t.Kind() == reflect.Int:
		return "a whole number"
	case t.Kind() == reflect.Bool:
		return "true or false"
	}
	return "text"
}

// convert turns a scalar into a value for a field of type t. Errors say only
// what is expected: the value may be a secret.
func convert(got text, t reflect.Type, off bool) (any, error) {
	wrong := fmt.Errorf("expected %s", expected(t, off))
	_, isText := got.node.(*ast.StringNode)
	if _, ok := got.node.(*ast.LiteralNode); ok {
		isText = true
	}
	switch {
	case t == reflect.TypeFor[time.Duration]():
		if off && got.value == "off" {
			return time.Duration(0), nil
		}
		return duration(got.value, wrong, off)
	case t == reflect.TypeFor[Size](), t == reflect.TypeFor[rest.Bytes]():
		if n, ok := got.node.(*ast.IntegerNode); ok { // 0x1000 and 1_000 are numbers too
			return size(n)
		}
		return ParseSize(got.value)
	case t == reflect.TypeFor[bridge.Forward]():
		return parseForward(got.value)
	case t == reflect.TypeFor[limits.Rate]():
		return limits.ParseRate(got.value)
	case t == reflect.TypeFor[netip.Prefix]():
		return network(got.value, wrong)
	case t.Kind() == reflect.String:
		return got.value, nil
	case t.Kind() == reflect.Int64: // a number of bytes
		if n, ok := got.node.(*ast.IntegerNode); ok {
			return size(n)
		}
		return ParseSize(got.value)
	// Only the environment has numbers and truth as text; in the file, quotes
	// say that it is text.
	case isText && !got.expanded:
		if _, err := strconv.Atoi(got.value); err == nil {
			return nil, errors.New("remove the quotes")
		}
		return nil, wrong
	case t.Kind() == reflect.Bool:
		if got.value != "true" && got.value != "false" {
			return nil, wrong
		}
		return got.value == "true", nil
	}
	n, err := strconv.Atoi(strings.ReplaceAll(got.value, "_", ""))
	if err != nil {
		return nil, wrong
	}
	return n, nil
}

func duration(s string, wrong error, off bool) (any, error) {
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		if off {
			return nil, errors.New(`add a unit, such as 90s or 10m, or write "off" for never`)
		}
		return nil, errors.New("add a unit, such as 90s or 5m")
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return nil, wrong
	}
	if v < 0 {
		return nil, errors.New("must not be negative")
	}
	if v == 0 && off { // at once, or never? Ask.
		return nil, errors.New(`write "off" for never, or leave the key out for the default`)
	}
	return v, nil
}

func size(n *ast.IntegerNode) (any, error) {
	v, err := strconv.ParseInt(fmt.Sprint(n.Value), 10, 64)
	if err != nil || v < 0 {
		return nil, errors.New("expected a number of bytes such as 16777216 or 16MiB")
	}
	return Size(v), nil
}

func network(s string, wrong error) (any, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Masked(), nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return nil, wrong
	}
	a = a.Unmap()
	return netip.PrefixFrom(a, a.BitLen()), nil
}
