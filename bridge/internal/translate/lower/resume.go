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
	p := s.parked[round.ours.Call]
	s.mu.Unlock()
	if p == nil {
		return jsonrpc.InvalidParams("the call of this requestState no longer exists: its answer was fetched, or it was cancelled or has expired"), nil
	}
	v := newRequest(r)
	// If the call has ended, its connection may be closed. The client still gets the answer.
	if p.runs() {
		if err := p.l.raiseLevel(ctx, v, p.s); err != nil && ctx.Err() != nil {
			return nil, err
		}
	}
	no, replies := p.attach(v, round)
	if no != nil {
		return no, nil
	}
	for _, f := range replies {
		f()
	}
	return p.await(ctx, v)
}

// runs reports whether the call is in flight and not dropped.
func (p *parked) runs() bool {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	return !p.over && !p.dropped
}

// attach makes r the call's request and takes its answers to the questions. replies pass them to the server. no
// is the error of a request that cannot resume the call.
func (p *parked) attach(r *request, again *Round) (no *jsonrpc.Message, replies []func()) {
	t, round := p.l, again.ours.Round
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case p.dropped:
		return jsonrpc.InvalidParams("the call of this requestState has expired or was cancelled"), nil
	case p.request != nil:
		return jsonrpc.InvalidParams("another request already waits with this requestState"), nil
	case round != p.round && round != p.round-1:
		return jsonrpc.InvalidParams("this requestState is not the last one of its call"), nil
	case p.over: // its answers come too late
		p.deliver(r)
		return nil, nil
	case round != p.round && p.shown > 0: // the bridge has these answers, but the client lost the next questions
		p.arm()
		r.out <- outcome{answer: p.questions(), parked: true}
		return nil, nil
	case round != p.round:
		p.resumed(r)
		return nil, nil
	}
	asked := p.shown > 0
	answered := map[*question]*jsonrpc.Message{}
	for _, q := range p.open[:p.shown] {
		given := again.answer(q.key)
		if !given.Exists() {
			continue
		}
		raw := rawjson.OneLine([]byte(given.Raw))
		if what := era.WellFormedAnswer(q.method, raw); what != "" {
			return jsonrpc.InvalidParams("inputResponses." + q.key + ": " + what), nil
		}
		answered[q] = serverAnswer(q.method, raw, p.s.Revision)
	}
	for _, q := range p.barred(r.r.From.Capabilities, answered) {
		replies = append(replies, func() {
			q.reply(jsonrpc.NewError(nil, jsonrpc.CodeInvalidParams, "the client no longer has the capability for this question", nil))
		})
	}
	if asked && len(answered) == 0 && p.shown > 0 { // ask again
		p.allowed = r.r.From.Capabilities
		p.park()
		r.out <- outcome{answer: p.questions(), parked: true}
		return nil, replies
	}
	left := p.open[:0:0]
	for _, q := range p.open {
		if m := answered[q]; m != nil {
			replies = append(replies, func() { q.reply(m) })
		} else {
			left = append(left, q)
		}
	}
	p.open, p.shown = left, 0
	p.resumed(r)
	for _, h := range t.releaseHeld() {
		replies = append(replies, func() { h.put(p) })
	}
	return nil, replies
}

// barred removes and returns the unanswered questions that a client with those capabilities cannot be asked
// . The caller holds p.l.mu.
func (p *parked) barred(capabilities []byte, answered map[*question]*jsonrpc.Message) (out []*question) {
	if bytes.Equal(capabilities, p.allowed) {
		return nil
	}
	left, shown := p.open[:0:0], 0
	for i, q := range p.open {
		if answered[q] == nil {
			if _, no := era.Question(q.method, q.params, era.LatestModern, era.LatestModern, capabilities, nil); no != nil {
				out = append(out, q)
				continue
			}
		}
		left = append(left, q)
		if i < p.shown {
			shown++
		}
	}
	p.open, p.shown = left, shown
	return out
}

// resumed makes r the call's request. The caller holds p.l.mu.
func (p *parked) resumed(r *request) {
	t := p.l
	t.order++
	p.order, p.request, p.allowed = t.order, r, r.r.From.Capabilities
	t.requests[r] = struct{}{}
	if m := p.progress; m != nil {
		p.progress = nil
		p.notify(m)
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

// park adds a parked call. park reports false if too many calls are parked. The caller holds the lock of the call's
// translator.
func (s *Server) park(id string, p *parked) bool {
	principal := p.principal()
	most := MaxParked
	if principal == "" { // all clients share the empty principal
		most = maxParkedInAll
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.waiting[principal] >= most || len(s.parked) >= 2*maxParkedInAll {
		return false
	}
	s.parked[id] = p
	s.waiting[principal]++
	return true
}

// unpark removes a resumable call. The caller holds the lock of the call's translator.
func (s *Server) unpark(p *parked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parked[p.id] == p {
		delete(s.parked, p.id)
	}
	s.settle(p)
	s.keptBytes -= p.bytes
	p.bytes = 0
}

// settle removes the call from the calls that wait for their client. The caller holds s.mu.
func (s *Server) settle(p *parked) {
	if p.settled {
		return
	}
	p.settled = true
	principal := p.principal()
	if s.waiting[principal]--; s.waiting[principal] == 0 {
		delete(s.waiting, principal)
	}
}

func (p *parked) principal() string { return p.r.From.Principal }

// keep counts the bytes of an answer that stays after delivery. If such answers take more than maxKeptAnswers bytes,
// or more than maxParkedInAll calls are parked, keep discards the call. The caller holds the lock of the call's
// translator.
func (s *Server) keep(p *parked) {
	s.mu.Lock()
	s.settle(p)
	size := 0
	if p.answer != nil {
		size = p.answer.Len()
	}
	room := s.keptBytes+size <= maxKeptAnswers && len(s.parked) <= maxParkedInAll
	if room {
		p.bytes = size
		s.keptBytes += size
	}
	s.mu.Unlock()
	if !room {
		p.discard()
	}
}

// EvictStale drops the principal's call that has waited longest for its client. EvictStale prefers calls that the
// server has ended. If running is set, EvictStale ignores ended calls, because they use no connection. EvictStale
// reports false if no call has waited for staleAfter.
func (s *Server) EvictStale(principal string, running bool) bool {
	s.mu.Lock()
	all := make([]*parked, 0, len(s.parked))
	for _, p := range s.parked {
		if p.principal() == principal {
			all = append(all, p)
		}
	}
	s.mu.Unlock()
	var oldest *parked
	var since time.Duration
	ended := false
	for _, p := range all {
		idle, over := p.idle()
		if idle < staleAfter || over && running || ended && !over {
			continue
		}
		if over && !ended || idle > since {
			oldest, since, ended = p, idle, over
		}
	}
	if oldest == nil || !oldest.drop(bridge.ErrCancelled, oldest.waits) {
		return false
	}
	s.warn("parked call evicted for another one", "method", oldest.r.Method, "waited", since.Round(time.Second))
	return true
}

// warn logs a warning, at most one a minute.
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
	for _, p := range s.parked {
		if p.principal() == principal {
			its = append(its, p)
		}
	}
	s.mu.Unlock()
	for _, p := range its {
		p.drop(why, nil)
	}
}

// Close drops all calls when the bridge has stopped. Close allows no more parked calls.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	waiting := s.parked
	s.parked = map[string]*parked{}
	s.mu.Unlock()
	for _, p := range waiting {
		p.drop(bridge.ErrShutdown, nil)
	}
}
