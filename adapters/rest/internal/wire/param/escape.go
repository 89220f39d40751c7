package param

import (
	"strconv"
	"strings"
)

// Set says for each byte whether it needs no percent-encoding in some place.
type Set [256]bool

func newSet(bytes string) *Set {
	var s Set
	for c := range 256 {
		s[c] = 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
	}
	for _, c := range []byte("-._~" + bytes) {
		s[c] = true
	}
	return &s
}

var (
	// Unreserved holds the characters that need no encoding anywhere (RFC 3986).
	Unreserved = newSet("")
	// reservedQuery holds the characters that allowReserved leaves unencoded in a query or a form:
	// none that ends a value or means a space.
	reservedQuery = newSet(":/?[]@!$'()*,;=")
	// reservedPath holds the characters that allowReserved leaves unencoded in a path: none that ends
	// a path.
	reservedPath = newSet(":/[]@!$&'()*+,;=")
	// literalPath holds the characters that a template may contain between its parameters.
	literalPath = newSet(":/@!$&'()*+,;=")
	// literalQuery holds the characters that the query of a template may contain.
	literalQuery = newSet(":/?@!$&'()*+,;=[]")
	// everything is for headers, which have no encoding. inHeader refuses a value that would end the
	// line.
	everything = all()
	// CookieOctets holds the characters of a cookie's value (RFC 6265), without %.
	CookieOctets = newSet("!#$&'()*+/:<=>?@[]^`{|}")
	// encodedCookie holds the characters of a cookie's value that the client has encoded.
	encodedCookie = newSet("!#$&'()*+/:<=>?@[]^`{|}%")
)

func all() *Set {
	var s Set
	for c := range s {
		s[c] = true
	}
	return &s
}

const hexDigits = "0123456789ABCDEF"

// Escape percent-encodes s, except the bytes in keep.
func Escape(s string, keep *Set) string {
	for i := range len(s) {
		if !keep[s[i]] {
			return string(appendEscaped(make([]byte, 0, len(s)+12), s, keep, false))
		}
	}
	return s
}

// literal percent-encodes the text of a template, except the bytes in keep, and except parts that are
// encoded already.
func literal(s string, keep *Set) string {
	for i := range len(s) {
		if !keep[s[i]] {
			return string(appendEscaped(make([]byte, 0, len(s)+12), s, keep, true))
		}
	}
	return s
}

func appendEscaped(dst []byte, s string, keep *Set, triples bool) []byte {
	for i := range len(s) {
		c := s[i]
		if keep[c] || triples && c == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]) {
			dst = append(dst, c)
			continue
		}
		dst = append(dst, '%', hexDigits[c>>4], hexDigits[c&15])
	}
	return dst
}

// unescape decodes percent-encoding. It keeps invalid encodings, as lenient servers do.
func unescape(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]) {
			c, _ := strconv.ParseUint(s[i+1:i+3], 16, 8)
			out = append(out, byte(c))
			i += 2
			continue
		}
		out = append(out, s[i])
	}
	return string(out)
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
