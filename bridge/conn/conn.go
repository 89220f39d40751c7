// Package conn implements one open connection to a server. It numbers requests, matches answers to them, and passes
// progress and questions to the call that they are about. It bounds the time of calls, and passes on cancellations. It
// makes the handshake, and detects the revision of the server.
//
// An adapter gives a [Conn] a [Sender], and passes to it every message that it reads, in order. A Conn does not
// reconnect, and starts no goroutine.
package conn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Sender is the writing side of a transport.
type Sender interface {
	// Send sends one message. If the queue is full, Send waits until there is room or ctx ends. It does not wait for
	// room if o is Urgent.
	Send(ctx context.Context, o Outgoing) error
}

// Outgoing is one message on its way to a server.
type Outgoing struct {
	Line   *jsonrpc.Buffer // JSON on one line, without the line break; Send takes it over
	Method string          // empty in an answer
	Call   int64           // number of the call, which is its id; 0 for a message that is no request
	// Header holds the forwarded headers of the client. It is nil, not empty, for messages of the bridge itself: then
	// the adapter may use the headers of the caller.
	Header http.Header
	// Identity holds the caller's token, for a server with exchanged tokens. Like Header, it may be nil for messages of
	// the bridge itself.
	Identity *identity.Identity
	// Name is the value of the header Mcp-Name of a request to a modern server. About reports whether the request has
	// that header (2026-07-28, B7).
	Name  string
	About bool
	// Mirror holds the encoded headers that repeat arguments of the call (2026-07-28, B8).
	Mirror http.Header
	// Trace is the trace context of the call, for HTTP headers.
	Trace bridge.Trace
	// Urgent means that the reader of the connection sends this message, and cannot wait for room.
	Urgent bool
	// Cancels is the number of the call that this notifications/cancelled cancels. It is 0 in other messages.
	Cancels int64
}

// Conn keeps the state of one connection to a server. It numbers outgoing requests and progress tokens, and finds the
// call of an answer, of progress or of a cancellation. The adapter passes messages to Deliver in the order of the
// transport, and ends the Conn with Fail. A Conn begins as a connection to a legacy server. Discover may find that the
// server is modern.
type Conn struct {
	server string
	out    Sender
	rest   bridge.Client
	times  Timeouts
	tap    bridge.Tap // observes messages; nil if nothing observes them

	mu    sync.Mutex // guards the rest
	next  int64      // number of the last request
	calls map[int64]*call
	asked map[string]*asked // open questions of the server, by raw id
	err   error             // why the connection has ended; nil while it is open

	// The time-outs of all calls are paused while a question is open, or while HoldTimeouts holds them.
	pausedAt  time.Time     // start of the last pause
	resumedAt time.Time     // end of the last pause
	paused    time.Duration // total length of the pauses before pausedAt
	pauses    int           // reasons for the current pause: len(asked), plus the calls of HoldTimeouts

	modern bool // the server is modern: it sends no requests, and only messages about calls

	noted int64 // number of the first call after the last notification or answer to the server; 0 before the first
	heard int64 // highest number of a call that was settled
}

// Timeouts bound the time of a call.
type Timeouts struct {
	Idle time.Duration             // how long a call may be without progress; 0 means no limit
	Max  time.Duration             // how long a call may take in all; 0 means no limit
	live *atomic.Pointer[Timeouts] // replaces Idle and Max, if not nil
}

// Live returns time-outs that begin as t, and a function that replaces them. New values apply to calls that begin
// later, even on open connections.
func (t Timeouts) Live() (live Timeouts, set func(Timeouts)) {
	t.live = new(atomic.Pointer[Timeouts])
	set = func(now Timeouts) { t.live.Store(&Timeouts{Idle: now.Idle, Max: now.Max}) }
	set(t)
	return t, set
}

// Now returns the current time-outs.
func (t Timeouts) Now() Timeouts {
	if t.live != nil {
		return *t.live.Load()
	}
	return t
}

// first returns how long after its beginning a call can time out at the earliest. 0 means never.
func (t Timeouts) first() time.Duration {
	if t.Idle > 0 && t.Max > 0 {
		return min(t.Idle, t.Max)
	}
	return max(t.Idle, t.Max)
}

type call struct {
	answer chan *jsonrpc.Message // receives exactly one value: the answer, or nil for none
	err    error                 // why the answer is nil; nil means Conn.err
	back   bridge.Client
	paused time.Duration // Conn.paused when the call began
	token  []byte        // progress token of the client, raw; nil without one
	logs   bool          // the request asks for log messages (2026-07-28, B12)
	lasts  bool          // the call is a subscription
	method string        // of the request
	modern bool          // the server is modern
	broken bool          // a malformed answer came; guarded by Conn.mu
	alive  atomic.Int64  // time of the last progress in Unix nanoseconds
}

type asked struct {
	withdraw func(why string) // nil until Ask has returned
	back     bool             // the server cancelled the question before withdraw was set
	why      string           // the server's reason
}

// New returns a Conn for the server of that name. rest receives the messages that belong to no call.
func New(server string, out Sender, rest bridge.Client, t Timeouts) *Conn {
	c := &Conn{
		server: server,
		out:    out,
		rest:   rest,
		times:  t,
		calls:  map[int64]*call{},
	}
	if tapped, ok := rest.(bridge.Tapped); ok {
		c.tap = tapped.Tap()
	}
	return c
}

// show passes a message to the tap, if something observes the messages.
func (c *Conn) show(toServer bool, id []byte, m *jsonrpc.Message) {
	if c.tap != nil && c.tap.On() {
		c.tap.Passed(toServer, bytes.Clone(id), m) // the copy keeps ids off the heap while the tap is off
	}
}

// Call sends a request, and waits for the answer within the time-outs. For a request of a handshake, only ctx limits
// the time.
func (c *Conn) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if ctx.Err() != nil { // even if the answer would be fast
		return nil, context.Cause(ctx)
	}
	w := &call{
		answer: make(chan *jsonrpc.Message, 1),
		back:   r.Back,
		lasts:  r.Method == era.Listen,
		method: r.Method,
	}
	if token := r.Token(); token != nil {
		w.token = append([]byte(nil), token...)
	}
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return nil, c.unsent()
	}
	modern := c.modern
	w.modern = modern
	c.next++
	n := c.next
	c.calls[n] = w
	w.paused = c.pausedFor(time.Now())
	if modern {
		w.logs = r.Logs || bytes.Contains(r.Meta(), []byte(era.KeyLogLevel))
	}
	c.mu.Unlock()

	line := jsonrpc.NewBuffer(r.Len())
	var digits [20]byte
	id := strconv.AppendInt(digits[:0], n, 10)
	line.B = r.Append(line.B, id, id) // the id is also the progress token
	c.show(true, id, r.Message)
	if r.Trace != (bridge.Trace{}) {
		trace.SpanFromContext(ctx).SetAttributes(attribute.String("jsonrpc.request.id", string(id)))
	}
	out := Outgoing{
		Line:     line,
		Method:   r.Method,
		Call:     n,
		Header:   r.Header,
		Identity: r.Identity,
		Trace:    r.Trace,
	}
	if modern {
		out.Name, out.About = about(r.Message)
		out.Mirror = r.Mirror
	}
	if err := c.out.Send(ctx, out); err != nil {
		if _, mine := c.take(n); !mine {
			(<-w.answer).Release() // Fail settled the call, but the request was not sent
		}
		return nil, err
	}
	began := time.Now()
	var timer *time.Timer
	var expired <-chan time.Time // nil without a limit
	times := c.times.Now()
	if first := times.first(); first > 0 && !w.lasts && !r.Handshake { // subscriptions and handshakes have no time-out
		timer = time.NewTimer(first)
		defer timer.Stop()
		expired = timer.C
	}
	for {
		select {
		case m := <-w.answer:
			return c.ended(w, m)
		case <-ctx.Done():
			return c.abandon(n, w, r, context.Cause(ctx))
		case now := <-expired:
			left, limit := c.left(times, w, began, now)
			if left > 0 {
				timer.Reset(left)
				continue
			}
			return c.abandon(n, w, r, &bridge.Error{Server: c.server, Kind: bridge.ErrTimeout,
				Public: fmt.Sprintf("%s had no answer within %v; whether the server acted on it is unknown", r.Method, limit)})
		}
	}
}

// left returns how long the call may still take, and which of the two limits ends it then. Pauses do not count.
func (c *Conn) left(t Timeouts, w *call, began, now time.Time) (time.Duration, time.Duration) {
	alive := time.Unix(0, w.alive.Load())
	c.mu.Lock()
	whole := began.Add(t.Max).Add(c.pausedFor(now) - w.paused).Sub(now)
	if c.pauses > 0 {
		alive, whole = now, max(whole, time.Second) // during a pause there is no need to check again soon
	} else if c.resumedAt.After(alive) {
		alive = c.resumedAt
	}
	c.mu.Unlock()
	if t.Idle <= 0 {
		return whole, t.Max
	}
	if alive.Before(began) {
		alive = began
	}
	idle := alive.Add(t.Idle).Sub(now)
	if t.Max > 0 && whole < idle {
		return whole, t.Max
	}
	return idle, t.Idle
}

// pausedFor returns the total length of all pauses until now. The caller holds c.mu.
func (c *Conn) pausedFor(now time.Time) time.Duration {
	if c.pauses > 0 {
		return c.paused + now.Sub(c.pausedAt)
	}
	return c.paused
}

// unsent returns the error of a message that was not sent because the connection had ended. The caller holds c.mu.
func (c *Conn) unsent() error {
	return &bridge.Error{
		Server: c.server,
		Kind:   bridge.ErrUnsent,
		Public: "its connection has ended",
		Err:    c.err,
	}
}

// ended returns the results of Call for a call that received m.
func (c *Conn) ended(w *call, m *jsonrpc.Message) (*jsonrpc.Message, error) {
	if m != nil {
		if result, changed := withoutNulls(m, w.method, w.modern); changed {
			m = m.Replaced(result)
		}
		return m, nil
	}
	if w.err != nil {
		return nil, w.err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return nil, c.err
}

// withoutNulls returns the result of m without optional members that are null, and reports whether that changes it.
func withoutNulls(m *jsonrpc.Message, method string, modern bool) ([]byte, bool) {
	if !m.HasNulls() {
		return nil, false
	}
	whole := m.Whole()
	result := era.WithoutNulls(method, whole, modern)
	return result, !rawjson.Same(result, whole)
}

// abandon ends a call for the reason why, and cancels the request at the server. If the answer has come meanwhile,
// abandon returns the answer.
func (c *Conn) abandon(n int64, w *call, r *bridge.Request, why error) (*jsonrpc.Message, error) {
	if r.Awaited > 0 {
		c.cancel(n, r, why)
		select {
		case m := <-w.answer:
			return c.ended(w, m)
		case <-time.After(r.Awaited): // the server need not answer a cancelled request
		}
	}
	if _, mine := c.take(n); !mine {
		return c.ended(w, <-w.answer)
	}
	if r.Awaited == 0 && r.Method != "initialize" {
		c.cancel(n, r, why)
	}
	if errors.Is(why, bridge.ErrShutdown) && !r.Handshake { // ErrShutdown alone would mean that the server did not get the request
		why = &bridge.Error{
			Server: c.server,
			Kind:   bridge.ErrLost,
			Err:    why,
			Public: bridge.Stopped,
		}
	}
	return nil, why
}

// cancel sends notifications/cancelled for a call.
func (c *Conn) cancel(n int64, r *bridge.Request, why error) {
	reason := ""
	if errors.Is(why, bridge.ErrCancelled) || errors.Is(why, bridge.ErrTimeout) {
		reason = "the request is not wanted any more"
	}
	if given, ok := bridge.ReasonOf(why); ok {
		reason = given
	}
	c.send(jsonrpc.NewCancelled(strconv.AppendInt(nil, n, 10), reason), nil, Outgoing{
		Header:   r.Header,
		Identity: r.Identity,
		Cancels:  n,
	})
}

// TakesEdits implements bridge.TakesEdits: Call writes requests with Append.
func (*Conn) TakesEdits() {}

// about returns the value of Mcp-Name for a request, and reports whether the request has that header (2026-07-28, B7).
func about(m *jsonrpc.Message) (string, bool) {
	switch m.Method {
	case "tools/call", "prompts/get":
		return m.Name(), true
	case "resources/read":
		return m.URI(), true
	}
	return era.NameOf(m.Method, m.Params)
}

// Abort settles the call of that number with an error. It reports whether the call was still open.
func (c *Conn) Abort(call int64, err error) bool {
	w, mine := c.take(call)
	if mine {
		w.err = err
		w.answer <- nil
	}
	return mine
}

// Pending returns the number of calls without an answer.
func (c *Conn) Pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls)
}

// Waits reports whether the call of that number has no answer yet.
func (c *Conn) Waits(call int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.calls[call]
	return ok
}

// Only returns the raw id of the call without an answer, if there is exactly one. alone reports whether a message
// without an id must be about that call: a call that began after the last notification has got its answer, so the
// server has read all notifications.
func (c *Conn) Only() (id []byte, alone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.calls) != 1 {
		return nil, false
	}
	for n := range c.calls {
		id = strconv.AppendInt(nil, n, 10)
	}
	return id, c.heard >= c.noted
}

// take removes and returns the call of that number, so that only one party settles the call.
func (c *Conn) take(n int64) (*call, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w, ok := c.calls[n]
	delete(c.calls, n)
	if ok {
		c.heard = max(c.heard, n)
	}
	return w, ok
}

// send sends a message of the reader, without waiting. It ignores errors: the reader notices that the connection has
// ended.
func (c *Conn) send(m *jsonrpc.Message, id []byte, out Outgoing) {
	c.mu.Lock()
	c.noted = c.next + 1
	c.mu.Unlock()
	out.Line, out.Method, out.Urgent = jsonrpc.NewBuffer(m.Len()), m.Method, true
	out.Line.B = m.Append(out.Line.B, id, nil)
	c.show(true, id, m)
	_ = c.out.Send(context.Background(), out)
}

// Notify sends a notification, unless the connection has ended.
func (c *Conn) Notify(ctx context.Context, r *bridge.Request) error {
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return c.unsent()
	}
	c.noted = c.next + 1
	c.mu.Unlock()
	line := jsonrpc.NewBuffer(r.Len())
	line.B = r.Append(line.B, nil, nil)
	c.show(true, nil, r.Message)
	return c.out.Send(ctx, Outgoing{
		Line:     line,
		Method:   r.Method,
		Header:   r.Header,
		Identity: r.Identity,
	})
}

// Fail ends the connection with err, which pending and later calls return. It withdraws open questions. Only the first
// call has an effect; Fail reports whether this was the first.
func (c *Conn) Fail(err error) bool {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return false
	}
	c.err = err
	calls := c.calls
	var withdraw []func(why string)
	for _, a := range c.asked {
		if a.withdraw != nil { // otherwise ask sees the error, and withdraws the question
			withdraw = append(withdraw, a.withdraw)
		}
	}
	c.calls, c.asked, c.pauses = map[int64]*call{}, nil, 0
	c.mu.Unlock()
	for _, c := range calls {
		c.answer <- nil
	}
	for _, f := range withdraw {
		f("")
	}
	return true
}

// Err returns why the connection has ended, or nil.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
