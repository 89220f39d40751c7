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

// link is what a connection is in either era: calls under way, each a POST of
// its own, and the end of it all.
type link struct {
	*conn.Conn
	a      *Upstream
	cookie *remote.Cookies
	from   *bridge.Caller
	rest   bridge.Client
	server *bridge.Greeting

	ctx  context.Context // ends when the connection is closed
	stop context.CancelFunc
	wg   sync.WaitGroup // everything that runs; added to with mu held and closed false
	once sync.Once

	mu      sync.Mutex // guards the rest, and what else a connection has
	calls   map[int64]*exchange
	open    bool            // Open has succeeded
	closed  bool            // Close was called
	why     error           // why nothing can be sent any more
	settled chan struct{}   // closed when no call is left; nil unless retired
	force   context.Context // ends when Close has no more time; nil before Close
	hurry   context.CancelFunc
}

// init makes the link of a connection that sends by out. The limits that ctx is under stand
// still while a request waits for a sign-in, and those of calls do.
func (l *link) init(ctx context.Context, a *Upstream, from *bridge.Caller, rest bridge.Client, out conn.Sender) {
	l.a, l.cookie, l.from, l.rest, l.calls = a, new(remote.Cookies), from, rest, map[int64]*exchange{}
	l.Conn = conn.New(string(a.name), out, rest, a.o.Timeouts)
	l.ctx, l.stop = context.WithCancel(deadline.With(context.WithoutCancel(ctx), l.Stand))
}

// request makes a request of this connection.
func (l *link) request(ctx context.Context, method string, header http.Header, id *identity.Identity, body []byte) *http.Request {
	ctx = remote.WithIdentity(ctx, cmp.Or(id, l.from.Identity))
	return l.a.client.Request(remote.WithCookies(ctx, l.cookie), method, l.a.client.URL(), header, body)
}

// Server returns what the opening found out.
func (l *link) Server() *bridge.Greeting { return l.server }

// begin starts a call that run makes and sees to the end of.
func (l *link) begin(p *exchange, run func()) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.unfit(); err != nil {
		p.stop()
		p.line.Free()
		return err
	}
	l.calls[p.call] = p
	l.wg.Go(run)
	return nil
}

// unfit returns why nothing can be sent, or nil. The caller holds l.mu.
func (l *link) unfit() error {
	if l.why == nil && l.closed {
		return l.a.name.Unsent("its connection was closed", nil)
	}
	return l.why
}

// exchange returns that of a call, or nil when it has ended.
func (l *link) exchange(call int64) *exchange {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls[call]
}

// ended removes a call that is settled. What else belongs to a connection that
// is retired lives as long as its last call.
func (l *link) ended(call int64) {
	l.mu.Lock()
	delete(l.calls, call)
	last := l.settled != nil && len(l.calls) == 0
	l.mu.Unlock()
	if last {
		l.settle()
	}
}

// settle ends what is left of a retired connection.
func (l *link) settle() {
	l.mu.Lock()
	why := l.why
	l.mu.Unlock()
	l.Fail(why)
	close(l.settled)
}

// retire notes that nothing can be sent any more, for a reason that keeps
// nobody from answering the calls under way. locked is called with l.mu held,
// told before the connection's client hears of it, both of them only if this is
// how the connection ends.
func (l *link) retire(err error, locked, told func()) {
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
		told()
	}
	if gone {
		l.rest.Gone(err)
	}
	if idle {
		l.settle()
	}
}

// hurried calls shut the first time, with l.force ending when ctx does.
func (l *link) hurried(ctx context.Context, shut func()) {
	l.mu.Lock()
	if l.force == nil {
		l.force, l.hurry = context.WithCancel(context.Background())
	}
	l.mu.Unlock()
	defer context.AfterFunc(ctx, l.hurry)()
	l.once.Do(shut)
}

// finish ends the calls of a connection that was marked as closed. Those of a
// retired one may be answered yet, as long as there is time.
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
