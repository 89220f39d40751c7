package jsonrpc

import "encoding/json"

// Finder notes what a text seems to be that is no message or is too large to keep,
// while its bytes pass by: whose answer it is, or which answer is waited for (R-009:
// the id may stand last).
type Finder struct {
	all      []Outline // of the objects that have ended
	one      Outline   // of the object that passes, or has passed last
	base     int       // the depth of its members: 1, or 2 within a batch; 0 before the first
	depth    int
	inString bool
	escaped  bool
	isKey    bool // the string that begins next at depth base names a member
	isID     bool // the last name was that of the id
	inID     bool
	text     []byte // of a member's name
}

// Outline is what the members of a message's envelope tell.
type Outline struct {
	ID      []byte // raw, as it stands there; nil if it does not
	Method  bool   // it has a method: it is no answer
	Payload bool   // it has a result or an error
}

const (
	maxOutlines   = 100
	maxName       = 16       // longer names are none that matter
	maxOutlined   = 64 << 10 // of an id
	maxFinderText = 256      // of the id of an answer
)

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
	case f.escaped || f.inID || f.depth == f.base && (f.isKey || !f.inString):
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

func (f *Finder) next(c byte) {
	if f.inID && len(f.one.ID) <= maxOutlined && (f.inString || f.depth > f.base || c != ',' && c != '}' && c > ' ') {
		f.one.ID = append(f.one.ID, c)
	}
	if f.inString {
		f.inText(c)
		return
	}
	switch c {
	case '"':
		f.inString, f.text = true, f.text[:0]
	case '{', '[':
		f.depth++
		if f.base == 0 && (c == '{' || f.depth == 2) || f.depth == f.base && c == '{' {
			f.base = f.depth
			f.one, f.isKey, f.inID = Outline{}, c == '{', false
		}
	case '}', ']':
		if f.depth == f.base && c == '}' {
			f.isKey, f.inID = false, false
			if len(f.all) < maxOutlines {
				f.all = append(f.all, f.one)
			}
		}
		f.depth--
	case ':':
		if f.depth == f.base && f.isKey {
			f.isKey = false
			f.inID = f.isID && f.one.ID == nil
		}
	case ',':
		if f.depth == f.base {
			f.isKey, f.inID = true, false
		}
	}
}

// inText takes a byte of a string.
func (f *Finder) inText(c byte) {
	named := f.depth == f.base && f.isKey
	switch {
	case f.escaped:
		f.escaped = false
	case c == '\\':
		f.escaped = true
	case c == '"':
		f.inString = false
		if named {
			name := string(f.text)
			f.isID = name == "id"
			f.one.Method = f.one.Method || name == "method"
			f.one.Payload = f.one.Payload || name == "result" || name == "error"
		}
		return
	}
	if named && len(f.text) < maxName {
		f.text = append(f.text, c)
	}
}

// Asks reports whether the message has a method, as far as it has passed by: it is
// no response.
func (f *Finder) Asks() bool { return f.base == 1 && f.one.Method }

// Answers reports whether the message has a result or an error and no method, as far
// as it has passed by.
func (f *Finder) Answers() bool { return f.base == 1 && f.one.Payload && !f.one.Method }

// ID returns the id of the response that passed by as raw JSON, or nil: a message
// that has a method is nobody's answer.
func (f *Finder) ID() []byte {
	id := f.one.ID
	if f.base != 1 || f.one.Method || f.inID || !validID(id) || len(id) >= maxFinderText {
		return nil
	}
	return id
}

// Outlines returns what has passed by: one outline, or those of a batch. Of a text
// that is no object it is one that says nothing.
func (f *Finder) Outlines() []Outline {
	if len(f.all) == 0 {
		return []Outline{{}}
	}
	return f.all
}

// Answerable returns the id if an answer can carry it, or nil. What has not been
// parsed may be anything; what is written must be JSON.
func (o Outline) Answerable() []byte {
	if !validID(o.ID) || len(o.ID) > maxOutlined || !json.Valid(o.ID) {
		return nil
	}
	return o.ID
}
