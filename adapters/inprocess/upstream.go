package inprocess

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Timeouts bound a call: Idle without progress, and Max in total.
type Timeouts = conn.Timeouts

// Options are the limits of a server's connections.
type Options struct {
	Log        *slog.Logger // nil means slog.Default()
	MaxMessage int          // bounds a message from the server, in bytes without its envelope; 16 MiB if 0
	Timeouts   Timeouts     // of each call; no limit if 0
	// Stop is how long handlers may take to return after their connection was closed and their
	// contexts have ended; 5 s if 0. Handlers that take longer are logged, and keep running.
	Stop time.Duration
}

// Adapter opens sessions with servers of the SDK.
type Adapter struct {
	name   conn.Name
	o      Options
	server func(*bridge.Caller) *mcp.Server
	guards *guards
	// join starts the server's half of a connection, which reads s.queue and calls s.deliver. wait
	// returns when that half has ended.
	join func(s *session, from *bridge.Caller) (wait func() error, err error)
}

var _ bridge.Adapter = (*Adapter)(nil)

// New returns the adapter for the server of that name. The adapter calls server for each
// connection, from several goroutines at once. If server returns a new server each time, the
// server's state belongs to one connection. If it always returns the same server, each connection
// is a session of that server. If it returns nil, the caller gets no server. Clients of 2026-07-28
// and later have no sessions: those of one principal with the same capabilities share one
// connection.
//
// The adapter adds to each server, once, a receiving middleware that contains panics of handlers. The
// middleware has no effect in sessions that the adapter did not open.
func New(name string, server func(*bridge.Caller) *mcp.Server, o Options) *Adapter {
	o.Log = cmp.Or(o.Log, slog.Default()).With("server", name)
	if o.MaxMessage <= 0 {
		o.MaxMessage = 16 << 20
	}
	if o.Stop <= 0 {
		o.Stop = 5 * time.Second
	}
	a := &Adapter{
		name:   conn.Name(name),
		o:      o,
		server: server,
		guards: &guards{},
	}
	a.join = a.connect
	return a
}

// Shared returns an adapter whose connections are sessions of s. s may also have other sessions.
func Shared(name string, s *mcp.Server, o Options) *Adapter {
	return New(name, func(*bridge.Caller) *mcp.Server { return s }, o)
}

// Open implements bridge.Adapter. It starts a session and does the legacy handshake, whatever the era
// of the client.
func (a *Adapter) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	s := &session{
		a:    a,
		rest: rest,
		done: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.queue = conn.NewQueue(2*a.o.MaxMessage, s.unread)
	s.Conn = conn.New(string(a.name), s.queue, rest, a.o.Timeouts)
	wait, err := a.join(s, from)
	if err != nil {
		s.cancel(nil)
		return nil, a.name.Unavailable("it could not be started", err)
	}
	go s.watch(wait) // ends with the server's half; Close waits for done
	s.server, err = conn.Handshake(ctx, s.Conn, from, "")
	if err == nil {
		err = s.life.Opened()
	}
	if err == nil {
		return s, nil
	}
	_ = s.Close(context.Background())
	return nil, a.name.Ended(s.life.Over(), err)
}

// session is one session with the server, and the connection to it.
type session struct {
	*conn.Conn
	a      *Adapter
	queue  *conn.Queue
	rest   bridge.Client
	server *bridge.Greeting
	ctx    context.Context // ends with the connection, and ends the contexts of handlers
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the server's half has ended
	runs   runs

	mu   sync.Mutex // guards the order of deliveries and of changes to life
	life conn.Life
}

// Server implements bridge.Upstream.
func (s *session) Server() *bridge.Greeting { return s.server }

// unreadWhy is the error of a server that does not read its input.
const unreadWhy = "it does not read what is sent to it"

// unread ends a connection whose queue is full. It leaves rest.Gone to watch, since Gone must not be
// called during a delivery.
func (s *session) unread() {
	err := s.a.name.Lost(unreadWhy, conn.ErrFull)
	s.queue.Stop(err, conn.ErrFull)
	s.Fail(err)
}

// watch waits for the end of the server's half, and then ends the connection, unless Close was
// called.
func (s *session) watch(wait func() error) {
	defer close(s.done)
	cause := wait()
	why := "it ended the session"
	if errors.Is(cause, conn.ErrFull) {
		why = unreadWhy
	}
	err := s.a.name.Lost(why, cause)
	s.mu.Lock()
	news, gone := s.life.End(err)
	s.mu.Unlock()
	if !news {
		return
	}
	s.cancel(err)
	s.queue.Stop(err, io.EOF)
	s.Fail(err)
	if gone {
		s.rest.Gone(err)
	}
}

// deliver delivers a message of the server, or releases it if the connection has ended. Several
// goroutines of the server may call it; the order of the calls is the order of the messages.
func (s *session) deliver(m *jsonrpc.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.IsClosed() || s.life.Over() != nil {
		m.Release()
		return mcp.ErrConnectionClosed
	}
	s.Deliver(m)
	return nil
}

// closeGrace is how long Close still waits for handlers after its context has ended.
const closeGrace = 250 * time.Millisecond

// Close ends the session and the contexts of its handlers. It returns when all handlers have returned,
// but waits no longer than Options.Stop, or closeGrace after the end of ctx.
func (s *session) Close(ctx context.Context) error {
	s.mu.Lock()
	s.life.Close()
	s.mu.Unlock()
	err := s.a.name.Closed()
	s.Fail(err)
	s.cancel(err)
	s.queue.Stop(err, io.EOF)
	timer := time.NewTimer(s.a.o.Stop)
	defer timer.Stop()
	select {
	case <-s.done:
		return nil
	case <-timer.C:
	case <-ctx.Done():
		timer.Reset(closeGrace)
		select {
		case <-s.done:
			return nil
		case <-timer.C:
		}
	}
	if methods := s.runs.methods(); len(methods) > 0 {
		s.a.o.Log.Warn("a handler still runs after its session was closed: it ignores its context", "method", strings.Join(methods, ", "))
	} else {
		s.a.o.Log.Warn("the server has not ended a session that was closed")
	}
	return nil
}

// tooLarge drops a message of the server that is above the limit. If the message is an answer, its call
// gets an error; if it is a question, the server gets an error.
func (s *session) tooLarge(m *jsonrpc.Message, size int) {
	s.a.o.Log.Warn("message dropped: larger than the limit", "limit", s.a.o.MaxMessage, "bytes", size, "method", m.Method)
	what := fmt.Sprintf("larger than the limit of %d bytes", s.a.o.MaxMessage)
	if m.IsResponse() {
		s.Unanswerable(m.ID, "its answer is "+what)
		return
	}
	s.refuse(m, "the request is "+what)
}

// refuse answers q, a question of the server that does not reach the client, with an error. If q is
// a notification, refuse does nothing.
func (s *session) refuse(q *jsonrpc.Message, why string) {
	if !q.IsRequest() {
		return
	}
	m := jsonrpc.NewError(nil, jsonrpc.CodeInvalidRequest, why, nil)
	line := jsonrpc.NewBuffer(m.Len())
	line.B = m.Append(line.B, q.ID, nil)
	_ = s.queue.Send(context.Background(), conn.Outgoing{Line: line, Urgent: true}) // after Stop, the reader of the queue has its error
}
