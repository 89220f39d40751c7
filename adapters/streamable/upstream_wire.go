package streamable

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
)

// wire is one connection: a session of the server's, if it has sessions. It
// consists of exchanges, a POST for each call; of the courier, who carries what
// has no answer; and of the standing stream, on which the server says what
// belongs to no call.
type wire struct {
	*bridge.Conn
	a      *Upstream
	from   *bridge.Caller
	rest   bridge.Client
	server *bridge.Server

	ctx    context.Context // ends when the connection is closed
	stop   context.CancelFunc
	heed   context.Context // ends when there is nothing to listen to any more
	deafen context.CancelFunc
	wg     sync.WaitGroup // everything that runs; added to with mu held and closed false
	once   sync.Once
	over   atomic.Bool // rest has been told that the connection has ended

	mu        sync.Mutex // guards the rest
	session   string     // the id that the server gave; empty when it has no sessions
	revision  string     // what Mcp-Protocol-Version says; empty before 2025-06-18
	calls     map[int64]*exchange
	open      bool            // Open has succeeded
	closed    bool            // Close was called
	why       error           // why nothing can be sent any more
	forgotten bool            // the server does not know the session any more
	settled   chan struct{}   // closed when no call of a forgotten session is left
	force     context.Context // ends when Close has no more time; nil before Close
	hurry     context.CancelFunc
	courier
}

var (
	_ bridge.Upstream = (*wire)(nil)
	_ bridge.Sender   = (*wire)(nil)
)

func newWire(a *Upstream, from *bridge.Caller, rest bridge.Client) *wire {
	w := &wire{a: a, from: from, rest: rest, calls: map[int64]*exchange{}}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.heed, w.deafen = context.WithCancel(context.Background())
	w.Conn = bridge.NewConn(a.name, w, rest, a.o.Timeouts)
	return w
}

// Server returns what the handshake said.
func (w *wire) Server() *bridge.Server { return w.server }

// Send implements bridge.Sender. A call gets an exchange of its own; what
// nobody waits for goes out one after the other.
func (w *wire) Send(ctx context.Context, m bridge.Outgoing) error {
	if m.Call != 0 {
		return w.begin(m)
	}
	w.mu.Lock()
	opening := !w.open && !w.closed
	w.mu.Unlock()
	if opening && m.Method == "notifications/initialized" {
		return w.confirm(ctx, m) // nothing may overtake it
	}
	return w.enqueue(ctx, m)
}

// begin starts the exchange of a call.
func (w *wire) begin(m bridge.Outgoing) error {
	e := newExchange(w, m)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.unfit(); err != nil {
		e.stop()
		m.Line.Free()
		return err
	}
	w.calls[m.Call] = e
	w.wg.Go(e.run)
	return nil
}

// unfit returns why nothing can be sent, or nil. The caller holds w.mu.
func (w *wire) unfit() error {
	if w.why == nil && w.closed {
		return &bridge.Error{Server: w.a.name, Kind: bridge.ErrUnsent, Public: "its connection was closed"}
	}
	return w.why
}

// exchange returns the exchange of that call, or nil when it has ended.
func (w *wire) exchange(call int64) *exchange {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[call]
}

// ended removes the exchange of a call that is settled. The questions of a
// forgotten session live as long as its last call.
func (w *wire) ended(call int64) {
	w.mu.Lock()
	delete(w.calls, call)
	last := w.forgotten && len(w.calls) == 0
	w.mu.Unlock()
	if last {
		w.settle()
	}
}

// settle ends what is left of a forgotten session.
func (w *wire) settle() {
	w.mu.Lock()
	why := w.why
	w.mu.Unlock()
	w.Fail(why)
	close(w.settled)
}

// opened settles the race between the end of Open and the end of the session,
// and begins to listen.
func (w *wire) opened(ctx context.Context) error {
	tried := make(chan struct{})
	w.mu.Lock()
	if w.why != nil {
		defer w.mu.Unlock()
		return w.why
	}
	w.open = true
	w.wg.Go(func() { w.listen(sync.OnceFunc(func() { close(tried) })) })
	w.mu.Unlock()
	patience := time.NewTimer(listenPatience)
	defer patience.Stop()
	select {
	case <-tried:
	case <-patience.C:
	case <-ctx.Done(): // the connection is good all the same
	}
	return nil
}

// agree notes what the answer to initialize says: from now on each request
// names the revision.
func (w *wire) agree(revision string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if era.IsLegacy(revision) && revision >= era.Rev20250618 {
		w.revision = revision
	}
}

// maxSession bounds a session id: it goes out with every request.
const maxSession = 1 << 10

// admit takes the session id of the response to initialize. It reports false
// for one that must not go into a header (A7).
func (w *wire) admit(id string) bool {
	if len(id) > maxSession {
		return false
	}
	for i := range len(id) {
		if id[i] < 0x21 || id[i] > 0x7e {
			return false
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.session = id
	return true
}

// holds returns the session id and the revision that requests name.
func (w *wire) holds() (session, revision string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.session, w.revision
}

const (
	acceptBoth   = "application/json, text/event-stream"
	acceptEvents = "text/event-stream"
	contentJSON  = "application/json"
)

// request makes a request of this session. A nil header is that of a message of
// the bridge's own: it goes with what was forwarded when the connection was
// opened, which all of its sessions have in common.
func (w *wire) request(ctx context.Context, method string, header http.Header, body []byte) *http.Request {
	if header == nil {
		header = w.from.Header
	}
	w.mu.Lock()
	session, revision := w.session, w.revision
	w.mu.Unlock()
	r := w.a.client.Request(ctx, method, w.a.client.URL(), header, body)
	switch method {
	case http.MethodPost:
		r.Header["Accept"] = []string{acceptBoth}
		r.Header["Content-Type"] = []string{contentJSON}
	case http.MethodGet:
		r.Header["Accept"] = []string{acceptEvents}
	}
	if session != "" {
		r.Header["Mcp-Session-Id"] = []string{session}
	}
	if revision != "" {
		r.Header["Mcp-Protocol-Version"] = []string{revision}
	}
	return r
}

// forget notes that the server does not know the session any more. Its calls
// under way may still be answered by whoever works on them. The error
// is for the call that was refused.
func (w *wire) forget(how string) *bridge.Error {
	err := &bridge.Error{Server: w.a.name, Kind: bridge.ErrUnsent, Public: "it has forgotten the session", Err: fmt.Errorf("%s: session %w", how, bridge.ErrLost)}
	w.mu.Lock()
	first := w.why == nil && !w.closed
	gone := first && w.open
	idle := false
	if first {
		w.why, w.forgotten, w.settled = err, true, make(chan struct{})
		idle = len(w.calls) == 0
		w.dismiss()
	}
	w.mu.Unlock()
	if first {
		w.deafen()
	}
	if gone {
		w.over.Store(true)
		w.rest.Gone(err)
	}
	if idle {
		w.settle()
	}
	return err
}

// abandon ends the connection because the server is of no use: its calls are
// lost.
func (w *wire) abandon(why string, cause error) {
	err := w.a.lost(why, cause)
	w.mu.Lock()
	first := w.why == nil && !w.closed
	gone := first && w.open
	if first {
		w.why = err
		w.dismiss()
	}
	w.mu.Unlock()
	if !first {
		return
	}
	w.Fail(err)
	w.deafen()
	w.stop()
	if gone {
		w.over.Store(true)
		w.rest.Gone(err)
	}
}

// deleteLimit bounds the goodbye.
const deleteLimit = 2 * time.Second

// Close ends the calls and the server's session. If the server has forgotten
// it, Close waits for the calls that may be answered yet, until ctx ends.
func (w *wire) Close(ctx context.Context) error {
	w.mu.Lock()
	if w.force == nil {
		w.force, w.hurry = context.WithCancel(context.Background())
	}
	w.mu.Unlock()
	defer context.AfterFunc(ctx, w.hurry)()
	w.once.Do(w.shut)
	return nil
}

func (w *wire) shut() {
	w.mu.Lock()
	w.closed = true
	w.dismiss()
	session, forgotten, settled := w.session, w.forgotten, w.settled
	w.mu.Unlock()
	w.deafen()
	if settled != nil {
		select {
		case <-settled:
		case <-w.force.Done():
		}
	}
	w.Fail(&bridge.Error{Server: w.a.name, Kind: bridge.ErrLost, Public: "its connection was closed"})
	w.stop()
	if session != "" && !forgotten {
		w.goodbye()
	}
	w.wg.Wait()
	w.hurry()
}

// goodbye ends the server's session. Many servers do not let their clients do
// so.
func (w *wire) goodbye() {
	ctx, cancel := context.WithTimeout(w.force, deleteLimit)
	defer cancel()
	res, err := w.a.do(w.request(ctx, http.MethodDelete, nil, nil))
	if err != nil {
		w.a.o.Log.Debug("the server was not told of the session's end", "err", err)
		return
	}
	discard(res)
}

// sleep waits. It reports false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
