package tree

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
	"unsafe"
)

// MaxDepth bounds the nesting of documents. Deeper parts are omitted.
const MaxDepth = 200

// decoder parses JSON into nodes whose texts are slices of the source.
type decoder struct {
	src   string
	i     int
	line  int32
	file  uint16
	warn  func(line int32, text string)
	far   bool     // a reference points to another text
	stack []Member // members of the arrays and objects that are still open
	arena []Member // memory for the members of closed arrays and objects
}

// parseJSON returns the document's tree, and whether it refers to other texts. src must not change
// afterwards.
func parseJSON(src []byte, file uint16, warn func(int32, string)) (root *Node, far bool, err error) {
	d := &decoder{
		src:  unsafe.String(unsafe.SliceData(src), len(src)),
		line: 1,
		file: file,
		warn: warn,
	}
	n, err := d.value(0)
	if err == nil {
		if d.space(); d.i < len(d.src) {
			err = errors.New("something follows the document")
		}
	}
	if err != nil {
		return nil, false, fmt.Errorf("line %d: %w", d.line, err)
	}
	return &n, d.far, nil
}

func (d *decoder) space() {
	for ; d.i < len(d.src); d.i++ {
		switch d.src[d.i] {
		case ' ', '\t', '\r':
		case '\n':
			if d.line < math.MaxInt32 {
				d.line++
			}
		default:
			return
		}
	}
}

func (d *decoder) value(depth int) (Node, error) {
	d.space()
	n := Node{Line: d.line, File: d.file}
	if d.i >= len(d.src) {
		return n, errors.New("unexpected end")
	}
	var err error
	switch c := d.src[d.i]; {
	case c == '{' || c == '[':
		if depth >= MaxDepth {
			d.warn(d.line, fmt.Sprintf("nested deeper than %d levels: left out", MaxDepth))
			return n, d.skip()
		}
		if c == '{' {
			n.Kind = Object
		} else {
			n.Kind = Array
		}
		n.Kids, err = d.list(c+2, depth+1) // in ASCII, ] and } are [ and { plus 2
	case c == '"':
		n.Kind = Text
		n.Text, err = d.str()
	case c == '-' || '0' <= c && c <= '9':
		n.Kind = Number
		n.Text, err = d.num()
	default:
		n.Kind = Boolean
		for _, word := range []string{"true", "false", "null"} {
			if strings.HasPrefix(d.src[d.i:], word) {
				d.i += len(word)
				n.Text = word
				if word == "null" {
					n.Kind, n.Text = Null, ""
				}
				return n, nil
			}
		}
		err = errors.New("a value is expected")
	}
	return n, err
}

// list reads an array or object up to its closing bracket.
func (d *decoder) list(closing byte, depth int) (*Kids, error) {
	base := len(d.stack)
	for d.i++; ; d.i++ {
		d.space()
		if d.i < len(d.src) && d.src[d.i] == closing && len(d.stack) == base {
			d.i++
			return nil, nil
		}
		var m Member
		if closing == '}' {
			if d.i >= len(d.src) || d.src[d.i] != '"' {
				return nil, errors.New("a member's name is expected")
			}
			var err error
			if m.Name, err = d.str(); err != nil {
				return nil, err
			}
			if d.space(); d.i >= len(d.src) || d.src[d.i] != ':' {
				return nil, errors.New("a colon is expected")
			}
			d.i++
		}
		var err error
		if m.Node, err = d.value(depth); err != nil {
			return nil, err
		}
		d.stack = append(d.stack, m)
		d.far = d.far || m.LeadsOut()
		d.space()
		if d.i >= len(d.src) {
			return nil, errors.New("unexpected end")
		}
		switch d.src[d.i] {
		case ',':
			continue
		case closing:
			d.i++
			return d.close(base, closing == '}'), nil
		}
		return nil, fmt.Errorf("a comma or %c is expected", closing)
	}
}

// close moves the members from base on from the stack into memory of their exact size.
func (d *decoder) close(base int, named bool) *Kids {
	open := d.stack[base:]
	if len(d.arena) < len(open) {
		d.arena = make([]Member, max(2048, len(open)))
	}
	list := d.arena[:len(open):len(open)]
	d.arena = d.arena[len(open):]
	copy(list, open)
	clear(open)
	d.stack = d.stack[:base]
	if !named {
		return &Kids{list: list}
	}
	return newKids(list, func(m *Member) { d.warn(m.Node.Line, repeated(m.Name)) })
}

func repeated(name string) string {
	return fmt.Sprintf("%q is given twice: the last one counts", Short(name))
}

func (d *decoder) num() (string, error) {
	start := d.i
	for d.i < len(d.src) && strings.IndexByte("+-.eE0123456789", d.src[d.i]) >= 0 {
		d.i++
	}
	if s := d.src[start:d.i]; isNumber(s) {
		return s, nil
	}
	return "", errors.New("a number is expected")
}

func (d *decoder) str() (string, error) {
	rest := d.src[d.i+1:]
	end := strings.IndexByte(rest, '"')
	if end < 0 {
		return "", errors.New("unexpected end in a string")
	}
	plain := true
	if strings.IndexByte(rest[:end], '\\') >= 0 {
		plain = false
		for end = 0; end < len(rest) && rest[end] != '"'; end++ {
			if rest[end] == '\\' {
				end++
			}
		}
		if end >= len(rest) {
			return "", errors.New("unexpected end in a string")
		}
	}
	s := rest[:end]
	// Control characters are tolerated, but lines must be counted.
	d.line += int32(strings.Count(s, "\n"))
	if !plain {
		var out string
		if err := json.Unmarshal([]byte(clean(d.src[d.i:d.i+end+2])), &out); err != nil {
			return "", errors.New("unknown escape in a string")
		}
		s = out
	} else if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "�")
	}
	d.i += end + 2
	return s, nil
}

// clean escapes raw control characters in a string.
func clean(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return r < ' ' }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if r < ' ' {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// skip moves past an array or object.
func (d *decoder) skip() error {
	for open := 0; d.i < len(d.src); {
		switch d.src[d.i] {
		case '{', '[':
			open++
		case '}', ']':
			open--
		case '\n':
			d.line++
		case '"':
			if _, err := d.str(); err != nil {
				return err
			}
			continue
		}
		d.i++
		if open == 0 {
			return nil
		}
	}
	return errors.New("unexpected end")
}
