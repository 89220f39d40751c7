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

// oddities are faults of a server that the bridge repairs. Each is logged once.
type oddities struct {
	encoding, ids sync.Once
	unclaimed     logs.Limiter // of lines about errors that no call can get
}

// Read parses one message of the server. It replaces bytes that are not UTF-8 by U+FFFD. It
// replaces the id of an answer in another form, such as "7" or 7.0, by the number that was sent, as
// the official SDKs do. The message refers to text, unless text had such bytes.
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

// Parser parses a connection's input and logs the parts that are no message. It is for one
// goroutine.
type Parser struct {
	Options
	Conn *Conn // gets errors of answers
	// Warning is logged now and then if the input has parts that are not messages; Unit names them
	// there. Empty means that nothing is logged.
	Warning, Unit string
	// Quotes adds the beginning of the first such part to the warning. Input from another host may
	// be secret.
	Quotes bool

	// Printed has the first parts of the input that are no message, cleaned and cut.
	Printed []string

	bad    int    // parts since the last warning
	first  string // the first of them
	warned time.Time
}

// Parse calls deliver with the messages of text, a part of buf. They own buf and the memory that in
// has reserved. The error is that of the first part that is not a message, about which Conn was
// informed.
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
		// Only 2025-03-26 has batches, and a server has no need to send them. The bridge accepts
		// them nevertheless (A9).
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
	} // otherwise messages refer to it, and the garbage collector frees it
	return fault
}

// Deliver delivers a message of a wire on which only the id says whose answer it is. An error
// without an id is about a request that the server could not read (JSON-RPC 2.0, section 5). So it
// answers the only call that waits, unless that call gets its own answer soon; the log has others.
// Some servers answer notifications, also those about calls of other clients. So the log has
// "Method not found", too, and what may be about a notification that was sent before.
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

// Unclaimed logs an error that no call can get, because it has no id. It releases m. more is the
// number of those that were not logged, since a server may send any number of them.
func (o Options) Unclaimed(m *jsonrpc.Message) {
	if more, due := o.odd.unclaimed.Due(warnEvery); due {
		said := gjson.GetBytes(m.Error, "message").Str
		o.Log.Warn("the server reports an error without the id of a request: no call can get it", "err", sanitize.Text(sanitize.Short(said, maxQuoted)), "more", more)
	}
	m.Release()
}

// keeps reports whether there is memory for a message that needs size bytes with those before it.
// Its text had it, but U+FFFD has three bytes. It releases a message that is not kept.
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

// warnEvery is the time between two warnings.
const warnEvery = time.Minute

// maxQuoted is how much of a text is logged. maxPrinted is how many texts are stored.
const (
	maxQuoted  = 200
	maxPrinted = 5
)

func (p *Parser) invalid(text []byte, err error) {
	if p.Conn.Invalid(text, err) || p.Warning == "" { // the error of the call describes a malformed answer
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

// Warn logs the parts since the last warning.
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

// Signal wakes goroutines that wait for a condition, such as room in a queue. The lock of the
// condition guards the Signal too.
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

// Wake wakes all waiting goroutines. The caller holds the lock.
func (s *Signal) Wake() {
	if s.c != nil {
		close(s.c)
		s.c = nil
	}
}
