package jsonrpc

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"unicode/utf8"
)

// maxDepth bounds the nesting of arrays and objects, since each level takes stack. No MCP message comes near it.
const maxDepth = 1000

const tooDeep = "nested too deep"

// level says which object the scanner is in, and so which members it records.
type level uint8

const (
	other    level = iota // a part of the payload, without members to record
	envelope              // the message
	params                // the params of the message
	meta                  // params._meta
	result                // the result of the message
)

// scanner checks that bytes are JSON, and records the positions of the members that the bridge reads. It reads each
// byte once and decodes nothing.
type scanner struct {
	b     []byte
	m     *Message  // the message whose members are recorded, if level is not other
	at    int       // position of the fault, if what is not empty
	what  string    // the fault
	dup   string    // name of a duplicated member that must be unique
	seen  uint8     // members of the envelope so far, by bit
	lines bool      // there is a line break between tokens
	wide  bool      // a string has bytes beyond ASCII
	nulls bool      // a value is null
	doc   *Document // the document to make, or nil
	done  int       // bytes of b that the document's text has or omits
	gone  int       // bytes of white space that the document's text omits
}

// fail records the first fault. It returns -1, which callers return as the index.
func (s *scanner) fail(i int, what string) int {
	if s.what == "" {
		s.at, s.what = i, what
	}
	return -1
}

// space returns the index of the next byte that is not white space.
func (s *scanner) space(i int) int {
	if i < len(s.b) && s.b[i] > ' ' {
		return i
	}
	return s.skip(i)
}

// skip is space for an index at which there may be white space.
func (s *scanner) skip(i int) int {
	from := i
	for ; i < len(s.b) && (s.b[i] == ' ' || s.b[i] == '\t' || s.b[i] == '\n' || s.b[i] == '\r'); i++ {
		s.lines = s.lines || s.b[i] == '\n' || s.b[i] == '\r'
	}
	if s.doc != nil && i > from {
		s.leave(from, i)
	}
	return i
}

// value scans the value at index i, and returns the index behind it. If the value is not JSON, it returns -1.
func (s *scanner) value(i, depth int, l level) int {
	if i >= len(s.b) {
		return s.fail(i, "unexpected end")
	}
	switch c := s.b[i]; {
	case c == '"':
		return s.str(i)
	case c == '{':
		return s.object(i, depth, l)
	case c == '[':
		return s.array(i, depth)
	case c == '-' || '0' <= c && c <= '9':
		return s.number(i)
	case c == 't':
		return s.literal(i, "true")
	case c == 'f':
		return s.literal(i, "false")
	case c == 'n':
		s.nulls = true
		return s.literal(i, "null")
	}
	for _, word := range [...]string{"NaN", "Infinity"} { // Python's json module writes them
		if bytes.HasPrefix(s.b[i:], []byte(word)) {
			return s.fail(i, word)
		}
	}
	return s.fail(i, "a value is expected")
}

func (s *scanner) literal(i int, word string) int {
	if len(s.b)-i < len(word) || string(s.b[i:i+len(word)]) != word {
		return s.fail(i, "a value is expected")
	}
	return i + len(word)
}

func (s *scanner) digits(i int) int {
	for i < len(s.b) && '0' <= s.b[i] && s.b[i] <= '9' {
		i++
	}
	return i
}

func (s *scanner) number(i int) int {
	if s.b[i] == '-' {
		i++
	}
	switch {
	case i < len(s.b) && s.b[i] == '0':
		i++
	case s.digits(i) > i:
		i = s.digits(i)
	case bytes.HasPrefix(s.b[i:], []byte("Infinity")):
		return s.fail(i-1, "-Infinity")
	default:
		return s.fail(i, "a digit is expected")
	}
	if i < len(s.b) && s.b[i] == '.' {
		end := s.digits(i + 1)
		if end == i+1 {
			return s.fail(end, "a digit is expected")
		}
		i = end
	}
	if i < len(s.b) && (s.b[i] == 'e' || s.b[i] == 'E') {
		i++
		if i < len(s.b) && (s.b[i] == '+' || s.b[i] == '-') {
			i++
		}
		end := s.digits(i)
		if end == i {
			return s.fail(end, "a digit is expected")
		}
		i = end
	}
	return i
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// str scans the string whose opening quote is at i. Strings make up most of a large payload, so str checks eight bytes
// at a time for a quote, a backslash or a control character. Each of the three masks is exact up to its first hit, and
// str uses only the first hit.
func (s *scanner) str(i int) int {
	b := s.b
	i++
	var all uint64 // bitwise OR of the bytes: for ASCII the high bits are clear
	for {
		for i+8 <= len(b) {
			x := binary.LittleEndian.Uint64(b[i : i+8])
			all |= x
			q := x ^ '"'*ones
			e := x ^ '\\'*ones
			hit := ((x-0x20*ones)&^x | (q-ones)&^q | (e-ones)&^e) & highs
			if hit == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(hit) / 8
			if b[i] != '\\' || i+1 >= len(b) || !simpleEscape[b[i+1]] {
				break
			}
			i += 2 // \n is frequent, so the loop handles it
		}
		if i >= len(b) {
			return s.fail(i, "unexpected end in a string")
		}
		switch c := b[i]; {
		case c == '"':
			s.wide = s.wide || all&highs != 0
			return i + 1
		case c == '\\':
			if i = s.escape(i); i < 0 {
				return i
			}
		case c < 0x20:
			return s.fail(i, "control character in a string")
		default:
			all |= uint64(c)
			i++
		}
	}
}

// simpleEscape are the characters that may follow a backslash, apart from u.
var simpleEscape = [256]bool{'"': true, '\\': true, '/': true, 'b': true, 'f': true, 'n': true, 'r': true, 't': true}

func (s *scanner) escape(i int) int {
	if i+1 >= len(s.b) {
		return s.fail(i, "unexpected end in a string")
	}
	switch c := s.b[i+1]; {
	case simpleEscape[c]:
		return i + 2
	case c == 'u':
		if len(s.b)-i < 6 {
			return s.fail(i, "unexpected end in a string")
		}
		for _, c := range s.b[i+2 : i+6] {
			if !('0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f') {
				return s.fail(i, "four hexadecimal digits are expected")
			}
		}
		return i + 6
	}
	return s.fail(i, "unknown escape in a string")
}

func (s *scanner) array(i, depth int) int {
	if depth >= maxDepth {
		return s.fail(i, tooDeep)
	}
	slot := s.open(i)
	if i = s.space(i + 1); i < len(s.b) && s.b[i] == ']' {
		return s.close(slot, i+1, 0)
	}
	for n := 1; ; n++ {
		if i = s.value(i, depth+1, other); i < 0 {
			return i
		}
		if i = s.space(i); i >= len(s.b) {
			return s.fail(i, "unexpected end in an array")
		}
		switch s.b[i] {
		case ',':
			i = s.space(i + 1)
		case ']':
			return s.close(slot, i+1, n)
		default:
			return s.fail(i, "a comma or ] is expected")
		}
	}
}

func (s *scanner) object(i, depth int, l level) int {
	if depth >= maxDepth {
		return s.fail(i, tooDeep)
	}
	slot := s.open(i)
	if i = s.space(i + 1); i < len(s.b) && s.b[i] == '}' {
		return s.close(slot, i+1, 0)
	}
	for n := 1; ; n++ {
		if i >= len(s.b) || s.b[i] != '"' {
			return s.fail(i, "a member's name is expected")
		}
		end := s.str(i)
		if end < 0 {
			return end
		}
		start, key := i, s.b[i+1:end-1]
		if i = s.space(end); i >= len(s.b) || s.b[i] != ':' {
			return s.fail(i, "a colon is expected")
		}
		i = s.space(i + 1)
		if l == other {
			end = s.value(i, depth+1, other)
		} else {
			end = s.member(key, start, i, depth+1, l)
		}
		if end < 0 {
			return end
		}
		if i = s.space(end); i >= len(s.b) {
			return s.fail(i, "unexpected end in an object")
		}
		switch s.b[i] {
		case ',':
			i = s.space(i + 1)
		case '}':
			return s.close(slot, i+1, n)
		default:
			return s.fail(i, "a comma or } is expected")
		}
	}
}

// member scans the value of a member, and records it if the bridge reads it. start is the index of the member's name.
func (s *scanner) member(key []byte, start, i, depth int, l level) int {
	if bytes.IndexByte(key, '\\') >= 0 {
		// Peers decode names. If the bridge did not, it would see another message than they do.
		key = []byte(unquote(key))
	}
	var to *[]byte
	next := other
	switch l {
	case envelope:
		var bit uint8
		switch string(key) {
		case "jsonrpc":
			bit, to = 1, &s.m.version
		case "id":
			bit, to = 2, &s.m.ID
		case "method":
			bit, to = 4, &s.m.method
		case "params":
			bit, to, next = 8, &s.m.Params, params
		case "result":
			bit, to, next = 16, &s.m.Result, result
		case "error":
			bit, to = 32, &s.m.Error
		}
		if s.seen&bit != 0 {
			s.dup = string(key)
		}
		s.seen |= bit
	case params:
		switch string(key) {
		case "_meta":
			to, next = &s.m.meta, meta
		case "name":
			to = &s.m.name
		case "uri":
			to = &s.m.uri
		case "progressToken":
			to = &s.m.progress
		case "requestId":
			to = &s.m.requestID
		default:
			s.m.doubtful = s.m.doubtful || lookalike(key)
		}
	case meta:
		if string(key) == "progressToken" {
			to = &s.m.token
		}
	case result:
		return s.resultMember(key, start, i, depth)
	}
	if to != nil && *to != nil {
		s.dup = string(key)
	}
	end := s.value(i, depth, next)
	if to != nil && end >= 0 {
		*to = s.b[i:end]
	}
	return end
}

// lookalike reports whether some servers may read the member of params with that name as one that access rules check.
func lookalike(key []byte) bool {
	switch n := len(key); {
	case n == 3:
		return bytes.EqualFold(key, []byte("uri"))
	case n == 4:
		return bytes.EqualFold(key, []byte("name"))
	case n >= len("requestState") && n <= len("requestState")+2: // the long s, U+017F, has two bytes
		return string(key) != "requestState" && bytes.EqualFold(key, []byte("requestState"))
	}
	return false
}

// resultMember scans the value of a member of the result. It allows duplicates, since the contents of a result are up
// to the server.
func (s *scanner) resultMember(key []byte, start, i, depth int) int {
	s.nulls = false
	end := s.value(i, depth, other)
	if end < 0 {
		return end
	}
	if isData := string(key) == "structuredContent" || string(key) == "_meta"; s.nulls && (!isData || s.b[i] == 'n') {
		s.m.nulls = true
	}
	var to *Span
	f := &s.m.found
	switch string(key) {
	case "resultType":
		to = &f.Type
	case "_meta":
		to = &f.Meta
	case "ttlMs":
		to = &f.TTL
	case "cacheScope":
		to = &f.Scope
	case "structuredContent":
		to = &f.Structured
	case "isError":
		s.m.isError = s.m.isError || s.b[i] == 't'
		return end
	default:
		return end
	}
	if to.End > 0 {
		f.Twice = true
	}
	*to = Span{
		Key:   start,
		Value: i,
		End:   end,
	}
	return end
}

// unquote decodes the inside of a JSON string that the scanner has checked. Like encoding/json, it replaces invalid
// UTF-8 by U+FFFD.
func unquote(inside []byte) string {
	if bytes.IndexByte(inside, '\\') < 0 && utf8.Valid(inside) {
		return string(inside)
	}
	quoted := append(append([]byte{'"'}, inside...), '"')
	var out string
	if err := json.Unmarshal(quoted, &out); err != nil {
		return string(inside)
	}
	return out
}
