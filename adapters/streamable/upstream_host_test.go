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
	u, err := NewUpstream("fake", remote.Config{URL: url, Headers: headers, Proxy: "none"}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	return u
}

func (h *host) begin() (string, *hosted) {
	s := &hosted{h: h, dead: make(chan struct{}), streams: map[string]*hostStream{}, standalone: &hostStream{name: "g", changed: make(chan struct{})}, barriers: map[string]chan struct{}{}}
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

func (h *hosted) die() {
	h.h.mu.Lock()
	defer h.h.mu.Unlock()
	for id, o := range h.h.sessions {
		if o == h {
			delete(h.h.sessions, id)
			close(h.dead)
		}
	}
}

// told is the part of a message that a host needs.
type told struct {
	ID     json.RawMessage
	Method string
}

// send implements adaptertest.Server.Send.
func (h *hosted) send(about, line []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := h.streams[string(about)]
	var t told
	_ = json.Unmarshal(line, &t)
	answer := t.Method == "" && bytes.Equal(t.ID, about)
	switch {
	case st == nil, h.h.apart && (t.Method != "" && t.ID != nil || t.Method == "notifications/cancelled"):
		st = h.standalone
	case h.h.json && st.answered:
		return // whether it comes before or after the answer would be chance
	case h.h.json && !answer:
		st = h.standalone
	}
	st.answered = st.answered || answer
	st.append(line)
}

// append adds an event. The caller holds the session's lock.
func (h *hostStream) append(line []byte) {
	h.events = append(h.events, bytes.Clone(line))
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var t told
	_ = json.Unmarshal(body, &t)
	id := r.Header.Get("Mcp-Session-Id")
	h.mu.Lock()
	s := h.sessions[id]
	h.mu.Unlock()
	if t.Method == "initialize" || h.modern && s == nil {
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
	case h.modern && (r.Method != http.MethodPost || t.ID == nil || t.Method == ""):
		h.t.Errorf("%s %s to a modern server", r.Method, body)
		w.WriteHeader(http.StatusMethodNotAllowed)
	case r.Method == http.MethodGet:
		s.get(w, r)
	case r.Method == http.MethodDelete:
		s.die()
	default:
		s.post(w, r, body, t)
	}
}

func (h *hosted) post(w http.ResponseWriter, r *http.Request, body []byte, t told) {
	if t.Method == "" || t.ID == nil {
		var id string
		_ = json.Unmarshal(t.ID, &id)
		h.mu.Lock()
		barrier := h.barriers[id]
		delete(h.barriers, id)
		h.mu.Unlock()
		if barrier != nil {
			close(barrier)
		} else {
			h.Receive(body)
		}
		w.WriteHeader(http.StatusAccepted)
		return
	}
	st := &hostStream{name: string(t.ID), changed: make(chan struct{})}
	if h.h.ids && !h.h.json {
		st.events = [][]byte{nil} // priming
	}
	h.mu.Lock()
	h.streams[st.name] = st
	h.mu.Unlock()
	h.Receive(body)
	if h.h.json {
		h.plain(w, r, st)
	} else {
		h.serve(w, r, st, 0)
	}
}

// plain answers with JSON.
func (h *hosted) plain(w http.ResponseWriter, r *http.Request, st *hostStream) {
	for {
		h.mu.Lock()
		changed, events := st.changed, st.events
		h.mu.Unlock()
		if len(events) > 0 {
			h.barrier(r)
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			_, _ = w.Write(events[0])
			return
		}
		h.wait(r, changed)
	}
}

// barrier waits until what was said on the standalone stream has been read, so
// that an answer comes after it: it sends a ping there and waits for its answer.
func (h *hosted) barrier(r *http.Request) {
	h.mu.Lock()
	if len(h.standalone.events) == 0 {
		h.mu.Unlock()
		return
	}
	h.count++
	id := "barrier-" + strconv.Itoa(h.count)
	passed := make(chan struct{})
	h.barriers[id] = passed
	h.standalone.append([]byte(`{"jsonrpc":"2.0","id":"` + id + `","method":"ping"}`))
	h.mu.Unlock()
	h.wait(r, passed)
}

// wait waits for what. It breaks the connection when the session has ended or
// the client has gone.
func (h *hosted) wait(r *http.Request, what <-chan struct{}) {
	select {
	case <-what:
	case <-h.dead:
		panic(http.ErrAbortHandler)
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	}
}

func (h *hosted) get(w http.ResponseWriter, r *http.Request) {
	name, n, found := strings.Cut(r.Header.Get("Last-Event-ID"), "~")
	st, at := h.standalone, 0
	if found {
		at, _ = strconv.Atoi(n)
		at++
		if name != "g" {
			h.mu.Lock()
			st = h.streams[name]
			h.mu.Unlock()
		}
	}
	if st == nil {
		http.Error(w, "no such stream", http.StatusBadRequest)
		return
	}
	h.serve(w, r, st, at)
}

// serve writes a stream from its event number at on.
func (h *hosted) serve(w http.ResponseWriter, r *http.Request, st *hostStream, at int) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	_ = flush()
	for {
		h.mu.Lock()
		changed, events, over := st.changed, st.events, st.answered && st != h.standalone
		h.mu.Unlock()
		if over {
			h.barrier(r)
		}
		for ; at < len(events); at++ {
			if h.h.ids {
				fmt.Fprintf(w, "retry: 1\nid: %s~%d\n", st.name, at)
			}
			fmt.Fprintf(w, "data: %s\n\n", events[at])
			if h.h.cut {
				return
			}
		}
		_ = flush()
		if over {
			return
		}
		h.wait(r, changed)
	}
}
