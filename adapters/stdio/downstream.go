package stdio

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
	"github.com/mcp-bridge/bridge/bridge/session"
)

// DownstreamOptions configure Serve.
type DownstreamOptions struct {
	Log        *slog.Logger // nil means slog.Default(); must not write to the client's stream
	MaxMessage int          // bounds a message, in bytes; a line has conn.EnvelopeRoom more; 16 MiB if 0
	Principal  string       // of the client, if the bridge has Grants
}

const (
	// lingerEOF is how long calls in flight may take after the client has closed its side. A client
	// that leaves needs no answers, and R-013 asks for a prompt exit. But a script that pipes in
	// its requests closes its side after the last request, and then reads the answers.
	lingerEOF = 2 * time.Second
	// lastAnswers is how long Serve waits at its end for the answers to cancelled calls, and then for
	// the client to read the rest.
	lastAnswers = 2 * time.Second
	// maxHeld bounds the messages that wait for the handshake, and the notifications that wait for
	// the server. A session refuses more requests at once anyway.
	maxHeld = 128
)

// errUnread is the error of a client that does not read its answers.
var errUnread = errors.New("the client does not read its answers")

// Serve serves the one client at the other end of in and out, until in or ctx ends, or out breaks.
// It uses a session of the server of that name, or none if the client is of the stateless era. If the
// client has left by closing in, Serve returns nil. Calls in flight may then take lingerEOF, but the
// end of ctx cancels them at once. Each call gets its answer before Serve returns, unless the client
// does not read.
//
// A session ends by itself if its server is gone and must not be started again. Serve then returns
// an error after the answers to calls in flight. Clients of this transport watch the process that
// they started, and recover from its end. A process that went on and refused everything would look
// healthy.
//
// When Serve returns, only the closing of the server's connection may be left of the session, and
// Gateway.Close waits for that. Serve does not close in and out. If in supports SetReadDeadline, Serve
// ends a waiting read by a deadline. Otherwise, as with a terminal, the reading goroutine stays until
// in has input, which it drops. The same holds for out and a client that does not read.
func Serve(ctx context.Context, g gateway.Gateway, server string, in io.Reader, out io.Writer, o DownstreamOptions) error {
	o.Log = cmp.Or(o.Log, slog.Default()).With("server", server)
	o.MaxMessage = cmp.Or(max(o.MaxMessage, 0), 16<<20)
	p := &peer{
		g:         g,
		server:    server,
		modern:    g.OffersModern(server),
		o:         o,
		ended:     make(chan struct{}),
		drained:   make(chan struct{}, 1),
		stateless: map[*statelessCall]struct{}{},
		out:       g.NewLog("", gateway.ReplayLimits(o.MaxMessage), false),
	}
	defer p.out.Close()
	// p.ctx outlives ctx: awaitEnd waits for the end of ctx, and leave then ends p.ctx with the
	// reason as its cause.
	p.ctx, p.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	defer p.cancel(nil)
	reading := begin(func() error { return p.read(in) })
	writing := begin(func() error { return p.write(out) })
	why := p.awaitEnd(ctx, reading, writing)
	p.leave(why)
	last := p.lastWrite(writing, out)
	if d, ok := in.(interface{ SetReadDeadline(time.Time) error }); ok && d.SetReadDeadline(time.Unix(1, 0)) == nil {
		<-reading.done
		_ = d.SetReadDeadline(time.Time{}) // undoes the deadline that ended a waiting read
	}
	if n := p.out.Drops(); n > 0 {
		o.Log.Warn("notifications dropped: the client read too slowly", "count", n)
	}
	if why == nil {
		return last
	}
	return why
}

// unreadFor bounds how long the bridge reads nothing from a client with too many unread answers. During
// that time, it does not notice a client that has left while another process keeps the pipe open.
const unreadFor = 5 * time.Minute

// job is a goroutine and the error with which it ends.
type job struct {
	done chan struct{} // closed at its end
	err  error         // valid after done
}

func begin(f func() error) *job {
	j := &job{done: make(chan struct{})}
	go func() {
		defer close(j.done)
		j.err = f()
	}()
	return j
}

// peer is the client.
type peer struct {
	g        gateway.Gateway
	server   string
	modern   bool // the server offers the stateless era
	o        DownstreamOptions
	out      *replay.Log     // messages to the client that are not written yet
	ctx      context.Context // ends when Serve must end
	cancel   context.CancelCauseFunc
	wg       sync.WaitGroup // of the handshake, and of calls without a session
	ended    chan struct{}  // closed when the session has ended by itself
	drained  chan struct{}  // receives after a part of out was written
	calls    gateway.Calls  // the calls in flight, the handshake, and the delivery of notes
	reserved int            // bytes of the current line; only read uses it
	noRoom   bool           // the bridge had no room for more of the line; only read uses it

	mu        sync.Mutex      // guards the fields below
	session   gateway.Session // nil before the end of the handshake
	begun     bool            // initialize has come
	open      bool            // messages go to the session
	over      bool            // no more messages are accepted
	held      []arrival       // messages that came between begun and open
	notes     []arrival       // notifications that wait for the server
	noting    bool            // a goroutine delivers notes
	stateless map[*statelessCall]struct{}
}

var _ bridge.Stream = (*peer)(nil)

// arrival is a message of the client, with the line of which the message is a part. free is called
// when the message is no longer used.
type arrival struct {
	m *jsonrpc.Message
	*text
}

// Send implements bridge.Stream. If a message that must not be dropped does not fit, since the client
// does not read, Send ends the session.
func (p *peer) Send(e replay.Event) bool {
	e.Data = append(e.Data, '\n') // so that one write has the message and the line break
	err := p.out.Append(e)
	if errors.Is(err, replay.ErrOver) {
		p.cancel(errUnread)
	}
	return err == nil
}

func (p *peer) answer(m *jsonrpc.Message) {
	if m == nil {
		return // the client has cancelled the request and expects no answer (A10)
	}
	p.Send(gateway.AnswerEvent(m))
}

// forClient returns the answer m to a request. If err has lines of the server's standard error, and
// the client has no principal and so has started the bridge itself, forClient adds these lines.
func (p *peer) forClient(m *jsonrpc.Message, err error) *jsonrpc.Message {
	e, ok := errors.AsType[*bridge.Error](err)
	if m == nil || !ok || e.Stderr == "" || p.o.Principal != "" {
		return m
	}
	return gateway.FullRefusal(m.ID, err)
}

func (p *peer) current() gateway.Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session
}

// awaitEnd waits until Serve must end, and returns the reason. If the client has left, awaitEnd waits up
// to lingerEOF for calls in flight, and returns nil.
func (p *peer) awaitEnd(ctx context.Context, reading, writing *job) error {
	select {
	case <-reading.done:
		if reading.err != io.EOF {
			return fmt.Errorf("reading from the client: %w", reading.err)
		}
		select {
		case <-p.calls.None():
		case <-time.After(lingerEOF):
		case <-writing.done:
		case <-p.ended:
		case <-ctx.Done(): // mostly by SIGTERM, which a client sends some time after closing the input
		case <-p.ctx.Done():
			return context.Cause(p.ctx)
		}
		return nil
	case <-writing.done:
		return fmt.Errorf("writing to the client: %w", writing.err)
	case <-p.ended:
		if p.g.Draining() {
			return bridge.ErrShutdown
		}
		return &bridge.Error{
			Server: p.server,
			Kind:   bridge.ErrLost,
			Public: "it has ended, and its session with it",
		}
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave ends the session, and waits up to lastAnswers for the answers to calls in flight.
func (p *peer) leave(why error) {
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	reason := bridge.ErrEnded
	if why != nil {
		reason = bridge.ErrShutdown
	}
	p.cancel(reason)
	p.endStateless(reason)
	p.wg.Wait() // the handshake ends with p.ctx
	if s := p.current(); s != nil {
		s.End(reason)
	}
	select {
	case <-p.calls.None():
	case <-time.After(lastAnswers):
	}
}

// lastWrite waits up to lastAnswers until the rest is written, and returns why that failed. If the
// client has left, it returns nil.
func (p *peer) lastWrite(writing *job, out io.Writer) error {
	p.out.Finish()
	select {
	case <-writing.done:
		err := writing.err
		if err == nil || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, os.ErrClosed) {
			return nil // a client that has left reads nothing
		}
		return fmt.Errorf("writing to the client: %w", err)
	case <-time.After(lastAnswers):
	}
	if d, ok := out.(deadliner); ok && d.SetWriteDeadline(time.Unix(1, 0)) == nil {
		<-writing.done
	}
	return errUnread
}

// write writes the events of the log, until the log is finished. Only write writes to the client.
func (p *peer) write(out io.Writer) error {
	wide := false
	for {
		finished := p.out.Finished() // before the last Next
		events := p.out.Next(0)
		for _, e := range events {
			if len(e.Data) > readBuffer && !wide {
				wide = true
				widen(out)
			}
			if _, err := out.Write(e.Data); err != nil {
				return err
			}
		}
		switch {
		case len(events) > 0:
			p.out.Forget(events[len(events)-1].Seq)
			select {
			case p.drained <- struct{}{}:
			default:
			}
		case finished:
			return nil
		default:
			<-p.out.Wake()
		}
	}
}

// pause waits while the client has too many unread answers. It reports false if Serve must end.
func (p *peer) pause() bool {
	for gateway.Unread(p.out, p.o.MaxMessage) {
		select {
		case <-p.drained:
		case <-time.After(unreadFor):
			p.cancel(errUnread)
		case <-p.ctx.Done():
		}
		if p.ctx.Err() != nil {
			return false
		}
	}
	return true
}

func (p *peer) initialize(first arrival) {
	s, m, err := p.g.Initialize(p.ctx, first.m, gateway.SessionOptions{
		Server:    p.server,
		ID:        session.NewID(""),
		Principal: p.o.Principal,
	})
	first.free()
	if s == nil {
		p.answer(p.forClient(m, err))
		p.mu.Lock()
		held := p.held
		p.held, p.begun = nil, false // the client may try again
		p.mu.Unlock()
		for _, a := range held {
			if a.m.IsRequest() {
				p.answer(early(a.m))
			}
			a.free()
		}
		return
	}
	p.mu.Lock()
	p.session = s
	p.mu.Unlock()
	s.OnEnd(func() { close(p.ended) })
	p.answer(m)
	s.Attach(p)
	for {
		p.mu.Lock()
		held := p.held
		p.held = nil
		p.open = len(held) == 0
		for _, a := range held {
			if a.m.IsRequest() {
				p.calls.Add(1)
			}
		}
		p.mu.Unlock()
		if len(held) == 0 {
			return
		}
		for _, a := range held {
			p.pass(s, a)
		}
	}
}
