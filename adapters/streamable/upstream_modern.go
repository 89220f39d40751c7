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

// stateless is a connection to a modern server (2026-07-28, Streamable HTTP). It
// is none to the server, to which each call is a POST of its own and nothing
// else is ever sent: no session, no other stream, no answers, no goodbye.
type stateless struct {
	link
	undiscovered bool // the server does not know server/discover (protocol.md C2.4)

	// link's mu guards the rest.
	found fault // of the last answer to server/discover
	doubt *doubt
}

// doubt is an attempt under way to find out whether the server is still the one
// that it was.
type doubt struct {
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

// opened begins the connection's life.
func (w *stateless) opened(s *bridge.Greeting) error {
	s.Mirrors = true
	w.a.eras.Learn(conn.EraModern, true)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.server, w.open = s, true
	return nil
}

// Send implements bridge.Sender. A call gets a POST of its own. What takes one
// back ends that: the closed stream tells the server. Nothing else can be
// said to a modern server.
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

// fault is what an error that answered server/discover was, if it is certain that
// it did.
type fault struct {
	status int
	code   int64
	text   string
}

// modern reports whether only a modern server makes this error (protocol.md C2.3).
func (f fault) modern() bool {
	return f.code == jsonrpc.CodeHeaderMismatch || f.code == jsonrpc.CodeMissingCapability
}

// undiscovered reports whether a modern server makes this error that lacks
// server/discover (protocol.md C2.4).
func (f fault) undiscovered() bool {
	return f.status == http.StatusNotFound && f.code == jsonrpc.CodeMethodNotFound
}

// fault returns what was wrong with the last server/discover.
func (w *stateless) fault() fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.found
}

// faulty notes what is wrong with a server/discover.
func (w *stateless) faulty(status int, raw []byte) {
	f := fault{status: status}
	if raw != nil {
		f.code, f.text = gjson.GetBytes(raw, "code").Int(), printable(gjson.GetBytes(raw, "message").Str)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = f
}

// doubtLimit is how long a server may take to say what it is, while a call waits
// to hear what became of it.
const doubtLimit = 10 * time.Second

// still reports whether the server is a modern one yet: it has answered a call as
// none does. It asks, unless somebody does already. No answer is no evidence
//
func (w *stateless) still(ctx context.Context) bool {
	w.mu.Lock()
	if w.why != nil { // somebody else was faster
		defer w.mu.Unlock()
		return false
	}
	d := w.doubt
	mine := d == nil
	if mine {
		d = &doubt{done: make(chan struct{})}
		w.doubt = d
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
	within, cancel := context.WithTimeout(ctx, doubtLimit)
	defer cancel()
	_, v, err := conn.Discover(within, w.Conn, w.from)
	if err == nil {
		err = w.doubts(v)
	}
	d.modern = v != conn.SaysOther && !errors.Is(err, errUnlike) || w.undiscovered && w.fault().undiscovered()
	w.mu.Lock()
	w.doubt = nil
	w.mu.Unlock()
	close(d.done)
	return d.modern
}

// changed ends the connection because what answers is no modern server any more:
// the next one finds out what it is. Calls under way may still be
// answered; who listens must do so elsewhere. The error is for a call that was
// not acted on.
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
		w.Abort(p.call, w.a.name.Lost("the server is another one now", nil))
		p.stop()
	}
	return err
}

// Close ends the calls. If the server was found to be another one, it waits for
// those that may be answered yet, until ctx ends.
func (w *stateless) Close(ctx context.Context) error {
	w.hurried(ctx, w.shut)
	return nil
}

func (w *stateless) shut() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.finish()
	w.wg.Wait()
	w.hurry()
}
