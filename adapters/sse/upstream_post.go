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
	// answerLimit is how long a POST may have no answer after its message is not needed any more.
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
func (o *poster) Send(ctx context.Context, m conn.Outgoing) error {
	p := &post{Outgoing: m, done: make(chan struct{})}
	size := len(m.Line.B)
	for {
		o.mu.Lock()
		count := len(o.queue) + len(o.under)
		if o.err == nil && (o.wait.Overflows(m.Urgent) || m.Urgent && count > 2*maxPosts) {
			why := o.c.u.name.Lost("it does not accept messages", conn.ErrFull)
			o.err = why
			o.c.giveUp(why)
		}
		if o.err != nil {
			defer o.mu.Unlock()
			return o.c.u.name.Unsent("its connection has ended", o.err)
		}
		if (m.Urgent || count < maxPosts) && o.wait.Add(m.Urgent, size) {
			if !o.busy && p.Call != 0 {
				o.begin(p)
			} else {
				o.queue = append(o.queue, p)
				if !o.busy {
					o.busy = true
					o.wg.Go(o.run)
				}
			}
			o.mu.Unlock()
			return nil
		}
		if err := o.wait.Await(ctx, &o.mu); err != nil {
			return err
		}
	}
}

// run starts the POSTs of the queue, each in its turn.
func (o *poster) run() {
	for {
		o.mu.Lock()
		if len(o.queue) == 0 || o.err != nil {
			o.busy = false
			o.mu.Unlock()
			return
		}
		p := o.queue[0]
		var before []*post
		if p.notification() {
			for b := range o.under {
				if !b.slow {
					before = append(before, b)
				}
			}
		}
		if len(before) == 0 {
			o.queue = o.queue[1:]
			o.begin(p)
		}
		o.mu.Unlock()
		switch {
		case len(before) > 0:
			o.await(before) // and check again
		case p.Call == 0:
			o.await([]*post{p})
		}
	}
}

// await waits until the POSTs have been answered, or orderLimit has passed.
func (o *poster) await(posts []*post) {
	late := time.After(orderLimit)
	for _, p := range posts {
		select {
		case <-p.done:
			continue
		case <-o.c.ctx.Done():
		case <-late:
		}
		o.mu.Lock()
		for _, p := range posts {
			p.slow = true
		}
		o.mu.Unlock()
		return
	}
}

// begin starts a POST. The caller holds o.mu.
func (o *poster) begin(p *post) {
	o.under[p] = struct{}{}
	o.wg.Go(func() {
		o.deliver(p)
		close(p.done)
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.under, p)
		o.wait.Remove(len(p.Line.B))
	})
}

// halt makes all sends fail with err from now on. Calls that certainly have not reached the server
// may be made again on another connection.
func (o *poster) halt(err *bridge.Error) {
	o.mu.Lock()
	if o.err == nil {
		o.err = err
	}
	unsent := o.queue
	o.queue = nil
	for p := range o.under {
		if !p.sent {
			unsent = append(unsent, p)
		}
	}
	o.wait.Wake()
	o.mu.Unlock()
	for _, p := range unsent {
		o.c.Abort(p.Call, o.c.u.name.Unsent("its connection has ended", err))
	}
}

// deliver makes the POST, and repeats it while nothing of it was sent.
func (o *poster) deliver(p *post) {
	ctx, cancel := context.WithCancel(o.c.ctx)
	defer cancel()
	o.watch(p, cancel)
	defer p.timer.Stop()
	if p.Call == 0 { // the timer ends no call that is waited for
		ctx = deadline.With(ctx, func() func() {
			p.timer.Stop()
			return func() { p.timer.Reset(answerLimit) }
		})
	}
	for try := 1; ; try++ {
		if !o.wanted(p) || !o.mark(p, true) {
			return // it was given up, or halt settled it
		}
		res, err := o.c.u.do(o.request(ctx, p))
		if err == nil {
			o.c.posted(p, res)
			return
		}
		unsent := remote.Unsent(err)
		if unsent {
			o.mark(p, false)
		}
		if unsent && !remote.TLSFault(err) && try < tries && backoff.For(ctx, firstPause<<(try-1)) == nil {
			continue
		}
		o.c.failed(p, err)
		return
	}
}

// watch ends a POST without an answer when its message is not needed any more.
func (o *poster) watch(p *post, cancel func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p.timer = time.AfterFunc(answerLimit, func() {
		waited := p.Call != 0 && o.wanted(p)
		o.mu.Lock()
		defer o.mu.Unlock()
		if _, open := o.under[p]; waited && open {
			p.timer.Reset(answerLimit)
		} else {
			cancel()
		}
	})
}

// wanted reports whether a message is still needed.
func (o *poster) wanted(p *post) bool { return p.Call == 0 || o.c.Waits(p.Call) }

// mark records whether a message may have reached the server. It reports false when nothing is sent
// any more.
func (o *poster) mark(p *post, sent bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return false
	}
	p.sent = sent
	return true
}

// request returns the request for a message. The garbage collector frees the line: the HTTP client
// may still read it after the response.
func (o *poster) request(ctx context.Context, p *post) *http.Request {
	h := p.Header
	if h == nil {
		h = o.header
	}
	r := o.c.u.client.Request(remote.WithIdentity(ctx, cmp.Or(p.Identity, o.identity)), http.MethodPost, o.c.endpoint, h, p.Line.B)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "*/*")
	p.Trace.Put(r.Header)
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
