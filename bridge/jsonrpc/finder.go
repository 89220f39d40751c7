package jsonrpc

// Finder looks for the id of a message that is too large to keep, while its
// bytes pass by (R-009: the id may stand last). It finds the id of a response
// only: a message that has a method is nobody's answer.
type Finder struct {
	depth    int
	inString bool
	escaped  bool
	isKey    bool // the string that begins next at depth 1 names a member
	text     []byte
	key      string
	id       []byte
	inID     bool
	method   bool
}

// Write takes the next bytes of the message. It never fails.
func (f *Finder) Write(b []byte) (int, error) {
	for i := 0; i < len(b); i++ {
		if i = f.skip(b, i); i < len(b) {
			f.next(b[i])
		}
	}
	return len(b), nil
}

// tells has the bytes that say something below the members of a message, outside
// of strings.
var tells = [256]bool{'"': true, '{': true, '}': true, '[': true, ']': true}

// skip returns where in b, from i on, the next byte stands that says something.
// Nearly all of a message that is large stands in its payload.
func (f *Finder) skip(b []byte, i int) int {
	switch {
	case f.escaped || f.inID || f.depth == 1 && (f.isKey || !f.inString):
	case f.inString:
		for i < len(b) && b[i] != '"' && b[i] != '\\' {
			i++
		}
	default:
		for i < len(b) && !tells[b[i]] {
			i++
		}
	}
	return i
}

// maxFinderText bounds what is kept of a member's name or an id.
const maxFinderText = 256

func (f *Finder) next(c byte) {
	if f.inID && len(f.id) < maxFinderText && (f.inString || (c != ',' && c != '}' && c > ' ')) {
		f.id = append(f.id, c)
	}
	if f.inString {
		switch {
		case f.escaped:
			f.escaped = false
		case c == '\\':
			f.escaped = true
		case c == '"':
			f.inString = false
			if f.depth == 1 && f.isKey {
				f.key = string(f.text)
				f.method = f.method || f.key == "method"
			}
			return
		}
		if f.depth == 1 && f.isKey && len(f.text) < maxFinderText {
			f.text = append(f.text, c)
		}
		return
	}
	switch c {
	case '"':
		f.inString, f.text = true, f.text[:0]
	case '{', '[':
		f.depth++
		f.isKey = f.depth == 1 && c == '{'
	case '}', ']':
		f.depth--
		f.inID = false
	case ':':
		if f.depth == 1 && f.isKey {
			f.isKey = false
			f.inID = f.key == "id" && f.id == nil
		}
	case ',':
		if f.depth == 1 {
			f.isKey, f.inID = true, false
		}
	}
}

// Asks reports whether the message has a method, as far as it has passed by: it is
// no response.
func (f *Finder) Asks() bool { return f.method }

// ID returns the id of the response that passed by as raw JSON, or nil.
func (f *Finder) ID() []byte {
	if f.method || f.inID || !validID(f.id) || len(f.id) >= maxFinderText {
		return nil
	}
	return f.id
}
