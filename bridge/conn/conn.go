// Package conn is one open connection to a server: it numbers requests and matches
// their answers, gives each call its progress and questions, bounds how long a call
// takes, passes cancellations on, makes the handshake, and detects the revision of
// a server.
//
// An adapter gives it a [Sender] and feeds it what it reads, in order. It opens
// nothing again, and starts no goroutine.
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

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
)

// Sender is the writing half of a wire.
type Sender interface {
	// Send takes one message. When the queue is full it waits until there is room or ctx ends, unless
	// the message is Urgent: that one is taken all the same.
	Send(ctx context.Context, m Outgoing) error
}

// Outgoing is one message on its way to a server.
type Outgoing struct {
	Line   *jsonrpc.Buffer // a JSON text on one line, without the line break; the Sender owns it
	Method string          // empty in an answer
	Call   int64           // the number of the call, its id on the wire; 0 for what has no answer
	// Header is what is forwarded of the client's. It is nil, not empty, for what
	// the bridge itself has to say: the wire may take the caller's then.
	Header http.Header
	// Identity has the caller's token, for a server that exchanges it. Like Header, it may be
	// nil for what the bridge itself has to say.
	Identity *identity.Identity
	// Name is what a request to a modern server is about, as Mcp-Name says it;
	// About reports whether there is such a thing (2026-07-28, B7).
	Name  string
	About bool
	// Mirror are the headers that repeat arguments of the call, encoded
	// (2026-07-28, B8).
	Mirror http.Header
	// Trace tells of the trace that a call belongs to, for the headers of HTTP.
	Trace bridge.Trace
	// Urgent says that nobody can wait for room: the reader of the connection sends it.
	Urgent bool
	// Cancels is the number of the call that notifications/cancelled takes back;
	// 0 in everything else.
	Cancels int64
}

// Conn is the book-keeping of one connection to a server: it numbers the
// requests and progress tokens that go out and finds whose an answer, a
// progress report or a cancellation is. A wire feeds it with Deliver, in the
// order of the wire, and ends it with Fail. It begins as a connection to a
// legacy server; Discover may find that the server is a modern one.
type Conn struct {
	server string
	out    Sender
	rest   bridge.Client
	times  Timeouts
	tap    bridge.Tap // nil if nobody ever looks at the messages

	mu      sync.Mutex // guards the rest
	next    int64
	calls   map[int64]*call
	asked   map[string]*asked // the server's questions without an answer, by raw id
	err     error             // why the connection has ended
	heard   time.Time         // when limits have last stood still
	asking  time.Time         // since when they stand still, while they do
	stood   time.Duration     // for how long in all before that
	waiting int               // for how many reasons they stand still: len(asked), and more by Stand
	modern  bool              // the server asks nothing, and says nothing outside of calls
}

// Timeouts bound a call.
type Timeouts struct {
	Idle time.Duration // how long a call may be silent; progress resets it; 0 means no limit
	Max  time.Duration // in all; 0 means no limit
	live *atomic.Pointer[Timeouts]
}

// Live returns time-outs that begin as t, and what has others take their place: these
// count for calls that begin afterwards, over connections that are open, too.
func (t Timeouts) Live() (live Timeouts, set func(Timeouts)) {
	t.live = new(atomic.Pointer[Timeouts])
	set = func(now Timeouts) { t.live.Store(&Timeouts{Idle: now.Idle, Max: now.Max}) }
	set(t)
	return t, set
}

// Now returns those that count now.
func (t Timeouts) Now() Timeouts {
	if t.live != nil {
		return *t.live.Load()
	}
	return t
}

// first returns how long after its beginning a call can time out at the
// earliest; 0 means that it never does.
func (t Timeouts) first() time.Duration {
	if t.Idle > 0 && t.Max > 0 {
		return min(t.Idle, t.Max)
	}
	return max(t.Idle, t.Max)
}

type call struct {
	answer chan *jsonrpc.Message // takes exactly one: the answer, or nil when there is none
	err    error                 // why there is none; nil means that the connection has ended
	back   bridge.Client
	stood  time.Duration // when the call was made, how long limits had stood still
	token  []byte        // the client's own, raw
	logs   bool          // the client wants log messages with it (2026-07-28, B12)
	lasts  bool          // it is a subscription
	broken bool          // a broken answer has come; guarded by Conn.mu
	alive  atomic.Int64  // when the last sign of life came, Unix nanoseconds
}

type asked struct {
	withdraw func(why string) // nil until Ask has returned
	back     bool             // the server took it back before
	why      string           // it did
}

// New makes the book-keeping for the server of that name. What the server
// starts by itself goes to rest.
func New(server string, out Sender, rest bridge.Client, t Timeouts) *Conn {
	c := &Conn{server: server, out: out, rest: rest, times: t, calls: map[int64]*call{}}
	if tapped, ok := rest.(bridge.Tapped); ok {
		c.tap = tapped.Tap()
	}
	return c
}

// passed tells who looks of a message.
func (c *Conn) passed(toServer bool, id []byte, m *jsonrpc.Message) {
	if c.tap != nil && c.tap.On() {
		c.tap.Passed(toServer, bytes.Clone(id), m) // a copy, so that ids of calls need no memory of their own while nobody looks
	}
}

// Call sends a request and waits for its answer, for as long as the time-outs
// allow; one of a handshake has ctx only.
func (c *Conn) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if ctx.Err() != nil { // it was cancelled before it began, however fast the answer would be
		return nil, context.Cause(ctx)
	}
	w := &call{answer: make(chan *jsonrpc.Message, 1), back: r.Back, lasts: r.Method == era.Listen}
	if token := r.Token(); token != nil {
		w.token = append([]byte(nil), token...)
	}
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return nil, c.unsent()
	}
	modern := c.modern
	c.next++
	n := c.next
	c.calls[n] = w
	w.stood = c.standing(time.Now())
	if modern {
		w.logs = r.Logs || bytes.Contains(r.Meta(), []byte(era.KeyLogLevel))
	}
	c.mu.Unlock()

	line := jsonrpc.NewBuffer(r.Len())
	var digits [20]byte
	id := strconv.AppendInt(digits[:0], n, 10)
	line.B = r.Append(line.B, id, id) // our id is unique among our tokens too
	c.passed(true, id, r.Message)
	out := Outgoing{Line: line, Method: r.Method, Call: n, Header: r.Header, Identity: r.Identity, Trace: r.Trace}
	if modern {
		out.Name, out.About = about(r.Message)
		out.Mirror = r.Mirror
	}
	if err := c.out.Send(ctx, out); err != nil {
		if _, mine := c.take(n); !mine {
			(<-w.answer).Release() // Fail was there first; it cannot know that this one was never sent
		}
		return nil, err
	}
	began := time.Now()
	var timer *time.Timer
	var expired <-chan time.Time // never, without a limit
	times := c.times.Now()
	if first := times.first(); first > 0 && !w.lasts && !r.Handshake { // otherwise for as long as anybody listens
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

// left returns how much longer the call may take by its time-outs, and which of them is
// the next to end it. While a question or a sign-in waits for a person both stand still.
func (c *Conn) left(t Timeouts, w *call, began, now time.Time) (time.Duration, time.Duration) {
	alive := time.Unix(0, w.alive.Load())
	c.mu.Lock()
	whole := began.Add(t.Max).Add(c.standing(now) - w.stood).Sub(now)
	if c.waiting > 0 {
		alive, whole = now, max(whole, time.Second) // there is no hurry to look again
	} else if c.heard.After(alive) {
		alive = c.heard
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

// standing returns for how long in all limits have stood still.
// The caller holds c.mu.
func (c *Conn) standing(now time.Time) time.Duration {
	if c.waiting > 0 {
		return c.stood + now.Sub(c.asking)
	}
	return c.stood
}

// unsent is the error of what was not sent because the connection has ended.
// The caller holds c.mu.
func (c *Conn) unsent() error {
	return &bridge.Error{Server: c.server, Kind: bridge.ErrUnsent, Public: "its connection has ended", Err: c.err}
}

// ended turns what came over the answer channel into results.
func (c *Conn) ended(w *call, m *jsonrpc.Message) (*jsonrpc.Message, error) {
	if m != nil {
		return m, nil
	}
	if w.err != nil {
		return nil, w.err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return nil, c.err
}

// abandon gives up a call whose answer is not wanted any more, and tells the
// server so, unless the answer has just come.
func (c *Conn) abandon(n int64, w *call, r *bridge.Request, why error) (*jsonrpc.Message, error) {
	if r.Awaited > 0 {
		c.takeBack(n, r, why)
		select {
		case m := <-w.answer:
			return c.ended(w, m)
		case <-time.After(r.Awaited): // it need not answer
		}
	}
	if _, mine := c.take(n); !mine {
		return c.ended(w, <-w.answer)
	}
	if r.Awaited == 0 && r.Method != "initialize" {
		c.takeBack(n, r, why)
	}
	if errors.Is(why, bridge.ErrShutdown) && !r.Handshake { // which alone would say that the server has not got it
		why = &bridge.Error{Server: c.server, Kind: bridge.ErrLost, Err: why, Public: bridge.Stopped}
	}
	return nil, why
}

// takeBack tells the server that a call is not wanted any more.
func (c *Conn) takeBack(n int64, r *bridge.Request, why error) {
	reason := ""
	if errors.Is(why, bridge.ErrCancelled) || errors.Is(why, bridge.ErrTimeout) {
		reason = "the request is not wanted any more"
	}
	if given, ok := bridge.ReasonOf(why); ok {
		reason = given
	}
	c.send(jsonrpc.NewCancelled(strconv.AppendInt(nil, n, 10), reason), nil, Outgoing{Header: r.Header, Identity: r.Identity, Cancels: n})
}

// TakesEdits implements bridge.TakesEdits.
func (*Conn) TakesEdits() {}

// about returns what a request is about, as Mcp-Name says it (2026-07-28, B7).
func about(m *jsonrpc.Message) (string, bool) {
	switch m.Method {
	case "tools/call", "prompts/get":
		return m.Name(), true
	case "resources/read":
		return m.URI(), true
	}
	return era.NameOf(m.Method, m.Params)
}

// Abort settles the call of that number with an error: no answer will come. It
// reports whether the call was still waiting for one.
func (c *Conn) Abort(call int64, err error) bool {
	w, mine := c.take(call)
	if mine {
		w.err = err
		w.answer <- nil
	}
	return mine
}

// Pending reports how many calls wait for their answer.
func (c *Conn) Pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls)
}

// Waits reports whether the call of that number still waits for its answer.
func (c *Conn) Waits(call int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.calls[call]
	return ok
}

// Only returns the raw id of the call that waits for its answer, if there is exactly
// one; otherwise nil.
func (c *Conn) Only() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.calls) != 1 {
		return nil
	}
	for n := range c.calls {
		return strconv.AppendInt(nil, n, 10)
	}
	return nil
}

// take removes and returns the call of that number, so that exactly one party
// settles it.
func (c *Conn) take(n int64) (*call, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w, ok := c.calls[n]
	delete(c.calls, n)
	return w, ok
}

// send writes what nobody waits for. A dead wire is noticed by its reader.
func (c *Conn) send(m *jsonrpc.Message, id []byte, out Outgoing) {
	out.Line, out.Method, out.Urgent = jsonrpc.NewBuffer(m.Len()), m.Method, true
	out.Line.B = m.Append(out.Line.B, id, nil)
	c.passed(true, id, m)
	_ = c.out.Send(context.Background(), out)
}

// Notify sends a notification.
func (c *Conn) Notify(ctx context.Context, r *bridge.Request) error {
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return c.unsent()
	}
	c.mu.Unlock()
	line := jsonrpc.NewBuffer(r.Len())
	line.B = r.Append(line.B, nil, nil)
	c.passed(true, nil, r.Message)
	return c.out.Send(ctx, Outgoing{Line: line, Method: r.Method, Header: r.Header, Identity: r.Identity})
}

// Fail ends the book-keeping: pending and later calls get err, questions are
// withdrawn. Only the first call does something; it reports whether it was.
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
		if a.withdraw != nil { // otherwise ask sees the error and does it
			withdraw = append(withdraw, a.withdraw)
		}
	}
	c.calls, c.asked, c.waiting = map[int64]*call{}, nil, 0
	c.mu.Unlock()
	for _, w := range calls {
		w.answer <- nil
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
