package conn

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// oddities are faults of a server that are mended. The log has each once.
type oddities struct{ encoding, ids sync.Once }

// Read parses one message of the server. A byte that is not UTF-8 becomes U+FFFD, and
// the id of an answer that comes back as a text becomes the number that was sent, as
// the official SDKs take it. The message refers to text, unless it had such bytes.
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
	if m.IsResponse() && len(m.ID) > 0 && m.ID[0] == '"' {
		if id := jsonrpc.Unquoted(m.ID); len(id) < len(m.ID) {
			m.ID = id
			o.odd.ids.Do(func() { o.Log.Warn("the server gives ids back as text: they are taken for the numbers that were sent") })
		}
	}
	return m, nil
}

// Parser makes messages of what one reader of a connection reads, and tells the
// log of what is none. It is for one goroutine.
type Parser struct {
	Options
	Conn *Conn // takes the answers
	// Warning is logged, once in a while, when there was what is no message. Unit is
	// what is counted then. Empty means that neither is.
	Warning, Unit string
	// Quotes has the warning show how the first of them begins. What comes from an
	// address may be another's secret.
	Quotes bool

	bad    int    // not yet told of
	first  string // of these
	warned time.Time
}

// Parse hands on the messages of text, a part of buf, to deliver. A message owns
// what it is made of, and has the room that in has taken. It takes buf. The error says
// what is wrong with the first part that is no message, which Conn has been told of.
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
		// Only 2025-03-26 knows batches, and a server has no need to send them;
		// one that does is understood all the same (A9).
		if elements, err := jsonrpc.Split(text); err == nil && len(elements) > 0 {
			all = elements
		}
	}
	owned, size := true, 0
	for _, one := range all {
		for len(one) > 0 {
			m, err := p.Read(one)
			first, rest := one, []byte(nil)
			if syntax, ok := errors.AsType[*jsonrpc.SyntaxError](err); ok && syntax.Behind() { // two on a line
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
	} // otherwise messages refer to it: it is left to the garbage collector
	return fault
}

// keeps reports whether there is room for a message, of what is together size bytes. Its
// text had it, but U+FFFD has three bytes. One that is not kept is released.
func (p *Parser) keeps(m *jsonrpc.Message, size int, in *Intake) bool {
	if m.Len() <= p.MaxMessage+2*EnvelopeRoom && in.Size(size) {
		return true
	}
	if m.IsResponse() {
		p.Conn.Unkept(in, m.ID, p.MaxMessage)
	}
	m.Release()
	return false
}

// warnEvery is how often the log is told of what is no message.
const warnEvery = time.Minute

// maxQuoted is how much of a text is shown.
const maxQuoted = 200

func (p *Parser) invalid(text []byte, err error) {
	if p.Conn.Invalid(text, err) || p.Warning == "" { // of an answer, the call's error says what is wrong with it
		p.Log.Debug("not a message", "err", err)
		return
	}
	quoted := sanitize.Text(sanitize.Short(string(text[:min(len(text), maxQuoted+utf8.UTFMax)]), maxQuoted))
	p.Log.Debug("not a message", "text", quoted, "err", err)
	if p.bad == 0 {
		p.first = quoted
	}
	if p.bad++; time.Since(p.warned) >= warnEvery {
		p.Warn()
	}
}

// Warn tells the log of what it was not told of yet.
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

// Signal wakes those who wait for something that a lock guards: room in a queue,
// or something in it. The same lock guards the Signal.
type Signal struct{ c chan struct{} }

// Await unlocks mu and waits for Wake. If ctx ends first, it returns why.
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

// Wake lets all go on who wait. The caller holds the lock.
func (s *Signal) Wake() {
	if s.c != nil {
		close(s.c)
		s.c = nil
	}
}
