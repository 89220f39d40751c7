package dialogue

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Upstream is a connection to a Server in memory. One goroutine reads, in the order of the wire.
type Upstream struct {
	*conn.Conn
	s      *Server
	rest   bridge.Client
	server *bridge.Greeting
	peer   *Conn
	queue  chan func()
	done   chan struct{}
	once   sync.Once
	wg     sync.WaitGroup
}

var _ bridge.Adapter = (*Server)(nil)

// Open implements bridge.Adapter.
func (s *Server) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	if s.Down() {
		return nil, &bridge.Error{Server: s.Name, Kind: bridge.ErrUnavailable, Public: "it is down"}
	}
	u := &Upstream{s: s, rest: rest, queue: make(chan func(), 1<<12), done: make(chan struct{})}
	u.Conn = conn.New(s.Name, u, rest, conn.Timeouts{})
	u.peer = s.Connect(u.say, u.die)
	u.wg.Go(u.run)
	var err error
	if modern(s.Revision()) {
		u.server, _, err = conn.Discover(ctx, u.Conn, from)
	} else {
		u.server, err = conn.Handshake(ctx, u.Conn, from, "")
	}
	if err != nil {
		return nil, errors.Join(err, u.Close(ctx))
	}
	return u, nil
}

func (u *Upstream) run() {
	for {
		select {
		case <-u.done:
			return
		case do := <-u.queue:
			do()
		}
	}
}

// Send implements conn.Sender.
func (u *Upstream) Send(_ context.Context, o conn.Outgoing) error {
	text := string(o.Line.B)
	o.Line.Free()
	u.queue <- func() { u.peer.Take(text) }
	return nil
}

func (u *Upstream) say(line, about string) {
	on := int64(0)
	if u.s.Streams {
		on, _ = strconv.ParseInt(about, 10, 64) // 0 without a call
	}

	u.queue <- func() {
		buf := jsonrpc.NewBuffer(len(line))
		buf.B = append(buf.B, line...)
		m, err := jsonrpc.Parse(buf.B)
		if err != nil {
			panic(fmt.Sprintf("%s: %v", line, err)) // a dialogue has messages only
		}
		u.DeliverOn(on, m.Own(buf))
	}
}

func (u *Upstream) die() {
	u.queue <- func() {
		err := &bridge.Error{Server: u.s.Name, Kind: bridge.ErrLost, Public: "it died"}
		if u.Fail(err) {
			u.rest.Gone(err)
		}
	}
}

// Server implements bridge.Upstream.
func (u *Upstream) Server() *bridge.Greeting { return u.server }

// Attributes implements bridge.Attributing.
func (u *Upstream) Attributes() bool { return u.s.Streams }

// Close implements bridge.Upstream.
func (u *Upstream) Close(context.Context) error {
	u.Fail(&bridge.Error{Server: u.s.Name, Kind: bridge.ErrLost, Public: "its connection was closed"})
	u.peer.Closed()
	u.once.Do(func() { close(u.done) })
	u.wg.Wait()
	return nil
}

// Memory is a Bridge of wrappers alone, without sessions and transports. A call that fails ends with an error that has
// the text for clients, and no data.
type Memory struct {
	// Chain returns the wrappers for a client. to gets the messages that belong to no call.
	Chain func(from *bridge.Caller, to bridge.Client) bridge.Upstream
	// Shut ends the wrappers that all clients use; nil if there are none.
	Shut func()

	wires []*chain
}

// Connect implements Bridge.
func (m *Memory) Connect(c *Client) Wire {
	w := &chain{c: c, cancels: map[string]context.CancelCauseFunc{}, replies: map[string]func(*jsonrpc.Message){}}
	w.up = m.Chain(c.Caller, w)
	m.wires = append(m.wires, w)
	return w
}

// Close implements Bridge.
func (m *Memory) Close() {
	for _, w := range m.wires {
		w.End()
	}
	if m.Shut != nil {
		m.Shut()
	}
}

// chain is the Wire of a client to an Upstream, and the Client of its calls.
type chain struct {
	c    *Client
	up   bridge.Upstream
	once sync.Once
	wg   sync.WaitGroup

	mu      sync.Mutex // guards the rest
	cancels map[string]context.CancelCauseFunc
	replies map[string]func(*jsonrpc.Message)
	asks    int
}

// Send implements Wire.
func (w *chain) Send(line string) {
	m, err := jsonrpc.Parse([]byte(line))
	if err != nil {
		panic(fmt.Sprintf("%s: %v", line, err))
	}
	r := &bridge.Request{Message: m, From: w.c.Caller, Back: w}
	if m.Method == era.Listen {
		r.Back = listening{w, string(m.ID)}
	}
	switch {
	case m.IsRequest():
		ctx, cancel := context.WithCancelCause(context.Background())
		w.mu.Lock()
		w.cancels[string(m.ID)] = cancel
		w.mu.Unlock()
		w.wg.Go(func() {
			defer cancel(nil)
			a, err := w.up.Call(ctx, r)
			w.answer(m.ID, a, err)
		})
	case m.IsNotification():
		r.Back = nil
		_ = w.up.Notify(context.Background(), r)
	default:
		w.mu.Lock()
		reply := w.replies[string(m.ID)]
		delete(w.replies, string(m.ID))
		w.mu.Unlock()
		if reply != nil {
			reply(m)
		}
	}
}

func (w *chain) answer(id []byte, a *jsonrpc.Message, err error) {
	e, told := errors.AsType[*bridge.Error](err)
	switch {
	case errors.Is(err, bridge.ErrCancelled):
	case told:
		w.c.Hear(text(jsonrpc.NewError(id, jsonrpc.CodeInternal, e.Told(), nil), id))
	case err != nil:
		w.c.Hear(text(jsonrpc.NewError(id, jsonrpc.CodeInternal, err.Error(), nil), id))
	default:
		w.c.Hear(text(a, id))
	}
}

func text(m *jsonrpc.Message, id []byte) string { return string(m.Append(nil, id, nil)) }

// Cancel implements Wire.
func (w *chain) Cancel(id string) {
	w.mu.Lock()
	cancel := w.cancels[id]
	w.mu.Unlock()
	cancel(bridge.ErrCancelled)
}

// End implements Wire.
func (w *chain) End() {
	w.once.Do(func() {
		w.mu.Lock()
		for _, cancel := range w.cancels {
			cancel(bridge.ErrCancelled)
		}
		w.mu.Unlock()
		if !w.c.Caller.Modern() {
			_ = w.up.Close(context.Background())
		}
		w.wg.Wait()
	})
}

// Notify implements bridge.Client.
func (w *chain) Notify(m *jsonrpc.Message) { w.c.Hear(text(m, nil)) }

// listening is the Client of a subscription.
type listening struct {
	*chain
	id string
}

// theirs matches the id of the subscription at the server.
var theirs = regexp.MustCompile(`"io\.modelcontextprotocol/subscriptionId":\d+,?`)

// Notify implements bridge.Client. It adds the id of the subscription, as sessions do.
func (l listening) Notify(m *jsonrpc.Message) {
	params := era.Inject(theirs.ReplaceAll(m.Whole(), nil), []byte(`"io.modelcontextprotocol/subscriptionId":`+l.id))
	l.c.Hear(message("", m.Method, string(params)))
}

// Ask implements bridge.Client.
func (w *chain) Ask(m *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	w.mu.Lock()
	w.asks++
	id := fmt.Sprint(w.asks)
	w.replies[id] = reply
	w.mu.Unlock()
	w.c.Hear(text(m, []byte(id)))
	return func(string) {
		w.mu.Lock()
		_, open := w.replies[id]
		delete(w.replies, id)
		w.mu.Unlock()
		if open {
			w.c.Hear(message("", "notifications/cancelled", `{"requestId":`+id+`}`))
		}
	}
}

// Gone implements bridge.Client.
func (w *chain) Gone(error) { w.c.Gone() }
