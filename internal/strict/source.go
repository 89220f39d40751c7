package strict

import (
	"bytes"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Source returns the text of a mapping below as many empty lines as there are
// above it; nil for one that is empty.
func (d *Decoder) Source(n ast.Node) []byte {
	lines := bytes.Split(d.data, []byte("\n"))
	if m, ok := n.(*ast.MappingNode); ok && m.IsFlowStyle {
		if m.Start == nil || m.End == nil || len(m.Values) == 0 {
			return nil
		}
		first, last := m.Start.Position, m.End.Position
		if first.Line < 1 || last.Line < first.Line || last.Line > len(lines) {
			return nil
		}
		part := bytes.Clone(bytes.Join(lines[first.Line-1:last.Line], []byte("\n")))
		end := len(part) - len(lines[last.Line-1]) + width(lines[last.Line-1], last.Column)
		begin := width(lines[first.Line-1], first.Column-1)
		for i := range min(begin, end) {
			part[i] = ' '
		}
		return append(bytes.Repeat([]byte("\n"), first.Line-1), part[:end]...)
	}
	it := n.(ast.MapNode).MapRange()
	if !it.Next() || it.Key().GetToken() == nil {
		return nil
	}
	first := it.Key().GetToken().Position
	if first.Line < 1 || first.Line > len(lines) {
		return nil
	}
	out := bytes.Repeat([]byte("\n"), first.Line-1)
	for i, line := range lines[first.Line-1:] {
		text := bytes.TrimLeft(line, " ")
		if i > 0 && len(text) > 0 && text[0] != '#' && len(line)-len(text) < first.Column-1 {
			break
		}
		out = append(append(out, line...), '\n')
	}
	return out
}

// width returns how many bytes the first characters of a line have.
func width(line []byte, characters int) int {
	n := 0
	for i := range string(line) {
		if n == characters {
			return i
		}
		n++
	}
	return len(strings.TrimRight(string(line), "\r"))
}
