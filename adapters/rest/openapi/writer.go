package openapi

import (
	"strconv"
	"unicode/utf8"
)

// appendString appends s as JSON writes it, without escapes that are not
// needed.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				b = append(append(b, s[start:i]...), "\ufffd"...)
				start = i + 1
			}
			i += size
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		b = append(b, s[start:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\t':
			b = append(b, '\\', 't')
		case '\r':
			b = append(b, '\\', 'r')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		start = i
	}
	return append(append(b, s[start:]...), '"')
}

// appendValue appends a value as it stands in the document. It gives up, with
// false, when b would grow beyond limit.
func appendValue(b []byte, n *node, limit, depth int) ([]byte, bool) {
	if len(b) > limit || depth > maxDepth {
		return b, false
	}
	switch n.kind {
	case null:
		b = append(b, "null"...)
	case boolean:
		b = append(b, n.text...)
	case number:
		if sensible(n.text) {
			b = append(b, n.text...)
		} else {
			b = appendString(b, n.text)
		}
	case text:
		b = appendString(b, n.text)
	default:
		open, closing := byte('['), byte(']')
		if n.kind == object {
			open, closing = '{', '}'
		}
		b = append(b, open)
		for i, m := range n.members() {
			if i > 0 {
				b = append(b, ',')
			}
			if n.kind == object {
				b = append(appendString(b, m.name), ':')
			}
			var ok bool
			if b, ok = appendValue(b, &n.kids.list[i].node, limit, depth+1); !ok {
				return b, false
			}
		}
		b = append(b, closing)
	}
	return b, len(b) <= limit
}

// appendInt appends a number of our own.
func appendInt(b []byte, i int) []byte { return strconv.AppendInt(b, int64(i), 10) }
