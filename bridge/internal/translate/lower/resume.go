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

// Resume goes on with a parked call. What cannot be gone on with is
// refused, and never made anew.
func (s *Server) Resume(ctx context.Context, r *bridge.Request, round *Round) (*jsonrpc.Message, error) {
	s.mu.Lock()
	c := s.parked[round.ours.Call]
	s.mu.Unlock()
	if c == nil {
		return jsonrpc.InvalidParams("the call that this requestState belongs to is gone: its answer was fetched, it was cancelled, or too long ago"), nil
	}
	v := newRequest(r)
	// The connection of a call that has ended may be closed, which is nothing to
	// a client that comes for the answer.
	if c.runs() {
		if err := c.l.verbose(ctx, v, c.s); err != nil && ctx.Err() != nil {
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

// runs reports whether the server has not answered yet, and somebody may still
// want it to.
func (c *parked) runs() bool {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	return !c.over && !c.gone
}

// attach makes the request the one that waits for the call, and takes its
// answers to the server's questions: replies are how the server gets them. The
// message says why it cannot be.
func (c *parked) attach(v *request, again *Round) (no *jsonrpc.Message, replies []func()) {
	l, round := c.l, again.ours.Round
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case c.gone:
		return jsonrpc.InvalidParams("the call that this requestState belongs to has expired or was cancelled"), nil
	case c.request != nil:
		return jsonrpc.InvalidParams("another request waits with this requestState already"), nil
	case round != c.round && round != c.round-1:
		return jsonrpc.InvalidParams("this requestState is not the last one of its call"), nil
	case c.over: // answers come too late
		c.deliver(v)
		return nil, nil
	case round != c.round && c.shown > 0: // its answers were taken; what came back was lost
		c.arm()
		v.out <- outcome{answer: c.questions(), parked: true}
		return nil, nil
	case round != c.round:
		c.resumed(v)
		return nil, nil
	}
	asked := c.shown > 0
	answered := map[*question]*jsonrpc.Message{}
	for _, a := range c.open[:c.shown] {
		given := again.answer(a.key)
		if !given.Exists() {
			continue
		}
		raw := rawjson.OneLine([]byte(given.Raw))
		if what := era.WellFormedAnswer(a.method, raw); what != "" {
			return jsonrpc.InvalidParams("inputResponses." + a.key + ": " + what), nil
		}
		answered[a] = toServer(a.method, raw, c.s.Revision)
	}
	for _, a := range c.barred(v.r.From.Capabilities, answered) {
		replies = append(replies, func() {
			a.reply(jsonrpc.NewError(nil, jsonrpc.CodeInvalidParams, "the client cannot be asked that any more", nil))
		})
	}
	if asked && len(answered) == 0 && c.shown > 0 { // asked again
		c.allowed = v.r.From.Capabilities
		c.park()
		v.out <- outcome{answer: c.questions(), parked: true}
		return nil, replies
	}
	left := c.open[:0:0]
	for _, a := range c.open {
		if m := answered[a]; m != nil {
			replies = append(replies, func() { a.reply(m) })
		} else {
			left = append(left, a)
		}
	}
	c.open, c.shown = left, 0
	c.resumed(v)
	for _, h := range l.releaseHeld() {
		replies = append(replies, func() { h.put(c) })
	}
	return nil, replies
}

// barred removes the questions that a request with those capabilities does not
// answer and cannot be asked, and returns them. The caller holds l.mu.
func (c *parked) barred(capabilities []byte, answered map[*question]*jsonrpc.Message) (out []*question) {
	if bytes.Equal(capabilities, c.allowed) {
		return nil
	}
	left, shown := c.open[:0:0], 0
	for i, a := range c.open {
		if answered[a] == nil {
			if _, no := era.Question(a.method, a.params, era.LatestModern, era.LatestModern, capabilities, nil); no != nil {
				out = append(out, a)
				continue
			}
		}
		left = append(left, a)
		if i < c.shown {
			shown++
		}
	}
	c.open, c.shown = left, shown
	return out
}

// resumed makes the request the one that waits. The caller holds l.mu.
func (c *parked) resumed(v *request) {
	l := c.l
	l.order++
	c.order, c.request, c.allowed = l.order, v, v.r.From.Capabilities
	l.requests[v] = struct{}{}
	if n := c.progress; n != nil {
		c.progress = nil
		c.tell(n)
	}
	if len(c.open) > 0 {
		c.gather()
	}
}

func (a *Round) answer(key string) (found gjson.Result) {
	if a.answers.IsObject() {
		a.answers.ForEach(func(name, value gjson.Result) bool {
			if name.Str == key {
				found = value
			}
			return !found.Exists()
		})
	}
	return found
}

// toServer is a client's answer as the server gets it.
func toServer(method string, raw []byte, revision string) *jsonrpc.Message {
	result, no := era.Answer(method, raw, era.LatestModern, revision)
	if no != nil {
		return jsonrpc.NewError(nil, no.Code, no.Message, no.Data)
	}
	return jsonrpc.NewResult(nil, result)
}

// park enters a call among those that wait for their clients. It reports false
// when too many do. The caller holds the lock of the call's connection.
func (s *Server) park(id string, c *parked) bool {
	principal := c.principal()
	most := MaxParked
	if principal == "" { // everybody
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

// unpark removes a call from those that can be resumed. The caller holds the
// lock of the call's connection.
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

// settle notes that the call does not wait for its client any more. The caller
// holds s.mu.
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

func (c *parked) principal() string { return c.r.From.Principal }

// keep counts an answer that was given and is kept. When there are too many
// bytes of them it is not kept. The caller holds the lock of the call's
// connection.
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

// GiveWay ends the call of a principal's that waits for its client for longest,
// if nobody has come back to it for so long that others go first.
func (s *Server) GiveWay(principal string) bool {
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
	for _, c := range all {
		if idle := c.idle(); idle >= abandonedFor && idle > since {
			oldest, since = c, idle
		}
	}
	if oldest == nil || !oldest.drop(bridge.ErrCancelled, oldest.waits) {
		return false
	}
	s.warn("a call that waits for its client gives way to others", "method", oldest.r.Method, "waited", since.Round(time.Second))
	return true
}

// warn logs what may happen often, at most once a minute.
func (s *Server) warn(what string, args ...any) {
	s.mu.Lock()
	now := time.Now()
	told := now.Sub(s.noticed) < time.Minute
	if !told {
		s.noticed = now
	}
	s.mu.Unlock()
	if !told {
		s.o.Log.Warn(what, args...)
	}
}

// Revoke ends the calls of a principal that wait for their clients, for that reason.
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

// Close frees what is left of calls when the bridge has stopped. No more are parked.
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
