package sse

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/adapters/eventstream"
	"github.com/mcp-bridge/bridge/adapters/httpclient"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// UpstreamOptions are the limits of a server's connections.
type UpstreamOptions struct {
	Log        *slog.Logger  // nil means slog.Default()
	MaxMessage int           // bytes of one message from the server; 0 means 16 MiB
	Timeouts   conn.Timeouts // of each call; 0 means none
	// Revision is the newest that a legacy server is offered; empty means no limit.
	Revision string
}

// Upstream reaches one server by HTTP+SSE, which is of legacy revisions only,
// whoever the caller is (protocol.md C2.9). Its connections share one pool of
// HTTP connections for what they POST; each has a stream of its own.
type Upstream struct {
	name   string
	client *httpclient.Client
	o      UpstreamOptions

	do, stream func(*http.Request) (*http.Response, error) // the client's
}

var _ bridge.Adapter = (*Upstream)(nil)

// envelopeRoom is what a message may have beyond the limit on its payload: the
// names around it.
const envelopeRoom = 64 << 10

// NewUpstream makes the adapter for the server of that name. c must be valid;
// the error is about the files that it names.
func NewUpstream(name string, c httpclient.Config, o UpstreamOptions) (*Upstream, error) {
	client, err := httpclient.New(c)
	if err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	o.Log = o.Log.With("server", name)
	if o.MaxMessage <= 0 {
		o.MaxMessage = 16 << 20
	}
	return &Upstream{name: name, client: client, o: o, do: client.Do, stream: client.Stream}, nil
}

// Close closes the HTTP connections that are not in use. Without it they end
// by themselves after Config.IdleTimeout.
func (u *Upstream) Close() { u.client.Close() }

// Open opens a stream and does the handshake on behalf of from. The error wraps
// httpclient.ErrOtherTransport when the server seems to speak Streamable HTTP.
func (u *Upstream) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	c := &connection{u: u, rest: rest}
	c.ctx, c.stop = context.WithCancel(context.Background()) // outlives the opening
	c.out = &poster{c: c, header: from.Header, limit: 4 * u.o.MaxMessage, under: map[*post]struct{}{}}
	c.Conn = conn.New(u.name, c.out, rest, u.o.Timeouts)
	kept := context.AfterFunc(ctx, c.stop)
	err := c.begin()
	if err == nil {
		c.server, err = conn.Handshake(ctx, c.Conn, from, c.u.o.Revision)
	}
	inTime := kept()
	if err == nil && inTime {
		err = c.opened()
	}
	switch {
	case !inTime:
		err = context.Cause(ctx)
	case err == nil:
		return c, nil
	default:
		err = c.unopened(err)
	}
	_ = c.Close(context.Background()) // nothing in it waits for the server
	return nil, err
}

// connection is one stream and what is POSTed beside it.
type connection struct {
	*conn.Conn
	u        *Upstream
	rest     bridge.Client
	out      *poster
	endpoint *url.URL
	server   *bridge.Greeting
	ctx      context.Context // ends when the connection is closed or lost
	stop     context.CancelFunc
	wg       sync.WaitGroup // of the reader

	mu     sync.Mutex    // guards the rest
	why    *bridge.Error // why the connection is to end, if that is not the stream's own end
	over   *bridge.Error // why it has ended by itself
	open   bool          // Open has succeeded
	closed bool          // because of Close
}

var _ bridge.Upstream = (*connection)(nil)

// Server returns what the handshake said.
func (c *connection) Server() *bridge.Greeting { return c.server }

// unknown ends what is said of calls that may have had an effect.
const unknown = "; whether it acted on the request is unknown"

// lost is the error of a call that may have reached the server.
func (u *Upstream) lost(why string, err error) *bridge.Error {
	return &bridge.Error{Server: u.name, Kind: bridge.ErrLost, Public: why + unknown, Err: err}
}

// unavailable is the error of a call that the server has not acted on.
func (u *Upstream) unavailable(why string, err error) *bridge.Error {
	return &bridge.Error{Server: u.name, Kind: bridge.ErrUnavailable, Public: why, Err: err}
}

// declined is the error of a call that the server did not take, as it was.
func (u *Upstream) declined(kind error, why string, err error) *bridge.Error {
	return &bridge.Error{Server: u.name, Kind: kind, Public: why, Err: err}
}

// unsent is the error of a call that may be made on another connection.
func (u *Upstream) unsent(why string, err error) *bridge.Error {
	return &bridge.Error{Server: u.name, Kind: bridge.ErrUnsent, Public: why, Err: err}
}

// opened settles the race between the end of Open and the end of the stream.
func (c *connection) opened() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		return c.over
	}
	c.open = true
	return nil
}

// unopened makes of what went wrong with the handshake an error of Open:
// whatever was lost, nobody's request was.
func (c *connection) unopened(err error) error {
	c.mu.Lock()
	if c.over != nil {
		err = c.over // rather than what followed from it
	}
	c.mu.Unlock()
	e, ok := errors.AsType[*bridge.Error](err)
	if !ok || e.Kind != bridge.ErrLost && e.Kind != bridge.ErrUnsent {
		return err
	}
	return c.u.unavailable("handshake: "+strings.TrimSuffix(e.Public, unknown), e.Err)
}

// begin opens the stream, waits for its endpoint, and leaves the stream to a
// reader.
func (c *connection) begin() error {
	r := c.u.client.Request(c.ctx, http.MethodGet, c.u.client.URL(), c.out.header, nil)
	r.Header.Set("Accept", "text/event-stream")
	res, err := c.u.stream(r)
	if err != nil {
		return c.u.unreached(err)
	}
	if err := c.u.refused(res); err != nil {
		_ = res.Body.Close()
		return err
	}
	events := eventstream.NewReader(res.Body, c.u.o.MaxMessage+envelopeRoom)
	if c.endpoint, err = c.u.endpoint(events, res.Request.URL); err != nil {
		_ = res.Body.Close()
		return err
	}
	c.wg.Go(func() {
		defer res.Body.Close()
		c.end(c.read(events))
	})
	return nil
}

// unreached is the error of a request that had no answer, while that does no
// harm.
func (u *Upstream) unreached(err error) *bridge.Error {
	if e, ok := errors.AsType[httpclient.RedirectError](err); ok {
		return u.unavailable(string(e), nil)
	}
	return u.unavailable("it cannot be reached", err)
}

// refused returns why a response is no stream of events, or nil. What may be
// the answer of a server that speaks Streamable HTTP says so (protocol.md C2).
func (u *Upstream) refused(res *http.Response) error {
	switch res.StatusCode {
	case http.StatusOK:
		kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
		if kind == "text/event-stream" {
			return nil
		}
		return u.unavailable("it answers with something else than a stream of events: is the address right?", httpclient.ErrOtherTransport)
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusBadRequest, http.StatusNotAcceptable, http.StatusUnsupportedMediaType:
		return u.declined(bridge.ErrDeclined, fmt.Sprintf("it has no stream of events at this address (HTTP %d): is the address right?", res.StatusCode), httpclient.ErrOtherTransport)
	}
	return u.refusal(res)
}

// endpoint waits for the event that names the address to POST to, and resolves
// it against the address of the stream, at.
func (u *Upstream) endpoint(events *eventstream.Reader, at *url.URL) (*url.URL, error) {
	for {
		e, err := events.Next()
		if e.Over != nil && err != nil {
			return nil, u.unavailable("it names no usable endpoint", err)
		}
		if err != nil {
			return nil, u.unavailable("its stream ended before it named its endpoint", err)
		}
		if e.Type != "endpoint" {
			e.Data.Free() // the endpoint comes first; what does not, is not for us
			continue
		}
		if e.Data == nil {
			return nil, u.unavailable("it names no usable endpoint", nil)
		}
		to, err := at.Parse(strings.TrimSpace(string(e.Data.B)))
		e.Data.Free()
		switch {
		case err != nil: // which is not told: it holds the address, and that the session
			return nil, u.unavailable("it names no usable endpoint", nil)
		case !httpclient.SameOrigin(to, at): // our credentials would go there
			return nil, u.unavailable("its endpoint is on another origin than its stream, which is refused: "+
				"its address must be configured as it knows it itself (scheme, host and port)", nil)
		}
		to.User = nil
		return to, nil
	}
}

// read takes messages from the stream until it ends, and returns why it did.
func (c *connection) read(events *eventstream.Reader) error {
	noise := &noise{log: c.u.o.Log}
	defer noise.report()
	in := c.Intake()
	defer in.Drop()
	events.Room = in.Size
	for ; ; in.Drop() {
		e, err := events.Next()
		switch {
		case err != nil:
			if e.Over != nil {
				c.endless(&in, e.Over)
			}
			return err
		case e.Type != "message":
			c.u.o.Log.Debug("event ignored: it is no message")
			e.Data.Free()
		case e.Over != nil:
			c.u.o.Log.Warn("message dropped", "why", in.Why(c.u.o.MaxMessage), "id", string(e.Over.ID()))
			c.Unkept(&in, e.Over.ID(), c.u.o.MaxMessage)
		case e.Data != nil:
			c.message(e.Data, &in, noise)
		}
	}
}

// endless ends the connection because of an event that is far too large: nothing
// can come after it. The call whose answer it is, as far as that can be told, is not
// lost like the others.
func (c *connection) endless(in *conn.Intake, seen *jsonrpc.Finder) {
	id := seen.ID()
	if id == nil && !seen.Asks() {
		id = c.Only()
	}
	c.Unkept(in, id, c.u.o.MaxMessage)
	c.giveUp(c.u.lost(fmt.Sprintf("a message on its stream is far larger than the limit of %d bytes", c.u.o.MaxMessage), nil))
}

// message hands on what one event holds.
func (c *connection) message(buf *jsonrpc.Buffer, in *conn.Intake, noise *noise) {
	m, err := jsonrpc.Parse(buf.B)
	if err == nil {
		in.Give(m.Own(buf))
		c.Deliver(m)
		return
	}
	if jsonrpc.IsBatch(buf.B) {
		// Only 2025-03-26 knows batches, and a server has no need to send them;
		// one that does is understood all the same.
		if all, err := jsonrpc.Split(buf.B); err == nil && len(all) > 0 {
			for _, one := range all {
				if m, err := jsonrpc.Parse(one); err == nil {
					c.Deliver(m)
				} else {
					c.Invalid(one, err)
					noise.add(one)
				}
			}
			return // the messages refer to buf: it is left to the garbage collector
		}
	}
	c.Invalid(buf.B, err)
	noise.add(buf.B)
	buf.Free()
}

// noise counts what a server sends beside messages, and says so once in a
// while.
type noise struct {
	log    *slog.Logger
	events int
	said   time.Time
}

const noiseEvery = time.Minute

func (n *noise) add(text []byte) {
	n.events++
	n.log.Debug("not a message", "text", string(text[:min(len(text), 200)]))
	if time.Since(n.said) >= noiseEvery {
		n.report()
	}
}

func (n *noise) report() {
	if n.events > 0 {
		n.log.Warn("events dropped: the server sends what is not a message on its stream", "events", n.events)
		n.events, n.said = 0, time.Now()
	}
}

// giveUp ends the connection for a reason that is not the stream's end. It is
// left to the reader to tell so: nothing is delivered after Gone.
func (c *connection) giveUp(why *bridge.Error) {
	c.mu.Lock()
	if c.why == nil {
		c.why = why
	}
	c.mu.Unlock()
	c.stop()
}

// end ends the connection for a reason of the server's. Only the reader calls
// it, as the last it does.
func (c *connection) end(cause error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	why := c.why
	if why == nil {
		why = c.u.lost("its stream has ended", cause)
	}
	c.over = why
	gone := c.open
	c.mu.Unlock()
	lost := why
	if why.Kind == bridge.ErrUnsent { // which is true of the call that was refused, not of others
		lost = c.u.lost(why.Public, why.Err)
	}
	c.out.halt(lost)
	c.stop()
	c.Fail(lost)
	if gone {
		c.rest.Gone(why)
	}
}

// Close ends the stream, and with it the session (A6).
func (c *connection) Close(context.Context) error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	err := &bridge.Error{Server: c.u.name, Kind: bridge.ErrLost, Public: "its connection was closed"}
	c.Fail(err)
	c.out.halt(err)
	c.stop()
	c.wg.Wait()
	c.out.wg.Wait()
	return nil
}
