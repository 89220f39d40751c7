// Package jsonrpc reads and writes the envelope of JSON-RPC 2.0 messages as
// MCP uses it, and leaves their payload alone.
//
// A message is parsed once, in one pass that checks the whole text and notes
// where id, method, params, result and error stand, and within params the few
// members that a bridge has to read. Everything else stays the bytes that the
// peer sent: numbers keep their digits, unknown members are kept, nothing is
// reordered.
package jsonrpc

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Message is one request, notification or response: spans of the bytes that it
// was parsed from. It is valid until Release, and for messages that an
// interface hands over, for as long as that interface says.
type Message struct {
	ID     []byte // raw JSON, exactly as sent; nil when there is none
	Method string // empty in a response
	Params []byte // raw JSON object, or nil; without the edits, which Whole has
	Result []byte // raw JSON, or nil
	Error  []byte // raw JSON object, or nil

	version, method []byte
	meta, name, uri []byte // members of params, raw
	token           []byte // params._meta.progressToken, raw
	rename          []byte // stands in place of name, raw; one of edits
	edits           []Edit // of Params or Result, in their order
	progress        []byte // params.progressToken, raw
	requestID       []byte // params.requestId, raw
	found           Found  // members of the result
	doubtful        bool   // see Doubtful
	isError         bool   // see IsError
	lines           bool   // line breaks stand between tokens
	buf             *Buffer
	held            *held // see Hold
}

// IsRequest reports whether an answer is expected.
func (m *Message) IsRequest() bool { return m.Method != "" && m.ID != nil }

// IsNotification reports whether m is a message that nobody answers.
func (m *Message) IsNotification() bool { return m.Method != "" && m.ID == nil }

// IsResponse reports whether m is an answer.
func (m *Message) IsResponse() bool { return m.Method == "" }

// Meta returns params._meta as raw JSON, or nil.
func (m *Message) Meta() []byte { return m.meta }

// Name returns params.name decoded: the tool or prompt that is meant. It is a copy, valid
// also after Release, and empty when the name is no text.
func (m *Message) Name() string {
	if m.rename != nil {
		return text(m.rename)
	}
	return text(m.name)
}

// GivenName returns params.name decoded as the peer sent it, whatever Renamed
// has put in its place.
func (m *Message) GivenName() string { return text(m.name) }

// Doubtful reports whether params has a member that differs from name, uri or
// requestState in case only. Some servers take it for that: whoever allows or
// refuses a request by one of them must not let it pass.
func (m *Message) Doubtful() bool { return m.doubtful }

// IsError reports whether the result says isError: true, as that of a failed tool
// does. Parse has noted it; only a result that was not parsed is looked at.
func (m *Message) IsError() bool {
	if m.version != nil {
		return m.isError
	}
	return bytes.Contains(m.Result, []byte(`"isError"`)) && gjson.GetBytes(m.Result, "isError").Type == gjson.True
}

// Renamed returns the message with another params.name; without one it returns
// the message as it is. The rest is shared with m, which must be valid as long
// as the result is used. Params goes on showing the old name: the new one is
// put in its place by Append and Whole.
func (m *Message) Renamed(name string) *Message {
	if len(m.name) == 0 {
		return m
	}
	at := offset(m.Params, m.name)
	c := *m
	c.buf = nil // it stays m's
	c.rename = rawjson.AppendString(nil, name)
	c.edits = slices.DeleteFunc(slices.Clone(m.edits), func(e Edit) bool { return e.From == at && e.To > at })
	c.edits = merged(c.edits, []Edit{{From: at, To: at + len(m.name), Text: c.rename}})
	return &c
}

// WithResult returns an answer to the same request with another result. It is
// raw JSON that may have line breaks between its tokens if that of m had.
func (m *Message) WithResult(result []byte) *Message {
	return &Message{ID: m.ID, Result: result, lines: m.lines}
}

// URI returns params.uri decoded: the resource that is meant.
func (m *Message) URI() string { return text(m.uri) }

// RequestID returns params.requestId as raw JSON: what notifications/cancelled
// is about.
func (m *Message) RequestID() []byte { return m.requestID }

// Token returns the progress token as raw JSON: of a request the one it asks
// to be kept informed under, of notifications/progress the one it informs
// about. It is nil when there is none.
func (m *Message) Token() []byte {
	if m.Method == "notifications/progress" {
		return m.progress
	}
	return m.token
}

func text(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	return unquote(raw[1 : len(raw)-1])
}

// Len is about the size of the message on a wire, in bytes.
func (m *Message) Len() int {
	n := len(m.ID) + len(m.Method) + len(m.Params) + len(m.Result) + len(m.Error) + 64
	for _, e := range m.edits {
		n += len(e.Text)
	}
	return n
}

// Append writes the message to dst as one line, without the line break, and
// returns the extended dst. id stands in place of the message's own; nil means
// no id. token, if not nil, stands in place of the progress token.
func (m *Message) Append(dst, id, token []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0"`...)
	if id != nil {
		dst = append(append(dst, `,"id":`...), id...)
	}
	if m.Method != "" {
		dst = append(dst, `,"method":`...)
		dst = rawjson.AppendString(dst, m.Method)
	}
	from := len(dst)
	switch {
	case m.Params != nil:
		dst = m.appendParams(append(dst, `,"params":`...), token)
	case m.Error != nil:
		dst = append(append(dst, `,"error":`...), m.Error...)
	case m.Result != nil:
		dst = append(dst, `,"result":`...)
		done := 0
		for _, e := range m.edits {
			dst = append(append(dst, m.Result[done:e.From]...), e.Text...)
			done = e.To
		}
		dst = append(dst, m.Result[done:]...)
	}
	if m.lines {
		unbreak(dst[from:])
	}
	return append(dst, '}')
}

// appendParams writes the params with what stands in place of other things.
func (m *Message) appendParams(dst, token []byte) []byte {
	done := 0
	put := func(from, to int, instead []byte) {
		dst = append(append(dst, m.Params[done:from]...), instead...)
		done = to
	}
	at, end := -1, 0 // of the progress token
	if old := m.Token(); token != nil && old != nil {
		at = offset(m.Params, old)
		end = at + len(old)
	}
	for _, e := range m.edits {
		if at >= 0 && at < e.From {
			put(at, end, token)
			at = -1
		}
		put(e.From, e.To, e.Text)
	}
	if at >= done {
		put(at, end, token)
	}
	return append(dst, m.Params[done:]...)
}

// Payload returns what an answer carries: the name of the member and its raw
// JSON, in pieces that are appended to dst. Writing it without a copy is for
// wires that allow line breaks.
func (m *Message) Payload(dst [][]byte) (member string, raw [][]byte) {
	if m.Error != nil {
		return "error", append(dst, m.Error)
	}
	done := 0
	for _, e := range m.edits {
		dst = append(dst, m.Result[done:e.From], e.Text)
		done = e.To
	}
	return "result", append(dst, m.Result[done:])
}

// offset returns where part, a subslice of whole, begins in it.
func offset(whole, part []byte) int { return cap(whole) - cap(part) }

// unbreak puts spaces in place of line breaks. In JSON they stand only between
// tokens: inside a string they are escaped.
func unbreak(b []byte) {
	for i, c := range b {
		if c == '\n' || c == '\r' {
			b[i] = ' '
		}
	}
}

// Clone returns a copy that shares nothing with m and needs no Release.
func (m *Message) Clone() *Message {
	line := m.Append(make([]byte, 0, m.Len()), m.ID, nil)
	c, err := Parse(line)
	if err != nil {
		panic("jsonrpc: a parsed message does not parse again: " + err.Error())
	}
	return c
}

// Release gives the message's buffer back for reuse. The message is empty from
// then on. Without it the garbage collector does the work. A second Release
// does nothing.
func (m *Message) Release() {
	if m == nil {
		return
	}
	buf, held := m.buf, m.held
	*m = Message{}
	buf.Free()
	if held != nil {
		held.back()
	}
}

// Room is what messages take bytes from. It is comparable.
type Room interface{ Return(n int) }

// held is what is given back with a message.
type held struct {
	room    Room
	n       int
	back    func()
	cleanup runtime.Cleanup
}

// Hold has n bytes given back to room once, when the message is released or, if it
// never is, when it is garbage. It takes the place of what was held before. It is
// for a message that is not copied.
func (m *Message) Hold(room Room, n int) {
	_ = m.TakeRelease()
	back := sync.OnceFunc(func() { room.Return(n) })
	m.held = &held{room, n, back, runtime.AddCleanup(m, func(back func()) { back() }, back)}
}

// Held returns what the message holds, and of which room.
func (m *Message) Held() (room Room, n int) {
	if m.held == nil {
		return nil, 0
	}
	return m.held.room, m.held.n
}

// TakeRelease returns what gives back what the message holds, for the caller to
// call in place of the message; nil if there is nothing.
func (m *Message) TakeRelease() func() {
	if m.held == nil {
		return nil
	}
	held := m.held
	m.held = nil
	held.cleanup.Stop()
	return held.back
}

// Pooled reports whether the memory of m is used for something else after
// Release.
func (m *Message) Pooled() bool { return m.buf != nil }

// Own makes m the owner of buf, which it was parsed from: Release frees both.
func (m *Message) Own(buf *Buffer) *Message {
	m.buf = buf
	return m
}

// SyntaxError says that a text is not JSON, and where.
type SyntaxError struct {
	Offset int    // in bytes
	What   string // what is wrong there, for people; nothing of the text
}

// Behind reports whether the text is JSON up to Offset, and goes on there.
func (e *SyntaxError) Behind() bool { return e.What == behind }

// Error says what is wrong, and where. It shows nothing of the text.
func (e *SyntaxError) Error() string {
	if e.What == tooDeep {
		return fmt.Sprintf("nested too deep at byte %d: more than %d nested arrays and objects", e.Offset, maxDepth)
	}
	return fmt.Sprintf("not JSON: %s at byte %d", e.What, e.Offset)
}

// InvalidError says that a text is JSON but not a JSON-RPC message.
type InvalidError struct {
	ID   []byte // of the message, raw JSON; nil when it could not be read
	What string // what is wrong, for people
	text bool   // it is not even JSON, for it is not UTF-8
}

// Error says what is wrong.
func (e *InvalidError) Error() string {
	if e.text {
		return "not JSON: " + e.What
	}
	return "not a JSON-RPC message: " + e.What
}

// Code returns the code of the error that answers the message.
func (e *InvalidError) Code() int {
	if e.text {
		return CodeParse
	}
	return CodeInvalidRequest
}

// Parse reads one message. The message refers to b, which must not change
// while it is used. The error is a *SyntaxError or an *InvalidError.
func Parse(b []byte) (*Message, error) {
	m, _, err := parse(b)
	return m, err
}

// parse is Parse. wide reports whether a message has more than ASCII: only then can
// it be that it is not UTF-8.
func parse(b []byte) (m *Message, wide bool, err error) {
	m = new(Message)
	s := scanner{b: b, m: m}
	i := s.space(0)
	s.lines = false // before the message, not in it
	if i < len(b) && b[i] != '{' {
		if end := s.value(i, 0, other); end < 0 || s.space(end) != len(b) {
			return nil, false, s.syntax(end)
		}
		return nil, false, &InvalidError{What: "an object is expected"}
	}
	end := s.value(i, 0, envelope)
	if end < 0 {
		return nil, false, s.syntax(end)
	}
	m.lines = s.lines
	if s.space(end) != len(b) {
		return nil, false, s.syntax(end)
	}
	if what := m.check(&s); what != "" {
		e := &InvalidError{What: what}
		if validID(m.ID) {
			e.ID = bytes.Clone(m.ID)
		}
		return nil, false, e
	}
	if m.Result != nil {
		m.found.relative(offset(b, m.Result))
	}
	return m, s.wide, nil
}

const behind = "text behind the message"

func (s *scanner) syntax(end int) error {
	if end >= 0 {
		s.fail(s.space(end), behind)
	}
	return &SyntaxError{Offset: s.at, What: s.what}
}

// ParseUTF8 is Parse for what comes from clients. It takes no message that is
// not UTF-8: of the servers' libraries some end with the first byte that
// is not, and with them the calls of everybody else. And no request whose id is a
// number but no integer, nor one whose method a server may take for another one
// than the bridge does: access rules look at it. Of servers such ids are taken and
// given back: they are no harm, and their questions get answers.
func ParseUTF8(b []byte) (*Message, error) {
	m, wide, err := parse(b)
	switch {
	case err != nil:
		if invalid, ok := errors.AsType[*InvalidError](err); ok && !utf8.Valid(b) {
			return nil, notUTF8(invalid.ID)
		}
		return nil, err
	case wide && !utf8.Valid(b):
		return nil, notUTF8(m.ID)
	case m.IsRequest() && !stringOrInteger(m.ID):
		return nil, &InvalidError{ID: bytes.Clone(m.ID), What: idRule + ", as in 15: no fraction and no exponent"}
	case m.IsRequest() && strings.ContainsFunc(m.Method, unicode.IsControl):
		return nil, &InvalidError{ID: bytes.Clone(m.ID), What: "method must not have control characters"}
	case m.IsRequest() && misspelled(m.Method):
		return nil, &InvalidError{ID: bytes.Clone(m.ID), What: "method must be " + strings.ToLower(m.Method) + ", in small letters"}
	}
	return m, nil
}

// ParseRepaired is Parse for what comes from servers. Each byte that is not UTF-8 becomes
// U+FFFD, for there are clients that end with it; repaired reports whether there was one.
// Such a message does not refer to b.
func ParseRepaired(b []byte) (m *Message, repaired bool, err error) {
	m, wide, err := parse(b)
	if err != nil || !wide || utf8.Valid(b) {
		return m, false, err
	}
	whole := make([]byte, 0, len(b)+len(b)/8)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		whole, b = utf8.AppendRune(whole, r), b[n:]
	}
	m, err = Parse(whole)
	return m, true, err
}

// Unquoted returns a raw id without the quotes that some peers put around a number.
// Others are returned as they are.
func Unquoted(id []byte) []byte {
	n := len(id)
	if n < 3 || n > len(`"9223372036854775807"`) || id[0] != '"' || id[1] == '0' && n > 3 || bytes.ContainsFunc(id[1:n-1], func(r rune) bool { return r < '0' || r > '9' }) {
		return id
	}
	return id[1 : n-1]
}

// notUTF8 is the error of a message with that id, which is given back only if it
// can be sent: it may be what is not UTF-8.
func notUTF8(id []byte) error {
	e := &InvalidError{What: "it is not UTF-8", text: true}
	if utf8.Valid(id) {
		e.ID = bytes.Clone(id)
	}
	return e
}

const idRule = "id must be a string or an integer"

// stringOrInteger reports whether raw, which is a string or a number, is a string
// or written as an integer.
func stringOrInteger(raw []byte) bool {
	return raw[0] == '"' || !bytes.ContainsAny(raw, ".eE")
}

// misspelled reports whether a method differs in case only from one that has a name,
// by which access rules and filters look.
func misspelled(method string) bool {
	for _, known := range [...]string{"tools/call", "prompts/get", "resources/read", "resources/subscribe", "resources/unsubscribe"} {
		if len(method) == len(known) && method != known && strings.EqualFold(method, known) {
			return true
		}
	}
	return false
}

// validID reports whether raw is a string or a number.
func validID(raw []byte) bool {
	return len(raw) > 0 && (raw[0] == '"' || raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9')
}

// check returns what is wrong with the envelope, if anything.
func (m *Message) check(s *scanner) string {
	if string(m.Params) == "null" { // some peers write so what they leave out
		m.Params = nil
	}
	if string(m.Error) == "null" && m.Result != nil {
		m.Error = nil
	}
	switch {
	case s.dup != "":
		return "member " + s.dup + " stands twice"
	case string(m.version) != `"2.0"`:
		return `jsonrpc must be "2.0"`
	case m.method != nil && (m.method[0] != '"' || len(m.method) < 3):
		return "method must be a string and not empty"
	case m.method != nil && (m.Result != nil || m.Error != nil):
		return "a request has no result and no error"
	case m.method != nil && m.ID != nil && !validID(m.ID):
		return idRule
	case m.method != nil && m.Params != nil && m.Params[0] != '{':
		return "params must be an object"
	case m.method == nil && m.Result == nil && m.Error == nil:
		return "neither method nor result nor error is there"
	case m.method == nil && m.Result != nil && m.Error != nil:
		return "an answer has a result or an error, not both"
	case m.method == nil && m.Error != nil && m.Error[0] != '{':
		return "error must be an object"
	}
	if m.method != nil {
		m.Method = method(m.method[1 : len(m.method)-1])
	} else if !validID(m.ID) {
		if m.Error == nil {
			return "a result needs an id"
		}
		m.ID = nil // an error about a request whose id could not be read
	}
	return ""
}
