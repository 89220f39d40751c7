package streamable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// wire is a connection to a legacy server, with a session if the server has sessions. It has an
// exchange for each call, a queue for messages without an answer, and the standalone stream, on which
// the server sends messages that belong to no call.
type wire struct {
	link
	listening         context.Context // ends when the standalone stream is no longer needed
	stopListening     context.CancelFunc
	clientNotified    atomic.Bool // set before rest.Gone is called
	unknownInitialize atomic.Bool // the server answered initialize with 404 and "method not found"
	greeting

	// link.mu guards the fields below.
	session    string // the id that the server gave; empty if the server has no sessions
	revision   string // value of Mcp-Protocol-Version; empty before 2025-06-18
	handedOver bool   // another process continues the session
	queue
}

var (
	_ bridge.Upstream = (*wire)(nil)
	_ conn.Sender     = (*wire)(nil)
)

func newWire(ctx context.Context, u *Upstream, from *bridge.Caller, rest bridge.Client) *wire {
	w := &wire{queue: queue{wait: conn.Backlog{Limit: 2 * u.o.MaxMessage}}, greeting: greeting{
		tried:   make(chan struct{}),
		taken:   make(chan struct{}),
		retried: make(chan struct{}),
	}}
	w.init(ctx, u, from, rest, w)
	w.listening, w.stopListening = context.WithCancel(context.Background())
	return w
}

// Send implements conn.Sender. A call gets an exchange of its own; messages without an answer are
// sent one after the other.
func (w *wire) Send(ctx context.Context, o conn.Outgoing) error {
	if o.Call != 0 {
		l := &legacyCall{w: w, retry: defaultRetry}
		l.init(&w.link, o, l.take)
		return w.begin(&l.exchange, l.run)
	}
	w.mu.Lock()
	opening := !w.open && !w.closed
	w.mu.Unlock()
	if opening && o.Method == "notifications/initialized" {
		return w.finishHandshake(ctx, o)
	}
	return w.enqueue(ctx, o)
}

// opened records that Open succeeds, and waits up to listenPatience for the second attempt to open
// the standalone stream. If the session has ended already, opened returns why.
func (w *wire) opened(ctx context.Context) error {
	w.mu.Lock()
	if w.why != nil {
		defer w.mu.Unlock()
		return w.why
	}
	w.open = true
	w.mu.Unlock()
	close(w.taken)
	if w.inTime { // otherwise, the first attempt took listenPatience already
		w.waitBriefly(ctx, w.retried) // the connection is usable even without that stream
	}
	return nil
}

// agree stores the agreed revision. From 2025-06-18 on, each later request names it.
func (w *wire) agree(revision string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if era.IsLegacy(revision) && revision >= era.Rev20250618 {
		w.revision = revision
	}
}

// maxSession bounds a session id, in bytes, since every request carries it.
const maxSession = 1 << 10

// admit stores the session id in the response to initialize. It reports false for an id that is too
// long or must not be in a header (A7).
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

// identity returns the session id and the revision for the headers of requests.
func (w *wire) identity() (session, revision string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.session, w.revision
}

const acceptBoth = httpio.JSON + ", " + httpio.Events

// request returns a request of this session. If header is nil, the message is the bridge's own, and
// the request has the forwarded headers of the caller who opened the connection, which all sessions
// of the connection share.
func (w *wire) request(ctx context.Context, method string, header http.Header, id *identity.Identity, body []byte) *http.Request {
	if header == nil {
		header = w.from.Header
	}
	w.mu.Lock()
	session, revision := w.session, w.revision
	w.mu.Unlock()
	r := w.link.request(ctx, method, header, id, body)
	switch method {
	case http.MethodPost:
		r.Header["Accept"] = []string{acceptBoth}
		r.Header["Content-Type"] = []string{httpio.JSON}
	case http.MethodGet:
		r.Header["Accept"] = []string{httpio.Events}
	}
	if session != "" {
		r.Header["Mcp-Session-Id"] = []string{session}
	}
	if revision != "" {
		r.Header["Mcp-Protocol-Version"] = []string{revision}
	}
	return r
}

// forget ends the connection because the server has lost the session. Calls in flight may still get
// answers. The error is for the call that the server refused.
func (w *wire) forget(how string) *bridge.Error {
	err := w.a.name.Unsent("it has forgotten the session", fmt.Errorf("%s: session %w", how, bridge.ErrLost))
	w.retire(err, w.clearQueue, func() {
		w.stopListening()
		w.mu.Lock()
		w.clientNotified.Store(w.open)
		w.mu.Unlock()
	})
	return err
}

// abandon ends the connection because the server is unusable. Calls in flight get ErrLost.
func (w *wire) abandon(why string, cause error) {
	err := w.a.name.Lost(why, cause)
	w.mu.Lock()
	first := w.why == nil && !w.closed
	gone := first && w.open
	if first {
		w.why = err
		w.clearQueue()
	}
	w.mu.Unlock()
	if !first {
		return
	}
	w.Fail(err)
	w.stopListening()
	w.stop()
	if gone {
		w.clientNotified.Store(true)
		w.rest.Gone(err)
	}
}

// deleteLimit bounds the DELETE of a session.
const deleteLimit = 2 * time.Second

// Close ends the calls and the server's session. If the server has forgotten the session, Close
// waits until ctx ends for calls that may still be answered.
func (w *wire) Close(ctx context.Context) error {
	w.closeOnce(ctx, w.shut)
	return nil
}

func (w *wire) shut() {
	w.mu.Lock()
	w.closed = true
	w.clearQueue()
	session, forgotten, left := w.session, w.settled != nil, w.handedOver
	w.mu.Unlock()
	w.stopListening()
	w.finish()
	if session != "" && !forgotten && !left {
		w.deleteSession()
	}
	w.wg.Wait()
	w.cancelForce()
}

// Attributes implements bridge.Attributing: a question on the stream of a call belongs to that
// call.
func (w *wire) Attributes() bool { return true }

// deleteSession deletes the server's session. Many servers do not allow that.
func (w *wire) deleteSession() {
	ctx, cancel := context.WithTimeout(w.force, deleteLimit)
	defer cancel()
	res, err := w.a.do(w.request(ctx, http.MethodDelete, nil, nil, nil))
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		// net/http may have reused the connection of a notification that finish cancelled after its
		// response, and closed that connection.
		res, err = w.a.do(w.request(ctx, http.MethodDelete, nil, nil, nil))
	}
	if err != nil {
		w.a.o.Log.Debug("the session could not be deleted at the server", "err", err)
		return
	}
	discard(res)
}
