package lower

import (
	"errors"
	"slices"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// askable holds the questions that a stateless client can be asked.
var askable = map[string]bool{"sampling/createMessage": true, "elicitation/create": true, "roots/list": true}

// keyTask is the member of _meta that names a message's task (2025-11-25, tasks).
const keyTask = "io.modelcontextprotocol/related-task"

// Ask takes a question that the wire does not attribute to a call. No client may see a question about another
// client's call. So Ask gives the question to the only call in flight, or rejects it if there are several. If all
// clients share one handle, Ask chooses the likeliest call. A wrong guess only shows the question at the wrong call:
// the answer still reaches the server. If that call ends first, another call carries the question.
func (t *Translator) Ask(m *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	if !t.s.unattributed.Load() && askable[m.Method] {
		t.s.unattributed.Store(true)
	}
	t.mu.Lock()
	p, unclear := t.carrier(m)
	doubted := t.suspicion.suspect
	t.mu.Unlock()
	switch {
	case unclear:
		t.s.warn("question of the server rejected: it names no call, and may be about several or a cancelled one", "method", m.Method)
		if !doubted {
			t.slot.Retire()
		}
		reply(jsonrpc.NewError(nil, jsonrpc.CodeInternal, "several clients share this server, and the question names no call", nil))
		return nil
	case p == nil:
		return t.askWithoutCall(m, reply)
	}
	return p.carry(m, reply, t.of.Keyed)
}

// carrier returns the call that a question is about, or nil. unclear means that the question may be about any of
// several calls, or about a cancelled call. The caller holds t.mu.
func (t *Translator) carrier(m *jsonrpc.Message) (p *parked, unclear bool) {
	id := gjson.GetBytes(m.Meta(), gjson.Escape(keyTask)+".taskId").Str
	n := 0
	for other := range t.asking {
		if id != "" && other.task == id {
			return other, false
		}
		if !other.dropped && !other.over {
			n++
		}
	}
	p = t.likeliest()
	switch {
	case p == nil:
		return nil, false
	case !t.of.Keyed && (n > 1 || t.suspicion.suspect):
		return nil, true
	case p.request == nil && t.busy():
		// The call waits for its client. The question is more likely about a request in flight, which cannot
		// carry it.
		return nil, false
	}
	return p, false
}

// busy reports whether a request in flight cannot carry a question. The caller holds t.mu.
func (t *Translator) busy() bool {
	for r := range t.requests {
		if r.l != nil {
			return true
		}
	}
	return false
}

// suspicion records calls that ended without their answers. Translator.mu guards it.
type suspicion struct {
	cancelled time.Time // when the last of these calls ended
	suspect   bool      // the server may not have read a cancellation yet
	pinging   bool      // confirmCancelled is running
	again     bool      // another call ended since the last ping
}

// abandoned records that a call ended without its answer. Until the server has processed the cancellation, it
// may ask about the call. A server that ignores cancellations may ask even later.
func (t *Translator) abandoned() {
	if t.of.Keyed || t.of.Once || !t.asks || !t.s.o.Alone {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.suspicion.cancelled = time.Now()
	switch {
	case t.closed:
	case t.s.ignoresCancel.Load():
		t.setSuspect(true)
		t.slot.Hold() // keeps the connection open for lingering
		t.slot.Retire()
		time.AfterFunc(lingering, t.slot.Release)
	case t.suspicion.pinging:
		t.suspicion.again = true
	default:
		t.suspicion.pinging = true
		t.setSuspect(true)
		t.wg.Go(t.confirmCancelled)
	}
}

// lingering is how long a server gets to end a cancelled call.
const lingering = 5 * time.Second

// setSuspect records whether the server may ask about a call that has ended. The caller holds t.mu.
func (t *Translator) setSuspect(yes bool) {
	t.suspicion.suspect = yes
	t.slot.Suspect(yes)
}

// confirmCancelled waits for the answer to a ping sent after a cancellation. The answer shows that the server has
// processed the cancellation and ended the call (2025-11-25, Cancellation). If a server with unattributed questions
// does not answer, its connection gets no more requests.
func (t *Translator) confirmCancelled() {
	for wait := lingering; ; wait *= 2 {
		if errors.Is(t.line.Ping(t.ctx, wait), bridge.ErrTimeout) {
			if t.s.unattributed.Load() {
				t.slot.Retire()
				return
			}
			continue
		}
		t.mu.Lock()
		again := t.suspicion.again
		t.suspicion.again, t.suspicion.pinging = false, again
		if !again {
			t.setSuspect(false)
		}
		t.mu.Unlock()
		if !again {
			return
		}
	}
}

// likeliest returns the call that a question is most likely about. That is the last call whose client waits, or else
// the call that was resumed last. The caller holds t.mu.
func (t *Translator) likeliest() (best *parked) {
	for p := range t.asking {
		switch {
		case p.dropped || p.over:
		case best == nil,
			p.request != nil && best.request == nil,
			(p.request != nil) == (best.request != nil) && p.order > best.order:
			best = p
		}
	}
	return best
}

// heldQuestion is a question that waits for a call to carry it.
type heldQuestion struct {
	l         *Translator
	q         *jsonrpc.Message
	reply     func(*jsonrpc.Message)
	timer     *time.Timer
	withdraw  func(why string) // of the call that carries the question; guarded by l.mu
	withdrawn bool             // the server withdrew the question; guarded by l.mu
}

// rootsPatience is how long a question for roots waits for a call.
const rootsPatience = 10 * time.Second

// askWithoutCall takes a question that no call can carry. A client can only be asked in answer to its requests
// . Servers often ask for roots right after initialization, so such a question waits for rootsPatience.
func (t *Translator) askWithoutCall(m *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	if !askable[m.Method] {
		reply(jsonrpc.NewError(nil, jsonrpc.CodeMethodNotFound, "unknown method", nil))
		return nil
	}
	t.mu.Lock()
	if time.Since(t.suspicion.cancelled) < staleAfter && !t.suspicion.suspect && !t.busy() && m.Method != "roots/list" { // a server may ask for roots at any time
		t.s.ignoresCancel.Store(true)
	}
	t.mu.Unlock()
	h := &heldQuestion{l: t, reply: reply}
	if m.Method != "roots/list" || !t.asks || !gjson.GetBytes(t.line.Caller().Capabilities, "roots").Exists() {
		reply(noCallReply(m.Method))
		return nil
	}
	h.q = m.Clone()
	t.mu.Lock()
	full := t.closed || len(t.held) >= bridge.MaxQuestions
	if !full {
		t.held = append(t.held, h)
		h.timer = time.AfterFunc(rootsPatience, h.expire)
	}
	t.mu.Unlock()
	if full {
		reply(noCallReply(m.Method))
		return nil
	}
	return h.retract
}

// noCallReply returns the answer to a question without a call.
func noCallReply(method string) *jsonrpc.Message {
	if method == "roots/list" {
		return jsonrpc.NewError(nil, jsonrpc.CodeInternal, "no request of a client is in flight to carry the question", nil)
	}
	return jsonrpc.NewError(nil, jsonrpc.CodeInvalidParams, "no client request to attach to", nil)
}

// releaseHeld removes and returns the questions that wait for a call. The caller holds t.mu.
func (t *Translator) releaseHeld() []*heldQuestion {
	held := t.held
	t.held = nil
	for _, h := range held {
		h.timer.Stop()
	}
	return held
}

// put makes p carry the question.
func (h *heldQuestion) put(p *parked) {
	withdraw := p.carry(h.q, h.reply, h.l.of.Keyed)
	h.l.mu.Lock()
	h.withdraw = withdraw
	back := h.withdrawn
	h.l.mu.Unlock()
	if back && withdraw != nil {
		withdraw("")
	}
}

// remove removes the question from the waiting questions. remove reports whether the question was there. The caller
// holds h.l.mu.
func (h *heldQuestion) remove() bool {
	i := slices.Index(h.l.held, h)
	if i < 0 {
		return false
	}
	h.l.held = slices.Delete(h.l.held, i, i+1)
	h.timer.Stop()
	return true
}

func (h *heldQuestion) expire() {
	h.l.mu.Lock()
	mine := h.remove()
	h.l.mu.Unlock()
	if mine {
		h.refuse()
	}
}

func (h *heldQuestion) refuse() { h.reply(noCallReply(h.q.Method)) }

func (h *heldQuestion) retract(why string) {
	h.l.mu.Lock()
	h.withdrawn = true
	h.remove()
	withdraw := h.withdraw
	h.l.mu.Unlock()
	if withdraw != nil {
		withdraw(why)
	}
}
