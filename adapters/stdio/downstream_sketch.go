package stdio

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/mcp-bridge/bridge/adapters/downstream"
)

// sketch notes what a text seems to be that is no message or is too large to
// keep, while its bytes pass by: whose answer it is, or which answer is waited
// for. Unlike jsonrpc.Finder it finds requests too, and the elements of a batch.
type sketch struct {
	full bool // there was no room for the text, although it was not too large

	all      []outline // the outlines of all objects that have ended
	one      outline   // of the object that passes
	base     int       // the depth of its members: 1, or 2 within a batch; 0 before it begins
	depth    int
	inString bool
	escaped  bool
	isKey    bool // the string that begins next at depth base names a member
	inID     bool
	text     []byte // of a member's name
	key      string
}

var _ io.Writer = (*sketch)(nil)

// outline is what the members of a message's envelope tell.
type outline struct {
	id      []byte // raw
	method  bool
	payload bool // a result or an error
}

const (
	maxName = 16       // longer names are none that matter
	maxID   = 64 << 10 // of an id that can be answered
)

// Write takes the next bytes. It never fails.
func (s *sketch) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		if s.inString && !s.escaped && !s.inID && !s.isKey {
			// A payload's string: its end is all that matters.
			i := bytes.IndexAny(b, `"\`)
			if i < 0 {
				break
			}
			b = b[i:]
		}
		s.next(b[0])
		b = b[1:]
	}
	return n, nil
}

func (s *sketch) next(c byte) {
	if s.inID && len(s.one.id) <= maxID && (s.inString || s.depth > s.base || c != ',' && c != '}' && c > ' ') {
		s.one.id = append(s.one.id, c)
	}
	if s.inString {
		s.inText(c)
		return
	}
	switch c {
	case '"':
		s.inString, s.text = true, s.text[:0]
	case '{', '[':
		s.depth++
		if s.base == 0 && (c == '{' || s.depth == 2) || s.depth == s.base && c == '{' {
			s.base = s.depth
			s.one, s.isKey, s.inID = outline{}, c == '{', false
		}
	case '}', ']':
		if s.depth == s.base && c == '}' {
			s.end()
		}
		s.depth--
	case ':':
		if s.depth == s.base && s.isKey {
			s.isKey = false
			s.inID = s.key == "id" && s.one.id == nil
		}
	case ',':
		if s.depth == s.base {
			s.isKey, s.inID = true, false
		}
	}
}

// inText takes a byte of a string.
func (s *sketch) inText(c byte) {
	named := s.depth == s.base && s.isKey
	switch {
	case s.escaped:
		s.escaped = false
	case c == '\\':
		s.escaped = true
	case c == '"':
		s.inString = false
		if named {
			s.key = string(s.text)
			s.one.method = s.one.method || s.key == "method"
			s.one.payload = s.one.payload || s.key == "result" || s.key == "error"
		}
		return
	}
	if named && len(s.text) < maxName {
		s.text = append(s.text, c)
	}
}

// end notes that an object has ended.
func (s *sketch) end() {
	if len(s.all) < downstream.MaxBatch {
		s.all = append(s.all, s.one)
	}
	s.one, s.isKey, s.inID = outline{}, false, false
}

// outlines returns what has passed: one outline, or those of a batch. Of a text
// that is no object it is one that says nothing.
func (s *sketch) outlines() []outline {
	if len(s.all) == 0 {
		return []outline{{}}
	}
	return s.all
}

// answerable returns the id if an answer can carry it, or nil.
func (o outline) answerable() []byte {
	// What has not been parsed may be anything; what is written must be JSON.
	if len(o.id) == 0 || len(o.id) > maxID || o.id[0] == '{' || o.id[0] == '[' || o.id[0] == 'n' || o.id[0] == 't' || o.id[0] == 'f' || !json.Valid(o.id) {
		return nil
	}
	return o.id
}
