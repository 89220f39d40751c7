package streamable

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// stateless is a connection to a modern server (2026-07-28, Streamable HTTP). The server sees no
// connection: each call is a POST of its own, and nothing else is ever sent. There is no session,
// no other stream, no answer of a client, and no DELETE.
type stateless struct {
	link
	undiscovered bool // the server does not know server/discover (protocol.md C2.4)

	// mu of link guards the rest.
	found fault // of the last answer to server/discover
	check *eraCheck
}

// eraCheck is a check in flight whether the server is still a modern one.
type eraCheck struct {
	done   chan struct{}
	modern bool
}

var (
	_ bridge.Upstream = (*stateless)(nil)
	_ conn.Sender     = (*stateless)(nil)
)

func newStateless(ctx context.Context, a *Upstream, from *bridge.Caller, rest bridge.Client) *stateless {
	w := &stateless{}
	w.init(ctx, a, from, rest, w)
	return w
}

// opened records that Open succeeds.
func (w *stateless) opened(s *bridge.Greeting) error {
	s.Mirrors = true
	w.a.eras.Learn(conn.EraModern, true)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.server, w.open = s, true
	return nil
}

// Send implements conn.Sender. A call gets a POST of its own. A cancellation ends that POST: the
// closed stream cancels the call at the server. A modern server accepts nothing else
//
func (w *stateless) Send(_ context.Context, m conn.Outgoing) error {
	if m.Call != 0 {
		q := newModernCall(w, m)
		return w.begin(&q.exchange, q.run)
	}
	m.Line.Free()
	if m.Cancels != 0 {
		if p := w.exchange(m.Cancels); p != nil {
			p.stop()
		}
	}
	return nil
}

// fault is the error that answered server/discover. It is empty unless that error certainly answers
// the request.
type fault struct {
	status int
	code   int64
	text   string
}

// modern reports whether only a modern server returns this error (protocol.md C2.3).
func (f fault) modern() bool {
	return f.code == jsonrpc.CodeHeaderMismatch || f.code == jsonrpc.CodeMissingCapability
}

// undiscovered reports whether a modern server without server/discover returns this error
// (protocol.md C2.4).
func (f fault) undiscovered() bool {
	return f.status == http.StatusNotFound && f.code == jsonrpc.CodeMethodNotFound
}

// fault returns the error of the last server/discover.
func (w *stateless) fault() fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.found
}

// setFault stores the error of a server/discover.
func (w *stateless) setFault(status int, raw []byte) {
	f := fault{status: status}
	if raw != nil {
		f.code, f.text = gjson.GetBytes(raw, "code").Int(), printable(gjson.GetBytes(raw, "message").Str)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = f
}

// eraCheckLimit bounds a check of the server's era, for which a call waits.
const eraCheckLimit = 10 * time.Second

// stillModern reports whether the server is still a modern one, after an answer that no modern server
// gives. It sends server/discover, unless a check is in flight. A missing answer is no evidence
//
func (w *stateless) stillModern(ctx context.Context) bool {
	w.mu.Lock()
	if w.why != nil { // another call was faster
		defer w.mu.Unlock()
		return false
	}
	d := w.check
	mine := d == nil
	if mine {
		d = &eraCheck{done: make(chan struct{})}
		w.check = d
	}
	w.mu.Unlock()
	if !mine {
		select {
		case <-d.done:
			return d.modern
		case <-ctx.Done():
			return true
		}
	}
	within, cancel := context.WithTimeout(ctx, eraCheckLimit)
	defer cancel()
	_, v, err := conn.Discover(within, w.Conn, w.from)
	if err == nil {
		err = w.notModern(v)
	}
	d.modern = v != conn.SaysOther && !errors.Is(err, errNotModern) || w.undiscovered && w.fault().undiscovered()
	w.mu.Lock()
	w.check = nil
	w.mu.Unlock()
	close(d.done)
	return d.modern
}

// changed ends the connection because the server is not a modern one any more. The next connection
// detects the era anew. Calls in flight may still be answered, but subscriptions end. The
// error is for a call that had no effect.
func (w *stateless) changed(how string) *bridge.Error {
	err := w.a.name.Unsent("it does not speak revision "+era.LatestModern+" of the protocol any more", errors.New(how))
	var listens []*exchange
	w.retire(err, func() {
		for _, p := range w.calls {
			if p.method == listen {
				listens = append(listens, p)
			}
		}
	}, func() { w.a.eras.Forget(conn.EraModern) })
	for _, p := range listens {
		w.Abort(p.call, w.a.name.Lost("another server answers at this address now", nil))
		p.stop()
	}
	return err
}

// Close ends the calls. If the server has changed, Close waits until ctx ends for calls that may
// still be answered.
func (w *stateless) Close(ctx context.Context) error {
	w.closeOnce(ctx, w.shut)
	return nil
}

func (w *stateless) shut() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.finish()
	w.wg.Wait()
	w.cancelForce()
}
