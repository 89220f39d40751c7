package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/guard/retry"
)

// A decoder turns the syntax tree of one file into a Config. It goes by the yaml
// tags of the structs and, unlike a library's strict mode, notes a fault and
// goes on, so that one run shows them all.
type decoder struct {
	file       string
	dir        string // the file's folder; "" when nothing but the text may be looked at
	env        func(string) (string, bool)
	anchors    map[string]ast.Node
	clientForm bool               // the file is a desktop client's
	secrets    map[string]string  // values from the environment, by value, with the reference to show instead
	looked     []string           // values from the environment that the last expand has found
	sent       []sent             // those that go into headers and queries of the kind rest
	data       []byte             // the file
	documents  map[*string][]byte // what stands in the file where its address is to be read into
	sections   []*section         // of the servers, in the order of Config.Servers
	faults     Faults
	warnings   Faults
}

func (d *decoder) fault(line int, format string, args ...any) {
	d.faults = append(d.faults, Fault{d.file, line, fmt.Sprintf(format, args...)})
}

func (d *decoder) warn(line int, format string, args ...any) {
	d.warnings = append(d.warnings, Fault{d.file, line, fmt.Sprintf(format, args...)})
}

// An entry is one key of a mapping.
type entry struct {
	key   string
	line  int
	value ast.Node
}

// entries returns the keys of a mapping in file order, with merges (<<) done. It
// reports duplicate and odd keys and leaves them out; ok is false when n is no
// mapping, which the caller reports. where is what messages begin with.
func (d *decoder) entries(where string, n ast.Node) (list []entry, ok bool) {
	return d.entriesAt(where, n, 0)
}

func (d *decoder) entriesAt(where string, n ast.Node, depth int) (list []entry, ok bool) {
	m, ok := d.resolve(n).(ast.MapNode)
	if !ok || depth > 8 { // a merge may lead back to itself
		return nil, false
	}
	var merged []entry
	for it := m.MapRange(); it.Next(); {
		line := lineOf(it.Key())
		if it.Key().IsMergeKey() {
			more, ok := d.merge(where, it.Value(), depth)
			if !ok {
				d.fault(line, "%s<< must be followed by an alias of a mapping, such as *base", where)
			}
			merged = append(merged, more...)
			continue
		}
		key, ok := keyText(it.Key())
		if !ok {
			d.fault(line, "%sa key is not plain text", where)
			continue
		}
		if i := slices.IndexFunc(list, func(e entry) bool { return e.key == key }); i >= 0 {
			d.fault(line, "%sduplicate key %q: it is on line %d already", where, clip(key), list[i].line)
			continue
		}
		list = append(list, entry{key, line, it.Value()})
	}
	for _, e := range merged { // what is written here wins over what is merged
		if !slices.ContainsFunc(list, func(own entry) bool { return own.key == e.key }) {
			list = append(list, e)
		}
	}
	return list, true
}

func (d *decoder) merge(where string, n ast.Node, depth int) ([]entry, bool) {
	n = d.resolve(n)
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		return d.entriesAt(where, n, depth+1)
	}
	var all []entry
	for _, item := range seq.Values {
		more, ok := d.entriesAt(where, item, depth+1)
		if !ok {
			return nil, false
		}
		all = append(all, more...)
	}
	return all, true
}

// resolve follows anchors and aliases. It returns nil for an alias of nothing.
func (d *decoder) resolve(n ast.Node) ast.Node {
	for range 16 { // an alias may lead back to itself
		switch v := n.(type) {
		case *ast.AnchorNode:
			n = v.Value
		case *ast.AliasNode:
			n = d.anchors[v.Value.GetToken().Value]
		default:
			return n
		}
	}
	return nil
}

// collect is the visitor that finds the anchors, of which the last one of a name
// counts.
type collect map[string]ast.Node

func (c collect) Visit(n ast.Node) ast.Visitor {
	if a, ok := n.(*ast.AnchorNode); ok {
		c[a.Name.GetToken().Value] = a.Value
	}
	return c
}

func keyText(k ast.MapKeyNode) (string, bool) {
	var n ast.Node = k
	if explicit, ok := n.(*ast.MappingKeyNode); ok { // "? key"
		n = explicit.Value
	}
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		return n.GetToken().Value, true // 1 and true are good names
	}
	return "", false
}

// lineOf returns the line on which n begins; 0 when it is not known.
func lineOf(n ast.Node) int {
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return 0
	}
	return n.GetToken().Position.Line
}

// A mark remembers where a key stands and what is written there.
type mark struct {
	line  int
	shown string
	bad   bool // has a fault: no more about it
}

// A section is a struct that is being filled.
type section struct {
	where string // such as `server "files": stdio: `
	line  int
	marks map[string]mark // by key, inner ones as "http: url"; "" stands for keys that nobody knows
}

// adopt takes over the marks of the section under key.
func (s *section) adopt(key string, inner *section) {
	for name, m := range inner.marks {
		if name != "" {
			s.marks[key+": "+name] = m
		}
	}
}

// at returns the mark of a key, or of the nearest one around it that is known.
func (s *section) at(key string) (mark, bool) {
	for {
		if m, ok := s.marks[key]; ok {
			return m, true
		}
		i := strings.LastIndex(key, ": ")
		if i < 0 {
			return mark{line: s.line}, false
		}
		key = key[:i]
	}
}

// fields fills the struct v from the entries, by yaml tags.
func (d *decoder) fields(sec *section, list []entry, v reflect.Value) {
	sec.marks = map[string]mark{}
	valid := keysOf(v.Type())
	for _, e := range list {
		i := slices.Index(valid, e.key)
		if i < 0 {
			d.unknown(sec, e, v.Type())
			continue
		}
		field := fieldOf(v, e.key)
		x := &slot{
			sec: sec, label: e.key, line: e.line,
			off: strings.HasSuffix(tagOf(v.Type(), e.key), ",off"),
		}
		switch v.Type().PkgPath() {
		case reflect.TypeFor[Config]().PkgPath():
			x.rule = func(value any) (any, error) { return rule(e.key, value) }
		case reflect.TypeFor[limits.Options]().PkgPath(), reflect.TypeFor[retry.Options]().PkgPath(), reflect.TypeFor[gateway.Cache]().PkgPath():
			x.rule = notZero
		case reflect.TypeFor[rest.Config]().PkgPath():
			if notZeroInRest[e.key] {
				x.rule = notZero
			}
		}
		ok := d.value(x, e.value, field)
		sec.marks[e.key] = mark{line: x.line, shown: d.shown(e.value), bad: !ok}
	}
}

func (d *decoder) unknown(sec *section, e entry, t reflect.Type) {
	valid := keysOf(t)
	if t == reflect.TypeFor[Config]() {
		valid = append(valid, "mcpServers")
	}
	if name := nearest(e.key, valid); name != "" {
		d.fault(e.line, "%sunknown key %q: did you mean %q?", sec.where, clip(e.key), name)
		// The key that was meant is not missing, so nothing more about it.
		if _, ok := sec.marks[name]; !ok {
			sec.marks[name] = mark{line: e.line, bad: true}
		}
		return
	}
	if d.clientForm {
		d.warn(e.line, "%s%s is ignored: it means nothing to bridge", sec.where, clip(e.key))
		return
	}
	for f := range t.Fields() { // a kind's key, written one level too high
		if f.Type.Kind() == reflect.Pointer && slices.Contains(keysOf(f.Type.Elem()), e.key) {
			d.fault(e.line, "%sunknown key %q: it belongs under %q", sec.where, clip(e.key), key(f))
			sec.marks[key(f)] = mark{line: e.line, bad: true}
			return
		}
	}
	message := fmt.Sprintf("%sunknown key %q", sec.where, clip(e.key))
	if _, told := sec.marks[""]; !told { // once is enough
		slices.Sort(valid)
		message += ": the keys here are " + strings.Join(valid, ", ")
	}
	d.fault(e.line, "%s", message)
	sec.marks[""] = mark{bad: true}
}

// keysOf returns the keys of a struct in the order of its fields.
func keysOf(t reflect.Type) []string {
	var keys []string
	for f := range t.Fields() {
		if k := key(f); k != "-" {
			keys = append(keys, k)
		}
	}
	return keys
}

func key(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return name
}

func fieldOf(v reflect.Value, name string) reflect.Value {
	for f, field := range v.Fields() {
		if key(f) == name {
			return field
		}
	}
	return reflect.Value{}
}

func tagOf(t reflect.Type, name string) string {
	for f := range t.Fields() {
		if key(f) == name {
			return f.Tag.Get("yaml")
		}
	}
	return ""
}

// validate asks a section's own check, of which each line reads "KEY is …: RULE",
// and gives every fault the line of its key.
func (d *decoder) validate(sec *section, v any) {
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
		m, _ := sec.at(strings.TrimSuffix(name, ":"))
		if m.bad {
			continue
		}
		d.fault(m.line, "%s%s %s", sec.where, name, d.redact(rest))
	}
}
