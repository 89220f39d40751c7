package streamable

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// stateless is a connection to a modern server (2026-07-28, Streamable HTTP). The server knows of no
// connection: each call is a POST of its own, and the bridge sends nothing else. There is no session,
// no other stream, no answer of a client, and no DELETE.
type stateless struct {
	link
	undiscovered bool // the server does not have server/discover (protocol.md C2.4)

	// link.mu guards the fields below.
	found fault     // of the last answer to server/discover
	check *eraCheck // in flight, or nil
}

// eraCheck checks whether the server is still a modern one.
type eraCheck struct {
	done   chan struct{} // closed after modern is set
	modern bool
}

var (
	_ bridge.Upstream = (*stateless)(nil)
	_ conn.Sender     = (*stateless)(nil)
)

func newStateless(ctx context.Context, u *Upstream, from *bridge.Caller, rest bridge.Client) *stateless {
	s := &stateless{}
	s.init(ctx, u, from, rest, s)
	return s
}

// opened records that Open succeeds with that greeting.
func (s *stateless) opened(greeting *bridge.Greeting) error {
	greeting.Mirrors = true
	s.a.eras.Learn(conn.EraModern, true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server, s.open = greeting, true
	return nil
}

// Send implements conn.Sender. A call gets a POST of its own. A cancellation ends that POST: the
// closed stream cancels the call at the server. A modern server accepts nothing else
//
func (s *stateless) Send(_ context.Context, o conn.Outgoing) error {
	if o.Call != 0 {
		m := newModernCall(s, o)
		return s.begin(&m.exchange, m.run)
	}
	o.Line.Free()
	if o.Cancels != 0 {
		if e := s.exchange(o.Cancels); e != nil {
			e.stop()
		}
	}
	return nil
}

// fault is the error that answered server/discover. It is zero if there was none, or if the error may
// be about another request.
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
func (s *stateless) fault() fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.found
}

// setFault stores the error that answered server/discover. raw is the JSON-RPC error, or nil.
func (s *stateless) setFault(status int, raw []byte) {
	f := fault{status: status}
	if raw != nil {
		f.code, f.text = gjson.GetBytes(raw, "code").Int(), remote.Printable(gjson.GetBytes(raw, "message").Str)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found = f
}

// eraCheckLimit bounds a check of the server's era, for which a call waits.
const eraCheckLimit = 10 * time.Second

// stillModern reports whether the server is still a modern one, after an answer that is untypical of
// modern servers. It sends server/discover, or waits for a check in flight. If no answer comes, the
// server counts as modern.
func (s *stateless) stillModern(ctx context.Context) bool {
	s.mu.Lock()
	if s.why != nil { // another call has found that the server is not modern
		defer s.mu.Unlock()
		return false
	}
	e := s.check
	mine := e == nil
	if mine {
		e = &eraCheck{done: make(chan struct{})}
		s.check = e
	}
	s.mu.Unlock()
	if !mine {
		select {
		case <-e.done:
			return e.modern
		case <-ctx.Done():
			return true
		}
	}
	within, cancel := context.WithTimeout(ctx, eraCheckLimit)
	defer cancel()
	_, v, err := conn.Discover(within, s.Conn, s.from)
	if err == nil {
		err = s.notModern(v)
	}
	e.modern = v != conn.SaysOther && !errors.Is(err, errNotModern) || s.undiscovered && s.fault().undiscovered()
	s.mu.Lock()
	s.check = nil
	s.mu.Unlock()
	close(e.done)
	return e.modern
}

// changed ends the connection because the server is not a modern one any more. The next connection
// detects the era anew. Calls in flight may still get answers, but subscriptions end. The
// error is for a call that had no effect.
func (s *stateless) changed(how string) *bridge.Error {
	err := s.a.name.Unsent("it does not speak revision "+era.LatestModern+" of the protocol any more", errors.New(how))
	var listens []*exchange
	s.retire(err, func() {
		for _, e := range s.calls {
			if e.method == listen {
				listens = append(listens, e)
			}
		}
	}, func() { s.a.eras.Forget(conn.EraModern) })
	for _, e := range listens {
		s.Abort(e.call, s.a.name.Lost("another server answers at this address now", nil))
		e.stop()
	}
	return err
}

// Close ends the calls. If the server has changed its era, calls in flight may still get answers until
// ctx ends.
func (s *stateless) Close(ctx context.Context) error {
	s.closeOnce(ctx, s.shut)
	return nil
}

func (s *stateless) shut() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.finish()
	s.wg.Wait()
	s.cancelForce()
}
