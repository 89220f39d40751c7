package socket

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Adapter connects to one server.
type Adapter struct {
	name conn.Name
	o    conn.Options
	// network and address are the arguments of net.Dial.
	network, address string
}

var _ bridge.Adapter = (*Adapter)(nil)

// New returns the adapter for the server with a name. o has the limits of the server's calls.
func New(name string, c Config, o conn.Options) (*Adapter, error) {
	network, address, err := c.target()
	if err != nil {
		return nil, fmt.Errorf("server %s: %w", name, err)
	}
	return &Adapter{name: conn.Name(name), o: o.Filled(name), network: network, address: address}, nil
}

// Open connects and does the handshake.
func (a *Adapter) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	wire, err := new(net.Dialer).DialContext(ctx, a.network, a.address)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil: // clients get only the first text; the log also gets the address
		return nil, a.name.Unavailable("it cannot be connected to", err)
	}
	l := &link{a: a, wire: wire, rest: rest}
	l.queue = conn.NewQueue(2*a.o.MaxMessage, func() { l.stopWriting(conn.ErrFull) })
	l.Conn = conn.New(string(a.name), l.queue, rest, a.o.Timeouts)
	l.running.Go(l.write)
	l.running.Go(l.read)
	l.server, err = conn.Handshake(ctx, l.Conn, from, a.o.Revision)
	if err == nil {
		err = l.life.Opened() // the connection may have ended just now
	}
	if err == nil {
		return l, nil
	}
	_ = l.Close(context.Background())
	return nil, a.name.Ended(l.life.Over(), err)
}

// link is a connection. It gets the methods of bridge.Upstream from conn.Conn, except Server and Close.
type link struct {
	*conn.Conn
	a       *Adapter
	wire    net.Conn
	rest    bridge.Client
	server  *bridge.Greeting
	queue   *conn.Queue
	running sync.WaitGroup // the goroutines of read and write
	life    conn.Life
	unread  atomic.Pointer[bridge.Error] // why writing failed
}

// Server returns the server's answer to the handshake.
func (l *link) Server() *bridge.Greeting { return l.server }

// Close ends the connection and waits for its goroutines.
func (l *link) Close(context.Context) error {
	l.life.Close() // from now on, the end is not reported
	l.queue.Stop(l.a.name.Unsent("its connection was closed", nil), io.EOF)
	l.Fail(l.a.name.Closed())
	_ = l.wire.Close()
	l.running.Wait()
	return nil
}

const (
	writeLimit = 5 * time.Minute        // maximum time until the server reads a message
	lastWords  = 250 * time.Millisecond // maximum time for the server's last answers after that
)

// write writes the messages in the queue until the queue is stopped.
func (l *link) write() {
	for {
		m, err := l.queue.Take()
		if err != nil {
			return
		}
		_ = l.wire.SetWriteDeadline(time.Now().Add(writeLimit)) // if the connection is closed, the write fails
		_, err = l.wire.Write(append(m.Line.B, '\n'))
		m.Line.Free()
		if err != nil {
			l.stopWriting(err)
			return
		}
	}
}

// stopWriting records that writing failed. read ends the connection later, because answers may still arrive.
func (l *link) stopWriting(err error) {
	const why = "it does not read what is sent to it"
	lost := l.a.name.Lost(why, err)
	l.unread.CompareAndSwap(nil, lost)
	l.queue.Stop(l.a.name.Unsent(why, lost), io.EOF) // later messages are certainly not sent
	_ = l.wire.SetReadDeadline(time.Now().Add(lastWords))
}

// read delivers messages until the connection ends. Only read reports the end, so no message follows the end.
func (l *link) read() {
	err := l.receive()
	_ = l.wire.Close() // a write may be blocked
	lost := cmp.Or(l.unread.Load(), l.a.name.Lost("it ended the connection", err))
	news, gone := l.life.End(lost)
	if !news {
		return
	}
	l.queue.Stop(l.a.name.Unsent("its connection has ended", lost), io.EOF)
	l.Fail(lost) // calls in flight may have had an effect
	if gone {
		l.rest.Gone(lost)
	}
}

// receive delivers messages. It waits only for the connection.
func (l *link) receive() error {
	texts := &conn.Parser{Options: l.a.o, Conn: l.Conn, Quotes: true, Unit: "lines",
		Warning: "ignored lines of the server that are not MCP messages"}
	defer texts.Warn()
	in := l.Intake() // messages count as bytes in flight
	defer in.Drop()
	r := bufio.NewReader(l.wire)
	for {
		line, over, err := l.line(r, &in)
		switch {
		case err != nil:
			return err
		case over != nil:
			l.a.o.Log.Warn("message dropped", "why", in.Why(l.a.o.MaxMessage), "id", string(over.ID()))
			l.AnswerNotKept(&in, over.ID(), l.a.o.MaxMessage) // fails only its own call
		case len(bytes.TrimSpace(line.B)) == 0:
			line.Free()
		default:
			_ = texts.Parse(line, line.B, &in, l.Deliver) // Parse has logged the error and failed the call
		}
		in.Drop()
	}
}

// line reads a line. It drops a line that is too long or for which there is no room; over then holds the id of the
// line's call.
func (l *link) line(r *bufio.Reader, in *conn.Intake) (line *jsonrpc.Buffer, over *jsonrpc.Finder, err error) {
	line = jsonrpc.NewBuffer(0)
	for {
		part, err := r.ReadSlice('\n')
		if size := len(line.B) + len(part); over == nil && (size > l.a.o.MaxMessage+conn.EnvelopeRoom || !in.Size(size)) {
			over = &jsonrpc.Finder{}
			_, _ = over.Write(line.B)
			line.Free()
			in.Size(0)
		}
		if over != nil {
			_, _ = over.Write(part)
		} else {
			line.Append(part)
		}
		if err != bufio.ErrBufferFull {
			return line, over, err
		}
	}
}
