package gateway

import (
	"errors"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// askable are the questions that a client without a session can be asked.
var askable = map[string]bool{"sampling/createMessage": true, "elicitation/create": true, "roots/list": true}

// keyTask is the member of _meta that says which task a message is about
// (2025-11-25, tasks).
const keyTask = "io.modelcontextprotocol/related-task"

// Ask takes a question of which the wire does not say what call it is about. It
// is put only where no client can see another one's question: that of the only
// call there is, or, on a connection that its clients have chosen and are as one,
// a guess. A wrong guess shows the question at the wrong call and no more: its
// answer goes back to where it came from, and when the server is done with that
// call before, another one carries it.
func (l *lower) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	if !l.p.stray.Load() && askable[q.Method] {
		l.p.stray.Store(true)
	}
	l.mu.Lock()
	c, doubt := l.carrier(q)
	l.mu.Unlock()
	switch {
	case doubt:
		l.p.warn("a question of the server's was refused: it does not say which call it is about, and it may be one of several, or one that was cancelled", "method", q.Method)
		if !l.doubted.Load() {
			l.p.part(l)
		}
		reply(jsonrpc.NewError(nil, jsonrpc.CodeInternal, "several clients share this server and it cannot be told which of them to ask", nil))
		return nil
	case c == nil:
		return l.stray(q, reply)
	}
	return c.carry(q, reply, l.keyed)
}

// carrier returns the call that a question is about, if there is one. doubt says
// that it may be about several. The caller holds l.mu.
func (l *lower) carrier(q *jsonrpc.Message) (c *parked, doubt bool) {
	if id := gjson.GetBytes(q.Meta(), gjson.Escape(keyTask)+".taskId").Str; id != "" {
		if c := l.tasks[id]; c != nil {
			return c, false
		}
	}
	n := 0
	for other := range l.asking {
		if !other.gone && !other.over {
			n++
		}
	}
	c = l.likeliest()
	switch {
	case c == nil:
		return nil, false
	case !l.keyed && (n > 1 || l.doubted.Load()):
		return nil, true
	case c.visit == nil && l.busy():
		// The call waits for its client. What is under way is rather what the
		// question is about, and cannot carry it.
		return nil, false
	}
	return c, false
}

// busy reports whether a request is under way that cannot carry a question. The
// caller holds l.mu.
func (l *lower) busy() bool {
	for v := range l.visits {
		if v.l != nil {
			return true
		}
	}
	return false
}

// doubt notes that a call has ended without its answer: the server may ask about
// it until it has heard of the cancellation, and a heedless one later as well.
func (l *lower) doubt() {
	if l.keyed || l.once || !l.asks || l.p.r.share != ShareSession {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancelled = time.Now()
	switch {
	case l.p.heedless.Load():
		l.doubted.Store(true)
		l.p.linger(l)
	case l.closed:
	case l.settling:
		l.again = true
	default:
		l.settling = true
		l.doubted.Store(true)
		l.wg.Go(l.settle)
	}
}

// settle waits until the server has answered a ping that was sent behind the
// cancellation of a call, and so knows of it: then it is done with the call
// (2025-11-25, Cancellation). Where a server that asks gives no answer, the
// connection is not used any more.
func (l *lower) settle() {
	for wait := lingering; ; wait *= 2 {
		if w := l.lane.current(); w != nil && errors.Is(w.Ping(l.ctx, wait), bridge.ErrTimeout) {
			if l.p.stray.Load() {
				l.p.part(l)
				l.p.settled() // who waits for it finds another
				return
			}
			continue
		}
		l.mu.Lock()
		again := l.again
		l.again, l.settling = false, again
		if !again {
			l.doubted.Store(false)
		}
		l.mu.Unlock()
		if !again {
			l.p.settled()
			return
		}
	}
}

// likeliest returns the call that a question is most likely about: the last one
// sent of those whose clients wait, else the one that was resumed last. The
// caller holds l.mu.
func (l *lower) likeliest() (best *parked) {
	for c := range l.asking {
		switch {
		case c.gone || c.over:
		case best == nil,
			c.visit != nil && best.visit == nil,
			(c.visit != nil) == (best.visit != nil) && c.order > best.order:
			best = c
		}
	}
	return best
}

// heldAsk is a question about no call that waits for one to come.
type heldAsk struct {
	l        *lower
	q        *jsonrpc.Message
	reply    func(*jsonrpc.Message)
	timer    *time.Timer
	withdraw func(why string) // of the call that has taken it; guarded by l.mu
	back     bool             // the server took it back; guarded by l.mu
}

// rootsPatience is how long a question for roots waits for a call that can carry
// it.
const rootsPatience = 10 * time.Second

// stray takes a question that no call can carry: the client cannot be asked but
// in answer to its requests. Servers like to ask for roots as soon as
// they are initialized, so that is worth waiting for a moment.
func (l *lower) stray(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	if !askable[q.Method] {
		reply(jsonrpc.NewError(nil, jsonrpc.CodeMethodNotFound, "unknown method", nil))
		return nil
	}
	l.mu.Lock()
	if time.Since(l.cancelled) < abandoned && !l.doubted.Load() && !l.busy() && q.Method != "roots/list" { // roots are what a server asks for at any time
		l.p.heedless.Store(true)
	}
	l.mu.Unlock()
	h := &heldAsk{l: l, reply: reply}
	if q.Method != "roots/list" || !l.asks || !gjson.GetBytes(l.lane.caller.Capabilities, "roots").Exists() {
		reply(strayed(q.Method))
		return nil
	}
	h.q = q.Clone()
	l.mu.Lock()
	full := l.closed || len(l.held) >= bridge.MaxQuestions
	if !full {
		l.held = append(l.held, h)
		h.timer = time.AfterFunc(rootsPatience, h.expire)
	}
	l.mu.Unlock()
	if full {
		reply(strayed(q.Method))
		return nil
	}
	return h.takeBack
}

// strayed is the answer to a question that there is no call for.
func strayed(method string) *jsonrpc.Message {
	if method == "roots/list" {
		return jsonrpc.NewError(nil, jsonrpc.CodeInternal, "there is no request of a client that could carry the question", nil)
	}
	return jsonrpc.NewError(nil, jsonrpc.CodeInvalidParams, "no client request to attach to", nil)
}

// releaseHeld returns the questions that wait for a call. The caller holds l.mu.
func (l *lower) releaseHeld() []*heldAsk {
	held := l.held
	l.held = nil
	for _, h := range held {
		h.timer.Stop()
	}
	return held
}

// put makes a call carry the question.
func (h *heldAsk) put(c *parked) {
	withdraw := c.carry(h.q, h.reply, h.l.keyed)
	h.l.mu.Lock()
	h.withdraw = withdraw
	back := h.back
	h.l.mu.Unlock()
	if back && withdraw != nil {
		withdraw("")
	}
}

// remove takes the question from those that wait. It reports whether it was
// there.
func (h *heldAsk) remove() bool {
	for i, other := range h.l.held {
		if other == h {
			h.l.held = append(h.l.held[:i:i], h.l.held[i+1:]...)
			h.timer.Stop()
			return true
		}
	}
	return false
}

func (h *heldAsk) expire() {
	h.l.mu.Lock()
	mine := h.remove()
	h.l.mu.Unlock()
	if mine {
		h.refuse()
	}
}

func (h *heldAsk) refuse() {
	h.timer.Stop()
	h.reply(strayed(h.q.Method))
}

func (h *heldAsk) takeBack(why string) {
	h.l.mu.Lock()
	h.back = true
	h.remove()
	withdraw := h.withdraw
	h.l.mu.Unlock()
	if withdraw != nil {
		withdraw(why)
	}
}
