package sse

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// Options configure a Downstream.
type Options struct {
	Log        *slog.Logger  // nil means slog.Default()
	MaxMessage int           // bounds a body, in bytes; 16 MiB if 0
	MaxStreams int           // bounds the open streams; 10,000 if 0
	MaxEach    int           // bounds the open streams of one principal; 1,000 if 0
	Heartbeat  time.Duration // between comments on a silent stream; 20 s if 0
	// Tag is the beginning of the sessions' ids, as in session.NewID. It may be empty.
	Tag string
	// Elsewhere finds sessions of other instances. It is nil if there are none.
	Elsewhere Elsewhere
	// Screen answers a POST whose caller may not send that body to that server. Otherwise it reports
	// false. If it is nil, every caller may send everything.
	Screen func(w http.ResponseWriter, r *http.Request, server string, body []byte) (answered bool)
}

// Elsewhere finds the sessions of other instances.
type Elsewhere interface {
	// Message forwards a POST for the session with that id to the instance that has its stream. It
	// reports false if no instance has it.
	Message(w http.ResponseWriter, r *http.Request, server, id string, body []byte) (answered bool)
}

// Downstream serves the clients of all servers.
type Downstream struct {
	g gateway.Gateway
	o Options

	mu    sync.RWMutex     // guards the fields below
	peers map[string]*peer // by token
	each  map[string]int   // by principal: the number of peers
	most  int              // bounds the peers of one principal
}

// New returns a Downstream for the servers of g.
func New(g gateway.Gateway, o Options) *Downstream {
	o.Log = cmp.Or(o.Log, slog.Default())
	o.MaxMessage, o.MaxStreams = cmp.Or(max(o.MaxMessage, 0), 16<<20), cmp.Or(max(o.MaxStreams, 0), 10_000)
	o.Heartbeat = cmp.Or(max(o.Heartbeat, 0), 20*time.Second)
	d := &Downstream{
		g:     g,
		o:     o,
		peers: map[string]*peer{},
		each:  map[string]int{},
	}
	d.Limit(o.MaxEach)
	return d
}

// Limit replaces MaxEach. It ends no stream.
func (d *Downstream) Limit(most int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.most = cmp.Or(max(most, 0), 1000)
}

// peer is one client: an open stream and, after initialize, a session.
type peer struct {
	d      *Downstream
	server string
	whose  string          // the principal
	token  string          // the id of the session, in the address for POSTs
	out    *replay.Log     // messages for the stream
	ctx    context.Context // ends with the stream
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup // of initialize
	ended  chan struct{}  // closed when the session has ended by itself
	calls  gateway.Calls  // in flight

	mu      sync.Mutex      // guards the fields below
	session gateway.Session // nil before the end of the handshake
	begun   bool            // initialize was received
	over    bool            // the stream has ended
}

var _ bridge.Stream = (*peer)(nil)

// Send implements bridge.Stream. If a message that must not be dropped does not fit, since the client
// does not read, Send ends the stream, and with the stream the session.
func (p *peer) Send(e replay.Event) bool {
	err := p.out.Append(e)
	if errors.Is(err, replay.ErrOver) && p.ctx.Err() == nil {
		p.d.o.Log.Warn("stream ended: the client does not read it", "server", p.server)
		p.cancel(errors.New("the client does not read its stream"))
	}
	return err == nil
}

func (p *peer) answer(m *jsonrpc.Message) {
	if m == nil {
		return // the client has cancelled the request and expects no answer (A10)
	}
	p.Send(gateway.AnswerEvent(m))
}

// Stream answers a GET with a client's stream from the server of that name, and returns at its end.
// endpoint is the path for the client's POSTs, as the client sees it.
func (d *Downstream) Stream(server, endpoint string, w http.ResponseWriter, r *http.Request) {
	whose := auth.Principal(r.Context())
	if err := d.g.Allowed(server, whose); errors.Is(err, bridge.ErrDenied) {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	p := &peer{
		d:      d,
		server: server,
		whose:  whose,
		token:  session.NewID(d.o.Tag),
		ended:  make(chan struct{}),
		out:    d.g.NewLog(whose, gateway.ReplayLimits(d.o.MaxMessage), false),
	}
	defer p.out.Close()
	p.ctx, p.cancel = context.WithCancelCause(r.Context())
	defer p.cancel(nil)
	if why := d.open(p); why != "" {
		httpio.RetryAfter(w.Header(), 5*time.Second)
		http.Error(w, why, http.StatusServiceUnavailable)
		return
	}
	defer p.close()
	if err := d.g.Allowed(server, whose); errors.Is(err, bridge.ErrRevoked) { // Revoke may have run before open
		return
	}
	endpoint += "?sessionId=" + p.token
	if mode := gateway.EnvelopeOf(r).Tools; mode != "" {
		endpoint += "&tools=" + string(mode)
	}
	if err := p.serve(w, r, endpoint); err != nil {
		d.o.Log.Debug("stream ended", "server", server, "err", err)
	}
}

// open registers a stream, or returns why there is no room for another. The bounds include streams
// without a session.
func (d *Downstream) open(p *peer) (why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case len(d.peers) >= d.o.MaxStreams || d.g.Draining():
		return "the bridge has too many clients, or is stopping; try again later"
	case p.whose != "" && d.each[p.whose] >= d.most:
		return fmt.Sprintf("one caller may have %d streams open (per_principal: sessions); end those that are not used", d.most)
	}
	d.peers[p.token] = p
	d.each[p.whose]++
	return ""
}

// shut removes a stream that open has registered.
func (d *Downstream) shut(p *peer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.peers, p.token)
	if d.each[p.whose]--; d.each[p.whose] == 0 {
		delete(d.each, p.whose)
	}
}

// Close ends the streams without a session. The others end with their session. The caller has made the
// gateway refuse calls before.
func (d *Downstream) Close() {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, p := range d.peers {
		p.cancel(bridge.ErrShutdown)
	}
}

// Revoke ends the streams without a session of a principal whose key was revoked. The others end with
// their session.
func (d *Downstream) Revoke(principal string) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, p := range d.peers {
		if p.whose == principal && p.current() == nil {
			p.cancel(bridge.ErrRevoked)
		}
	}
}

func (p *peer) current() gateway.Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session
}

// close ends the session, which does not outlive the stream.
func (p *peer) close() {
	p.d.shut(p)
	p.cancel(bridge.ErrEnded)
	p.mu.Lock()
	p.over = true // so that no further initialize starts
	p.mu.Unlock()
	p.wg.Wait()
	if s := p.current(); s != nil {
		s.End(bridge.ErrEnded)
	}
}

// serve writes the stream until the client disconnects, or until the session has ended and its calls
// have answers.
func (p *peer) serve(w http.ResponseWriter, r *http.Request, endpoint string) error {
	ew, err := httpio.OpenWriter(w, r)
	if err != nil {
		return err
	}
	defer ew.Close()
	if err := ew.Send(httpio.Event{Type: "endpoint", Data: []byte(endpoint)}); err != nil {
		return err
	}
	if err := ew.Flush(); err != nil {
		return err
	}
	drain := func() error { return ew.Drain(p.out) }
	s := httpio.Serving{
		Heartbeat: p.d.o.Heartbeat,
		Wake:      p.out.Wake(),
		Stop:      p.ended,
	}
	if err := ew.Serve(p.ctx, s, drain); err != httpio.ErrStopped {
		return err
	}
	// The session has ended by itself, and the answers to its calls follow.
	timer := time.AfterFunc(lastAnswers, func() { p.cancel(bridge.ErrEnded) })
	defer timer.Stop()
	s.Stop = p.calls.None()
	if err := ew.Serve(p.ctx, s, drain); err != httpio.ErrStopped {
		return err
	}
	return drain()
}

// lastAnswers bounds how long the stream of an ended session waits for the answers to calls in flight.
const lastAnswers = 2 * time.Second

// Message answers a POST of a client to its endpoint. The answer to the message itself goes out on the
// stream.
func (d *Downstream) Message(server string, w http.ResponseWriter, r *http.Request) {
	if httpio.Kind(r.Header) != httpio.JSON {
		http.Error(w, "Content-Type must be application/json", http.StatusUnsupportedMediaType)
		return
	}
	token := r.URL.Query().Get("sessionId")
	d.mu.RLock()
	p := d.peers[token]
	d.mu.RUnlock()
	if p == nil && d.o.Elsewhere != nil && session.Tag(token) != d.o.Tag {
		body, fault := httpio.ReadBody(d.g, w, r, d.o.MaxMessage)
		if fault != nil {
			fault.Answer(w, "text/plain; charset=utf-8", []byte(fault.Text+"\n"))
			return
		}
		answered := d.screened(w, r, server, body) || d.o.Elsewhere.Message(w, r, server, token, body.Bytes())
		if body.Free(); answered {
			return
		}
	}
	if p == nil || p.server != server || p.whose != auth.Principal(r.Context()) {
		http.Error(w, "no such session: open the stream again", http.StatusNotFound)
		return
	}
	if gateway.Unread(p.out, d.o.MaxMessage) {
		httpio.RetryAfter(w.Header(), time.Second)
		http.Error(w, "too many answers wait on your stream: read it first", http.StatusServiceUnavailable)
		return
	}
	body, fault := httpio.ReadBody(d.g, w, r, d.o.MaxMessage)
	if fault != nil {
		fault.Answer(w, "text/plain; charset=utf-8", []byte(fault.Text+"\n"))
		return
	}
	if d.screened(w, r, server, body) {
		body.Free()
		return
	}
	if jsonrpc.IsBatch(body.Bytes()) {
		p.batch(w, r, body)
		return
	}
	m, err := jsonrpc.ParseUTF8(body.Bytes())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		p.refuse(body.Bytes(), err)
		body.Free()
		return
	}
	p.take(m, gateway.EnvelopeOf(r), body.Free)
	w.WriteHeader(http.StatusAccepted)
}

// screened reports whether Screen has answered a POST.
func (d *Downstream) screened(w http.ResponseWriter, r *http.Request, server string, body *httpio.Body) bool {
	return d.o.Screen != nil && d.o.Screen(w, r, server, body.Bytes())
}

// refuse settles a text that is not a message. A request gets an error on the stream, where the client
// waits for the answer. For an answer of the client, the server's question gets an error.
func (p *peer) refuse(text []byte, err error) {
	invalid, ok := errors.AsType[*jsonrpc.InvalidError](err)
	if !ok || invalid.ID == nil {
		return
	}
	var f jsonrpc.Finder // tells answers from requests, which may have the same ids
	_, _ = f.Write(jsonrpc.Bare(text))
	s := p.current()
	if f.ID() != nil && s != nil && s.Answer(jsonrpc.NewError(invalid.ID, jsonrpc.CodeInternal, "the client's answer could not be used: "+invalid.Error(), nil)) == nil {
		return
	}
	p.answer(jsonrpc.NewError(invalid.ID, invalid.Code(), invalid.Error(), nil))
}

// batch handles the messages of an array: 2025-03-26 has batches, and 2024-11-05 does not forbid
// them (protocol.md A9).
func (p *peer) batch(w http.ResponseWriter, r *http.Request, body *httpio.Body) {
	defer body.Free()
	elements, err := jsonrpc.Split(body.Bytes())
	s := p.current()
	fault := ""
	switch {
	case err != nil:
		fault = err.Error()
	case s == nil:
		fault = gateway.TooEarly
	case s.Revision() > era.Rev20250326:
		fault = gateway.NoBatches(s.Revision(), "in each POST")
	default:
		fault = gateway.BatchSize(len(elements))
	}
	if fault != "" {
		http.Error(w, fault, http.StatusBadRequest)
		return
	}
	batch := gateway.Batch{}
	for _, e := range elements {
		m, err := jsonrpc.ParseUTF8(e)
		if err != nil {
			p.refuse(e, err)
			continue
		}
		if what := batch.Fault(m); what != "" {
			p.answer(jsonrpc.NewError(m.ID, jsonrpc.CodeInvalidRequest, what, nil))
			continue
		}
		p.take(m, gateway.EnvelopeOf(r), body.Keep())
	}
	w.WriteHeader(http.StatusAccepted)
}

// take handles one message with its envelope, and calls free when the message is no longer used.
func (p *peer) take(m *jsonrpc.Message, e gateway.Envelope, free func()) {
	p.mu.Lock()
	s := p.session
	first := s == nil && !p.begun && !p.over && m.IsRequest() && m.Method == "initialize"
	p.begun = p.begun || first
	if first {
		e := e // a copy, so that e itself stays on the stack for other messages
		p.wg.Go(func() {
			p.initialize(m, e)
			free()
		})
	}
	p.mu.Unlock()
	switch {
	case first:
	case s == nil:
		if m.IsRequest() {
			p.answer(gateway.Early(m))
		}
		free()
	case m.IsRequest():
		p.calls.Add(1)
		call := s.Enter(m, &e, p)
		settle := func(m *jsonrpc.Message, _ error) { // the text of m already gives the error
			p.answer(m)
			p.calls.Add(-1)
			free()
		}
		if !call.Go(settle) {
			settle(call.Do()) // returns the answer that the session has ended
		}
	case m.IsNotification():
		s.Notify(m, &e)
		free()
	default:
		_ = s.Answer(m) // a late answer is no fault of the client
		free()
	}
}

func (p *peer) initialize(m *jsonrpc.Message, e gateway.Envelope) {
	s, a, _ := p.d.g.Initialize(p.ctx, m, gateway.SessionOptions{
		Server:    p.server,
		ID:        p.token,
		Principal: p.whose,
		Envelope:  &e,
	}) // the text of a already gives the error
	if s == nil {
		p.mu.Lock()
		p.begun = false // the client may try again
		p.mu.Unlock()
		p.answer(a)
		return
	}
	s.OnEnd(func() { close(p.ended) })
	p.mu.Lock()
	p.session = s
	p.mu.Unlock()
	p.answer(a)
	s.Attach(p)
}
