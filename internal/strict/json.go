package strict

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/goccy/go-yaml/ast"
	"github.com/tidwall/gjson"
)

// JSON is a value that stays JSON, however deep it is.
type JSON json.RawMessage

// raw reads a value that stays JSON. It is no deeper than annotations are:
// aliases could make it endless.
func (d *Decoder) raw(x *Slot, n ast.Node, into *json.RawMessage) bool {
	seq, isList := d.Resolve(n).(*ast.SequenceNode)
	if !isList {
		return d.rawScalar(x, n, into)
	}
	list, good := make([]json.RawMessage, len(seq.Values)), true
	for i, item := range seq.Values {
		good = d.rawScalar(x, item, &list[i]) && good
	}
	if good {
		*into, _ = json.Marshal(list) // what was made of scalars is valid
	}
	return good
}

func (d *Decoder) rawScalar(x *Slot, n ast.Node, into *json.RawMessage) bool {
	var value any
	switch v := d.Resolve(n).(type) {
	case *ast.NullNode:
	case *ast.BoolNode:
		value = v.Value
	case *ast.IntegerNode:
		value = v.Value
	case *ast.FloatNode:
		value = v.Value
	case *ast.StringNode, *ast.LiteralNode:
		got, ok := d.Scalar(x, n, nil)
		if !ok {
			return false
		}
		value = got.Value
	default:
		return d.Mistyped(x, n, "text, a number, true, false, null, or a list of these")
	}
	*into, _ = json.Marshal(value) // of a scalar
	return true
}

// maxJSON bounds the values within one, which aliases could make endless.
const maxJSON = 10_000

// JSON makes JSON of a value, as the type of that name holds it.
func (d *Decoder) JSON(x *Slot, n ast.Node) (JSON, bool) {
	left := maxJSON
	return d.jsonOf(x, n, 0, &left)
}

// jsonOf makes JSON of a value. Order is kept, and numbers stay as they are
// written.
func (d *Decoder) jsonOf(x *Slot, n ast.Node, depth int, left *int) ([]byte, bool) {
	if *left--; depth > 50 || *left < 0 {
		d.Fault(x.Line, "%s%s is nested too deep, or too large", x.Section.Where, x.Label)
		return nil, false
	}
	switch v := d.Resolve(n).(type) {
	case *ast.NullNode:
		return []byte("null"), true
	case *ast.BoolNode:
		return fmt.Append(nil, v.Value), true
	case *ast.IntegerNode, *ast.FloatNode:
		if text := v.GetToken().Value; gjson.Valid(text) {
			return []byte(text), true
		}
		var value any
		switch v := v.(type) {
		case *ast.IntegerNode:
			value = v.Value
		case *ast.FloatNode:
			value = v.Value
		}
		raw, err := json.Marshal(value)
		return raw, err == nil
	case *ast.StringNode, *ast.LiteralNode:
		got, ok := d.Scalar(x, n, reflect.TypeFor[string]())
		return gjson.AppendJSONString(nil, got.Value), ok
	case *ast.SequenceNode:
		out := []byte{'['}
		for i, item := range v.Values {
			raw, ok := d.jsonOf(x, item, depth+1, left)
			if !ok {
				return nil, false
			}
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, raw...)
		}
		return append(out, ']'), true
	case ast.MapNode:
		list, ok := d.Entries(x.Section.Where+x.Label+": ", n)
		if !ok {
			return nil, false
		}
		out := []byte{'{'}
		for i, e := range list {
			at := &Slot{Section: x.Section, Label: x.Label + ": " + e.Key, Line: e.Line}
			x.Section.Marks[at.Label] = Mark{Line: e.Line}
			raw, ok := d.jsonOf(at, e.Value, depth+1, left)
			if !ok {
				return nil, false
			}
			if i > 0 {
				out = append(out, ',')
			}
			out = append(append(gjson.AppendJSONString(out, e.Key), ':'), raw...)
		}
		return append(out, '}'), true
	}
	return nil, d.Mistyped(x, n, "a value")
}
