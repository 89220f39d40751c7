// Package sanitize makes foreign texts safe to show. Texts of servers, APIs and clients reach terminals and logs, where
// some invisible characters have effects: control characters rewrite the screen or type for the user, and direction
// marks reorder text.
//
// No information is lost: a hidden character is shown by its number, such as \u202e.
package sanitize

import (
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// hidden reports whether a character above ASCII affects other characters. Such characters are C1 controls, direction
// marks, and line breaks that only some programs show as line breaks.
func hidden(r rune) bool {
	return r >= 0x80 && r < 0xa0 || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

const digits = "0123456789abcdef"

// escape appends a character as JSON and Go write it.
func escape(b []byte, r rune) []byte {
	return append(b, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}

// Text returns a text for a terminal. Line breaks and tabs stay. Other ASCII controls become pictures, such as ␛.
func Text(s string) string {
	b := make([]byte, 0, len(s))
	s = strings.ReplaceAll(s, "\r\n", "\n")
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1: // invalid UTF-8; a terminal may take the byte for a C1 control
			b = append(b, '\\', 'x', digits[s[i]>>4], digits[s[i]&15])
		case r < ' ' && r != '\n' && r != '\t':
			b = utf8.AppendRune(b, '␀'+r)
		case r == 0x7f:
			b = utf8.AppendRune(b, '␡')
		case hidden(r):
			b = escape(b, r)
		default:
			b = append(b, s[i:i+n]...)
		}
		i += n
	}
	return string(b)
}

// Short returns a text unchanged if it has at most most bytes. From a longer text, Short returns the beginning, cut
// between characters, and an ellipsis.
func Short(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}

// JSON returns equivalent JSON without hidden characters. Such characters can occur only in strings, where JSON escapes
// them. It does not change b. If b has no hidden characters, JSON returns b itself.
func JSON(b []byte) []byte {
	var out []byte
	from := 0
	for i := 0; i < len(b); {
		if b[i] < 0x7f {
			i++
			continue
		}
		r, n := utf8.DecodeRune(b[i:])
		if r == 0x7f || hidden(r) {
			out = escape(append(out, b[from:i]...), r)
			from = i + n
		}
		i += n
	}
	if out == nil {
		return b
	}
	return append(out, b[from:]...)
}

// JSONWriter returns a writer that applies JSON to each write. Each write must consist of whole characters.
func JSONWriter(w io.Writer) io.Writer { return writer{w} }

type writer struct{ to io.Writer }

func (w writer) Write(p []byte) (int, error) {
	shown := JSON(p)
	n, err := w.to.Write(shown)
	if err != nil {
		return min(n, len(p)), err
	}
	return len(p), nil
}
