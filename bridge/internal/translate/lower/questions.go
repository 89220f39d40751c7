package lower

import (
	"crypto/rand"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// question is a question of the server's that has no answer yet.
type question struct {
	key    string
	method string
	params []byte // as the client gets them; nil when there are none
	reply  func(*jsonrpc.Message)

	// Guarded by Translator.mu.
	of      *parked // the call that carries it
	guessed bool    // that it is about that call
}

// unanswered replies to questions that nobody will answer.
func unanswered(asks []*question) {
	for _, a := range asks {
		a.reply(unansweredReply(a.method))
	}
}

// unansweredReply is the answer to a question that nobody answers.
func unansweredReply(method string) *jsonrpc.Message {
	switch method {
	case "elicitation/create":
		return jsonrpc.NewResult(nil, []byte(`{"action":"cancel"}`))
	case "sampling/createMessage":
		return jsonrpc.NewError(nil, -1, "the client did not answer", nil)
	}
	return jsonrpc.NewError(nil, jsonrpc.CodeInternal, "the client did not answer", nil)
}

// Ask takes a question of the server's about the call. The request that waits
// is answered with it, and with what else is asked at the same moment.
func (c *parked) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) (withdraw func(why string)) {
	return c.carry(q, reply, false)
}

// carry is Ask. guessed says that the question may be about another call.
func (c *parked) carry(q *jsonrpc.Message, reply func(*jsonrpc.Message), guessed bool) (withdraw func(why string)) {
	if !askable[q.Method] {
		reply(jsonrpc.NewError(nil, jsonrpc.CodeMethodNotFound, "unknown method", nil))
		return nil
	}
	l := c.l
	l.mu.Lock()
	allowed := c.allowed
	l.mu.Unlock()
	params, no := era.Question(q.Method, q.Params, c.s.Revision, era.LatestModern, allowed, func() string { return "" })
	if no != nil {
		if no.Code == jsonrpc.CodeMethodNotFound { // it knows the method, and cannot ask this client
			no.Code = jsonrpc.CodeInvalidParams
		}
		reply(jsonrpc.NewError(nil, no.Code, no.Message, no.Data))
		return nil
	}
	a := &question{method: q.Method, reply: reply, guessed: guessed}
	if params != nil {
		a.params = rawjson.OneLine(params)
	}
	l.mu.Lock()
	full := c.over || c.gone || len(c.open) >= bridge.MaxQuestions
	if !full {
		c.add(a)
	}
	l.mu.Unlock()
	if full {
		reply(jsonrpc.NewError(nil, jsonrpc.CodeInternal, "the client has gone, or has too many questions to answer", nil))
		return nil
	}
	return func(string) { l.withdraw(a) } // there is no way to tell the client, nor why
}

// add makes the call carry the question. The caller holds l.mu.
func (c *parked) add(a *question) {
	c.keys++
	a.key, a.of = keyPrefix+strconv.Itoa(c.keys), c
	c.open = append(c.open, a)
	c.gather()
}

// passOn finds other calls for questions whose call the server has answered
// without waiting for them: they were about another one. It returns those that
// nobody will answer. The caller holds l.mu.
func (l *Translator) passOn(asks []*question) (moot []*question) {
	for _, a := range asks {
		if c := l.likeliest(); a.guessed && c != nil && len(c.open) < bridge.MaxQuestions {
			c.add(a)
		} else {
			moot = append(moot, a)
		}
	}
	return moot
}

// gather answers the request that waits with the questions, in a moment. The
// caller holds l.mu.
func (c *parked) gather() {
	if c.request != nil && c.window == nil {
		c.window = time.AfterFunc(parkWindow, c.ask)
	}
}

// withdraw takes back a question. When the client knows of it already, its
// answer will be ignored (D8.14).
func (l *Translator) withdraw(a *question) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := a.of
	for i, other := range c.open {
		if other != a {
			continue
		}
		c.open = append(c.open[:i:i], c.open[i+1:]...)
		if i < c.shown {
			c.shown--
		}
		return
	}
}

// ask answers the request that waits with the questions that there are. When too
// many calls wait for their clients, one that nobody has come back to for long
// gives way; otherwise the request is refused: nobody answers in its client's name.
func (c *parked) ask() {
	s := c.l.s
	if c.put() || s.GiveWay(c.principal()) && c.put() {
		return
	}
	l := c.l
	l.mu.Lock()
	if c.request == nil || len(c.open) == 0 {
		l.mu.Unlock()
		return
	}
	most := MaxParked
	if c.principal() == "" {
		most = maxParkedInAll
	}
	v := c.request
	c.detach()
	v.out <- outcome{err: s.o.Refusal("%s", bridge.OverLimit("the server asks its client something, and too many calls wait for their clients already", most))}
	moot := c.discard()
	l.mu.Unlock()
	unanswered(moot)
	c.cancel(bridge.ErrCancelled)
	s.warn("a call was refused: the server asks its client something, and too many calls wait for their clients already", "method", c.r.Method, "max", most)
}

// put answers the request that waits with the questions that there are, if both
// are there. It reports false when too many calls are parked.
func (c *parked) put() bool {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.window = nil
	v := c.request
	if v == nil || len(c.open) == 0 {
		return true
	}
	if !c.park() {
		return false
	}
	o := outcome{answer: c.questions(), parked: true}
	c.detach()
	v.out <- o
	return true
}

// park makes the call one that can be resumed. It reports false when there are
// too many of those. The caller holds l.mu.
func (c *parked) park() bool {
	if c.id == "" {
		name := rand.Text()
		if !c.l.s.park(name, c) {
			return false
		}
		c.id, c.digest = name, digest(c.r.Message)
	}
	c.round++
	c.shown = len(c.open)
	c.arm()
	return true
}

// questions is the answer that asks for answers. The caller holds l.mu.
func (c *parked) questions() *jsonrpc.Message {
	var b strings.Builder
	b.WriteString(`"resultType":"input_required","inputRequests":{`)
	for i, a := range c.open[:c.shown] {
		if i > 0 {
			b.WriteByte(',')
		}
		params := a.params
		if params == nil {
			params = []byte("{}") // the Go SDK's client fails without
		}
		b.WriteString(`"` + a.key + `":{"method":"` + a.method + `","params":` + string(params) + `}`)
	}
	state := c.l.s.sealed(&c.r, state{Kind: stateParked, Method: c.r.Method, Digest: c.digest, Expires: c.expires.Unix(), Call: c.id, Round: c.round})
	b.WriteString(`},"requestState":"` + state + `"`)
	return c.s.enveloped(b.String())
}
