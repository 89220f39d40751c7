package jsonrpc

import (
	"bytes"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Edit is a change to the params of a request or the result of an answer that
// takes place when the message is written: the bytes from From to To are
// replaced by Text. What is not concerned is never copied for it.
type Edit struct {
	From, To int    // indexes of bytes of the params or the result; both the same inserts
	Text     []byte // raw JSON; empty removes
}

// Edited returns the message with changed params. The rest is shared with m,
// which must be valid as long as the result is used. Params goes on showing
// what was there before. Edits must not overlap, neither each other nor the
// progress token.
func (m *Message) Edited(edits ...Edit) *Message {
	c := *m
	c.buf = nil // it stays m's
	c.edits = merged(m.edits, edits)
	return &c
}

// Untouched reports whether no edit concerns the bytes from From to To of the
// params or the result, or puts something beside them.
func (m *Message) Untouched(from, to int) bool {
	return !slices.ContainsFunc(m.edits, func(e Edit) bool { return e.From <= to && e.To >= from })
}

// Edit changes the result of an answer, of which the caller is the owner.
// Result goes on showing what was there before.
func (m *Message) Edit(edits ...Edit) { m.edits = merged(m.edits, edits) }

func merged(a, b []Edit) []Edit {
	all := append(slices.Clip(slices.Clone(a)), b...)
	slices.SortStableFunc(all, func(a, b Edit) int { return a.From - b.From })
	return all
}

// Whole returns the params or the result with all edits made.
func (m *Message) Whole() []byte {
	raw := m.Params
	if m.IsResponse() {
		raw = m.Result
	}
	if len(m.edits) == 0 {
		return raw
	}
	out := make([]byte, 0, m.Len())
	done := 0
	for _, e := range m.edits {
		out = append(append(out, raw[done:e.From]...), e.Text...)
		done = e.To
	}
	return append(out, raw[done:]...)
}

// Span is where a member of an object stands in it: its name, its value, and
// its end. The zero Span is that of a member that is not there.
type Span struct {
	Key   int // index of the byte where the name begins, with its quote
	Value int // index where the value begins
	End   int // index behind the value
}

// Of returns the value, or nil when the member is not there.
func (s Span) Of(object []byte) []byte {
	if s.End == 0 {
		return nil
	}
	return object[s.Value:s.End]
}

// Found tells where the members of a result stand that say what kind of result
// it is (2026-07-28, results).
type Found struct {
	Type       Span // of resultType
	Meta       Span // of _meta
	TTL        Span // of ttlMs
	Scope      Span // of cacheScope
	Structured Span // of structuredContent
	Twice      bool // one of them is there more than once
}

// Found returns where the members of the result stand, if m is an answer that
// was parsed. For others it is zero.
func (m *Message) Found() Found { return m.found }

// relative makes positions in the whole text positions in the result.
func (f *Found) relative(base int) {
	for _, s := range []*Span{&f.Type, &f.Meta, &f.TTL, &f.Scope, &f.Structured} {
		if s.End > 0 {
			*s = Span{s.Key - base, s.Value - base, s.End - base}
		}
	}
}

// Omit returns the edits that remove members of an object, which stands at
// place, and whether none is left of those that it had.
func Omit(object []byte, place int, drop func(name string) bool) (edits []Edit, emptied bool) {
	run := -1    // where the members that are removed together begin
	ended := -1  // where the member before ended
	had := false // a member stays
	gjson.ParseBytes(object).ForEach(func(name, value gjson.Result) bool {
		begin, end := place+name.Index, place+value.Index+len(value.Raw)
		out := drop(name.Str)
		switch {
		case out && run < 0 && had:
			run = ended // the comma before it goes too
		case out:
			if run < 0 {
				run = begin
			}
		case run >= 0 && had:
			edits = append(edits, Edit{From: run, To: ended})
			run = -1
		default:
			if run >= 0 { // the comma behind them goes too
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

// WithParams returns the message with other params, or itself when they are its
// own. What is read of params is found in the new ones.
func (m *Message) WithParams(params []byte) *Message {
	if rawjson.Same(params, m.Params) {
		return m
	}
	other := &Message{ID: m.ID, Method: m.Method, Params: params}
	return other.Clone()
}

// Replaced returns the answer with another result, of which it is known where
// its members stand. The answer given is released.
func (m *Message) Replaced(result []byte) *Message {
	b := m.WithResult(result)
	if b.ID == nil {
		b.ID = []byte("0")
	}
	b = b.Clone()
	m.Release()
	return b
}

// First is the edit that puts members before the others of an object.
func First(object []byte, members string) Edit {
	at := bytes.IndexByte(object, '{') + 1
	if rest := object[at:]; rest[rawjson.Space(rest, 0)] != '}' {
		members += ","
	}
	return Edit{From: at, To: at, Text: []byte(members)}
}

// Once returns the answer with no member in its result twice that says what kind
// of result it is: peers differ in which one they take. The answer given is
// released if another one is returned.
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
	out, done := []byte(nil), 0
	for _, e := range edits {
		out = append(append(out, m.Result[done:e.From]...), e.Text...)
		done = e.To
	}
	return m.Replaced(append(out, m.Result[done:]...))
}
