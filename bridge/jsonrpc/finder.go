package jsonrpc

import "encoding/json"

// Finder reads the envelope of a text that is not a message, or that is too large to hold in memory. The text comes in
// pieces, to Write. Finder finds the id, which may come last, and the kind of message.
type Finder struct {
	all      []Outline // outlines of the objects that have ended
	one      Outline   // outline of the current object, or of the last one
	base     int       // depth of the members of one: 1, or 2 in a batch; 0 before the first object
	depth    int
	inString bool
	escaped  bool
	isKey    bool // the next string at depth base is the name of a member
	isID     bool // the last name was "id"
	inID     bool
	text     []byte // the last name so far, up to maxName bytes
}

// Outline describes the envelope of a message.
type Outline struct {
	ID      []byte // raw; nil if the message has no id
	Method  bool   // the message has a method, so it is no response
	Payload bool   // the message has a result or an error
}

const (
	maxOutlines   = 100
	maxName       = 16       // longer names are none of those that matter
	maxOutlined   = 64 << 10 // bytes of an id in an Outline
	maxFinderText = 256      // bytes of the id of a response
)

// Write reads the next bytes of the text. Its error is always nil.
func (f *Finder) Write(b []byte) (int, error) {
	for i := 0; i < len(b); i++ {
		if i = f.skip(b, i); i < len(b) {
			f.next(b[i])
		}
	}
	return len(b), nil
}

// structural are the bytes that matter outside of strings, deeper than the members of a message.
var structural = [256]bool{'"': true, '{': true, '}': true, '[': true, ']': true}

// skip returns the index of the next byte that matters. In a large message nearly all bytes are payload.
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

// inText reads a byte in a string.
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

// Asks reports whether the text has a method so far, so that it is no response. It is false for a batch.
func (f *Finder) Asks() bool { return f.base == 1 && f.one.Method }

// Answers reports whether the text has a result or an error so far, and no method. It is false for a batch.
func (f *Finder) Answers() bool { return f.base == 1 && f.one.Payload && !f.one.Method }

// ID returns the id of a response as raw JSON. It returns nil if the text has a method, or if the id is invalid, longer
// than 255 bytes or not yet complete.
func (f *Finder) ID() []byte {
	id := f.one.ID
	if f.base != 1 || f.one.Method || f.inID || !validID(id) || len(id) >= maxFinderText {
		return nil
	}
	return id
}

// Outlines returns the outline of the message, or the outlines of the messages in a batch. If there is no object, it
// returns one empty outline.
func (f *Finder) Outlines() []Outline {
	if len(f.all) == 0 {
		return []Outline{{}}
	}
	return f.all
}

// Answerable returns the id if a response can carry it, or nil. An id of a text that was not parsed may be invalid
// JSON.
func (o Outline) Answerable() []byte {
	if !validID(o.ID) || len(o.ID) > maxOutlined || !json.Valid(o.ID) {
		return nil
	}
	return o.ID
}
