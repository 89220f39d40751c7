package strict

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/internal/setting"
)

// Fault adds a fault with its line. Line 0 means the whole file.
func (d *Decoder) Fault(line int, format string, args ...any) {
	d.Faults = append(d.Faults, Fault{
		File:    d.File,
		Line:    line,
		Message: fmt.Sprintf(format, args...),
	})
}

func (d *Decoder) Warn(line int, format string, args ...any) {
	d.Warnings = append(d.Warnings, Fault{
		File:    d.File,
		Line:    line,
		Message: fmt.Sprintf(format, args...),
	})
}

// An Entry is a key of a mapping with its value.
type Entry struct {
	Key   string
	Line  int
	Value *yaml.Node
}

// Entries returns the entries of a mapping in file order, with merges (<<) applied. It reports duplicate keys and keys
// that are not text, and omits them. If n is not a mapping, ok is false and the caller reports a fault. Messages begin
// with where.
func (d *Decoder) Entries(where string, n *yaml.Node) (list []Entry, ok bool) {
	if Kind(n) != Map {
		return nil, false
	}
	n = Resolve(n)
	var merged []Entry
	indexes := map[string]int{} // indexes in list
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Tag == "!!merge" {
			more, ok := d.merge(where, value)
			if !ok {
				d.Fault(key.Line, "%s<< must be followed by an alias of a mapping, such as *base", where)
			}
			merged = append(merged, more...)
			continue
		}
		if key.Kind != yaml.ScalarNode || tagged(key) {
			d.Fault(key.Line, "%sa key is not plain text", where)
			continue
		}
		if i, known := indexes[key.Value]; known {
			d.Fault(key.Line, "%sduplicate key %q: it is on line %d already", where, Clip(key.Value), list[i].Line)
			continue
		}
		indexes[key.Value] = len(list)
		list = append(list, Entry{key.Value, key.Line, value})
	}
	for _, e := range merged { // keys of the mapping itself take precedence
		if _, own := indexes[e.Key]; !own {
			indexes[e.Key] = len(list)
			list = append(list, e)
		}
	}
	return list, true
}

// merge returns the entries that << adds, from a mapping or from a list of mappings.
func (d *Decoder) merge(where string, n *yaml.Node) ([]Entry, bool) {
	if Kind(n) != List {
		return d.Entries(where, n)
	}
	var all []Entry
	for _, item := range Resolve(n).Content {
		more, ok := d.Entries(where, item)
		if !ok {
			return nil, false
		}
		all = append(all, more...)
	}
	return all, true
}

// A Mark holds the line of a key, and the text of the key's value.
type Mark struct {
	Line  int
	Shown string
	Bad   bool // the value has a fault, so further faults of it are not reported
}

// A Section is a struct that is being filled.
type Section struct {
	Where string // such as `server "files": stdio: `
	Line  int
	Marks map[string]Mark // by key; inner keys as in "http: url"; "" means unknown keys
}

// Adopt copies the marks of an inner section under key.
func (s *Section) Adopt(key string, inner *Section) {
	for name, m := range inner.Marks {
		if name != "" {
			s.Marks[key+": "+name] = m
		}
	}
}

// At returns the mark of a key, or of the nearest enclosing key that has a mark.
func (s *Section) At(key string) (Mark, bool) {
	for {
		if m, ok := s.Marks[key]; ok {
			return m, true
		}
		i := strings.LastIndex(key, ": ")
		if i < 0 {
			return Mark{Line: s.Line}, false
		}
		key = key[:i]
	}
}

// Fields fills the struct v from the entries, according to the yaml tags of the struct's fields.
func (d *Decoder) Fields(sec *Section, list []Entry, v reflect.Value) {
	sec.Marks = map[string]Mark{}
	for _, e := range list {
		f := setting.ByKey(v.Type(), e.Key)
		if f == nil {
			d.unknown(sec, e, v.Type())
			continue
		}
		s := &Slot{
			Section: sec,
			Label:   e.Key,
			Line:    e.Line,
			Off:     f.Form == "off",
			Some:    f.Form == "some",
			Rule:    d.schema.RuleOf(v.Type(), e.Key),
		}
		ok := d.Value(s, e.Value, v.FieldByIndex(f.Index))
		sec.Marks[e.Key] = Mark{
			Line:  s.Line,
			Shown: Shown(e.Value),
			Bad:   !ok,
		}
	}
}

// unknown adds a fault or warning for a key that no field has.
func (d *Decoder) unknown(sec *Section, e Entry, t reflect.Type) {
	valid := append(slices.Clone(setting.Keys(t)), d.schema.OtherKeys(t)...)
	if name := d.schema.Meant(e.Key, valid); name != "" {
		d.Fault(e.Line, "%sunknown key %q: did you mean %q?", sec.Where, Clip(e.Key), name)
		// The intended key is not missing, so further faults about it are not reported.
		if _, ok := sec.Marks[name]; !ok {
			sec.Marks[name] = Mark{Line: e.Line, Bad: true}
		}
		return
	}
	if d.Foreign {
		d.Warn(e.Line, "%s%s is ignored: it means nothing to %s", sec.Where, Clip(e.Key), d.Program)
		return
	}
	for _, f := range setting.Fields(t) { // the key of a kind, one level too high
		if f.Type.Kind() == reflect.Pointer && slices.Contains(setting.Keys(f.Type.Elem()), e.Key) {
			d.Fault(e.Line, "%sunknown key %q: it belongs under %q", sec.Where, Clip(e.Key), f.Key)
			sec.Marks[f.Key] = Mark{Line: e.Line, Bad: true}
			return
		}
	}
	message := fmt.Sprintf("%sunknown key %q", sec.Where, Clip(e.Key))
	if _, listed := sec.Marks[""]; !listed { // listing the keys once is enough
		slices.Sort(valid)
		message += ": the keys here are " + strings.Join(valid, ", ")
	}
	d.Fault(e.Line, "%s", message)
	sec.Marks[""] = Mark{Bad: true}
}

// Validate calls the Validate method of v, if v has one. Each line of the method's error begins with a key, such as
// "KEY is …: RULE", and the fault gets the line of this key.
func (d *Decoder) Validate(sec *Section, v any) {
	c, ok := v.(interface{ Validate() error })
	if !ok {
		return
	}
	err := c.Validate()
	if err == nil {
		return
	}
	for message := range strings.SplitSeq(err.Error(), "\n") {
		name, rest, _ := strings.Cut(message, " ")
		m, _ := sec.At(strings.TrimSuffix(name, ":"))
		if m.Bad {
			continue
		}
		d.Fault(m.Line, "%s%s %s", sec.Where, name, d.Redact(rest))
	}
}
