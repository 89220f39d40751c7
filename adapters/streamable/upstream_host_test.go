package streamable

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

// shape is how a host answers.
type shape struct {
	name        string
	json        bool // answers are JSON; what else there is to say goes to the standalone stream
	ids         bool // events have ids, and streams can be resumed
	cut         bool // the connection is closed after each event
	sessionless bool
	apart       bool // questions go to the standalone stream
	modern      bool // 2026-07-28: no sessions, no standalone stream
}

// host serves the suite's server over HTTP, a new one for each session.
type host struct {
	shape
	*httptest.Server
	t testing.TB

	mu       sync.Mutex // guards the rest
	sessions map[string]*hosted
	count    int
}

// hosted is one session.
type hosted struct {
	adaptertest.Server
	h    *host
	dead chan struct{}

	mu         sync.Mutex // guards the rest
	streams    map[string]*hostStream
	standalone *hostStream
	barriers   map[string]chan struct{}
	count      int
	heard      []string      // what has no answer
	news       chan struct{} // closed when more was received
}

// hostStream is a stream of events, for any reader.
type hostStream struct {
	name     string
	events   [][]byte
	answered bool
	changed  chan struct{}
}

func newHost(t testing.TB, s shape) *host {
	h := &host{shape: s, t: t, sessions: map[string]*hosted{}}
	h.Server = httptest.NewUnstartedServer(h)
	h.Config.ErrorLog = log.New(io.Discard, "", 0)
	h.Start()
	t.Cleanup(h.Close)
	return h
}

// adapter makes an adapter to a URL, whose pooled connections end with the test.
func adapter(t testing.TB, url string, headers map[string]string, o conn.Options) *Upstream {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	a, err := NewUpstream("fake", remote.Config{URL: url, Headers: headers, Proxy: "none"}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

func (h *host) begin() (string, *hosted) {
	s := &hosted{h: h, dead: make(chan struct{}), streams: map[string]*hostStream{}, standalone: &hostStream{name: "g", changed: make(chan struct{})}, barriers: map[string]chan struct{}{}, news: make(chan struct{})}
	s.Server.Send, s.Server.Die, s.Server.Modern = s.send, s.die, h.modern
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count++
	id := fmt.Sprintf("session-%d", h.count)
	if h.sessionless || h.modern {
		id = ""
		if old := h.sessions[id]; old != nil {
			return id, old
		}
	}
	h.sessions[id] = s
	return id, s
}

// forget drops all sessions and cuts their connections.
func (h *host) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, s := range h.sessions {
		delete(h.sessions, id)
		close(s.dead)
	}
}

func (s *hosted) die() {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	for id, o := range s.h.sessions {
		if o == s {
			delete(s.h.sessions, id)
			close(s.dead)
		}
	}
}

// told is the part of a message that a host needs.
type told struct {
	ID     json.RawMessage
	Method string
}

// send implements adaptertest.Server.Send.
func (s *hosted) send(about, line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streams[string(about)]
	var m told
	_ = json.Unmarshal(line, &m)
	answer := m.Method == "" && bytes.Equal(m.ID, about)
	switch {
	case st == nil, s.h.apart && (m.Method != "" && m.ID != nil || m.Method == "notifications/cancelled"):
		st = s.standalone
	case s.h.json && st.answered:
		return // whether it comes before or after the answer would be chance
	case s.h.json && !answer:
		st = s.standalone
	}
	st.answered = st.answered || answer
	st.append(line)
}

// append adds an event. The caller holds the session's lock.
func (st *hostStream) append(line []byte) {
	st.events = append(st.events, bytes.Clone(line))
	close(st.changed)
	st.changed = make(chan struct{})
}

func (h *host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var m told
	_ = json.Unmarshal(body, &m)
	id := r.Header.Get("Mcp-Session-Id")
	h.mu.Lock()
	s := h.sessions[id]
	h.mu.Unlock()
	if m.Method == "initialize" || h.modern && s == nil {
		id, s = h.begin()
		if id != "" {
			w.Header().Set("Mcp-Session-Id", id)
		}
	}
	if s == nil {
		http.Error(w, "session not found", http.StatusNotFound)
		return
	}
	switch {
	case h.modern && (r.Method != http.MethodPost || m.ID == nil || m.Method == ""):
		h.t.Errorf("%s %s to a modern server", r.Method, body)
		w.WriteHeader(http.StatusMethodNotAllowed)
	case r.Method == http.MethodGet:
		s.get(w, r)
	case r.Method == http.MethodDelete:
		s.die()
	default:
		s.post(w, r, body, m)
	}
}

func (s *hosted) post(w http.ResponseWriter, r *http.Request, body []byte, m told) {
	if m.Method == "" || m.ID == nil {
		var id string
		_ = json.Unmarshal(m.ID, &id)
		s.mu.Lock()
		barrier := s.barriers[id]
		delete(s.barriers, id)
		s.mu.Unlock()
		if barrier != nil {
			close(barrier)
		} else {
			s.Receive(body)
			s.mu.Lock()
			s.heard = append(s.heard, string(body))
			close(s.news)
			s.news = make(chan struct{})
			s.mu.Unlock()
		}
		w.WriteHeader(http.StatusAccepted)
		return
	}
	st := &hostStream{name: string(m.ID), changed: make(chan struct{})}
	if s.h.ids && !s.h.json {
		st.events = [][]byte{nil} // priming
	}
	s.mu.Lock()
	s.streams[st.name] = st
	s.mu.Unlock()
	if m.Method == "test/await" {
		s.await(r, body)
	}
	s.Receive(body)
	if s.h.json {
		s.plain(w, r, st)
	} else {
		s.serve(w, r, st, 0)
	}
}

// await waits for what a request of the suite awaits. The suite takes for it the
// first that has the text in it, which must not be the request; but requests
// overtake what has no answer here.
func (s *hosted) await(r *http.Request, body []byte) {
	var m struct{ Params struct{ Await string } }
	_ = json.Unmarshal(body, &m)
	for {
		s.mu.Lock()
		news := s.news
		found := slices.ContainsFunc(s.heard, func(line string) bool { return strings.Contains(line, m.Params.Await) })
		s.mu.Unlock()
		if found {
			return
		}
		s.wait(r, news)
	}
}

// plain answers with JSON.
func (s *hosted) plain(w http.ResponseWriter, r *http.Request, st *hostStream) {
	for {
		s.mu.Lock()
		changed, events := st.changed, st.events
		s.mu.Unlock()
		if len(events) > 0 {
			s.barrier(r)
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			_, _ = w.Write(events[0])
			return
		}
		s.wait(r, changed)
	}
}

// barrier waits until what was said on the standalone stream has been read, so
// that an answer comes after it: it sends a ping there and waits for its answer.
func (s *hosted) barrier(r *http.Request) {
	s.mu.Lock()
	if len(s.standalone.events) == 0 {
		s.mu.Unlock()
		return
	}
	s.count++
	id := "barrier-" + strconv.Itoa(s.count)
	passed := make(chan struct{})
	s.barriers[id] = passed
	s.standalone.append([]byte(`{"jsonrpc":"2.0","id":"` + id + `","method":"ping"}`))
	s.mu.Unlock()
	s.wait(r, passed)
}

// wait waits for what. It breaks the connection when the session has ended or
// the client has gone.
func (s *hosted) wait(r *http.Request, what <-chan struct{}) {
	select {
	case <-what:
	case <-s.dead:
		panic(http.ErrAbortHandler)
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	}
}

func (s *hosted) get(w http.ResponseWriter, r *http.Request) {
	name, n, found := strings.Cut(r.Header.Get("Last-Event-ID"), "~")
	st, at := s.standalone, 0
	if found {
		at, _ = strconv.Atoi(n)
		at++
		if name != "g" {
			s.mu.Lock()
			st = s.streams[name]
			s.mu.Unlock()
		}
	}
	if st == nil {
		http.Error(w, "no such stream", http.StatusBadRequest)
		return
	}
	s.serve(w, r, st, at)
}

// serve writes a stream from its event number at on.
func (s *hosted) serve(w http.ResponseWriter, r *http.Request, st *hostStream, at int) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	_ = flush()
	for {
		s.mu.Lock()
		changed, events, over := st.changed, st.events, st.answered && st != s.standalone
		s.mu.Unlock()
		if over {
			s.barrier(r)
		}
		for ; at < len(events); at++ {
			if s.h.ids {
				fmt.Fprintf(w, "retry: 1\nid: %s~%d\n", st.name, at)
			}
			fmt.Fprintf(w, "data: %s\n\n", events[at])
			if s.h.cut {
				return
			}
		}
		_ = flush()
		if over {
			return
		}
		s.wait(r, changed)
	}
}
