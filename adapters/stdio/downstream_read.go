package stdio

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// onEach is the end of the text of gateway.NoBatches: where to send a single message.
const onEach = "on each line"

// text is a line of which messages are parts, and the memory that is reserved for it.
type text struct {
	g    gateway.Gateway
	buf  *jsonrpc.Buffer
	n    int          // reserved bytes
	left atomic.Int32 // references to the line
}

// free removes one reference to the line. The last one frees the memory.
func (t *text) free() {
	if t.left.Add(-1) == 0 {
		t.buf.Free()
		t.g.Room("").Return(t.n)
	}
}

// read handles the client's lines until in ends. It waits only for the client: for input, and while
// answers are unread.
func (p *peer) read(in io.Reader) error {
	l := newLineReader(in, p.o.MaxMessage+conn.EnvelopeRoom, p.dropLine)
	l.room = p.room
	defer func() { p.g.Room("").Return(p.reserved) }() // of an incomplete line
	for {
		if !p.pause() {
			return bridge.ErrEnded
		}
		buf, over, err := l.next()
		if err != nil {
			return err
		}
		if p.isOver() { // Serve has ended during a read that could not be interrupted
			buf.Free()
			return bridge.ErrEnded
		}
		if big, ok := over.(*droppedLine); ok {
			buf.Free()
			p.refuseSize(big)
			continue
		}
		t := &text{
			g:   p.g,
			buf: buf,
			n:   p.reserved,
		}
		p.reserved = 0
		t.left.Store(1)
		p.line(buf.B, t)
	}
}

func (p *peer) isOver() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over
}

// room reserves memory for a line of size bytes, within the bridge's bound on bytes in flight.
func (p *peer) room(size int) bool {
	p.noRoom = !p.g.Room("").Reserve(size - p.reserved)
	if !p.noRoom {
		p.reserved = size
	}
	return !p.noRoom
}

// droppedLine receives a line that is not kept.
type droppedLine struct {
	jsonrpc.Finder
	full bool // the bridge had no room for the line; otherwise, the line was too large
}

// dropLine returns the writer for a line that is not kept.
func (p *peer) dropLine() io.Writer {
	p.g.Room("").Return(p.reserved)
	d := &droppedLine{full: p.noRoom}
	p.reserved, p.noRoom = 0, false
	return d
}

// line handles a line: a message, a batch, or neither.
func (p *peer) line(line []byte, t *text) {
	if len(jsonrpc.Bare(line)) == 0 {
		t.free()
		return
	}
	if jsonrpc.IsBatch(line) {
		p.batch(line, t)
		t.free()
		return
	}
	m, err := jsonrpc.ParseUTF8(line)
	if err != nil {
		p.refuse(line, err)
		t.free()
		return
	}
	p.take(arrival{m, t})
}

// refuse handles a text that is not a message.
func (p *peer) refuse(line []byte, err error) {
	invalid, ok := errors.AsType[*jsonrpc.InvalidError](err)
	if !ok {
		p.answer(jsonrpc.NewError(nil, jsonrpc.CodeParse, err.Error(), nil))
		return
	}
	var f jsonrpc.Finder
	_, _ = f.Write(jsonrpc.Bare(line))
	o := f.Outlines()[0]
	if o.ID != nil || invalid.ID != nil {
		o.ID = invalid.ID // the parsed id; null is no id, but gets an answer
		p.settleUnusable(o, true, invalid.Code(), invalid.Error(), nil)
		return
	}
	p.settleUnusable(o, false, invalid.Code(), invalid.Error(), nil)
}

// refuseSize answers a line that was not kept.
func (p *peer) refuseSize(d *droppedLine) {
	code, message, data := jsonrpc.CodeInvalidRequest, fmt.Sprintf("the message is larger than the limit of %d bytes", p.o.MaxMessage), []byte(nil)
	if d.full {
		code, message, data = jsonrpc.CodeInternal, "the bridge is overloaded: too many bytes are under way; try again later", []byte(`{"bridge":"overloaded"}`)
	}
	p.o.Log.Warn("line dropped", "err", message)
	for _, o := range d.Outlines() {
		had := o.ID != nil
		o.ID = o.Answerable()
		p.settleUnusable(o, had, code, message, data)
	}
}

// settleUnusable settles an unusable message with the outline o. A request gets the error as its answer.
// For an answer of the client, the server's question gets the error. settleUnusable drops
// notifications and other answers. had says whether the message had an id, since o may lack an
// id that is unusable.
func (p *peer) settleUnusable(o jsonrpc.Outline, had bool, code int, message string, data []byte) {
	if !o.Method && o.ID != nil {
		if s := p.current(); s != nil && s.Answer(jsonrpc.NewError(o.ID, jsonrpc.CodeInternal, "the client's answer could not be used: "+message, data)) == nil {
			return
		}
	}
	if o.Payload && !o.Method || o.Method && !had {
		p.o.Log.Debug("message dropped", "err", message)
		return
	}
	p.answer(jsonrpc.NewError(o.ID, code, message, data))
}

// batch handles the messages of an array: 2025-03-26 has batches, and 2024-11-05 does not forbid
// them (protocol.md A9). Each answer goes out on a line of its own.
func (p *peer) batch(line []byte, t *text) {
	elements, err := jsonrpc.Split(line)
	s := p.current()
	fault := ""
	switch {
	case err != nil:
		p.refuse(line, err)
		return
	case p.modern && hasStateless(elements):
		fault = gateway.NoBatches(era.FirstModern, onEach)
	case s == nil:
		fault = gateway.TooEarly
	case s.Revision() > era.Rev20250326:
		fault = gateway.NoBatches(s.Revision(), onEach)
	default:
		fault = gateway.BatchSize(len(elements))
	}
	batch := gateway.Batch{}
	answered := false
	for _, e := range elements {
		m, err := jsonrpc.ParseUTF8(e)
		if err != nil {
			if fault == "" {
				p.refuse(e, err)
			}
			continue
		}
		what := fault
		if what == "" {
			what = batch.Fault(m)
		}
		if what == "" {
			t.left.Add(1)
			p.take(arrival{m, t})
		} else if m.IsRequest() {
			answered = true
			p.answer(jsonrpc.NewError(m.ID, jsonrpc.CodeInvalidRequest, what, nil))
		}
	}
	if fault != "" && !answered {
		p.answer(jsonrpc.NewError(nil, jsonrpc.CodeInvalidRequest, fault, nil))
	}
}

// take handles one message.
func (p *peer) take(a arrival) {
	if p.takeStateless(a) {
		return
	}
	p.mu.Lock()
	s, open := p.session, p.open
	switch {
	case p.over:
	case open:
		if a.m.IsRequest() {
			p.calls.Add(1)
		}
		p.mu.Unlock()
		p.pass(s, a)
		return
	case !p.begun && a.m.IsRequest() && a.m.Method == "initialize":
		p.begun = true
		p.calls.Add(1)
		p.wg.Go(func() {
			p.initialize(a)
			p.calls.Add(-1)
		})
		p.mu.Unlock()
		return
	case p.begun && len(p.held) < maxHeld && a.m.Method != "ping": // a ping gets its answer at once
		// A client should wait for the answer to initialize (A2), but a script that pipes in its
		// requests does not.
		p.held = append(p.held, a)
		p.mu.Unlock()
		return
	}
	over := p.over
	p.mu.Unlock()
	switch {
	case !a.m.IsRequest():
	case over:
		p.answer(tooLate(a.m))
	default:
		p.answer(early(a.m))
	}
	a.free()
}

// early returns the answer to a request that comes before the session begins.
func early(m *jsonrpc.Message) *jsonrpc.Message {
	if m.Method == "server/discover" {
		return era.NotDiscovered(m.ID)
	}
	return gateway.Early(m)
}

// tooLate returns the answer to a request that comes after the session has ended.
func tooLate(m *jsonrpc.Message) *jsonrpc.Message {
	return jsonrpc.NewError(m.ID, jsonrpc.CodeInternal, "the session has ended: start the bridge again", nil)
}

// pass gives a message to the session. The caller has added a request to p.calls.
func (p *peer) pass(s gateway.Session, a arrival) {
	switch {
	case a.m.IsRequest():
		settle := func(m *jsonrpc.Message, err error) {
			p.answer(p.forClient(m, err))
			a.free()
			p.calls.Add(-1)
		}
		if !s.Enter(a.m, nil, p).Go(settle) {
			settle(tooLate(a.m), nil)
		}
	case a.m.IsNotification():
		p.notify(s, a)
	default:
		_ = s.Answer(a.m) // a late answer is no fault of the client
		a.free()
	}
}

// notify gives a notification to the session. A notification for the server may have to wait, so
// another goroutine delivers it, and the reader does not wait.
func (p *peer) notify(s gateway.Session, a arrival) {
	switch a.m.Method {
	case "notifications/initialized", "notifications/cancelled": // these are for the session itself, and must not wait for others
		s.Notify(a.m, nil)
		a.free()
		return
	}
	p.mu.Lock()
	if len(p.notes) >= maxHeld {
		p.mu.Unlock()
		p.g.Dropped().Add(1)
		p.o.Log.Warn("notification dropped: too many wait for the server", "method", a.m.Method)
		a.free()
		return
	}
	p.notes = append(p.notes, a)
	first := !p.noting
	if first {
		p.noting = true
		p.calls.Add(1) // so that Serve, after the end of the input, waits for the delivery
	}
	p.mu.Unlock()
	if first && !s.Go(func() { p.deliver(s) }) {
		p.deliver(s) // does not wait, since the session has ended
	}
}

// deliver gives the waiting notifications to the session, in order.
func (p *peer) deliver(s gateway.Session) {
	for {
		p.mu.Lock()
		if len(p.notes) == 0 {
			p.noting = false
			p.mu.Unlock()
			p.calls.Add(-1)
			return
		}
		a := p.notes[0]
		p.notes = p.notes[1:]
		p.mu.Unlock()
		s.Notify(a.m, nil)
		a.free()
	}
}
