// Package jsonrpc reads and writes the envelope of JSON-RPC 2.0 messages for MCP, and does not decode their payload.
//
// One pass checks the whole text, and records the positions of id, method, params, result and error, and of the few
// members of params that the bridge reads. Everything else stays as the peer wrote it: numbers keep their digits,
// unknown members stay, and members keep their order.
package jsonrpc

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Message is one request, notification or response. Its fields are slices of the text that it was parsed from. It is
// valid until Release, or, as an argument, as long as the interface says.
type Message struct {
	ID     []byte // raw JSON, exactly as the peer sent it; nil without one
	Method string // empty in a response
	Params []byte // raw JSON object, or nil; without the edits, unlike Whole
	Result []byte // raw JSON, or nil
	Error  []byte // raw JSON object, or nil

	version, method []byte
	meta, name, uri []byte // members of params, raw
	token           []byte // params._meta.progressToken, raw
	rename          []byte // new name of Renamed, raw; also one of edits
	edits           []Edit // edits of Params or Result, by From
	progress        []byte // params.progressToken, raw
	requestID       []byte // params.requestId, raw
	found           Found  // positions of members of Result
	doubtful        bool   // see Doubtful
	isError         bool   // see IsError
	judged          bool   // NewToolResult set isError
	nulls           bool   // see HasNulls
	lines           bool   // the text has line breaks between tokens
	buf             *Buffer
	held            *held // see Hold
}

// IsRequest reports whether m expects a response.
func (m *Message) IsRequest() bool { return m.Method != "" && m.ID != nil }

// IsNotification reports whether m has a method and expects no response.
func (m *Message) IsNotification() bool { return m.Method != "" && m.ID == nil }

// IsResponse reports whether m is a response.
func (m *Message) IsResponse() bool { return m.Method == "" }

// Meta returns params._meta as raw JSON, or nil.
func (m *Message) Meta() []byte { return m.meta }

// Name returns params.name decoded: the name of a tool or prompt. It is a copy, so it is valid after Release. It is
// empty if the name is no string.
func (m *Message) Name() string {
	if m.rename != nil {
		return text(m.rename)
	}
	return text(m.name)
}

// GivenName returns params.name decoded, as the peer sent it: Renamed does not change it.
func (m *Message) GivenName() string { return text(m.name) }

// Doubtful reports whether the name of a member of params differs from name, uri or requestState only in case. Some
// servers would use its value instead. So code that checks access by these members must reject the request.
func (m *Message) Doubtful() bool { return m.doubtful }

// IsError reports whether the result has isError: true, as the result of a failed tool does. If neither Parse nor
// NewToolResult made the message, IsError searches the result.
func (m *Message) IsError() bool {
	if m.version != nil || m.judged {
		return m.isError
	}
	return bytes.Contains(m.Result, []byte(`"isError"`)) && gjson.GetBytes(m.Result, "isError").Type == gjson.True
}

// HasNulls reports whether the result may have a null, apart from those in structuredContent and _meta. If Parse did
// not make the message, HasNulls searches the result.
func (m *Message) HasNulls() bool {
	if m.version != nil {
		return m.nulls
	}
	return bytes.Contains(m.Result, []byte("null"))
}

// Renamed returns a message with another params.name, or m if m has no name. The result shares memory with m, which
// must stay valid. Its field Params still has the old name; Append and Whole write the new one.
func (m *Message) Renamed(name string) *Message {
	if len(m.name) == 0 {
		return m
	}
	at := offset(m.Params, m.name)
	c := *m
	c.buf = nil // m owns it
	c.rename = rawjson.AppendString(nil, name)
	c.edits = slices.DeleteFunc(slices.Clone(m.edits), func(e Edit) bool { return e.From == at && e.To > at })
	c.edits = merged(c.edits, []Edit{{
		From: at,
		To:   at + len(m.name),
		Text: c.rename,
	}})
	return &c
}

// WithResult returns a response to the same request with another result, as raw JSON. result must be on one line unless
// m has line breaks.
func (m *Message) WithResult(result []byte) *Message {
	return &Message{
		ID:     m.ID,
		Result: result,
		lines:  m.lines,
	}
}

// URI returns params.uri decoded: the URI of a resource.
func (m *Message) URI() string { return text(m.uri) }

// RequestID returns params.requestId as raw JSON: the id of the request that notifications/cancelled cancels.
func (m *Message) RequestID() []byte { return m.requestID }

// Token returns the progress token as raw JSON, or nil. It is in _meta of a request, and in the params of
// notifications/progress.
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

// Len returns the approximate size of the message in bytes, as Append writes it.
func (m *Message) Len() int {
	n := len(m.ID) + len(m.Method) + len(m.Params) + len(m.Result) + len(m.Error) + 64
	for _, e := range m.edits {
		n += len(e.Text)
	}
	return n
}

// Append writes the message to dst as one line, without the line break, and returns the extended dst. id replaces the
// id of the message; nil means that the line has no id. token, if not nil, replaces the progress token.
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

// appendParams appends the params with the edits, and with token in place of the progress token.
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

// Payload returns the name of a response's payload member, and appends the pieces of its raw JSON to dst. Unlike Append
// it copies nothing; the pieces may have line breaks. It may panic if m is no response.
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

// offset returns the index of part in whole, of which part is a subslice.
func offset(whole, part []byte) int { return cap(whole) - cap(part) }

// unbreak replaces line breaks by spaces. In JSON line breaks are only between tokens, since strings escape them.
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

// Release returns the message's memory for reuse. Afterwards the message is empty. Without Release the garbage
// collector frees the memory. A second Release does nothing.
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

// Room is a budget of bytes that messages share. Values of its types are comparable.
type Room interface{ Return(n int) }

// held is what a message holds of a Room.
type held struct {
	room    Room
	n       int
	back    func()
	cleanup runtime.Cleanup
}

// Hold records that the message holds n bytes of room, in place of the bytes that it held before. They go back to room
// once, when the message is released or garbage collected. A copy of the message would give them back, too.
func (m *Message) Hold(room Room, n int) {
	_ = m.TakeRelease()
	back := sync.OnceFunc(func() { room.Return(n) })
	m.held = &held{room, n, back, runtime.AddCleanup(m, func(back func()) { back() }, back)}
}

// Held returns what Hold recorded: the budget, and the bytes that Release will return to it. room is nil without Hold.
func (m *Message) Held() (room Room, n int) {
	if m.held == nil {
		return nil, 0
	}
	return m.held.room, m.held.n
}

// TakeRelease returns the function that gives the held bytes back, or nil if there are none. From then on the caller
// calls it, and Release does not.
func (m *Message) TakeRelease() func() {
	if m.held == nil {
		return nil
	}
	held := m.held
	m.held = nil
	held.cleanup.Stop()
	return held.back
}

// Pooled reports whether Release makes the message's memory available to other messages.
func (m *Message) Pooled() bool { return m.buf != nil }

// Own makes m the owner of buf, from which m was parsed: Release also frees buf.
func (m *Message) Own(buf *Buffer) *Message {
	m.buf = buf
	return m
}

// SyntaxError is the error about a text that is not JSON.
type SyntaxError struct {
	Offset int    // index of the fault, in bytes
	What   string // the fault, for people; it quotes nothing of the text
}

// Behind reports whether the text is valid JSON up to Offset, and other text follows.
func (s *SyntaxError) Behind() bool { return s.What == behind }

// Error returns the fault and its position. It quotes nothing of the text.
func (s *SyntaxError) Error() string {
	if s.What == tooDeep {
		return fmt.Sprintf("nested too deep at byte %d: more than %d nested arrays and objects", s.Offset, maxDepth)
	}
	return fmt.Sprintf("not JSON: %s at byte %d", s.What, s.Offset)
}

// InvalidError is the error about a text that is JSON but no JSON-RPC message, or that is not UTF-8.
type InvalidError struct {
	ID   []byte // id of the message, raw JSON; nil if it cannot be read
	What string // the fault, for people
	text bool   // the text is not UTF-8, so it is not even JSON
}

// Error names the fault, for the peer that sent the message.
func (i *InvalidError) Error() string {
	if i.text {
		return "not JSON: " + i.What
	}
	return "not a JSON-RPC message: " + i.What
}

// Code returns the code of the error response to the text.
func (i *InvalidError) Code() int {
	if i.text {
		return CodeParse
	}
	return CodeInvalidRequest
}

// Parse reads one message, and ignores the characters around it that Bare removes. The message refers to b, which must
// not change while the message is used. The error is a *SyntaxError or an *InvalidError.
func Parse(b []byte) (*Message, error) {
	m, _, err := parse(b)
	return m, err
}

// parse is Parse. wide reports whether a string has bytes beyond ASCII, which need not be UTF-8.
func parse(b []byte) (m *Message, wide bool, err error) {
	m, wide, err = parseBare(b)
	if err == nil {
		return m, wide, nil
	}
	if _, broken := errors.AsType[*SyntaxError](err); !broken {
		return nil, false, err
	}
	bare := Bare(b)
	if len(bare) < len(b) {
		m, wide, err = parseBare(bare)
	}
	if syntax, broken := errors.AsType[*SyntaxError](err); broken {
		if syntax.Offset == 0 && bytes.Contains(bare, []byte(`{"jsonrpc"`)) {
			syntax.What = "text before the message"
		}
		if len(bare) < len(b) {
			syntax.Offset += offset(b, bare)
		}
	}
	return m, wide, err
}

// parseBare is parse for a text with only white space around the message.
func parseBare(b []byte) (m *Message, wide bool, err error) {
	m = new(Message)
	s := scanner{b: b, m: m}
	i := s.space(0)
	s.lines = false // ignores line breaks before the message
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
		i := &InvalidError{What: what}
		if validID(m.ID) {
			i.ID = known(m.ID)
		}
		return nil, false, i
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

// ParseUTF8 is Parse for messages of clients. It rejects three kinds of messages. Messages that are not UTF-8 make some
// server libraries exit, which ends the calls of all clients. Ids of requests must be strings or integers; servers may
// use others in their questions. A method with other capitals or with control characters could be read as another
// method by a server, and bypass access rules.
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
		return nil, &InvalidError{ID: known(m.ID), What: idRule + ", as in 15: no fraction and no exponent"}
	case m.IsRequest() && strings.ContainsFunc(m.Method, unicode.IsControl):
		return nil, &InvalidError{ID: bytes.Clone(m.ID), What: "method must not have control characters"}
	case m.IsRequest() && misspelled(m.Method):
		return nil, &InvalidError{ID: bytes.Clone(m.ID), What: "method must be " + strings.ToLower(m.Method) + ", in small letters"}
	}
	return m, nil
}

// ParseRepaired is Parse for messages of servers. It replaces each byte that is not UTF-8 by U+FFFD, because some
// clients exit on such bytes. repaired reports whether it replaced any; then the message does not refer to b.
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

// Integer returns a raw id or token of the bridge, a positive integer, as the bridge wrote it: some peers return "7",
// 7.0 or 7e0 instead of 7. It returns other ids unchanged.
func Integer(id []byte) []byte {
	text := id
	if n := len(id); n > 2 && id[0] == '"' {
		text = id[1 : n-1]
	}
	digits := 0
	for digits < len(text) && '0' <= text[digits] && text[digits] <= '9' {
		digits++
	}
	switch {
	case digits == 0 || digits > len("9223372036854775807") || text[0] == '0' && digits > 1:
		return id
	case digits == len(text):
		return text
	}
	n, ok := whole(string(text))
	if !ok {
		return id
	}
	return strconv.AppendInt(nil, n, 10)
}

// whole returns the value of a decimal number that is an integer, such as 7.0. It reports false above 2⁵³, where
// floating point is not exact.
func whole(number string) (int64, bool) {
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 || strings.Trim(number, "+-.0123456789eE") != "" {
		return 0, false
	}
	return int64(f), true
}

// notUTF8 returns the error about a text that is not UTF-8. id is the id of the message, which is left out if it is not
// UTF-8 itself.
func notUTF8(id []byte) error {
	i := &InvalidError{What: "it is not UTF-8", text: true}
	if utf8.Valid(id) {
		i.ID = bytes.Clone(id)
	}
	return i
}

const idRule = "id must be a string or an integer"

// stringOrInteger reports whether raw, a string or a number, is a string, or a number that is written as an integer and
// that other programs can read.
func stringOrInteger(raw []byte) bool {
	return raw[0] == '"' || len(raw) < 300 && !bytes.ContainsAny(raw, ".eE")
}

// misspelled reports whether a method differs only in case from a method whose name or uri access rules check.
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

// known returns a copy of a valid id, for the answer to an invalid message. It returns nil for a number that no program
// can represent, such as 1e999: its sender could not read the answer.
func known(id []byte) []byte {
	if id[0] != '"' {
		if _, err := strconv.ParseFloat(string(id), 64); err != nil {
			return nil
		}
	}
	return bytes.Clone(id)
}

// check returns the fault of the envelope, or "". It repairs what many peers write, such as null for an absent member.
func (m *Message) check(s *scanner) string {
	if string(m.Params) == "null" { // some peers write null for an absent member
		m.Params = nil
	}
	switch {
	case string(m.Error) == "null" && m.Result != nil:
		m.Error = nil
	case string(m.Result) == "null" && m.Error != nil:
		m.Result = nil
	}
	switch {
	case s.dup != "":
		return "member " + s.dup + " appears twice"
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
		return "it has neither a method nor a result nor an error"
	case m.method == nil && m.Result != nil && m.Error != nil:
		return "an answer has a result or an error, not both"
	case string(m.Error) == "null":
		return "error must be an object"
	}
	if m.Error != nil {
		m.Error = wellFormed(m.Error)
	}
	if m.method != nil {
		m.Method = method(m.method[1 : len(m.method)-1])
	} else if !validID(m.ID) {
		if m.Error == nil {
			return "a result needs an id"
		}
		m.ID = nil // the error is about a request whose id could not be read
	}
	return ""
}
