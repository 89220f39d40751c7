package sse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/deadline"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// Upstream is the adapter for one server over HTTP+SSE. This transport has only legacy revisions,
// whatever the era of the caller (protocol.md C2.9). The connections share one pool of HTTP connections
// for POSTs, and each has a stream of its own.
type Upstream struct {
	name   conn.Name
	client *remote.Client
	o      conn.Options

	do, stream func(*http.Request) (*http.Response, error) // the methods Do and Stream of client
}

var _ bridge.Adapter = (*Upstream)(nil)

// NewUpstream returns the adapter for the server of that name. c must be valid; the error is about
// the files that c names.
func NewUpstream(name string, c remote.Config, o conn.Options) (*Upstream, error) {
	client, err := remote.New(c)
	if err != nil {
		return nil, err
	}
	return &Upstream{
		name:   conn.Name(name),
		client: client,
		o:      o.Filled(name),
		do:     client.Do,
		stream: client.Stream,
	}, nil
}

// Close closes idle HTTP connections. Without Close, they end after remote.Config.IdleTimeout.
func (u *Upstream) Close() { u.client.Close() }

// Open opens a stream and does the handshake on behalf of from. If the server seems to speak
// Streamable HTTP, the error wraps remote.ErrOtherTransport.
func (u *Upstream) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	c := &connection{u: u, rest: rest}
	ctx = remote.WithCookies(ctx, new(remote.Cookies)) // shared by all requests of the connection
	c.out = &poster{
		c:        c,
		header:   from.Header,
		identity: from.Identity,
		wait:     conn.Backlog{Limit: 4 * u.o.MaxMessage},
		under:    map[*post]struct{}{},
	}
	c.Conn = conn.New(string(u.name), c.out, rest, u.o.Timeouts)
	// c.ctx outlives ctx. While a request waits for a sign-in, the time-outs of both are paused.
	c.ctx, c.stop = context.WithCancel(deadline.With(context.WithoutCancel(ctx), c.HoldTimeouts))
	kept := context.AfterFunc(ctx, c.stop)
	err := c.begin()
	if err == nil {
		c.server, err = conn.Handshake(ctx, c.Conn, from, c.u.o.Revision)
	}
	inTime := kept()
	if err == nil && inTime {
		err = c.life.Opened()
	}
	switch {
	case !inTime:
		err = context.Cause(ctx)
	case err == nil:
		return c, nil
	default:
		err = c.unopened(err)
	}
	_ = c.Close(context.Background()) // does not wait for the server
	return nil, err
}

// connection is one stream of a server, with the POSTs to the server.
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

	life conn.Life
	why  atomic.Pointer[bridge.Error] // why the bridge ends the connection; nil if the stream ends by itself
}

var _ bridge.Upstream = (*connection)(nil)

// Server implements bridge.Upstream.
func (c *connection) Server() *bridge.Greeting { return c.server }

// unopened returns the error of Open for an error of the handshake. It is never ErrLost, since the
// lost request was not that of a client.
func (c *connection) unopened(err error) error {
	if over := c.life.Over(); over != nil {
		err = over // the cause of err
	}
	return c.u.name.Unopened(err)
}

// begin opens the stream, waits for the event endpoint, and starts the reader of the stream.
func (c *connection) begin() error {
	r := c.u.client.Request(remote.WithIdentity(c.ctx, c.out.identity), http.MethodGet, c.u.client.URL(), c.out.header, nil)
	r.Header.Set("Accept", "text/event-stream")
	res, err := c.u.stream(r)
	if err != nil {
		return c.u.unreached(err)
	}
	if err := c.u.refused(res); err != nil {
		_ = res.Body.Close()
		return err
	}
	events := httpio.NewReader(res.Body, c.u.o.MaxMessage+conn.EnvelopeRoom)
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

// unreached returns the error of a GET that got no response. It is never ErrLost, since a GET has no
// effect at the server.
func (u *Upstream) unreached(err error) *bridge.Error {
	if e := remote.Failure(u.name, err); !errors.Is(e, bridge.ErrLost) {
		return e
	}
	if c, ok := errors.AsType[remote.CodingError](err); ok {
		return u.name.Unavailable(c.Error(), nil)
	}
	return u.name.Unavailable("it cannot be reached", err)
}

// refused returns why a response is no stream of events, or nil. If a server that speaks Streamable
// HTTP may answer so, the error wraps remote.ErrOtherTransport (protocol.md C2).
func (u *Upstream) refused(res *http.Response) error {
	switch res.StatusCode {
	case http.StatusOK:
		if httpio.Kind(res.Header) == httpio.Events {
			return nil
		}
		return u.name.Unavailable("its response is not a stream of events: is the address right?", remote.ErrOtherTransport)
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusBadRequest, http.StatusNotAcceptable, http.StatusUnsupportedMediaType:
		return u.name.Rejected(fmt.Sprintf("it has no stream of events at this address (HTTP %d): is the address right?", res.StatusCode), remote.ErrOtherTransport)
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxReply))
	return u.refusal(res, body)
}

// endpoint waits for the event endpoint, and returns the address for POSTs, resolved against at, the
// address of the stream.
func (u *Upstream) endpoint(events *httpio.Reader, at *url.URL) (*url.URL, error) {
	for {
		r, err := events.Next()
		if r.Oversized != nil && err != nil {
			return nil, u.name.Unavailable("it names no usable endpoint", err)
		}
		if err != nil {
			return nil, u.name.Unavailable("its stream ended before it named its endpoint", err)
		}
		if r.Type != "endpoint" {
			r.Data.Free() // events before endpoint are ignored
			continue
		}
		if r.Data == nil {
			return nil, u.name.Unavailable("it names no usable endpoint", nil)
		}
		to, err := at.Parse(strings.TrimSpace(string(r.Data.B)))
		r.Data.Free()
		switch {
		case err != nil: // err is left out, since its text has the address, which names the session
			return nil, u.name.Unavailable("it names no usable endpoint", nil)
		case !remote.SameOrigin(to, at): // the bridge's credentials would go there
			return nil, u.name.Unavailable("its endpoint is on another origin than its stream: "+
				"configure the address that the server itself uses (scheme, host and port)", nil)
		}
		to.User = nil
		return to, nil
	}
}

// read delivers the messages of the stream until the stream ends, and returns why it ended.
func (c *connection) read(events *httpio.Reader) error {
	texts := &conn.Parser{
		Options: c.u.o,
		Conn:    c.Conn,
		Warning: "events dropped: the server's stream has events that are not MCP messages",
		Unit:    "events",
	}
	defer texts.Warn()
	in := c.Intake()
	defer in.Drop()
	events.Room = in.Size
	for ; ; in.Drop() {
		r, err := events.Next()
		switch {
		case err != nil:
			if r.Oversized != nil {
				c.endless(&in, r.Oversized)
			}
			return err
		case r.Type != "message":
			c.u.o.Log.Debug("event ignored: it is not a message")
			r.Data.Free()
		case r.Oversized != nil:
			c.u.o.Log.Warn("message dropped", "why", in.Why(c.u.o.MaxMessage), "id", string(r.Oversized.ID()))
			c.AnswerNotKept(&in, r.Oversized.ID(), c.u.o.MaxMessage)
		case r.Data != nil:
			texts.Parse(r.Data, r.Data.B, &in, texts.Deliver)
		}
	}
}

// endless ends the connection because of an event that is so large that the reader gives up. If the
// event seems to answer a call, the call gets the error of an answer that is too large, and not
// ErrLost.
func (c *connection) endless(in *conn.Intake, seen *jsonrpc.Finder) {
	id := seen.ID()
	if id == nil && !seen.Asks() {
		id, _ = c.Only()
	}
	c.AnswerNotKept(in, id, c.u.o.MaxMessage)
	c.giveUp(c.u.name.Lost(fmt.Sprintf("a message on its stream is far larger than the limit of %d bytes", c.u.o.MaxMessage), nil))
}

// giveUp ends the connection because of why, and not because the stream ended. It leaves rest.Gone to
// the reader, so that no message is delivered after Gone.
func (c *connection) giveUp(why *bridge.Error) {
	c.why.CompareAndSwap(nil, why)
	c.stop()
}

// end ends the connection after the end of the stream. The reader calls it last. cause is the error of
// the stream.
func (c *connection) end(cause error) {
	why := c.why.Load()
	if why == nil {
		why = remote.Broken(c.u.name, "its stream has ended", cause)
	}
	news, gone := c.life.End(why)
	if !news {
		return
	}
	lost := why
	if why.Kind == bridge.ErrUnsent { // only the refused call was certainly not executed
		lost = c.u.name.Lost(why.Public, why.Err)
	}
	c.out.halt(lost)
	c.stop()
	c.Fail(lost)
	if gone {
		c.rest.Gone(why)
	}
}

// Close ends the stream, and with the stream the session (A6).
func (c *connection) Close(context.Context) error {
	c.life.Close()
	err := c.u.name.Closed()
	c.Fail(err)
	c.out.halt(err)
	c.stop()
	c.wg.Wait()
	c.out.wg.Wait()
	return nil
}
