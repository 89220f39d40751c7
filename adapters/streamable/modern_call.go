package streamable

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

const (
	discover = "server/discover"
	listen   = "subscriptions/listen"
)

// statelessCall is one request of a client without a session, and its response (2026-07-28,
// Streamable HTTP). The call ends with its POST: when the client disconnects, the call is cancelled.
// The response cannot be resumed.
type statelessCall struct {
	d      *Downstream
	method string
	whose  string                  // the principal
	as     forms                   // the allowed forms of the answer
	stop   context.CancelCauseFunc // cancels the call
	wake   chan struct{}           // signals that an event was added
	done   chan struct{}           // closed when the call has ended
	answer answered                // set before done is closed; has no message if the call was cancelled

	mu     sync.Mutex // guards events and over
	events *replay.Log
	over   bool // no more events are added
}

var _ bridge.Stream = (*statelessCall)(nil)

// statelessLimits bound the events that wait for a slow client. Beyond them, the oldest progress
// and log messages are dropped. A subscription keeps the last change of each kind. If even these
// changes exceed the limits, the subscription ends, since a client must not miss changes unnoticed.
var statelessLimits = replay.Limits{
	Events: 256,
	Bytes:  historyBytes,
	Hard:   2 * historyBytes,
}

// newStatelessCall starts the call m in a goroutine, which frees body when the call has ended.
func newStatelessCall(d *Downstream, m *jsonrpc.Message, s gateway.Stateless, body *httpio.Body, as forms) *statelessCall {
	v := &statelessCall{
		d:      d,
		method: m.Method,
		whose:  s.From.Principal,
		as:     as,
		wake:   make(chan struct{}, 1),
		done:   make(chan struct{}),
	}
	// The context does not derive from the request's, since a subscription leaves the HTTP server.
	ctx, stop := context.WithCancelCause(context.Background())
	v.stop = stop
	s.Back, s.Keep = v, body.Keep
	go v.call(ctx, m, s, body)
	return v
}

func (s *statelessCall) call(ctx context.Context, m *jsonrpc.Message, g gateway.Stateless, body *httpio.Body) {
	defer close(s.done)
	a, err := s.d.g.Call(ctx, m, g)
	body.Free()
	s.answer = answered{a, err}
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
}

// Send implements bridge.Stream.
func (s *statelessCall) Send(e replay.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || !s.as.events {
		return false
	}
	if s.events == nil {
		s.events = s.d.g.NewLog(s.whose, statelessLimits, false)
		e.Must = s.listens() // the acknowledgement comes first
	}
	if s.events.Append(e) != nil {
		if s.listens() {
			s.over = true
			s.stop(bridge.ErrCancelled)
		}
		return false
	}
	wake(s.wake)
	return true
}

func (s *statelessCall) listens() bool { return s.method == listen }

// log returns the log of the call, or nil if it is empty.
func (s *statelessCall) log() *replay.Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events
}

func (s *statelessCall) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// end cancels the call, if it has not ended, and waits for its end.
func (s *statelessCall) end() {
	s.stop(bridge.ErrCancelled)
	<-s.done
	s.answer.m.Release()
	if s.events != nil { // no lock: over is set, so no event is added
		s.events.Close()
	}
}

// reply writes the response to the POST: as JSON if the answer comes soon and alone, otherwise as a
// stream of events.
func (s *statelessCall) reply(w http.ResponseWriter, r *http.Request) {
	var late <-chan time.Time
	if s.method != discover { // the status of server/discover must show a fault
		late = s.as.late()
	}
	select {
	case <-s.done:
	case <-s.wake:
	case <-late:
	case <-r.Context().Done():
		s.end()
		refuseHalf(w)
		return
	}
	if s.as.json && s.ended() && s.log() == nil {
		if s.answer.m != nil {
			writeAnswer(w, answerStatus(s.method, s.answer), s.answer)
		}
		s.end()
		return
	}
	if s.listens() { // subscriptions are many and mostly silent
		if run, abort, ok := httpio.Detach(w, r); ok {
			s.d.detach(s, abort, func() {
				run(s.serve)
				s.end()
			})
			return
		}
	}
	if ew, err := httpio.OpenWriter(w, r); err == nil { // an error means that the connection cannot stream
		s.serve(r.Context(), ew)
		ew.Close()
	}
	s.end()
}

// serve writes the stream until it ends, or the client disconnects.
func (s *statelessCall) serve(ctx context.Context, w *httpio.Writer) {
	err := w.Serve(ctx, httpio.Serving{
		Heartbeat: s.d.o.Heartbeat,
		Wake:      s.wake,
		Stop:      s.done,
	}, func() error { return s.write(w) })
	if err == httpio.ErrStopped && s.write(w) == nil {
		s.last(w)
	}
}

// write writes the events that were added since the last time.
func (s *statelessCall) write(w *httpio.Writer) error {
	said := s.log()
	if said == nil {
		return nil
	}
	return w.Drain(said)
}

// last writes the answer. A cancelled call has no answer.
func (s *statelessCall) last(w *httpio.Writer) {
	m := s.answer.m
	if m == nil {
		return
	}
	line := jsonrpc.NewBuffer(m.Len())
	defer line.Free()
	line.B = m.Append(line.B, m.ID, nil)
	if free := m.TakeRelease(); free != nil { // line has the reserved bytes now, not m
		defer free()
	}
	m.Release()
	if w.Send(httpio.Event{Type: "message", Data: line.B}) == nil {
		_ = w.Flush() // fails if the client has disconnected
	}
}

// detach runs serve in a goroutine, for a call whose connection has left the HTTP server. abort closes
// that connection.
func (d *Downstream) detach(s *statelessCall, abort, serve func()) {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		serve() // the bridge has just stopped, which ends the call
		return
	}
	d.listening[s] = abort
	d.wg.Add(1)
	d.mu.Unlock()
	go func() {
		defer d.wg.Done()
		serve()
		d.mu.Lock()
		delete(d.listening, s)
		d.mu.Unlock()
	}()
}

// Close waits for all subscriptions. The caller has closed the gateway before, which ends them. After
// breakAfter, Close closes the connections of clients that do not read.
func (d *Downstream) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	timer := time.AfterFunc(breakAfter, func() {
		d.mu.RLock()
		defer d.mu.RUnlock()
		for _, abort := range d.listening {
			abort()
		}
	})
	defer timer.Stop()
	d.wg.Wait()
}
