package lower

import (
	"bytes"
	"context"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Resume continues a parked call. A call that cannot be resumed is refused, and never repeated.
func (s *Server) Resume(ctx context.Context, r *bridge.Request, round *Round) (*jsonrpc.Message, error) {
	s.mu.Lock()
	c := s.parked[round.ours.Call]
	s.mu.Unlock()
	if c == nil {
		return jsonrpc.InvalidParams("the call of this requestState no longer exists: its answer was fetched, or it was cancelled or has expired"), nil
	}
	v := newRequest(r)
	// If the call has ended, its connection may be closed. The client still gets the answer.
	if c.runs() {
		if err := c.l.raiseLevel(ctx, v, c.s); err != nil && ctx.Err() != nil {
			return nil, err
		}
	}
	no, replies := c.attach(v, round)
	if no != nil {
		return no, nil
	}
	for _, f := range replies {
		f()
	}
	return c.await(ctx, v)
}

// runs reports whether the call is in flight and not dropped.
func (p *parked) runs() bool {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	return !p.over && !p.dropped
}

// attach makes v the call's request and takes its answers to the questions. replies pass them to the server. no
// is the error of a request that cannot resume the call.
func (p *parked) attach(v *request, again *Round) (no *jsonrpc.Message, replies []func()) {
	l, round := p.l, again.ours.Round
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case p.dropped:
		return jsonrpc.InvalidParams("the call of this requestState has expired or was cancelled"), nil
	case p.request != nil:
		return jsonrpc.InvalidParams("another request already waits with this requestState"), nil
	case round != p.round && round != p.round-1:
		return jsonrpc.InvalidParams("this requestState is not the last one of its call"), nil
	case p.over: // its answers come too late
		p.deliver(v)
		return nil, nil
	case round != p.round && p.shown > 0: // its answers were taken, but the next questions were lost
		p.arm()
		v.out <- outcome{answer: p.questions(), parked: true}
		return nil, nil
	case round != p.round:
		p.resumed(v)
		return nil, nil
	}
	asked := p.shown > 0
	answered := map[*question]*jsonrpc.Message{}
	for _, a := range p.open[:p.shown] {
		given := again.answer(a.key)
		if !given.Exists() {
			continue
		}
		raw := rawjson.OneLine([]byte(given.Raw))
		if what := era.WellFormedAnswer(a.method, raw); what != "" {
			return jsonrpc.InvalidParams("inputResponses." + a.key + ": " + what), nil
		}
		answered[a] = serverAnswer(a.method, raw, p.s.Revision)
	}
	for _, a := range p.barred(v.r.From.Capabilities, answered) {
		replies = append(replies, func() {
			a.reply(jsonrpc.NewError(nil, jsonrpc.CodeInvalidParams, "the client no longer has the capability for this question", nil))
		})
	}
	if asked && len(answered) == 0 && p.shown > 0 { // ask again
		p.allowed = v.r.From.Capabilities
		p.park()
		v.out <- outcome{answer: p.questions(), parked: true}
		return nil, replies
	}
	left := p.open[:0:0]
	for _, a := range p.open {
		if m := answered[a]; m != nil {
			replies = append(replies, func() { a.reply(m) })
		} else {
			left = append(left, a)
		}
	}
	p.open, p.shown = left, 0
	p.resumed(v)
	for _, h := range l.releaseHeld() {
		replies = append(replies, func() { h.put(p) })
	}
	return nil, replies
}

// barred removes and returns the unanswered questions that a client with those capabilities cannot be asked
// . The caller holds l.mu.
func (p *parked) barred(capabilities []byte, answered map[*question]*jsonrpc.Message) (out []*question) {
	if bytes.Equal(capabilities, p.allowed) {
		return nil
	}
	left, shown := p.open[:0:0], 0
	for i, a := range p.open {
		if answered[a] == nil {
			if _, no := era.Question(a.method, a.params, era.LatestModern, era.LatestModern, capabilities, nil); no != nil {
				out = append(out, a)
				continue
			}
		}
		left = append(left, a)
		if i < p.shown {
			shown++
		}
	}
	p.open, p.shown = left, shown
	return out
}

// resumed makes v the call's request. The caller holds l.mu.
func (p *parked) resumed(v *request) {
	l := p.l
	l.order++
	p.order, p.request, p.allowed = l.order, v, v.r.From.Capabilities
	l.requests[v] = struct{}{}
	if n := p.progress; n != nil {
		p.progress = nil
		p.notify(n)
	}
	if len(p.open) > 0 {
		p.gather()
	}
}

func (r *Round) answer(key string) (found gjson.Result) {
	if r.answers.IsObject() {
		r.answers.ForEach(func(name, value gjson.Result) bool {
			if name.Str == key {
				found = value
			}
			return !found.Exists()
		})
	}
	return found
}

// serverAnswer returns a client's answer in the server's revision.
func serverAnswer(method string, raw []byte, revision string) *jsonrpc.Message {
	result, no := era.Answer(method, raw, era.LatestModern, revision)
	if no != nil {
		return jsonrpc.NewError(nil, no.Code, no.Message, no.Data)
	}
	return jsonrpc.NewResult(nil, result)
}

// park adds a parked call. It reports false if there are too many. The caller holds the lock of the call's
// translator.
func (s *Server) park(id string, c *parked) bool {
	principal := c.principal()
	most := MaxParked
	if principal == "" { // all clients share the empty principal
		most = maxParkedInAll
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.waiting[principal] >= most || len(s.parked) >= 2*maxParkedInAll {
		return false
	}
	s.parked[id] = c
	s.waiting[principal]++
	return true
}

// unpark removes a resumable call. The caller holds the lock of the call's translator.
func (s *Server) unpark(c *parked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parked[c.id] == c {
		delete(s.parked, c.id)
	}
	s.settle(c)
	s.keptBytes -= c.bytes
	c.bytes = 0
}

// settle ends the count of the call as waiting for its client. The caller holds s.mu.
func (s *Server) settle(c *parked) {
	if c.settled {
		return
	}
	c.settled = true
	principal := c.principal()
	if s.waiting[principal]--; s.waiting[principal] == 0 {
		delete(s.waiting, principal)
	}
}

func (p *parked) principal() string { return p.r.From.Principal }

// keep counts a delivered answer. If such answers take too many bytes, it discards the call. The caller holds
// the lock of the call's translator.
func (s *Server) keep(c *parked) {
	s.mu.Lock()
	s.settle(c)
	size := 0
	if c.answer != nil {
		size = c.answer.Len()
	}
	room := s.keptBytes+size <= maxKeptAnswers && len(s.parked) <= maxParkedInAll
	if room {
		c.bytes = size
		s.keptBytes += size
	}
	s.mu.Unlock()
	if !room {
		c.discard()
	}
}

// EvictStale drops the principal's call that has waited longest for its client. A call that its server has ended
// goes before all others, unless running excludes it: it needs no connection. EvictStale reports false if no call
// has waited for staleAfter.
func (s *Server) EvictStale(principal string, running bool) bool {
	s.mu.Lock()
	all := make([]*parked, 0, len(s.parked))
	for _, c := range s.parked {
		if c.principal() == principal {
			all = append(all, c)
		}
	}
	s.mu.Unlock()
	var oldest *parked
	var since time.Duration
	ended := false
	for _, c := range all {
		idle, over := c.idle()
		if idle < staleAfter || over && running || ended && !over {
			continue
		}
		if over && !ended || idle > since {
			oldest, since, ended = c, idle, over
		}
	}
	if oldest == nil || !oldest.drop(bridge.ErrCancelled, oldest.waits) {
		return false
	}
	s.warn("parked call evicted for another one", "method", oldest.r.Method, "waited", since.Round(time.Second))
	return true
}

// warn logs a frequent event, at most once a minute.
func (s *Server) warn(what string, args ...any) {
	s.mu.Lock()
	now := time.Now()
	told := now.Sub(s.warnedAt) < time.Minute
	if !told {
		s.warnedAt = now
	}
	s.mu.Unlock()
	if !told {
		s.o.Log.Warn(what, args...)
	}
}

// Revoke ends a principal's parked calls with that cause.
func (s *Server) Revoke(principal string, why error) {
	s.mu.Lock()
	var its []*parked
	for _, c := range s.parked {
		if c.principal() == principal {
			its = append(its, c)
		}
	}
	s.mu.Unlock()
	for _, c := range its {
		c.drop(why, nil)
	}
}

// Close drops all calls when the bridge has stopped. It allows no more parked calls.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	waiting := s.parked
	s.parked = map[string]*parked{}
	s.mu.Unlock()
	for _, c := range waiting {
		c.drop(bridge.ErrShutdown, nil)
	}
}
