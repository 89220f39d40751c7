package conn

import (
	"bytes"
	"errors"
	"strconv"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Deliver takes the next message from the wire and owns it from now on. It
// does not block.
func (c *Conn) Deliver(m *jsonrpc.Message) { c.DeliverOn(0, m) }

// DeliverOn is Deliver for a message that came on the stream of the call of
// that number, which it must be about; 0 means that it is not known which call
// it is about, if any.
func (c *Conn) DeliverOn(on int64, m *jsonrpc.Message) {
	c.passed(false, m.ID, m)
	if m.IsResponse() {
		n, err := number(m.ID)
		if w, ok := c.take(n); err == nil && ok {
			w.answer <- m
			return
		}
		m.Release() // late, or nobody's
		return
	}
	defer m.Release()
	c.mu.Lock()
	modern := c.modern
	c.mu.Unlock()
	switch {
	case m.Method == "notifications/progress":
		c.progress(m)
	case modern:
		c.hear(on, m)
	case m.Method == "notifications/cancelled" && m.ID == nil:
		c.withdraw(string(m.RequestID()), bridge.CancelReason(m))
	case m.ID == nil && era.TellsChange(m.Method): // all who use the connection hear of it, the cache first
		c.rest.Notify(m)
	case m.ID == nil:
		c.client(on).Notify(m)
	case m.Method == "ping": // liveness is per hop
		c.send(jsonrpc.NewResult(nil, []byte("{}")), m.ID, Outgoing{})
	default:
		c.ask(m, c.client(on))
	}
}

// client returns who made the call of that number, or who takes what belongs
// to no call.
func (c *Conn) client(call int64) bridge.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.calls[call]; w != nil && w.back != nil {
		return w.back
	}
	return c.rest
}

// hear takes what a modern server says: it belongs to a subscription, which it
// names, or to the call whose stream it comes on: a subscription has a stream of
// its own, and no other may speak for it. A request is against the protocol
// and nobody answers it.
func (c *Conn) hear(on int64, m *jsonrpc.Message) {
	switch {
	case m.ID != nil:
		return
	case m.Method == "notifications/cancelled":
		if on == 0 { // where each call has a stream of its own, the end of that tells
			c.close(m.RequestID())
		}
		return
	}
	if raw := gjson.GetBytes(m.Meta(), gjson.Escape(era.KeySubscription)).Raw; raw != "" {
		n, err := number([]byte(raw))
		if err != nil || on != 0 && n != on {
			return // not one of ours, or not its stream
		}
		on = n
	}
	c.mu.Lock()
	w := c.calls[on]
	if on == 0 && m.Method == "notifications/message" {
		w = c.logged()
	}
	c.mu.Unlock()
	if w != nil && w.back != nil {
		w.back.Notify(m)
	}
}

// close ends the subscription with that id as its answer would: a server that
// takes one back may say only this (protocol.md B10). It cannot take back
// anything else.
func (c *Conn) close(id []byte) {
	n, err := number(id)
	if err != nil {
		return // not one of ours
	}
	c.mu.Lock()
	w := c.calls[n]
	ends := w != nil && w.lasts
	if ends {
		delete(c.calls, n)
	}
	c.mu.Unlock()
	if ends {
		w.answer <- jsonrpc.NewResult(bytes.Clone(id), []byte(`{"resultType":"complete"}`))
	}
}

// logged returns the only call under way whose client wants log messages, if
// there is exactly one. The caller holds c.mu.
func (c *Conn) logged() (only *call) {
	for _, w := range c.calls {
		if !w.logs {
			continue
		}
		if only != nil {
			return nil
		}
		only = w
	}
	return only
}

// Unanswerable settles the call of that raw id with an error: its answer came
// but is too large. An id of no call is ignored.
func (c *Conn) Unanswerable(id []byte, public string) {
	c.useless(id, public, "upstream_too_large")
}

// brokenGrace is how long the answer to a call may come after what seems to be that
// answer, but broken: there are servers that print their answers for debugging, too.
const brokenGrace = time.Second

// Invalid takes a text from the wire that is no message, and what jsonrpc.Parse
// says of it. If it seems to be the answer to a call, that call gets an error, unless
// another answer comes soon; if it was meant as a request, a legacy server gets one. A
// modern one is never answered. All else is noise, such as a line of a log in
// JSON. Invalid reports whether it seems to be an answer.
func (c *Conn) Invalid(text []byte, err error) (answer bool) {
	var f jsonrpc.Finder // tells answers and requests apart: their ids have nothing to do with each other
	_, _ = f.Write(text)
	bad, invalid := errors.AsType[*jsonrpc.InvalidError](err)
	versioned := invalid && gjson.GetBytes(text, "jsonrpc").Exists()
	if id := f.ID(); id != nil && (f.Answers() || versioned) {
		c.broken(bytes.Clone(id), err)
		return true
	}
	c.mu.Lock()
	modern := c.modern
	c.mu.Unlock()
	if versioned && bad.ID != nil && !modern {
		c.send(jsonrpc.NewError(nil, jsonrpc.CodeInvalidRequest, bad.Error(), nil), bad.ID, Outgoing{})
	}
	return false
}

// broken settles the call of that raw id with an error, unless its answer comes within
// brokenGrace. The first broken answer counts.
func (c *Conn) broken(id []byte, err error) {
	n, _ := number(id)
	c.mu.Lock()
	w := c.calls[n]
	first := w != nil && !w.broken
	if first {
		w.broken = true
	}
	c.mu.Unlock()
	if first {
		time.AfterFunc(brokenGrace, func() { c.useless(id, "its answer is "+err.Error(), "upstream_invalid") })
	}
}

// number returns the number that a raw id or token of ours stands for. There are
// servers that give numbers back as text.
func number(raw []byte) (int64, error) {
	return strconv.ParseInt(string(jsonrpc.Unquoted(raw)), 10, 64)
}

// useless settles the call of that raw id with an error.
func (c *Conn) useless(id []byte, public, kind string) {
	n, err := number(id)
	if err != nil {
		return
	}
	if w, ok := c.take(n); ok {
		data := []byte(`{"bridge":"` + kind + `"}`)
		w.answer <- jsonrpc.NewError(nil, jsonrpc.CodeInternal, "server "+c.server+": "+public, data)
	}
}

func (c *Conn) progress(m *jsonrpc.Message) {
	n, err := number(m.Token())
	if err != nil {
		return // not one of ours
	}
	c.mu.Lock()
	w := c.calls[n]
	c.mu.Unlock()
	if w == nil || w.token == nil {
		return
	}
	w.alive.Store(time.Now().UnixNano())
	if w.back == nil {
		return
	}
	mine, err := jsonrpc.Parse(m.Append(nil, nil, w.token))
	if err != nil {
		return // cannot be: both halves were parsed before
	}
	w.back.Notify(mine)
}

func (c *Conn) ask(q *jsonrpc.Message, to bridge.Client) {
	id := append([]byte(nil), q.ID...)
	a := &asked{}
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	if _, twice := c.asked[string(id)]; twice {
		c.mu.Unlock()
		c.send(jsonrpc.NewError(nil, jsonrpc.CodeInvalidRequest, "a request with this id has no answer yet", nil), id, Outgoing{})
		return
	}
	if c.asked == nil {
		c.asked = map[string]*asked{}
	}
	c.asked[string(id)] = a
	c.stand()
	c.mu.Unlock()
	withdraw := to.Ask(q, func(m *jsonrpc.Message) {
		if c.settle(string(id), a) {
			c.send(m, id, Outgoing{})
		}
	})
	c.mu.Lock()
	a.withdraw = withdraw
	late, why := c.err != nil || a.back, a.why
	c.mu.Unlock()
	if late && withdraw != nil {
		withdraw(why) // the connection ended, or the server thought better of it, between the two locks
	}
}

// settle removes a question. It reports whether it was still there.
func (c *Conn) settle(id string, a *asked) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked[id] != a {
		return false
	}
	delete(c.asked, id)
	c.goOn()
	return true
}

// Stand has the limits of all calls stand still, as if there were a question, until end is
// called: what they carry waits for a person to sign in, before it can go out.
func (c *Conn) Stand() (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stand()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.err == nil { // otherwise there are no calls any more
			c.goOn()
		}
	}
}

// stand has limits stand still for one reason more; goOn ends that. The caller holds c.mu.
func (c *Conn) stand() {
	if c.waiting == 0 {
		c.asking = time.Now()
	}
	c.waiting++
}

func (c *Conn) goOn() {
	c.heard = time.Now()
	c.stood = c.standing(c.heard)
	c.asking = c.heard
	c.waiting--
}

// withdraw takes back a question that the server has cancelled, for the reason
// that it has given.
func (c *Conn) withdraw(id, why string) {
	c.mu.Lock()
	a := c.asked[id]
	c.mu.Unlock()
	if a == nil || !c.settle(id, a) {
		return
	}
	c.mu.Lock()
	a.back, a.why = true, why
	withdraw := a.withdraw
	c.mu.Unlock()
	if withdraw != nil { // otherwise ask sees the mark and does it
		withdraw(why)
	}
}
