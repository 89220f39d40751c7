package jsonrpc

import (
	"bytes"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Edit is a change of the params of a request, or of the result of a response. It is applied when the message is
// written: Text replaces the bytes from From up to To.
type Edit struct {
	From, To int    // byte indexes in the params or the result; if they are equal, Text is inserted
	Text     []byte // raw JSON; empty removes the bytes
	Shown    []byte // replaces Text where operators see the message; nil shows Text
}

// Edited returns m with edited params. The result shares memory with m, which must stay valid. Its field Params is
// still without the edits. Edits must not overlap each other or the progress token.
func (m *Message) Edited(edits ...Edit) *Message {
	c := *m
	c.buf = nil // m owns it
	c.edits = merged(m.edits, edits)
	return &c
}

// Untouched reports whether no edit changes or touches the bytes between from and to of the params or the result.
func (m *Message) Untouched(from, to int) bool {
	return !slices.ContainsFunc(m.edits, func(e Edit) bool { return e.From <= to && e.To >= from })
}

// Edit edits the result of a response that the caller owns. The field Result stays without the edits.
func (m *Message) Edit(edits ...Edit) { m.edits = merged(m.edits, edits) }

func merged(a, b []Edit) []Edit {
	all := append(slices.Clip(slices.Clone(a)), b...)
	slices.SortStableFunc(all, func(e, b Edit) int { return e.From - b.From })
	return all
}

// Whole returns the params or the result with all edits.
func (m *Message) Whole() []byte { return Apply(m.raw(), m.edits) }

// Shown is Whole for operators.
func (m *Message) Shown() []byte {
	edits := slices.Clone(m.edits)
	for i, e := range edits {
		if e.Shown != nil {
			edits[i].Text = e.Shown
		}
	}
	return Apply(m.raw(), edits)
}

// raw returns the params or the result without the edits.
func (m *Message) raw() []byte {
	if m.IsResponse() {
		return m.Result
	}
	return m.Params
}

// Apply returns the text with edits, which are in order. Without edits it returns raw itself.
func Apply(raw []byte, edits []Edit) []byte {
	if len(edits) == 0 {
		return raw
	}
	out, done := make([]byte, 0, len(raw)+64), 0
	for _, e := range edits {
		out = append(append(out, raw[done:e.From]...), e.Text...)
		done = e.To
	}
	return append(out, raw[done:]...)
}

// Span is the position of a member in its object. The zero Span means that the member is absent.
type Span struct {
	Key   int // index of the name's quote
	Value int // index of the value
	End   int // index behind the value
}

// Of returns the value, or nil if the member is absent.
func (s Span) Of(object []byte) []byte {
	if s.End == 0 {
		return nil
	}
	return object[s.Value:s.End]
}

// Found holds the positions of members that describe a result (2026-07-28, results).
type Found struct {
	Type       Span // of resultType
	Meta       Span // of _meta
	TTL        Span // of ttlMs
	Scope      Span // of cacheScope
	Structured Span // of structuredContent
	Twice      bool // at least one of them is duplicated
}

// Found returns the positions of members in the result of a parsed response. For other messages they are zero.
func (m *Message) Found() Found { return m.found }

// relative converts positions in the whole text to positions in the result, which starts at base.
func (f *Found) relative(base int) {
	for _, s := range []*Span{&f.Type, &f.Meta, &f.TTL, &f.Scope, &f.Structured} {
		if s.End > 0 {
			*s = Span{s.Key - base, s.Value - base, s.End - base}
		}
	}
}

// Omit returns the edits that remove the members of object for which drop returns true. place is the index of object in
// the params or the result. emptied reports whether the edits leave no member.
func Omit(object []byte, place int, drop func(name string) bool) (edits []Edit, emptied bool) {
	run := -1    // start of the current run of members to remove, or -1
	ended := -1  // end of the previous member
	had := false // the object keeps a member so far
	gjson.ParseBytes(object).ForEach(func(name, value gjson.Result) bool {
		begin, end := place+name.Index, place+value.Index+len(value.Raw)
		out := drop(name.Str)
		switch {
		case out && run < 0 && had:
			run = ended // from the comma before the run
		case out:
			if run < 0 {
				run = begin
			}
		case run >= 0 && had:
			edits = append(edits, Edit{From: run, To: ended})
			run = -1
		default:
			if run >= 0 { // up to the next member, with the comma
				edits = append(edits, Edit{From: run, To: begin})
			}
			run, had = -1, true
		}
		ended = end
		return true
	})
	if run >= 0 {
		edits = append(edits, Edit{From: run, To: ended})
	}
	return edits, run >= 0 && !had
}

// WithParams returns a request with the id and method of m and other params. If the params are the same, it returns m.
func (m *Message) WithParams(params []byte) *Message {
	if rawjson.Same(params, m.Params) {
		return m
	}
	other := &Message{
		ID:     m.ID,
		Method: m.Method,
		Params: params,
	}
	return other.Clone()
}

// Replaced returns a copy of the response m with another result, and releases m. Found works for the copy.
func (m *Message) Replaced(result []byte) *Message {
	b := m.WithResult(result)
	if b.ID == nil {
		b.ID = []byte("0")
	}
	b = b.Clone()
	m.Release()
	return b
}

// First returns the edit that inserts members at the beginning of an object.
func First(object []byte, members string) Edit {
	at := bytes.IndexByte(object, '{') + 1
	if rest := object[at:]; rest[rawjson.Space(rest, 0)] != '}' {
		members += ","
	}
	return Edit{
		From: at,
		To:   at,
		Text: []byte(members),
	}
}

// Once returns the response without duplicates of the members in Found, because some peers use the first of them and
// others the last. If Once returns another message, it releases m.
func (m *Message) Once() *Message {
	if !m.found.Twice {
		return m
	}
	seen := map[string]bool{}
	edits, _ := Omit(m.Result, 0, func(name string) bool {
		switch name {
		case "resultType", "_meta", "ttlMs", "cacheScope", "structuredContent":
			twice := seen[name]
			seen[name] = true
			return twice
		}
		return false
	})
	return m.Replaced(Apply(m.Result, edits))
}
