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

// Deliver handles the next message of the wire, and owns it. It does not block.
func (c *Conn) Deliver(m *jsonrpc.Message) { c.DeliverOn(0, m) }

// DeliverOn is Deliver for a message from the stream of the call of that number, to which it must
// belong. 0 means that the call, if any, is unknown.
func (c *Conn) DeliverOn(on int64, m *jsonrpc.Message) {
	c.show(false, m.ID, m)
	if m.IsResponse() {
		n, _ := number(m.ID) // 0, which is no call's, if it is not one of ours
		c.answer(n, m)       // late, or of no call
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
		c.notifyModern(on, m)
	case m.Method == "notifications/cancelled" && m.ID == nil:
		c.withdraw(string(m.RequestID()), bridge.CancelReason(m))
	case m.ID == nil && era.ReportsChange(m.Method): // all users of the connection get it, the cache first
		c.rest.Notify(m)
	case m.ID == nil:
		c.client(on).Notify(m)
	case m.Method == "ping": // liveness is per hop
		c.send(jsonrpc.NewResult(nil, []byte("{}")), m.ID, Outgoing{})
	default:
		c.ask(m, c.client(on))
	}
}

// client returns the client that made the call of that number, otherwise the client of messages
// that belong to no call.
func (c *Conn) client(call int64) bridge.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.calls[call]; w != nil && w.back != nil {
		return w.back
	}
	return c.rest
}

// notifyModern handles a notification of a modern server. It belongs to the subscription that it names, or
// to the call on whose stream it came. A subscription has a stream of its own, and its events must
// come there. A request is against the protocol, and gets no answer.
func (c *Conn) notifyModern(on int64, m *jsonrpc.Message) {
	switch {
	case m.ID != nil:
		return
	case m.Method == "notifications/cancelled":
		if on == 0 { // where each call has a stream, the end of the stream closes it
			c.close(m.RequestID())
		}
		return
	}
	if raw := gjson.GetBytes(m.Meta(), gjson.Escape(era.KeySubscription)).Raw; raw != "" {
		n, err := number([]byte(raw))
		if err != nil || on != 0 && n != on {
			return // not one of our ids, or another stream
		}
		on = n
	}
	c.mu.Lock()
	w := c.calls[on]
	if on == 0 && m.Method == "notifications/message" {
		w = c.onlyLogged()
	}
	c.mu.Unlock()
	if w != nil && w.back != nil {
		w.back.Notify(m)
	}
}

// close ends the subscription with that id as its answer would: a server may end one with only a
// cancellation (protocol.md B10). Other calls cannot be ended so.
func (c *Conn) close(id []byte) {
	n, err := number(id)
	if err != nil {
		return // not one of our ids
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

// onlyLogged returns the only call in flight whose client requests log messages, if there is exactly one. The caller
// holds c.mu.
func (c *Conn) onlyLogged() (only *call) {
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

// Unanswerable settles the call of that raw id with an error: its answer is too large. It ignores
// an id of no call.
func (c *Conn) Unanswerable(id []byte, public string) {
	if n, err := number(id); err == nil {
		c.answer(n, c.fault(public, "upstream_too_large"))
	}
}

// brokenGrace is how long the answer to a call may come after a malformed one. Some servers also
// print their answers for debugging.
const brokenGrace = time.Second

// Invalid handles a text of the wire that is not a message; err is the error of jsonrpc.Parse. If
// it seems to be the answer to a call, that call gets an error, unless another answer comes soon.
// If it was meant as a request, a legacy server gets an error; a modern one gets no answer.
// Other texts are noise, such as log lines in JSON. Invalid reports whether it seems to be an
// answer.
func (c *Conn) Invalid(text []byte, err error) (answer bool) {
	var f jsonrpc.Finder // distinguishes answers from requests, whose ids are independent
	_, _ = f.Write(jsonrpc.Bare(text))
	bad, invalid := errors.AsType[*jsonrpc.InvalidError](err)
	versioned := invalid && gjson.GetBytes(text, "jsonrpc").Exists()
	if id := f.ID(); id != nil && (f.Answers() || versioned) {
		c.unlessAnswered(id, c.fault("its answer is "+err.Error(), "upstream_invalid"))
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

// unlessAnswered settles the call of that raw id with m, an error about its answer, unless its
// answer comes within brokenGrace. Only the first error counts.
func (c *Conn) unlessAnswered(id []byte, m *jsonrpc.Message) {
	n, _ := number(id)
	c.mu.Lock()
	w := c.calls[n]
	first := w != nil && !w.broken
	if first {
		w.broken = true
	}
	c.mu.Unlock()
	if !first {
		m.Release()
		return
	}
	time.AfterFunc(brokenGrace, func() { c.answer(n, m) })
}

// number returns the number of a raw id or token of ours. Some servers return numbers as text.
func number(raw []byte) (int64, error) {
	return strconv.ParseInt(string(jsonrpc.Integer(raw)), 10, 64)
}

// answer settles the call of that number with m, which it owns, unless it is settled.
func (c *Conn) answer(n int64, m *jsonrpc.Message) {
	if w, ok := c.take(n); ok {
		w.answer <- m
		return
	}
	m.Release()
}

// fault returns the error of a call whose answer cannot be used.
func (c *Conn) fault(public, kind string) *jsonrpc.Message {
	return jsonrpc.NewError(nil, jsonrpc.CodeInternal, "server "+c.server+": "+public, []byte(`{"bridge":"`+kind+`"}`))
}

func (c *Conn) progress(m *jsonrpc.Message) {
	n, err := number(m.Token())
	if err != nil {
		return // not one of our ids
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
		return // impossible: both halves were parsed before
	}
	w.back.Notify(mine)
}

func (c *Conn) ask(q *jsonrpc.Message, to bridge.Client) {
	id, method := append([]byte(nil), q.ID...), q.Method
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
	c.holdClocks()
	c.mu.Unlock()
	withdraw := to.Ask(q, func(m *jsonrpc.Message) {
		if c.settle(string(id), a) {
			if result, changed := withoutNulls(m, method, false); changed {
				m = m.WithResult(result)
			}
			c.send(m, id, Outgoing{})
		}
	})
	c.mu.Lock()
	a.withdraw = withdraw
	late, why := c.err != nil || a.back, a.why
	c.mu.Unlock()
	if late && withdraw != nil {
		withdraw(why) // the connection ended, or the server cancelled the question, between the two locks
	}
}

// settle removes a question. It reports whether the question was open.
func (c *Conn) settle(id string, a *asked) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked[id] != a {
		return false
	}
	delete(c.asked, id)
	c.resumeClocks()
	return true
}

// HoldTimeouts makes the time-outs of all calls stand still until end is called. A caller uses it while a request waits
// for a person to sign in, and cannot be sent before that.
func (c *Conn) HoldTimeouts() (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holdClocks()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.err == nil { // otherwise no calls are left
			c.resumeClocks()
		}
	}
}

// holdClocks adds a reason for time-outs to stand still; resumeClocks removes one. The caller holds c.mu.
func (c *Conn) holdClocks() {
	if c.pauses == 0 {
		c.pausedAt = time.Now()
	}
	c.pauses++
}

func (c *Conn) resumeClocks() {
	c.resumedAt = time.Now()
	c.paused = c.pausedFor(c.resumedAt)
	c.pausedAt = c.resumedAt
	c.pauses--
}

// withdraw withdraws a question that the server has cancelled, for the reason why.
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
	if withdraw != nil { // otherwise ask sees the mark and withdraws it
		withdraw(why)
	}
}
