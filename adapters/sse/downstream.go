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
	MaxMessage int           // bytes of a body; 0 means 16 MiB
	MaxStreams int           // open at once; 0 means 10,000
	MaxEach    int           // of one principal, if there are access rules; 0 means 1,000
	Heartbeat  time.Duration // between comments on a silent stream; 0 means 20 s
	// Tag begins the ids of sessions, as in session.NewID; empty means none.
	Tag string
	// Elsewhere finds sessions of other instances; nil means that there are no others.
	Elsewhere Elsewhere
	// Screen answers a POST whose caller may not send that body to that server, and reports false
	// otherwise; nil means that all may.
	Screen func(w http.ResponseWriter, r *http.Request, server string, body []byte) (answered bool)
}

// Elsewhere finds the sessions of all instances.
type Elsewhere interface {
	// Message forwards a POST for the session of that id to the instance that has its stream. It
	// reports false if none has it.
	Message(w http.ResponseWriter, r *http.Request, server, id string, body []byte) (answered bool)
}

// Downstream serves the clients of all servers.
type Downstream struct {
	g gateway.Gateway
	o Options

	mu    sync.RWMutex // guards the rest
	peers map[string]*peer
	each  map[string]int // number of peers of each principal
	most  int            // limit of each
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

// peer is one client: an open stream, and a session from initialize on.
type peer struct {
	d      *Downstream
	server string
	whose  string // the principal
	token  string
	out    *replay.Log
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup // of initialize
	ended  chan struct{}  // closed when the session has ended by itself
	calls  gateway.Calls

	mu      sync.Mutex // guards the rest
	session gateway.Session
	begun   bool // initialize was received
	over    bool // the stream has ended
}

var _ bridge.Stream = (*peer)(nil)

// Send implements bridge.Stream. Some messages must not be dropped. A client that does not read
// them loses its stream, and with it the session.
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
		return // cancelled by the client: no answer is expected (A10)
	}
	p.Send(gateway.AnswerEvent(m))
}

// Stream opens a client's stream to the server of that name. endpoint is the path for its POSTs, as
// the client sees it.
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
	if err := d.g.Allowed(server, whose); errors.Is(err, bridge.ErrRevoked) { // Revoke may have been called before open
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

// open registers a stream, or returns why there is no room for it. Streams without a session are
// bounded too, for each principal.
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

// shut undoes open.
func (d *Downstream) shut(p *peer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.peers, p.token)
	if d.each[p.whose]--; d.each[p.whose] == 0 {
		delete(d.each, p.whose)
	}
}

// Close ends the streams without a session; the others end with their session. It is called when
// the bridge no longer accepts calls.
func (d *Downstream) Close() {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, p := range d.peers {
		p.cancel(bridge.ErrShutdown)
	}
}

// Revoke ends the streams of a principal without a session: its key was taken away. The others end
// with their session.
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

// close ends the session: it lives as long as the stream.
func (p *peer) close() {
	p.d.shut(p)
	p.cancel(bridge.ErrEnded)
	p.mu.Lock()
	p.over = true // no further initialize starts
	p.mu.Unlock()
	p.wg.Wait()
	if s := p.current(); s != nil {
		s.End(bridge.ErrEnded)
	}
}

// serve writes the stream until the client disconnects.
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
	// The session has ended by itself. The answers to its calls come now.
	timer := time.AfterFunc(lastAnswers, func() { p.cancel(bridge.ErrEnded) })
	defer timer.Stop()
	s.Stop = p.calls.None()
	if err := ew.Serve(p.ctx, s, drain); err != httpio.ErrStopped {
		return err
	}
	return drain()
}

// lastAnswers is how long the stream of an ended session waits for the answers to its calls in
// flight.
const lastAnswers = 2 * time.Second

// Message handles a message that a client POSTs to its endpoint.
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

// refuse settles a text that is not a message. A request gets an error on the stream, where the
// client waits for it. If the text is the answer to a question of the server, that question gets an
// error.
func (p *peer) refuse(text []byte, err error) {
	invalid, ok := errors.AsType[*jsonrpc.InvalidError](err)
	if !ok || invalid.ID == nil {
		return
	}
	var f jsonrpc.Finder // distinguishes answers from requests, whose ids are independent
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

// take handles one message with its envelope. free is called when the message is not used any
// more.
func (p *peer) take(m *jsonrpc.Message, e gateway.Envelope, free func()) {
	p.mu.Lock()
	s := p.session
	first := s == nil && !p.begun && !p.over && m.IsRequest() && m.Method == "initialize"
	p.begun = p.begun || first
	if first {
		e := e // of the goroutine: only this message costs the memory
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
		settle := func(m *jsonrpc.Message, _ error) { // the answer has the error
			p.answer(m)
			p.calls.Add(-1)
			free()
		}
		if !call.Go(settle) {
			settle(call.Do()) // the answer says that the session has ended
		}
	case m.IsNotification():
		s.Notify(m, &e)
		free()
	default:
		_ = s.Answer(m) // a late answer is not the client's fault
		free()
	}
}

func (p *peer) initialize(m *jsonrpc.Message, e gateway.Envelope) {
	s, a, _ := p.d.g.Initialize(p.ctx, m, gateway.SessionOptions{
		Server:    p.server,
		ID:        p.token,
		Principal: p.whose,
		Envelope:  &e,
	}) // the answer has the error
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
