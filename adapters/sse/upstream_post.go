package sse

import (
	"cmp"
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/deadline"
)

const (
	// orderLimit is how long a message waits for earlier ones. A server may answer a POST only when
	// its work is done, and may need the next message for that work.
	orderLimit = time.Second
	// answerLimit is how long a POST may have no answer after its message is no longer needed.
	answerLimit = 30 * time.Second
	// maxPosts bounds the messages that wait or are in flight.
	maxPosts = 1024
	// A POST that was not sent is repeated: after firstPause, twice that, and so on, about 4 s in
	// all. A server that is being restarted is back then.
	firstPause = 125 * time.Millisecond
	tries      = 6
)

// poster sends messages to the server, a POST for each, in the necessary order:
//
// It POSTs notifications and answers one after the other, each when the POST before was answered.
// Calls that follow one of them wait for it too. A notification also waits until the POSTs of
// earlier calls were answered. Thus "initialized" comes before the first call, and "cancelled"
// after the call that it cancels. Calls beside each other are in flight at the same time, in no
// order. No message waits longer than orderLimit for another one. There is no order at a server
// that takes that long to answer a POST.
type poster struct {
	c        *connection
	header   http.Header        // for messages that no client sent
	identity *identity.Identity // likewise
	wg       sync.WaitGroup

	mu    sync.Mutex // guards the rest
	queue []*post
	under map[*post]struct{} // in flight
	wait  conn.Backlog       // in the queue and in flight
	busy  bool               // run runs
	err   error
}

var _ conn.Sender = (*poster)(nil)

type post struct {
	conn.Outgoing
	done  chan struct{} // closed when the POST was answered or has failed
	timer *time.Timer   // see watch
	slow  bool          // others have waited for it in vain; guarded by poster.mu
	sent  bool          // it may have reached the server; guarded by poster.mu
}

// notification reports whether the message must follow the calls before it. An answer must not wait
// for them: a call may need it.
func (p *post) notification() bool { return p.Call == 0 && p.Method != "" }

// Send implements conn.Sender. It does not wait for the server.
func (p *poster) Send(ctx context.Context, o conn.Outgoing) error {
	one := &post{Outgoing: o, done: make(chan struct{})}
	size := len(o.Line.B)
	for {
		p.mu.Lock()
		count := len(p.queue) + len(p.under)
		if p.err == nil && (p.wait.Overflows(o.Urgent) || o.Urgent && count > 2*maxPosts) {
			why := p.c.u.name.Lost("it does not accept messages", conn.ErrFull)
			p.err = why
			p.c.giveUp(why)
		}
		if p.err != nil {
			defer p.mu.Unlock()
			return p.c.u.name.Unsent("its connection has ended", p.err)
		}
		if (o.Urgent || count < maxPosts) && p.wait.Add(o.Urgent, size) {
			if !p.busy && one.Call != 0 {
				p.begin(one)
			} else {
				p.queue = append(p.queue, one)
				if !p.busy {
					p.busy = true
					p.wg.Go(p.run)
				}
			}
			p.mu.Unlock()
			return nil
		}
		if err := p.wait.Await(ctx, &p.mu); err != nil {
			return err
		}
	}
}

// run starts the POSTs of the queue, each in its turn.
func (p *poster) run() {
	for {
		p.mu.Lock()
		if len(p.queue) == 0 || p.err != nil {
			p.busy = false
			p.mu.Unlock()
			return
		}
		one := p.queue[0]
		var before []*post
		if one.notification() {
			for b := range p.under {
				if !b.slow {
					before = append(before, b)
				}
			}
		}
		if len(before) == 0 {
			p.queue = p.queue[1:]
			p.begin(one)
		}
		p.mu.Unlock()
		switch {
		case len(before) > 0:
			p.await(before) // and check again
		case one.Call == 0:
			p.await([]*post{one})
		}
	}
}

// await waits until the POSTs have been answered, or orderLimit has passed.
func (p *poster) await(posts []*post) {
	late := time.After(orderLimit)
	for _, one := range posts {
		select {
		case <-one.done:
			continue
		case <-p.c.ctx.Done():
		case <-late:
		}
		p.mu.Lock()
		for _, item := range posts {
			item.slow = true
		}
		p.mu.Unlock()
		return
	}
}

// begin starts a POST. The caller holds p.mu.
func (p *poster) begin(one *post) {
	p.under[one] = struct{}{}
	p.wg.Go(func() {
		p.deliver(one)
		close(one.done)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.under, one)
		p.wait.Remove(len(one.Line.B))
	})
}

// halt makes all sends fail with err from now on. Calls that certainly have not reached the server
// may be made again on another connection.
func (p *poster) halt(err *bridge.Error) {
	p.mu.Lock()
	if p.err == nil {
		p.err = err
	}
	unsent := p.queue
	p.queue = nil
	for post := range p.under {
		if !post.sent {
			unsent = append(unsent, post)
		}
	}
	p.wait.Wake()
	p.mu.Unlock()
	for _, one := range unsent {
		p.c.Abort(one.Call, p.c.u.name.Unsent("its connection has ended", err))
	}
}

// deliver makes the POST, and repeats it while nothing of it was sent.
func (p *poster) deliver(one *post) {
	ctx, cancel := context.WithCancel(p.c.ctx)
	defer cancel()
	p.watch(one, cancel)
	defer one.timer.Stop()
	if one.Call == 0 { // the timer ends no call that is waited for
		ctx = deadline.With(ctx, func() func() {
			one.timer.Stop()
			return func() { one.timer.Reset(answerLimit) }
		})
	}
	for try := 1; ; try++ {
		if !p.wanted(one) || !p.mark(one, true) {
			return // it was given up, or halt settled it
		}
		res, err := p.c.u.do(p.request(ctx, one))
		if err == nil {
			p.c.posted(one, res)
			return
		}
		unsent := remote.Unsent(err)
		if unsent {
			p.mark(one, false)
		}
		if unsent && !remote.TLSFault(err) && try < tries && backoff.For(ctx, firstPause<<(try-1)) == nil {
			continue
		}
		p.c.failed(one, err)
		return
	}
}

// watch ends a POST without an answer when its message is no longer needed.
func (p *poster) watch(one *post, cancel func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one.timer = time.AfterFunc(answerLimit, func() {
		waited := one.Call != 0 && p.wanted(one)
		p.mu.Lock()
		defer p.mu.Unlock()
		if _, open := p.under[one]; waited && open {
			one.timer.Reset(answerLimit)
		} else {
			cancel()
		}
	})
}

// wanted reports whether a message is still needed.
func (p *poster) wanted(one *post) bool { return one.Call == 0 || p.c.Waits(one.Call) }

// mark records whether a message may have reached the server. It reports false when nothing is sent
// any more.
func (p *poster) mark(one *post, sent bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return false
	}
	one.sent = sent
	return true
}

// request returns the request for a message. The garbage collector frees the line: the HTTP client
// may still read it after the response.
func (p *poster) request(ctx context.Context, one *post) *http.Request {
	h := one.Header
	if h == nil {
		h = p.header
	}
	r := p.c.u.client.Request(remote.WithIdentity(ctx, cmp.Or(one.Identity, p.identity)), http.MethodPost, p.c.endpoint, h, one.Line.B)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "*/*")
	one.Trace.Put(r.Header)
	if conn.Repeatable(one.Method) {
		remote.Repeat(r)
	}
	return r
}

// failed settles the message of a POST without a response. At the end of the connection, end does
// that for all.
func (c *connection) failed(p *post, err error) {
	if c.ctx.Err() != nil {
		return
	}
	c.settle(p, remote.Failure(c.u.name, err))
}

// settle fails the call of a message, or logs the loss of another message.
func (c *connection) settle(p *post, why *bridge.Error) {
	if p.Call != 0 {
		c.Abort(p.Call, why)
		return
	}
	c.u.o.Log.Warn("a message was not accepted", "method", p.Method, "err", why)
}
