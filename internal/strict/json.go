package strict

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"

	"github.com/tidwall/gjson"
	"go.yaml.in/yaml/v4"
)

// JSON is a value of any depth that is kept as JSON.
type JSON json.RawMessage

// raw reads a scalar or a list of scalars as JSON.
func (d *Decoder) raw(s *Slot, n *yaml.Node, into *json.RawMessage) bool {
	if Kind(n) != List {
		return d.rawScalar(s, n, into)
	}
	items := Resolve(n).Content
	list, good := make([]json.RawMessage, len(items)), true
	for i, item := range items {
		good = d.rawScalar(s, item, &list[i]) && good
	}
	if good {
		*into, _ = json.Marshal(list) // the JSON of scalars is valid
	}
	return good
}

func (d *Decoder) rawScalar(s *Slot, n *yaml.Node, into *json.RawMessage) bool {
	raw, ok := plain(n)
	if !ok && Kind(n) == String {
		var got Text
		if got, ok = d.Scalar(s, n, reflect.TypeFor[string]()); !ok {
			return false
		}
		raw = gjson.AppendJSONString(nil, got.Value)
	}
	if !ok {
		return d.Mistyped(s, n, "text, a number, true, false, null, or a list of these")
	}
	*into = raw
	return true
}

// maxJSON bounds the values in one JSON. Aliases could make their number huge.
const maxJSON = 10_000

// JSON turns a value into JSON and replaces the references. Order and spelling of numbers stay.
func (d *Decoder) JSON(s *Slot, n *yaml.Node) (JSON, bool) {
	left := maxJSON
	return d.jsonOf(s, n, 0, &left)
}

func (d *Decoder) jsonOf(s *Slot, n *yaml.Node, depth int, left *int) ([]byte, bool) {
	if *left--; depth > 50 || *left < 0 {
		d.Fault(s.Line, "%s%s is nested too deep, or too large", s.Section.Where, s.Label)
		return nil, false
	}
	var parts [][]byte
	switch Kind(n) {
	case String:
		got, ok := d.Scalar(s, n, reflect.TypeFor[string]())
		return gjson.AppendJSONString(nil, got.Value), ok
	case List:
		for _, item := range Resolve(n).Content {
			raw, ok := d.jsonOf(s, item, depth+1, left)
			if !ok {
				return nil, false
			}
			parts = append(parts, raw)
		}
		return enclose("[", parts, "]"), true
	case Map:
		list, _ := d.Entries(s.Section.Where+s.Label+": ", n)
		for _, e := range list {
			at := &Slot{
				Section: s.Section,
				Label:   s.Label + ": " + e.Key,
				Line:    e.Line,
			}
			s.Section.Marks[at.Label] = Mark{Line: e.Line}
			raw, ok := d.jsonOf(at, e.Value, depth+1, left)
			if !ok {
				return nil, false
			}
			parts = append(parts, append(append(gjson.AppendJSONString(nil, e.Key), ':'), raw...))
		}
		return enclose("{", parts, "}"), true
	}
	if raw, ok := plain(n); ok {
		return raw, true
	}
	return nil, d.Mistyped(s, n, "a value")
}

func enclose(before string, parts [][]byte, after string) []byte {
	return []byte(before + string(bytes.Join(parts, []byte(","))) + after)
}

// plain returns the JSON of null, a boolean or a number.
func plain(n *yaml.Node) ([]byte, bool) {
	n = Resolve(n)
	switch Kind(n) {
	case Null:
		return []byte("null"), true
	case Bool:
		return []byte(strings.ToLower(n.Value)), true
	case Int, Float:
		if gjson.Valid(n.Value) {
			return []byte(n.Value), true
		}
		var value any
		if n.Decode(&value) == nil {
			raw, err := json.Marshal(value)
			return raw, err == nil
		}
	}
	return nil, false
}

// Source returns a mapping as text. Each key and each item is on the same line as in the file. The text is JSON, except
// that << stays. References are not replaced.
func Source(n *yaml.Node) []byte {
	s := source{line: 1}
	s.node(n)
	return s.text.Bytes()
}

// source writes the text for Source.
type source struct {
	text bytes.Buffer
	line int
}

// down writes line breaks up to a line.
func (s *source) down(line int) {
	for ; s.line < line; s.line++ {
		s.text.WriteByte('\n')
	}
}

func (s *source) node(n *yaml.Node) {
	n = Resolve(n)
	switch n.Kind {
	case yaml.SequenceNode:
		s.text.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				s.text.WriteByte(',')
			}
			s.down(item.Line)
			s.node(item)
		}
		s.text.WriteByte(']')
	case yaml.MappingNode:
		s.text.WriteByte('{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				s.text.WriteByte(',')
			}
			key := n.Content[i]
			s.down(key.Line)
			if key.Tag == "!!merge" {
				s.text.WriteString("<<")
			} else {
				s.text.Write(gjson.AppendJSONString(nil, Resolve(key).Value))
			}
			s.text.WriteString(": ")
			s.node(n.Content[i+1])
		}
		s.text.WriteByte('}')
	default:
		raw, ok := plain(n)
		if !ok {
			raw = gjson.AppendJSONString(nil, n.Value)
		}
		s.text.Write(raw)
	}
}
