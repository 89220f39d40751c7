package jsonrpc

import "encoding/json"

// Finder reads the envelope of a text from a stream of bytes. The text is no message, or too large to hold.
// Finder finds the id, which may come last, and the kind of message.
type Finder struct {
	all      []Outline // of ended objects
	one      Outline   // of the current or last object
	base     int       // the depth of its members: 1, or 2 within a batch; 0 before the first
	depth    int
	inString bool
	escaped  bool
	isKey    bool // the next string at depth base is a member's name
	isID     bool // the last name was "id"
	inID     bool
	text     []byte // of a member's name
}

// Outline describes the envelope of a message.
type Outline struct {
	ID      []byte // raw; nil if absent
	Method  bool   // it has a method, so it is no response
	Payload bool   // it has a result or an error
}

const (
	maxOutlines   = 100
	maxName       = 16       // longer names do not matter
	maxOutlined   = 64 << 10 // bytes of an id
	maxFinderText = 256      // bytes of the id of a response
)

// Write reads the next bytes of the message. It never fails.
func (f *Finder) Write(b []byte) (int, error) {
	for i := 0; i < len(b); i++ {
		if i = f.skip(b, i); i < len(b) {
			f.next(b[i])
		}
	}
	return len(b), nil
}

// structural holds the bytes that matter below the members of a message, outside of strings.
var structural = [256]bool{'"': true, '{': true, '}': true, '[': true, ']': true}

// skip returns the index of the next byte that matters. Nearly all of a large message is payload.
func (f *Finder) skip(b []byte, i int) int {
	switch {
	case f.escaped || f.inID || f.depth == f.base && (f.isKey || !f.inString):
	case f.inString:
		for i < len(b) && b[i] != '"' && b[i] != '\\' {
			i++
		}
	default:
		for i < len(b) && !structural[b[i]] {
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

// inText reads a byte of a string.
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

// Asks reports whether the message has a method so far, so that it is no response.
func (f *Finder) Asks() bool { return f.base == 1 && f.one.Method }

// Answers reports whether the message has a result or an error, and no method so far.
func (f *Finder) Answers() bool { return f.base == 1 && f.one.Payload && !f.one.Method }

// ID returns the id of the response as raw JSON. It returns nil for messages with a method.
func (f *Finder) ID() []byte {
	id := f.one.ID
	if f.base != 1 || f.one.Method || f.inID || !validID(id) || len(id) >= maxFinderText {
		return nil
	}
	return id
}

// Outlines returns one outline, or those of a batch. A text that is no object has an empty one.
func (f *Finder) Outlines() []Outline {
	if len(f.all) == 0 {
		return []Outline{{}}
	}
	return f.all
}

// Answerable returns the id if a response can carry it, or nil. The text was not parsed, but responses must be
// valid JSON.
func (o Outline) Answerable() []byte {
	if !validID(o.ID) || len(o.ID) > maxOutlined || !json.Valid(o.ID) {
		return nil
	}
	return o.ID
}
