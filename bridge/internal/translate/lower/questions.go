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

// question is a question of the server without an answer.
type question struct {
	key    string
	method string
	params []byte // as clients get them; nil for none
	reply  func(*jsonrpc.Message)

	// Translator.mu guards the rest.
	of      *parked // the call that carries the question
	guessed bool    // the call was guessed
}

// unanswered replies to questions that no client will answer.
func unanswered(asks []*question) {
	for _, q := range asks {
		q.reply(unansweredReply(q.method))
	}
}

// unansweredReply returns the reply to a question that no client answers.
func unansweredReply(method string) *jsonrpc.Message {
	switch method {
	case "elicitation/create":
		return jsonrpc.NewResult(nil, []byte(`{"action":"cancel"}`))
	case "sampling/createMessage":
		return jsonrpc.NewError(nil, -1, "the client did not answer", nil)
	}
	return jsonrpc.NewError(nil, jsonrpc.CodeInternal, "the client did not answer", nil)
}

// Ask takes a question about the call. The question, and others that come within parkWindow, answer the call's
// request.
func (p *parked) Ask(m *jsonrpc.Message, reply func(*jsonrpc.Message)) (withdraw func(why string)) {
	return p.carry(m, reply, false)
}

// carry is Ask. guessed means that the question may be about another call.
func (p *parked) carry(m *jsonrpc.Message, reply func(*jsonrpc.Message), guessed bool) (withdraw func(why string)) {
	if !askable[m.Method] {
		reply(jsonrpc.NewError(nil, jsonrpc.CodeMethodNotFound, "unknown method", nil))
		return nil
	}
	t := p.l
	t.mu.Lock()
	allowed := p.allowed
	t.mu.Unlock()
	params, no := era.Question(m.Method, m.Params, p.s.Revision, era.LatestModern, allowed, func() string { return "" })
	if no != nil {
		if no.Code == jsonrpc.CodeMethodNotFound { // the server may use the method, but not with this client
			no.Code = jsonrpc.CodeInvalidParams
		}
		reply(jsonrpc.NewError(nil, no.Code, no.Message, no.Data))
		return nil
	}
	q := &question{
		method:  m.Method,
		reply:   reply,
		guessed: guessed,
	}
	if params != nil {
		q.params = rawjson.OneLine(params)
	}
	t.mu.Lock()
	full := p.over || p.dropped || len(p.open) >= bridge.MaxQuestions
	if !full {
		p.add(q)
	}
	t.mu.Unlock()
	if full {
		reply(jsonrpc.NewError(nil, jsonrpc.CodeInternal, "the client is gone or has too many unanswered questions", nil))
		return nil
	}
	return func(string) { t.withdraw(q) } // the protocol cannot withdraw a question at the client
}

// add adds a question to the call. The caller holds p.l.mu.
func (p *parked) add(q *question) {
	p.keys++
	q.key, q.of = keyPrefix+strconv.Itoa(p.keys), p
	p.open = append(p.open, q)
	p.gather()
}

// reassign moves guessed questions of an answered call to other calls, because they were not about that call.
// reassign returns the questions without a call. The caller holds t.mu.
func (t *Translator) reassign(asks []*question) (stale []*question) {
	for _, q := range asks {
		if p := t.likeliest(); q.guessed && p != nil && len(p.open) < bridge.MaxQuestions {
			p.add(q)
		} else {
			stale = append(stale, q)
		}
	}
	return stale
}

// gather lets the questions answer the call's request after parkWindow. The caller holds p.l.mu.
func (p *parked) gather() {
	if p.request != nil && p.window == nil {
		p.window = time.AfterFunc(parkWindow, p.ask)
	}
}

// withdraw removes a question. If the client has the question already, its answer is ignored
// (D8.14).
func (t *Translator) withdraw(q *question) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := q.of
	for i, other := range p.open {
		if other != q {
			continue
		}
		p.open = append(p.open[:i:i], p.open[i+1:]...)
		if i < p.shown {
			p.shown--
		}
		return
	}
}

// ask answers the call's request with the questions. If too many calls are parked, ask evicts a stale call. If there
// is no stale call, ask rejects the request, because the bridge never answers for the client.
func (p *parked) ask() {
	s := p.l.s
	if p.put() || s.EvictStale(p.principal(), false) && p.put() {
		return
	}
	t := p.l
	t.mu.Lock()
	if p.request == nil || len(p.open) == 0 {
		t.mu.Unlock()
		return
	}
	most := MaxParked
	if p.principal() == "" {
		most = maxParkedInAll
	}
	r := p.request
	p.detach()
	r.out <- outcome{err: s.o.Queue.Refusal("%s", bridge.OverLimit("the server asks its client a question, and too many calls are parked", most))}
	stale := p.discard()
	t.mu.Unlock()
	unanswered(stale)
	p.cancel(bridge.ErrCancelled)
	s.warn("call refused: the server asks its client a question, and too many calls are parked", "method", p.r.Method, "max", most)
}

// put answers the call's request with the call's questions, if there are a request and questions. put reports false
// if too many calls are parked.
func (p *parked) put() bool {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	p.window = nil
	r := p.request
	if r == nil || len(p.open) == 0 {
		return true
	}
	if !p.park() {
		return false
	}
	o := outcome{answer: p.questions(), parked: true}
	p.detach()
	r.out <- o
	return true
}

// park makes the call resumable. park reports false if too many calls are parked. The caller holds p.l.mu.
func (p *parked) park() bool {
	if p.id == "" {
		name := rand.Text()
		if !p.l.s.park(name, p) {
			return false
		}
		p.id, p.digest = name, digest(p.r.Message)
	}
	p.round++
	p.shown = len(p.open)
	p.arm()
	return true
}

// questions returns the result that asks the client. The caller holds p.l.mu.
func (p *parked) questions() *jsonrpc.Message {
	var b strings.Builder
	b.WriteString(`"resultType":"input_required","inputRequests":{`)
	for i, q := range p.open[:p.shown] {
		if i > 0 {
			b.WriteByte(',')
		}
		params := q.params
		if params == nil {
			params = []byte("{}") // the Go SDK's client fails without params
		}
		b.WriteString(`"` + q.key + `":{"method":"` + q.method + `","params":` + string(params) + `}`)
	}
	state := p.l.s.sealed(&p.r, state{
		Kind:    stateParked,
		Method:  p.r.Method,
		Digest:  p.digest,
		Expires: p.expires.Unix(),
		Call:    p.id,
		Round:   p.round,
	})
	b.WriteString(`},"requestState":"` + state + `"`)
	return p.s.enveloped(b.String())
}
