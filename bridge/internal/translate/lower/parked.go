package lower

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// parked is a call to a legacy server that can outlive the request that it was
// made for. When the server asks something, that request is answered with the
// questions, and the call is parked: it waits for a request that brings the
// answers (protocol.md D1.4). Requests, the server, timers and what makes room for
// others may all come at once, and one lock decides between them: so its state is
// in one piece.
type parked struct {
	bridge.Nobody // the end of the connection is of no interest: the call itself fails
	l             *Translator
	s             *legacy
	r             bridge.Request // as it goes to the server, valid until free
	free          func()
	digest        string // set with id
	ctx           context.Context
	cancel        context.CancelCauseFunc

	// Guarded by l.mu.
	request   *request // the request that waits for it; nil while it is parked
	order     uint64   // when it was sent, or resumed last
	task      string   // that the server has made of it, by its id
	id        string   // empty until it is parked for the first time
	round     int      // how often it was
	keys      int      // made so far
	open      []*question
	shown     int    // how many of open, the first ones, the client has been told of
	allowed   []byte // capabilities of the request that waited last
	window    *time.Timer
	expiry    *time.Timer
	expires   time.Time
	progress  *jsonrpc.Message // the last one that nobody was there to hear
	over      bool             // the server has answered, or never will
	gone      bool             // nobody can resume it
	answer    *jsonrpc.Message // the server's
	err       error
	delivered bool // a client has had the answer
	settled   bool // it does not count as waiting for its client any more; guarded by Server.mu
	bytes     int  // of the answer, while it is counted among those kept
}

// outcome is what a request that waits for a call gets.
type outcome struct {
	answer *jsonrpc.Message
	err    error
	parked bool // the answer is that there are questions
}

// MaxParked is how many calls of one principal may wait for their clients at one
// server (protocol.md D1.4, F).
const MaxParked = 32

// The other limits of parked calls.
const (
	parkWindow     = 30 * time.Millisecond // in which questions share a round
	parkTTL        = 10 * time.Minute
	maxParkedInAll = 1024     // of one server
	maxKeptAnswers = 64 << 20 // bytes of answers to one server's calls that are kept in case that they were lost
	// abandonedFor is how long nobody has come back to a parked call that gives way
	// when there is no room for others: as long as servers commonly wait for an
	// answer.
	abandonedFor = time.Minute
)

// begin makes a call that may be parked, and waits for what comes of it.
func (l *Translator) begin(ctx context.Context, v *request, inner *bridge.Request, s *legacy) (*jsonrpc.Message, error) {
	c := &parked{l: l, s: s, r: *inner, free: func() {}, request: v, allowed: v.r.From.Capabilities}
	if v.r.Keep != nil {
		c.free = v.r.Keep()
	} else {
		c.r.Message = inner.Clone()
	}
	c.r.Back, c.r.Keep, c.r.Mirror = c, nil, nil
	c.ctx, c.cancel = context.WithCancelCause(l.s.o.Following(l.ctx, ctx))
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		c.cancel(nil)
		c.free()
		return nil, bridge.ErrShutdown
	}
	l.slot.Hold()
	l.order++
	c.order = l.order
	l.asking[c] = struct{}{}
	l.requests[v] = struct{}{}
	held := l.releaseHeld()
	l.wg.Go(c.run)
	l.mu.Unlock()
	for _, h := range held {
		h.put(c)
	}
	return c.await(ctx, v)
}

func (c *parked) run() {
	a, err := c.l.perform(c.ctx, &c.r, c.s, c)
	if err == nil && a.Error == nil && a.ID == nil {
		a.ID = []byte("0")
	}
	if err != nil && (c.ctx.Err() != nil || errors.Is(err, bridge.ErrTimeout)) {
		c.l.abandoned()
	}
	c.cancel(nil)
	c.finish(a, err)
	c.free()
}

// await waits for what comes of the call. The end of ctx means that the client
// does not want it any more, unless it was parked before.
func (c *parked) await(ctx context.Context, v *request) (*jsonrpc.Message, error) {
	select {
	case o := <-v.out:
		if o.parked || o.err != nil {
			return o.answer, o.err
		}
		return c.l.conclude(v, c.s, o.answer)
	case <-ctx.Done():
	}
	if c.drop(takenBackBy(ctx), func() bool { return c.request == v }) {
		return nil, context.Cause(ctx)
	}
	o := <-v.out
	o.answer.Release()
	if o.parked { // the client has not heard of it
		c.drop(takenBackBy(ctx), nil)
	}
	return nil, context.Cause(ctx)
}

// takenBackBy returns ErrCancelled, with the client's reason if it was the client
// who has ended ctx.
func takenBackBy(ctx context.Context) error {
	if why := context.Cause(ctx); errors.Is(why, bridge.ErrCancelled) {
		return why
	}
	return bridge.ErrCancelled
}

// detach ends the waiting of the request. Nothing more is said to it. The
// caller holds l.mu.
func (c *parked) detach() {
	delete(c.l.requests, c.request)
	c.request = nil
	if c.window != nil {
		c.window.Stop()
		c.window = nil
	}
}

// finish takes what the server has answered.
func (c *parked) finish(a *jsonrpc.Message, err error) {
	l := c.l
	l.mu.Lock()
	c.over = true
	delete(l.asking, c)
	moot := c.open
	c.open, c.shown = nil, 0
	if err == nil {
		moot = l.passOn(moot)
	}
	v := c.request
	if v != nil {
		c.detach()
	}
	switch {
	case c.gone:
		a.Release()
	case v == nil: // it is kept for the request to come
		c.answer, c.err = a, err
	case c.id == "":
		v.out <- outcome{answer: a, err: err}
	default:
		c.answer, c.err = a, err
		c.deliver(v)
	}
	l.mu.Unlock()
	unanswered(moot)
	l.slot.Leave()
}

// deliver gives the client the answer that there is. It is kept for a while, in
// case that it gets lost. The caller holds l.mu.
func (c *parked) deliver(v *request) {
	o := outcome{err: c.err}
	if c.answer != nil {
		o.answer = c.answer.Clone()
	}
	v.out <- o
	if !c.delivered {
		c.delivered = true
		c.arm()
		c.l.s.keep(c)
	}
}

// arm lets the call expire in a while. The caller holds l.mu.
func (c *parked) arm() {
	c.expires = time.Now().Add(parkTTL)
	if c.expiry == nil {
		c.expiry = time.AfterFunc(parkTTL, c.expire)
		return
	}
	c.expiry.Reset(parkTTL)
}

// expire gives up a call that nobody has come back to.
func (c *parked) expire() {
	c.drop(bridge.ErrCancelled, func() bool {
		if c.gone || c.request != nil {
			return false // await, or the next parking, sees to it
		}
		left := time.Until(c.expires)
		if left > 0 {
			c.expiry.Reset(left)
		}
		return left <= 0
	})
}

// drop forgets the call, if so says so, which is asked with l.mu held; nil always
// does. If it is still under way, the server's questions get the answer that there
// will be none, and it is cancelled.
func (c *parked) drop(why error, so func() bool) bool {
	c.l.mu.Lock()
	if so != nil && !so() {
		c.l.mu.Unlock()
		return false
	}
	moot := c.discard()
	c.l.mu.Unlock()
	unanswered(moot)
	c.cancel(why)
	return true
}

// discard makes the call one that nobody can resume, and returns the questions
// that nobody will answer. The caller holds l.mu.
func (c *parked) discard() (moot []*question) {
	if c.gone {
		return nil
	}
	c.gone = true
	moot = c.open
	c.open, c.shown = nil, 0
	if c.request != nil {
		c.request.out <- outcome{err: bridge.ErrCancelled}
		c.detach()
	}
	if c.expiry != nil {
		c.expiry.Stop()
	}
	c.answer.Release()
	c.answer = nil
	if c.id != "" {
		c.l.s.unpark(c)
	}
	return moot
}

// idle returns for how long the call has waited for its client to come back; 0
// when it does not.
func (c *parked) idle() time.Duration {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if !c.waits() {
		return 0
	}
	return parkTTL - time.Until(c.expires)
}

// waits reports whether the call waits for its client. The caller holds l.mu.
func (c *parked) waits() bool { return c.request == nil && !c.over && !c.gone }

// Notify passes on what the server says about the call to the request that
// waits for it.
func (c *parked) Notify(n *jsonrpc.Message) {
	l := c.l
	if l.keeps(n) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case c.request != nil:
		c.tell(n)
	case n.Method == "notifications/progress" && !c.gone && !c.over:
		c.progress = n.Clone()
	}
}

// tell says something to the request that waits. Progress bears its own token,
// which need not be that of the request before. The caller holds l.mu.
func (c *parked) tell(n *jsonrpc.Message) {
	if n.Method == "notifications/progress" {
		mine := c.request.r.Token()
		if mine == nil {
			return
		}
		if !bytes.Equal(mine, n.Token()) {
			other, err := jsonrpc.Parse(n.Append(nil, nil, mine))
			if err != nil {
				return // cannot be: both halves were parsed before
			}
			n = other
		}
	}
	c.request.Notify(n)
}
