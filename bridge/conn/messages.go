package conn

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/logs"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// oddities remembers which faults of a server, which the bridge repairs, are in the log. Each is logged once.
type oddities struct {
	encoding, ids sync.Once
	unclaimed     logs.Limiter // limits the log lines about errors that belong to no call
}

// Read parses one message of the server. It replaces bytes that are not UTF-8 by U+FFFD. If an answer has its id in
// another form, such as "7" or 7.0, Read replaces the id by the number that was sent, as the official SDKs do. The
// message refers to text, unless Read replaced bytes.
func (o Options) Read(text []byte) (*jsonrpc.Message, error) {
	m, repaired, err := jsonrpc.ParseRepaired(text)
	if err != nil {
		return nil, err
	}
	if repaired {
		o.odd.encoding.Do(func() {
			o.Log.Warn("the server sends bytes that are not UTF-8: clients get U+FFFD in their place")
		})
	}
	if m.IsResponse() {
		if id := jsonrpc.Integer(m.ID); string(id) != string(m.ID) {
			m.ID = id
			o.odd.ids.Do(func() {
				o.Log.Warn("the server returns ids as text, or as numbers like 7.0: the bridge takes them for the numbers that were sent")
			})
		}
	}
	return m, nil
}

// Parser parses the input of a connection, and logs the parts that are not messages. It is for one goroutine.
type Parser struct {
	Options
	Conn *Conn // gets errors about malformed answers
	// Warning is the text that is logged, at most once a minute, if the input has parts that are not messages. Unit is
	// the attribute with their number. If Warning is empty, nothing is logged.
	Warning, Unit string
	// Quotes adds the beginning of the first such part to the log line. It is off for input from another host, which
	// may be secret.
	Quotes bool

	// Printed holds the first parts of the input that are not messages, sanitized and cut.
	Printed []string

	bad    int    // number of parts since the last log line
	first  string // first of these parts
	warned time.Time
}

// Parse calls deliver with each message of text, which is a part of buf. The messages take over buf, and the memory
// that in has reserved. fault is the error of the first part that is not a message; Conn already knows of it.
func (p *Parser) Parse(buf *jsonrpc.Buffer, text []byte, in *Intake, deliver func(*jsonrpc.Message)) (fault error) {
	m, err := p.Read(text)
	if err == nil {
		if m.Own(buf); p.keeps(m, m.Len(), in) {
			in.Give(m)
			deliver(m)
		}
		return nil
	}
	all := [][]byte{text}
	if jsonrpc.IsBatch(text) {
		// Only 2025-03-26 has batches, and no server needs to send one. The bridge accepts batches of all servers (A9).
		if elements, err := jsonrpc.Split(text); err == nil && len(elements) > 0 {
			all = elements
		}
	}
	owned, size := true, 0
	for _, one := range all {
		for len(one) > 0 {
			m, err := p.Read(one)
			first, rest := one, []byte(nil)
			if syntax, ok := errors.AsType[*jsonrpc.SyntaxError](err); ok && syntax.Behind() { // two messages on one line
				first, rest = one[:syntax.Offset], one[syntax.Offset:]
				m, err = p.Read(first)
			}
			if one = rest; err != nil {
				p.invalid(first, err)
				fault = cmp.Or(fault, err)
				continue
			}
			owned = false
			if size += m.Len(); p.keeps(m, size, in) {
				deliver(m)
			}
		}
	}
	if owned {
		buf.Free()
	} // otherwise messages refer to buf, and the garbage collector frees it
	return fault
}

// Deliver delivers a message of a transport on which only the id says which call an answer is for. An error without an
// id is about a request that the server could not read (JSON-RPC 2.0, section 5). If only one call is open, the error
// answers that call, unless the call's own answer comes soon. Other errors without an id are logged. That includes
// "Method not found" and errors that may be about an earlier notification, because some servers answer notifications.
func (p *Parser) Deliver(m *jsonrpc.Message) {
	if m.ID != nil || !m.IsResponse() {
		p.Conn.Deliver(m)
		return
	}
	p.Conn.show(false, nil, m)
	id, alone := p.Conn.Only()
	code := gjson.GetBytes(m.Error, "code").Int()
	if id != nil && (alone && code != jsonrpc.CodeMethodNotFound || code == jsonrpc.CodeParse) {
		m.ID = id
		p.Conn.unlessAnswered(id, m)
		return
	}
	p.Unclaimed(m)
}

// Unclaimed logs m, an error without an id that belongs to no call, and releases m. A server may send any number of
// them, so only one a minute is logged, with the number of the others as more.
func (o Options) Unclaimed(m *jsonrpc.Message) {
	if more, due := o.odd.unclaimed.Due(warnEvery); due {
		said := gjson.GetBytes(m.Error, "message").Str
		o.Log.Warn("the server reports an error without the id of a request: no call can get it", "err", sanitize.Text(sanitize.Short(said, maxQuoted)), "more", more)
	}
	m.Release()
}

// keeps reports whether there is memory for m, if it needs size bytes together with the messages before it. The text
// had room, but replaced bytes need three bytes each. If there is no memory, keeps releases m.
func (p *Parser) keeps(m *jsonrpc.Message, size int, in *Intake) bool {
	if m.Len() <= p.MaxMessage+2*EnvelopeRoom && in.Size(size) {
		return true
	}
	if m.IsResponse() {
		p.Conn.AnswerNotKept(in, m.ID, p.MaxMessage)
	}
	m.Release()
	return false
}

// warnEvery is the time between two log lines of the same kind.
const warnEvery = time.Minute

// maxQuoted bounds a text in the log, in bytes. maxPrinted bounds the number of texts in Printed.
const (
	maxQuoted  = 200
	maxPrinted = 5
)

func (p *Parser) invalid(text []byte, err error) {
	if p.Conn.Invalid(text, err) || p.Warning == "" { // the error of the call already describes a malformed answer
		p.Log.Debug("not a message", "err", err)
		return
	}
	text = bytes.TrimRight(text, "\r")
	quoted := sanitize.Text(sanitize.Short(string(text[:min(len(text), maxQuoted+utf8.UTFMax)]), maxQuoted))
	p.Log.Debug("not a message", "text", quoted, "err", err)
	if len(p.Printed) < maxPrinted {
		p.Printed = append(p.Printed, quoted)
	}
	if p.bad == 0 {
		p.first = quoted
	}
	if p.bad++; time.Since(p.warned) >= warnEvery {
		p.Warn()
	}
}

// Warn logs the number of parts since the last log line, if there are any.
func (p *Parser) Warn() {
	switch {
	case p.bad == 0:
		return
	case p.Quotes:
		p.Log.Warn(p.Warning, p.Unit, p.bad, "first", p.first)
	default:
		p.Log.Warn(p.Warning, p.Unit, p.bad)
	}
	p.bad, p.warned = 0, time.Now()
}

// Signal wakes goroutines that wait for a condition, such as room in a queue. The lock that guards the condition also
// guards the Signal.
type Signal struct{ c chan struct{} }

// Await unlocks mu and waits for Wake. If ctx ends first, it returns the cause.
func (s *Signal) Await(ctx context.Context, mu *sync.Mutex) error {
	if s.c == nil {
		s.c = make(chan struct{})
	}
	c := s.c
	mu.Unlock()
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Wake wakes all goroutines in Await. The caller holds the lock.
func (s *Signal) Wake() {
	if s.c != nil {
		close(s.c)
		s.c = nil
	}
}
