package strict

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/internal/setting"
)

// A Slot is the place for a value, with the place's name for messages.
type Slot struct {
	Section *Section
	Label   string // the key, and the item of a list: "args: item 2"
	Line    int
	Off     bool // a duration that can be "off"
	Some    bool // a list that must not be empty
	Loose   bool // a text that may also be a number or true
	Rule    func(any) (any, error)
}

// Value reads n into v. It reports whether n has the form of v.
func (d *Decoder) Value(s *Slot, n *yaml.Node, v reflect.Value) bool {
	into := v.Addr().Interface()
	if ok, known := d.schema.Special(s, n, into); known {
		return ok
	}
	switch into := into.(type) {
	case *json.RawMessage:
		return d.raw(s, n, into)
	case *JSON:
		raw, ok := d.JSON(s, n)
		*into = raw
		return ok
	}
	switch kind := v.Kind(); {
	case kind == reflect.Pointer:
		one := reflect.New(v.Type().Elem())
		ok := d.group(s, n, one.Elem())
		if ok {
			v.Set(one)
		}
		return ok
	case kind == reflect.Struct && !d.isText(v.Type()):
		return d.group(s, n, v)
	case kind == reflect.Map:
		return d.table(s, n, v)
	case kind == reflect.Slice:
		return d.items(s, n, v)
	}
	s.Line = Resolve(n).Line
	got, ok := d.Scalar(s, n, v.Type())
	if !ok {
		return false
	}
	value, err := d.convert(got, v.Type(), s.Off)
	if err == nil && s.Rule != nil {
		value, err = s.Rule(value)
	}
	if err != nil {
		d.Fault(s.Line, "%s%s is %s%s: %v", s.Section.Where, s.Label, Shown(n), got.from(), err)
		return false
	}
	v.Set(reflect.ValueOf(value).Convert(v.Type()))
	return true
}

// isText reports whether values of a type are written as text.
func (d *Decoder) isText(t reflect.Type) bool {
	_, parse := d.schema.Form(t)
	return parse != nil || t == reflect.TypeFor[netip.Prefix]()
}

// items reads a list.
func (d *Decoder) items(s *Slot, n *yaml.Node, v reflect.Value) bool {
	if Kind(n) != List {
		example := `["a", "b"]`
		if item := v.Type().Elem(); item.Kind() == reflect.Struct && !d.isText(item) {
			keys := setting.Keys(item)
			example = "[{ " + strings.Join(keys[:min(len(keys), 2)], ": …, ") + ": … }]"
		}
		return d.Mistyped(s, n, "a list, such as "+example)
	}
	items, ok := Resolve(n).Content, true
	if len(items) == 0 && s.Some {
		d.Fault(s.Line, "%s%s is empty, which would let all pass: list what may, or leave it out", s.Section.Where, s.Label)
		return false
	}
	list := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		at := &Slot{
			Section: s.Section,
			Label:   fmt.Sprintf("%s: item %d", s.Label, i+1),
			Line:    Resolve(item).Line,
			Loose:   true,
			Rule:    s.Rule,
		}
		good := d.Value(at, item, list.Index(i))
		s.Section.Marks[at.Label] = Mark{
			Line:  at.Line,
			Shown: Shown(item),
			Bad:   !good,
		}
		ok = good && ok
	}
	v.Set(list)
	return ok
}

// table reads a mapping of names to values. The rule of the slot is for the names.
func (d *Decoder) table(s *Slot, n *yaml.Node, v reflect.Value) bool {
	list, ok := d.Entries(s.Section.Where+s.Label+": ", n)
	if !ok {
		return d.Mistyped(s, n, "a mapping, such as { NAME: value }")
	}
	table := reflect.MakeMapWithSize(v.Type(), len(list))
	for _, e := range list {
		var err error
		if s.Rule != nil {
			_, err = s.Rule(e.Key)
		}
		if err == nil && e.Key == "" {
			err = errors.New("a name is empty")
		}
		if err != nil {
			d.Fault(e.Line, "%s%s: %v", s.Section.Where, s.Label, err)
			ok = false
			continue
		}
		value := reflect.New(v.Type().Elem()).Elem()
		at := &Slot{
			Section: s.Section,
			Label:   s.Label + ": " + e.Key,
			Line:    e.Line,
			Loose:   true,
		}
		good := d.Value(at, e.Value, value)
		s.Section.Marks[at.Label] = Mark{Line: at.Line, Bad: !good}
		ok = good && ok
		table.SetMapIndex(reflect.ValueOf(e.Key), value)
	}
	v.Set(table)
	return ok
}

// group reads a mapping into a struct and checks the struct. For a struct with a field Off, the value may also be the
// word off. group reports true even if there are faults in the struct.
func (d *Decoder) group(s *Slot, n *yaml.Node, v reflect.Value) bool {
	if off := v.FieldByName("Off"); off.IsValid() && IsOff(n) {
		off.SetBool(true)
		return true
	}
	into := v.Addr().Interface()
	sec, ok := d.Inner(s, n, into)
	if ok {
		d.schema.CheckStruct(sec, into)
	}
	return ok
}

// Inner reads a mapping into the struct to which into points. It does not check the struct.
func (d *Decoder) Inner(s *Slot, n *yaml.Node, into any) (*Section, bool) {
	v := reflect.ValueOf(into).Elem()
	sec := &Section{Where: s.Section.Where + s.Label + ": ", Line: s.Line}
	list, ok := d.Entries(sec.Where, n)
	if !ok {
		expected := "a mapping with the keys " + strings.Join(setting.Keys(v.Type()), ", ")
		if v.FieldByName("Off").IsValid() {
			expected += "; or off"
		}
		return nil, d.Mistyped(s, n, expected)
	}
	d.Fields(sec, list, v)
	s.Section.Adopt(s.Label, sec)
	return sec, true
}

// Struct fills the struct to which into points from the entries, and checks the struct.
func (d *Decoder) Struct(sec *Section, list []Entry, into any) {
	d.Fields(sec, list, reflect.ValueOf(into).Elem())
	d.schema.CheckStruct(sec, into)
}

// Text is the value of a scalar, with references replaced.
type Text struct {
	Value    string
	Expanded bool   // the value comes at least partly from the environment
	Kind     string // the kind of the scalar
}

// from returns a remark for messages that show the reference instead of the value.
func (t Text) from() string {
	if t.Expanded {
		return " (its value is from the environment and not shown)"
	}
	return ""
}

// Scalar returns the value of n, with references replaced, for a field of type t.
func (d *Decoder) Scalar(s *Slot, n *yaml.Node, t reflect.Type) (Text, bool) {
	switch Kind(n) {
	case String:
		return d.replaced(s, n)
	case Int, Float, Bool:
		if t.Kind() == reflect.String && !s.Loose {
			d.Fault(s.Line, "%s%s is %s: expected text; put it in quotes", s.Section.Where, s.Label, Shown(n))
			return Text{}, false
		}
		// The text as in the file: 1.10 stays 1.10 and 007 stays 007.
		return Text{Value: Resolve(n).Value, Kind: Kind(n)}, true
	}
	return Text{}, d.Mistyped(s, n, d.expected(t, s.Off))
}

// replaced returns a text with its references replaced. If the text is invalid before or after that, replaced adds
// faults and returns false.
func (d *Decoder) replaced(x *Slot, n *yaml.Node) (Text, bool) {
	s := Resolve(n).Value
	if err := d.schema.CheckText(x, s); err != nil {
		d.Fault(x.Line, "%s%s is %s: %v", x.Section.Where, x.Label, Shown(n), err)
		return Text{}, false
	}
	d.values = nil
	value, expanded, err := d.Expand(s)
	if len(d.values) > 0 {
		d.schema.NoteExpanded(x, value, d.values)
	}
	if err == nil && strings.ContainsRune(value, 0) {
		err = errors.New("must not contain a zero byte")
	}
	if err != nil {
		each := []error{err}
		if all, ok := err.(interface{ Unwrap() []error }); ok {
			each = all.Unwrap()
		}
		for _, err := range each {
			d.Fault(x.Line, "%s%s: %s", x.Section.Where, x.Label, err)
			d.Faults[len(d.Faults)-1].Unset = errors.Is(err, errUnset)
		}
		return Text{}, false
	}
	return Text{value, expanded, String}, true
}

// Mistyped adds the fault that n does not have the expected form. It returns false.
func (d *Decoder) Mistyped(s *Slot, n *yaml.Node, expected string) bool {
	shown := Shown(n)
	if Kind(n) == String && strings.HasPrefix(expected, "a mapping") { // maybe NAME=SECRET, a command line or an address
		shown = "text"
	}
	switch Kind(n) {
	case Null:
		d.Fault(s.Line, "%s%s has no value: expected %s", s.Section.Where, s.Label, expected)
	case "":
		d.Fault(s.Line, "%s%s has a YAML tag: remove the tag", s.Section.Where, s.Label)
	default:
		d.Fault(s.Line, "%s%s is %s: expected %s", s.Section.Where, s.Label, shown, expected)
	}
	return false
}

// Shown returns the text of n in the file, as messages show it.
func Shown(n *yaml.Node) string {
	switch value := Resolve(n).Value; Kind(n) {
	case String:
		return strconv.Quote(Clip(value))
	case Int, Float, Bool:
		return Clip(value)
	case List:
		return "a list"
	case Map:
		return "a mapping"
	}
	return "nothing"
}

// expected returns the form of values of a type.
func (d *Decoder) expected(t reflect.Type, off bool) string {
	if text, parse := d.schema.Form(t); parse != nil {
		return text
	}
	switch {
	case t == reflect.TypeFor[time.Duration]() && off:
		return `a duration such as 90s or 10m, or "off"`
	case t == reflect.TypeFor[time.Duration]():
		return "a duration such as 90s, 5m or 1h30m"
	case t == reflect.TypeFor[netip.Prefix]():
		return "an address or a network such as 10.0.0.0/8"
	case t.Kind() == reflect.Int:
		return "a whole number"
	case t.Kind() == reflect.Bool:
		return "true or false"
	}
	return "text"
}

// convert turns a scalar into a value for a field of type t. Errors state only the expected form, because the value may
// be a secret.
func (d *Decoder) convert(got Text, t reflect.Type, off bool) (any, error) {
	wrong := fmt.Errorf("expected %s", d.expected(t, off))
	if _, parse := d.schema.Form(t); parse != nil {
		return parse(got)
	}
	switch {
	case t == reflect.TypeFor[time.Duration]():
		if off && got.Value == "off" {
			return time.Duration(0), nil
		}
		return duration(got.Value, wrong, off)
	case t == reflect.TypeFor[netip.Prefix]():
		return network(got.Value, wrong)
	case t.Kind() == reflect.String:
		return got.Value, nil
	// Variables hold numbers and booleans as text. In the file, quotes make a value text.
	case got.Kind == String && !got.Expanded:
		if _, err := strconv.Atoi(got.Value); err == nil {
			return nil, errors.New("remove the quotes")
		}
		return nil, wrong
	case t.Kind() == reflect.Bool:
		if got.Value != "true" && got.Value != "false" {
			return nil, wrong
		}
		return got.Value == "true", nil
	}
	n, err := strconv.Atoi(strings.ReplaceAll(got.Value, "_", ""))
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
	if v == 0 && off { // 0 could mean "at once" or "never"
		return nil, errors.New(`write "off" for never, or leave the key out for the default`)
	}
	return v, nil
}

func network(s string, wrong error) (any, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		if p.Addr().Is4In6() && p.Bits() >= 96 { // an address of a peer never has this form
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		return p.Masked(), nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return nil, wrong
	}
	a = a.Unmap()
	return netip.PrefixFrom(a, a.BitLen()), nil
}

// IsOff reports whether n is the word off, or false, because older YAML reads off as false.
func IsOff(n *yaml.Node) bool {
	return Kind(n) == String && Resolve(n).Value == "off" || Kind(n) == Bool && !IsTrue(n)
}
