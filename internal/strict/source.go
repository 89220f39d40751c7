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
		at := m.Start.Position
		if len(m.Values) == 0 || at.Line > len(lines) {
			return nil
		}
		above := len(bytes.Join(lines[:at.Line-1], []byte("\n"))) + min(1, at.Line-1)
		begin := above + width(lines[at.Line-1], at.Column-1)
		brace := bytes.IndexByte(d.data[begin:], '{') // behind an anchor
		if brace < 0 {
			return nil
		}
		begin += brace
		out := bytes.Repeat([]byte("\n"), bytes.Count(d.data[:begin], []byte("\n")))
		out = append(out, bytes.Repeat([]byte(" "), begin-1-bytes.LastIndexByte(d.data[:begin], '\n'))...)
		return append(out, d.data[begin:begin+flowEnd(d.data[begin:])]...)
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

// flowEnd returns where the mapping ends that a text begins with. The text was parsed
// already.
func flowEnd(text []byte) int {
	depth := 0
	fresh := true   // a value may begin here: a quote is one
	closed := false // a quote or a bracket was closed before this
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '{' || c == '[':
			depth, fresh, closed = depth+1, true, false
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return i + 1
			}
			fresh, closed = false, true
		case c == ',':
			fresh, closed = true, false
		case c == ':' && (closed || i+1 < len(text) && bytes.IndexByte([]byte(" \n,[]{}"), text[i+1]) >= 0):
			fresh, closed = true, false
		case c == ' ' || c == '\n' || c == '\t':
		case c == '#' && (text[i-1] == ' ' || text[i-1] == '\n' || text[i-1] == '\t'):
			i += lineEnd(text[i:])
		case (c == '&' || c == '!' || c == '?') && fresh: // and its value behind it
			i += max(0, bytes.IndexAny(text[i:], " \n,[]{}")-1)
		case (c == '"' || c == '\'') && fresh:
			for i++; i < len(text) && text[i] != c; i++ {
				if c == '"' && text[i] == '\\' {
					i++
				}
			}
			fresh, closed = c == '\'' && i+1 < len(text) && text[i+1] == c, true // two of them are one in the text
		default:
			fresh, closed = false, false
		}
	}
	return len(text)
}

// lineEnd returns how many bytes of a line are left.
func lineEnd(text []byte) int {
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		return i
	}
	return len(text)
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
