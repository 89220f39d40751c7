package streamable

import (
	"cmp"
	"context"
	"net/http"
	"sync"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
	"github.com/mcp-bridge/bridge/internal/deadline"
)

// link is the part of a connection that both eras have in common: the calls in flight, each a POST
// of its own, and the end of the connection.
type link struct {
	*conn.Conn
	a      *Upstream
	cookie *remote.Cookies
	from   *bridge.Caller
	rest   bridge.Client
	server *bridge.Greeting

	ctx  context.Context // ends when the connection is closed
	stop context.CancelFunc
	wg   sync.WaitGroup // of all goroutines; Go is called with mu held and closed false
	once sync.Once

	mu          sync.Mutex // guards the fields below, and those of wire and stateless that say so
	calls       map[int64]*exchange
	open        bool            // Open has succeeded
	closed      bool            // Close was called
	why         error           // why nothing can be sent any more; nil while messages can be sent
	settled     chan struct{}   // closed when no call is left; nil before retire
	force       context.Context // ends when the context of Close ends; nil before Close
	cancelForce context.CancelFunc
}

// init initializes a link whose Conn sends by out. While a request waits for a sign-in, the time-outs
// of ctx and of calls are paused.
func (l *link) init(ctx context.Context, u *Upstream, from *bridge.Caller, rest bridge.Client, out conn.Sender) {
	l.a, l.cookie, l.from, l.rest, l.calls = u, new(remote.Cookies), from, rest, map[int64]*exchange{}
	l.Conn = conn.New(string(u.name), out, rest, u.o.Timeouts)
	l.ctx, l.stop = context.WithCancel(deadline.With(context.WithoutCancel(ctx), l.HoldTimeouts))
}

// request returns a request with the cookies of this connection.
func (l *link) request(ctx context.Context, method string, header http.Header, id *identity.Identity, body []byte) *http.Request {
	ctx = remote.WithIdentity(ctx, cmp.Or(id, l.from.Identity))
	return l.a.client.Request(remote.WithCookies(ctx, l.cookie), method, l.a.client.URL(), header, body)
}

// Server implements bridge.Upstream.
func (l *link) Server() *bridge.Greeting { return l.server }

// begin registers a call and runs it in a goroutine.
func (l *link) begin(e *exchange, run func()) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.unusable(); err != nil {
		e.stop()
		e.line.Free()
		return err
	}
	l.calls[e.call] = e
	l.wg.Go(run)
	return nil
}

// unusable returns why nothing can be sent, or nil. The caller holds l.mu.
func (l *link) unusable() error {
	if l.why == nil && l.closed {
		return l.a.name.Unsent("its connection was closed", nil)
	}
	return l.why
}

// exchange returns the exchange of a call, or nil if the exchange has ended.
func (l *link) exchange(call int64) *exchange {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls[call]
}

// ended removes a settled call. After the last call of a retired link, it settles the link.
func (l *link) ended(call int64) {
	l.mu.Lock()
	delete(l.calls, call)
	last := l.settled != nil && len(l.calls) == 0
	l.mu.Unlock()
	if last {
		l.settle()
	}
}

// settle ends a retired link that has no calls left.
func (l *link) settle() {
	l.mu.Lock()
	why := l.why
	l.mu.Unlock()
	l.Fail(why)
	close(l.settled)
}

// retire records that nothing can be sent any more, while calls in flight may still get answers. If the
// connection has not ended before, retire calls locked with l.mu held, then before without it, and
// then rest.Gone.
func (l *link) retire(err error, locked, before func()) {
	l.mu.Lock()
	first := l.why == nil && !l.closed
	gone := first && l.open
	idle := false
	if first {
		l.why, l.settled = err, make(chan struct{})
		idle = len(l.calls) == 0
		locked()
	}
	l.mu.Unlock()
	if first {
		before()
	}
	if gone {
		l.rest.Gone(err)
	}
	if idle {
		l.settle()
	}
}

// closeOnce calls shut once. Further calls of closeOnce wait until shut has returned. When the ctx
// of any of these calls ends, l.force ends.
func (l *link) closeOnce(ctx context.Context, shut func()) {
	l.mu.Lock()
	if l.force == nil {
		l.force, l.cancelForce = context.WithCancel(context.Background())
	}
	l.mu.Unlock()
	defer context.AfterFunc(ctx, l.cancelForce)()
	l.once.Do(shut)
}

// finish ends the calls of a closed connection. If the link is retired, it first waits for answers,
// until l.force ends.
func (l *link) finish() {
	l.mu.Lock()
	settled := l.settled
	l.mu.Unlock()
	if settled != nil {
		select {
		case <-settled:
		case <-l.force.Done():
		}
	}
	l.Fail(l.a.name.Closed())
	l.stop()
}
