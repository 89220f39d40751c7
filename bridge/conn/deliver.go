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

// Deliver handles the next message of the transport, and takes the message over. It does not block.
func (c *Conn) Deliver(m *jsonrpc.Message) { c.DeliverOn(0, m) }

// DeliverOn is Deliver for a message from the stream of the call of that number. The message must be about that call. 0
// means that the stream belongs to no call.
func (c *Conn) DeliverOn(on int64, m *jsonrpc.Message) {
	c.show(false, m.ID, m)
	if m.IsResponse() {
		n, _ := number(m.ID) // 0 is the number of no call
		c.answer(n, m)       // ignores a late answer, and an answer to no call
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
	case m.ID == nil && era.ReportsChange(m.Method): // all users of the connection get it; the cache gets it first
		c.rest.Notify(m)
	case m.ID == nil:
		c.client(on).Notify(m)
	case m.Method == "ping": // each side of the bridge has pings of its own
		c.send(jsonrpc.NewResult(nil, []byte("{}")), m.ID, Outgoing{})
	default:
		c.ask(m, c.client(on))
	}
}

// client returns the client of the call of that number. Without such a call, it returns the client for messages that
// belong to no call.
func (c *Conn) client(call int64) bridge.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.calls[call]; w != nil && w.back != nil {
		return w.back
	}
	return c.rest
}

// notifyModern handles a notification of a modern server. The notification is about the subscription that it names, or
// about the call on whose stream it came. A subscription that has a stream of its own gets only notifications from that
// stream. notifyModern ignores a request, which the protocol forbids.
func (c *Conn) notifyModern(on int64, m *jsonrpc.Message) {
	switch {
	case m.ID != nil:
		return
	case m.Method == "notifications/cancelled":
		if on == 0 { // where each call has a stream, the end of the stream ends the subscription
			c.close(m.RequestID())
		}
		return
	}
	if raw := gjson.GetBytes(m.Meta(), gjson.Escape(era.KeySubscription)).Raw; raw != "" {
		n, err := number([]byte(raw))
		if err != nil || on != 0 && n != on {
			return // no id of the bridge, or another stream
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

// close ends the subscription with that id as its answer would do, since a server may end a subscription by a mere
// cancellation (protocol.md B10). It does not end other calls.
func (c *Conn) close(id []byte) {
	n, err := number(id)
	if err != nil {
		return // no id of the bridge
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

// onlyLogged returns the call in flight whose request asks for log messages, if there is exactly one. The caller holds
// c.mu.
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

// Unanswerable settles the call of that raw id with an error, because its answer is too large. It ignores an id of no
// call.
func (c *Conn) Unanswerable(id []byte, public string) {
	if n, err := number(id); err == nil {
		c.answer(n, c.fault(public, "upstream_too_large"))
	}
}

// brokenGrace is how long after a malformed answer the real answer may come. Some servers also print their answers for
// debugging.
const brokenGrace = time.Second

// Invalid handles a text of the transport that is not a message. err is the error of jsonrpc.Parse. If the text seems
// to be the answer to a call, that call gets an error, unless another answer comes within brokenGrace. If the text
// seems to be a request, a legacy server gets an error, but a modern server gets no answer. Other texts are
// noise, such as log lines in JSON. answer reports whether the text seems to be an answer.
func (c *Conn) Invalid(text []byte, err error) (answer bool) {
	var f jsonrpc.Finder // tells answers from requests, whose ids may be equal
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

// unlessAnswered settles the call of that raw id with m, an error about its answer, unless the answer comes within
// brokenGrace. It ignores a second error about the same call.
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

// number returns the number of a raw id or token of the bridge. Some servers return numbers as strings.
func number(raw []byte) (int64, error) {
	return strconv.ParseInt(string(jsonrpc.Integer(raw)), 10, 64)
}

// answer settles the call of that number with m, and takes m over. If the call is settled already, answer releases m.
func (c *Conn) answer(n int64, m *jsonrpc.Message) {
	if w, ok := c.take(n); ok {
		w.answer <- m
		return
	}
	m.Release()
}

// fault returns the error message for a call whose answer cannot be used.
func (c *Conn) fault(public, kind string) *jsonrpc.Message {
	return jsonrpc.NewError(nil, jsonrpc.CodeInternal, "server "+c.server+": "+public, []byte(`{"bridge":"`+kind+`"}`))
}

func (c *Conn) progress(m *jsonrpc.Message) {
	n, err := number(m.Token())
	if err != nil {
		return // no token of the bridge
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

// settle removes a question, and reports whether the question was open.
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

// HoldTimeouts pauses the time-outs of all calls until end is called. Callers use it while a person signs in and a
// request cannot be sent.
func (c *Conn) HoldTimeouts() (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holdClocks()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.err == nil { // an ended connection has no calls
			c.resumeClocks()
		}
	}
}

// holdClocks adds a reason to pause time-outs, and resumeClocks removes one. The caller holds c.mu.
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

// withdraw withdraws a question at the client, because the server cancelled it for the reason why.
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
	if withdraw != nil { // otherwise ask sees back, and withdraws the question
		withdraw(why)
	}
}
