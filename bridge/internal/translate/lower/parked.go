package lower

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// parked is a call to a legacy server that can outlive its request. If the server asks something, the questions
// answer the request, and the call is parked. A later request brings the answers and resumes it (protocol.md D1.4).
// Requests, the server, timers and evictions may come at once. One lock orders them, so all state is in one struct.
type parked struct {
	bridge.Nobody // the end of the connection is no event: the call itself fails
	l             *Translator
	s             *legacy
	r             bridge.Request // as sent to the server, valid until free
	free          func()
	digest        string // set together with id
	ctx           context.Context
	cancel        context.CancelCauseFunc

	// l.mu guards the rest.
	request   *request // the request that waits for the call; nil while the call is parked
	order     uint64   // when the call was sent or last resumed
	task      string   // id of the task that the server made of the call
	id        string   // empty until the call is parked for the first time
	round     int      // how often the call was parked
	keys      int      // keys of questions that were used so far
	open      []*question
	shown     int    // the client has the first shown questions of open
	allowed   []byte // capabilities of the last request
	window    *time.Timer
	expiry    *time.Timer
	expires   time.Time
	progress  *jsonrpc.Message // the last progress without a request to get it
	over      bool             // the server answered, or never will
	dropped   bool             // the call cannot be resumed
	answer    *jsonrpc.Message
	err       error
	delivered bool // a client got the answer
	settled   bool // the call does not count in Server.waiting; guarded by Server.mu
	bytes     int  // of the answer, while Server.keptBytes counts it
}

// outcome is the result of a request that waits for a call.
type outcome struct {
	answer *jsonrpc.Message
	err    error
	parked bool // the answer consists of questions
}

// MaxParked bounds the parked calls of one principal at one server (protocol.md D1.4, F).
const MaxParked = 32

// These are the other limits of parked calls.
const (
	parkWindow     = 30 * time.Millisecond // questions that come within this time share a round
	parkTTL        = 10 * time.Minute
	maxParkedInAll = 1024     // of one server
	maxKeptAnswers = 64 << 20 // bytes of delivered answers of one server that stay for clients that lost them
	// staleAfter is the age of a parked call that may be evicted for another call. Servers commonly wait that long
	// for an answer.
	staleAfter = time.Minute
)

// begin makes a call that may be parked, and waits for its outcome.
func (t *Translator) begin(ctx context.Context, r *request, inner *bridge.Request, l *legacy) (*jsonrpc.Message, error) {
	p := &parked{
		l:       t,
		s:       l,
		r:       *inner,
		free:    func() {},
		request: r,
		allowed: r.r.From.Capabilities,
	}
	if r.r.Keep != nil {
		p.free = r.r.Keep()
	} else {
		p.r.Message = inner.Clone()
	}
	p.r.Back, p.r.Keep, p.r.Mirror = p, nil, nil
	p.ctx, p.cancel = context.WithCancelCause(t.s.o.Tracing.Following(t.ctx, ctx))
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		p.cancel(nil)
		p.free()
		return nil, bridge.ErrShutdown
	}
	t.slot.Hold()
	t.order++
	p.order = t.order
	t.asking[p] = struct{}{}
	t.requests[r] = struct{}{}
	held := t.releaseHeld()
	t.wg.Go(p.run)
	t.mu.Unlock()
	for _, h := range held {
		h.put(p)
	}
	return p.await(ctx, r)
}

func (p *parked) run() {
	m, err := p.l.perform(p.ctx, &p.r, p.s, p)
	if err == nil && m.Error == nil && m.ID == nil {
		m.ID = []byte("0")
	}
	if err != nil && (p.ctx.Err() != nil || errors.Is(err, bridge.ErrTimeout)) {
		p.l.abandoned()
	}
	p.cancel(nil)
	p.finish(m, err)
	p.free()
}

// await waits for the outcome of the call. If ctx ends first, the client has cancelled the call, unless the call was
// parked before.
func (p *parked) await(ctx context.Context, r *request) (*jsonrpc.Message, error) {
	select {
	case o := <-r.out:
		if o.parked || o.err != nil {
			return o.answer, o.err
		}
		return p.l.conclude(r, p.s, o.answer)
	case <-ctx.Done():
	}
	if p.drop(cancelCause(ctx), func() bool { return p.request == r }) {
		return nil, context.Cause(ctx)
	}
	o := <-r.out
	o.answer.Release()
	if o.parked { // the client does not have the questions
		p.drop(cancelCause(ctx), nil)
	}
	return nil, context.Cause(ctx)
}

// cancelCause returns ErrCancelled, with the client's reason if the client ended ctx.
func cancelCause(ctx context.Context) error {
	if why := context.Cause(ctx); errors.Is(why, bridge.ErrCancelled) {
		return why
	}
	return bridge.ErrCancelled
}

// detach ends the wait of the request, which gets nothing more. The caller holds p.l.mu.
func (p *parked) detach() {
	delete(p.l.requests, p.request)
	p.request = nil
	if p.window != nil {
		p.window.Stop()
		p.window = nil
	}
}

// finish takes the server's answer.
func (p *parked) finish(m *jsonrpc.Message, err error) {
	t := p.l
	t.mu.Lock()
	p.over = true
	delete(t.asking, p)
	stale := p.open
	p.open, p.shown = nil, 0
	if err == nil {
		stale = t.reassign(stale)
	}
	r := p.request
	if r != nil {
		p.detach()
	}
	switch {
	case p.dropped:
		m.Release()
	case r == nil: // the answer stays for the next request
		p.answer, p.err = m, err
	case p.id == "":
		r.out <- outcome{answer: m, err: err}
	default:
		p.answer, p.err = m, err
		p.deliver(r)
	}
	t.mu.Unlock()
	unanswered(stale)
	t.slot.Release()
}

// deliver gives the client the answer. The answer stays for parkTTL, because the client may lose it. The
// caller holds p.l.mu.
func (p *parked) deliver(r *request) {
	o := outcome{err: p.err}
	if p.answer != nil {
		o.answer = p.answer.Clone()
	}
	r.out <- o
	if !p.delivered {
		p.delivered = true
		p.arm()
		p.l.s.keep(p)
	}
}

// arm restarts the time until the call expires. The caller holds p.l.mu.
func (p *parked) arm() {
	p.expires = time.Now().Add(parkTTL)
	if p.expiry == nil {
		p.expiry = time.AfterFunc(parkTTL, p.expire)
		return
	}
	p.expiry.Reset(parkTTL)
}

// expire drops a call that no client has resumed.
func (p *parked) expire() {
	p.drop(bridge.ErrCancelled, func() bool {
		if p.dropped || p.request != nil {
			return false // await or the next parking handles the expiry
		}
		left := time.Until(p.expires)
		if left > 0 {
			p.expiry.Reset(left)
		}
		return left <= 0
	})
}

// drop drops the call: it cancels a call in flight, and answers the server's questions as unanswered. If so is not
// nil, drop first calls it with p.l.mu held. If so reports false, drop does nothing and reports false.
func (p *parked) drop(why error, so func() bool) bool {
	p.l.mu.Lock()
	if so != nil && !so() {
		p.l.mu.Unlock()
		return false
	}
	stale := p.discard()
	p.l.mu.Unlock()
	unanswered(stale)
	p.cancel(why)
	return true
}

// discard makes the call one that cannot be resumed, and returns its questions. The caller holds p.l.mu.
func (p *parked) discard() (stale []*question) {
	if p.dropped {
		return nil
	}
	p.dropped = true
	stale = p.open
	p.open, p.shown = nil, 0
	if p.request != nil {
		p.request.out <- outcome{err: bridge.ErrCancelled}
		p.detach()
	}
	if p.expiry != nil {
		p.expiry.Stop()
	}
	p.answer.Release()
	p.answer = nil
	if p.id != "" {
		p.l.s.unpark(p)
	}
	return stale
}

// idle returns how long the call has waited for its client; 0 if it does not wait. over reports whether the server
// has ended the call meanwhile.
func (p *parked) idle() (d time.Duration, over bool) {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if !p.waits() {
		return 0, false
	}
	return parkTTL - time.Until(p.expires), p.over
}

// waits reports whether the call waits for its client. The caller holds p.l.mu.
func (p *parked) waits() bool { return p.request == nil && !p.delivered && !p.dropped }

// Notify passes a notification about the call to its request.
func (p *parked) Notify(m *jsonrpc.Message) {
	t := p.l
	if t.withholds(m) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case p.request != nil:
		p.notify(m)
	case m.Method == "notifications/progress" && !p.dropped && !p.over:
		p.progress = m.Clone()
	}
}

// notify passes a notification to the call's request. Progress gets the token of that request. The caller holds
// p.l.mu.
func (p *parked) notify(m *jsonrpc.Message) {
	if m.Method == "notifications/progress" {
		mine := p.request.r.Token()
		if mine == nil {
			return
		}
		if !bytes.Equal(mine, m.Token()) {
			other, err := jsonrpc.Parse(m.Append(nil, nil, mine))
			if err != nil {
				return // cannot happen: both halves were parsed before
			}
			m = other
		}
	}
	p.request.Notify(m)
}
