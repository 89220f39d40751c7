package streamable

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
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
	Heartbeat  time.Duration // between comments on a silent stream; 20 s if 0
	// Tag is the beginning of the sessions' ids, as in session.NewID. It may be empty.
	Tag string
	// Elsewhere finds sessions of other instances. It is nil if there are none.
	Elsewhere Elsewhere
	// Screen answers a POST whose caller may not send that body to that server. Otherwise it reports
	// false. If it is nil, every caller may send everything.
	Screen func(w http.ResponseWriter, r *http.Request, server string, body []byte) (answered bool)
	// Copies stores copies of the streams of sessions, for an instance that takes a session over. If
	// it is nil, there are no copies.
	Copies *replay.Copies
}

// Elsewhere finds the sessions of all instances.
type Elsewhere interface {
	// Serve forwards a request to the instance that has the session with that id. It reports false if
	// this instance has the session, perhaps after it has taken the session over by Adopt, or if no
	// instance has it. here says whether this instance had the session before the call. If id is
	// empty, the request begins a session. body is the body of a POST, or nil.
	Serve(w http.ResponseWriter, r *http.Request, server, id string, here bool, body []byte) (answered bool)
}

// streamAfter is how long an answer may take before its response becomes a stream of events. A proxy
// might close a connection that is silent for longer.
const streamAfter = time.Second

// Downstream serves the clients of all servers.
type Downstream struct {
	g gateway.Gateway
	o Options

	wg sync.WaitGroup // of the calls in listening

	mu        sync.RWMutex              // guards the fields below
	peers     map[string]*peer          // by id
	starting  map[string]*starting      // by future id: sessions whose handshake is in flight
	listening map[*statelessCall]func() // subscriptions that have left the HTTP server; the function closes the connection
	closed    bool
}

// New returns a Downstream for the servers of g.
func New(g gateway.Gateway, o Options) *Downstream {
	o.Log = cmp.Or(o.Log, slog.Default())
	o.MaxMessage, o.Heartbeat = cmp.Or(max(o.MaxMessage, 0), 16<<20), cmp.Or(max(o.Heartbeat, 0), 20*time.Second)
	return &Downstream{
		g:         g,
		o:         o,
		peers:     map[string]*peer{},
		starting:  map[string]*starting{},
		listening: map[*statelessCall]func(){},
	}
}

// These are the transport's headers, in Go's canonical form.
const (
	sessionHeader = "Mcp-Session-Id"
	versionHeader = "Mcp-Protocol-Version"
	resumeHeader  = "Last-Event-Id"
)

// contradictory returns the name of a header with several different values, or "". A proxy and the
// bridge might read different ones.
func contradictory(h http.Header) string {
	for _, name := range [...]string{sessionHeader, versionHeader} {
		if v := h[name]; len(v) > 1 && slices.ContainsFunc(v, func(other string) bool { return other != v[0] }) {
			return name
		}
	}
	return ""
}

// HasSession reports whether the request names a session of this transport.
func HasSession(r *http.Request) bool { return r.Header.Get(sessionHeader) != "" }

// Serve answers one request to the server of that name. The caller of Serve has checked the origin,
// the host and the principal, which auth.Principal returns from the request's context.
func (d *Downstream) Serve(server string, w http.ResponseWriter, r *http.Request) {
	if name := contradictory(r.Header); name != "" && !(namesModern(r.Header) && d.g.OffersModern(server)) { // modern requests have rules of their own
		refuse(w, http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest, "the header "+name+" appears twice, with different values: send one")
		return
	}
	switch r.Method {
	case http.MethodPost:
		d.post(server, w, r)
	case http.MethodGet, http.MethodDelete:
		if namesModern(r.Header) && d.g.OffersModern(server) { // R-080; a session id is ignored
			w.Header().Set("Allow", "POST, OPTIONS")
			refuse(w, http.StatusMethodNotAllowed, nil, jsonrpc.CodeInvalidRequest, "revision "+era.FirstModern+" and later have only POST")
			return
		}
		if HasSession(r) && d.elsewhere(server, w, r, nil) {
			return
		}
		if r.Method == http.MethodGet {
			d.get(server, w, r)
		} else if p := d.find(server, w, r, nil, nil); p != nil {
			p.End(bridge.ErrEnded)
			w.WriteHeader(http.StatusNoContent)
		}
	default:
		w.Header().Set("Allow", "GET, POST, DELETE, OPTIONS")
		refuse(w, http.StatusMethodNotAllowed, nil, jsonrpc.CodeInvalidRequest, "use POST, GET or DELETE")
	}
}

// forms are the allowed forms of the answer to a POST. Clients must accept both (2025-11-25, Sending
// Messages to the Server), but some accept only JSON.
type forms struct{ json, events bool }

// accepted returns the forms that the Accept headers allow. Without such a header, HTTP
// allows everything.
func accepted(h http.Header) forms {
	lines := h["Accept"]
	if len(lines) == 0 || len(lines) == 1 && (lines[0] == "application/json, text/event-stream" || lines[0] == "*/*") {
		return forms{true, true}
	}
	var f forms
	for _, line := range lines {
		for kind := range strings.SplitSeq(line, ",") {
			kind, _, _ = strings.Cut(kind, ";")
			switch strings.ToLower(strings.TrimSpace(kind)) {
			case "*/*":
				return forms{true, true}
			case "application/json", "application/*":
				f.json = true
			case "text/event-stream", "text/*":
				f.events = true
			}
		}
	}
	return f
}

// late returns a channel that is ready after streamAfter, when a slow answer must become a stream.
// If the client does not accept streams, the channel is nil.
func (f forms) late() <-chan time.Time {
	if !f.events {
		return nil
	}
	return time.After(streamAfter)
}

// post handles a POST: one message, or a batch.
func (d *Downstream) post(server string, w http.ResponseWriter, r *http.Request) {
	if httpio.Kind(r.Header) != httpio.JSON {
		refuse(w, http.StatusUnsupportedMediaType, nil, jsonrpc.CodeInvalidRequest, "Content-Type must be application/json")
		return
	}
	as := accepted(r.Header)
	if !as.json && !as.events {
		refuse(w, http.StatusNotAcceptable, nil, jsonrpc.CodeInvalidRequest, "Accept must list application/json and text/event-stream")
		return
	}
	body, fault := httpio.ReadBody(d.g, w, r, d.o.MaxMessage)
	if fault != nil {
		code := jsonrpc.CodeInvalidRequest
		if fault.Status == http.StatusServiceUnavailable {
			code = jsonrpc.CodeInternal // not the client's fault (D7)
		}
		fault.Answer(w, jsonType[0], jsonrpc.NewError(nil, code, fault.Text, nil).Append(nil, nil, nil))
		return
	}
	if d.o.Screen != nil && d.o.Screen(w, r, server, body.Bytes()) {
		body.Free()
		return
	}
	if d.o.Elsewhere != nil && HasSession(r) && !begins(body.Bytes()) && !(namesModern(r.Header) && d.g.OffersModern(server)) && d.elsewhere(server, w, r, body.Bytes()) {
		body.Free()
		return
	}
	if jsonrpc.IsBatch(body.Bytes()) {
		d.batch(server, w, r, body, as)
		return
	}
	m, err := jsonrpc.ParseUTF8(body.Bytes())
	if err != nil {
		body.Free()
		refuseBody(w, err)
		return
	}
	d.message(server, w, r, m, body, as)
}

// begins reports whether a body is initialize, which begins a session even if a header names another.
func begins(body []byte) bool {
	if !bytes.Contains(body, []byte(`"initialize"`)) {
		return false
	}
	m, err := jsonrpc.Parse(body)
	return err == nil && m.Method == "initialize" && m.IsRequest()
}

// message handles a POST of one message. body is freed when the message is no longer used.
func (d *Downstream) message(server string, w http.ResponseWriter, r *http.Request, m *jsonrpc.Message, body *httpio.Body, as forms) {
	if isModern(m, r.Header) {
		if d.g.OffersModern(server) {
			d.modern(server, w, r, m, body, as)
			return
		}
		if m.Method == discover && m.IsRequest() && !HasSession(r) { // other requests are refused below, without a session
			writeAnswer(w, http.StatusBadRequest, answered{era.NotDiscovered(m.ID), nil})
			body.Free()
			return
		}
	}
	if m.Method == "initialize" && m.IsRequest() {
		r.Header.Del(sessionHeader) // may name an earlier session of the client (C3)
		if d.elsewhere(server, w, r, body.Bytes()) {
			body.Free()
			return
		}
		d.initialize(server, w, r, m, body, as)
		return
	}
	p := d.find(server, w, r, m, body.Bytes())
	if p == nil {
		body.Free()
		return
	}
	switch {
	case m.IsRequest():
		st := newStream(p, postPrefix, 1)
		st.as = as
		st.answering(m)
		if !p.call(st, m, gateway.EnvelopeOf(r), body.Free) {
			if d.elsewhere(server, w, r, body.Bytes()) { // another instance has just taken the session over
				body.Free()
				return
			}
			refuse(w, http.StatusNotFound, m.ID, jsonrpc.CodeInvalidRequest, gone)
			body.Free()
			return
		}
		st.reply(w, r, false)
		return
	case m.IsNotification():
		e := gateway.EnvelopeOf(r)
		p.Notify(m, &e)
	default:
		_ = p.Answer(m) // a late answer is no fault of the client
	}
	body.Free()
	w.WriteHeader(http.StatusAccepted)
}

// elsewhere forwards the request to another instance that has its session. It reports false if there
// is none.
func (d *Downstream) elsewhere(server string, w http.ResponseWriter, r *http.Request, body []byte) bool {
	if d.o.Elsewhere == nil {
		return false
	}
	id := r.Header.Get(sessionHeader)
	return d.o.Elsewhere.Serve(w, r, server, id, d.Has(id), body)
}

// Has reports whether this instance has the session with that id, or its handshake is in flight.
func (d *Downstream) Has(id string) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.peers[id] != nil || d.starting[id] != nil
}

// starting is a session whose handshake with the server is in flight. The client may have the id
// already, since the stream of the answer to initialize may have begun. Some clients use the id at
// once, and give it up after a 404.
type starting struct {
	server, whose string
	done          chan struct{} // closed when the session is in peers, or has failed
}

// started returns the session with that id, or nil. If the handshake of the session is in flight,
// started waits until the handshake or the request ends.
func (d *Downstream) started(id, server string, r *http.Request) *peer {
	d.mu.RLock()
	p, soon := d.peers[id], d.starting[id]
	d.mu.RUnlock()
	if p != nil || soon == nil || soon.server != server || soon.whose != auth.Principal(r.Context()) {
		return p
	}
	select {
	case <-soon.done:
	case <-r.Context().Done():
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.peers[id]
}

const gone = "no such session: it has ended or never was; initialize again"

// find returns the session that the request names. If there is none, it answers the request and
// returns nil. m is the message of a POST, or nil.
func (d *Downstream) find(server string, w http.ResponseWriter, r *http.Request, m *jsonrpc.Message, body []byte) *peer {
	var id []byte
	if m != nil && m.IsRequest() {
		id = m.ID
	}
	var name string
	if v := r.Header[sessionHeader]; len(v) > 0 {
		name = v[0]
	}
	if name == "" {
		refuse(w, http.StatusBadRequest, id, jsonrpc.CodeInvalidRequest, "the header Mcp-Session-Id is missing: initialize first")
		return nil
	}
	p := d.started(name, server, r)
	if p == nil && d.elsewhere(server, w, r, body) { // another instance has just taken the session over
		return nil
	}
	if p == nil || p.Server() != server || p.Principal() != auth.Principal(r.Context()) {
		refuse(w, http.StatusNotFound, id, jsonrpc.CodeInvalidRequest, gone)
		return nil
	}
	// The handshake has set the session's revision. A header with another known revision is harmless,
	// but an unknown revision is an error.
	if v := r.Header[versionHeader]; len(v) > 0 && v[0] != p.Revision() && !era.IsLegacy(v[0]) {
		refuse(w, http.StatusBadRequest, id, jsonrpc.CodeInvalidRequest, "unsupported MCP-Protocol-Version: use "+p.Revision())
		return nil
	}
	return p
}

func (d *Downstream) initialize(server string, w http.ResponseWriter, r *http.Request, m *jsonrpc.Message, body *httpio.Body, as forms) {
	p := &peer{
		d:     d,
		id:    session.NewID(d.o.Tag),
		whose: auth.Principal(r.Context()),
	}
	st := newStream(p, postPrefix, 1)
	st.as = as
	soon := &starting{server, p.whose, make(chan struct{})}
	d.mu.Lock()
	d.starting[p.id] = soon
	d.mu.Unlock()
	go func() {
		defer close(soon.done)
		e := gateway.EnvelopeOf(r)
		s, a, err := d.g.Initialize(r.Context(), m, gateway.SessionOptions{
			Server:    server,
			ID:        p.id,
			Principal: p.whose,
			Envelope:  &e,
			Portable:  true,
		})
		if s != nil {
			d.enter(p, s)
		}
		d.mu.Lock()
		delete(d.starting, p.id)
		d.mu.Unlock()
		st.answer(a, err)
	}()
	answered := st.reply(w, r, true)
	<-soon.done // is closed soon: Initialize returns when the request's context ends
	switch {
	case p.Session == nil:
		p.forget()
	case !answered:
		p.End(bridge.ErrEnded) // the client has disconnected without the id
	}
	body.Free()
}

// enter adds a session to the sessions that clients can use.
func (d *Downstream) enter(p *peer, s gateway.Session) {
	p.Session = s
	d.mu.Lock()
	d.peers[p.id] = p
	d.mu.Unlock()
	s.OnEnd(func() {
		d.mu.Lock()
		delete(d.peers, p.id)
		d.mu.Unlock()
		p.breakOff()
		p.forget()
	})
}

// Adopt continues the session with that id, which another instance began. h is the session's record,
// which the caller has taken over.
func (d *Downstream) Adopt(id string, h session.Held) error {
	s, err := d.g.Adopt(h)
	if err == nil {
		d.enter(&peer{
			d:     d,
			id:    id,
			whose: h.Principal,
			epoch: h.Epoch,
		}, s)
	}
	return err
}

// call runs a request of the client, and calls free when the message is no longer used. If the session
// has ended, call reports false and does not call free.
func (p *peer) call(st *stream, m *jsonrpc.Message, e gateway.Envelope, free func()) bool {
	return p.Enter(m, &e, st).Go(func(a *jsonrpc.Message, err error) {
		if a == nil {
			st.cancelled(m.ID)
		} else {
			st.answer(a, err)
		}
		free()
	})
}

var (
	jsonType = []string{"application/json"}
	closing  = []byte{'}'}
)

// get opens a stream for messages that belong to no call, or resumes a stream.
func (d *Downstream) get(server string, w http.ResponseWriter, r *http.Request) {
	if !accepted(r.Header).events {
		refuse(w, http.StatusNotAcceptable, nil, jsonrpc.CodeInvalidRequest, "Accept must list text/event-stream")
		return
	}
	p := d.find(server, w, r, nil, nil)
	if p == nil {
		return
	}
	p.Seen()
	last := r.Header.Get(resumeHeader)
	if last == "" {
		st := newStream(p, getPrefix, 0)
		st.beginStream()
		p.listen(st, w, r, 0, p.primes())
		return
	}
	name, seq, ok := replay.ParseID(last)
	st := p.stream(name)
	var unknown error
	if ok && st == nil {
		st, unknown = p.takeStream(r.Context(), name, seq)
	}
	switch {
	case ok && st != nil && seq <= st.log.Last() && st.isGet():
		p.listen(st, w, r, seq, false)
	case ok && st != nil && seq == st.log.Last() && st.log.Finished():
		// After an error as the answer, the client of the TypeScript SDK resumes. A stream without
		// events would make that client resume for ever. It reports every status but 405 as an
		// error, and tries again.
		w.Header().Set("Allow", "POST, DELETE, OPTIONS")
		refuse(w, http.StatusMethodNotAllowed, nil, jsonrpc.CodeInvalidRequest, "nothing follows this Last-Event-ID: the stream has ended with it")
	case ok && st != nil && seq <= st.log.Last() && !st.lost(seq):
		st.respond(w, r, reading{after: seq})
	case ok && strings.HasPrefix(name, getPrefix):
		// The missed events are gone, but a client that got an error here would never open a GET
		// again.
		st := newStream(p, getPrefix, 0)
		st.beginStream()
		p.listen(st, w, r, 0, p.primes())
	case unknown != nil: // not 400, which would be final (S-027)
		d.o.Log.Warn("a stream cannot be resumed now", "err", unknown)
		w.Header()["Content-Type"] = jsonType
		begin(w, http.StatusServiceUnavailable, takeWithin)
		send(w, jsonrpc.NewError(nil, jsonrpc.CodeInternal, "the store of the stream is unreachable; try again later", []byte(`{"bridge":"unavailable","retryAfterMs":2000}`)).Append(nil, nil, nil))
	default:
		refuse(w, http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest, "this Last-Event-ID is unknown: its stream has ended, belongs to another session, or was dropped for lack of room")
	}
}

// listen serves a stream for messages that belong to no call. Such streams are many and mostly silent,
// so they leave the HTTP server if the connection allows that.
func (p *peer) listen(st *stream, w http.ResponseWriter, r *http.Request, seq int64, prime bool) {
	how := reading{
		after: seq,
		prime: prime,
		done:  p.Done(),
	}
	run, abort, ok := httpio.Detach(w, r)
	if !ok {
		p.attend(st, how, func(me *reader, how reading) {
			if ew, err := httpio.OpenWriter(w, r); err == nil { // after an error, the client may resume on another connection
				defer ew.Close()
				st.serve(r.Context(), ew, me, how)
			}
		})
		return
	}
	serve := func() {
		p.attend(st, how, func(me *reader, how reading) {
			st.breakable(me, abort)
			run(func(ctx context.Context, ew *httpio.Writer) { st.serve(ctx, ew, me, how) })
		})
	}
	if !p.Go(serve) {
		serve() // the session has just ended, which ends the stream
	}
}

// attend makes st one of the session's streams for messages without a call while serve runs.
func (p *peer) attend(st *stream, how reading, serve func(*reader, reading)) {
	me := st.attach(how.after)
	p.open(st)
	var detach func()
	how.begin = func() { detach = p.Attach(st) }
	serve(me, how)
	if detach != nil {
		detach()
	}
	st.detach(me)
	p.shut(st)
}
