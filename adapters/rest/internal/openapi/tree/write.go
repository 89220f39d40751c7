package tree

import (
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// AppendJSON appends a value as JSON. It reports false if b exceeds limit bytes; b then ends with a
// part of the value.
func (n *Node) AppendJSON(b []byte, limit int) ([]byte, bool) { return n.append(b, limit, 0) }

func (n *Node) append(b []byte, limit, depth int) ([]byte, bool) {
	if len(b) > limit || depth > MaxDepth {
		return b, false
	}
	switch n.Kind {
	case Null:
		b = append(b, "null"...)
	case Boolean:
		b = append(b, n.Text...)
	case Number:
		if sensible(n.Text) {
			b = append(b, n.Text...)
		} else {
			b = rawjson.AppendString(b, n.Text)
		}
	case Text:
		b = rawjson.AppendString(b, n.Text)
	default:
		open, closing := byte('['), byte(']')
		if n.Kind == Object {
			open, closing = '{', '}'
		}
		b = append(b, open)
		for i, m := range n.Members() {
			if i > 0 {
				b = append(b, ',')
			}
			if n.Kind == Object {
				b = append(rawjson.AppendString(b, m.Name), ':')
			}
			var ok bool
			if b, ok = n.Members()[i].Node.append(b, limit, depth+1); !ok {
				return b, false
			}
		}
		b = append(b, closing)
	}
	return b, len(b) <= limit
}
