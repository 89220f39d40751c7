package integration

import (
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/internal/dialogue"
)

// dialogueServer is a server of a dialogue at HTTP+SSE or Streamable HTTP.
type dialogueServer struct {
	s   *dialogue.Server
	sse bool

	mu    sync.Mutex // guards the rest
	conns map[string]*dialogueConn
	n     int
}

// dialogueConn is a session at the server. A modern server has one.
type dialogueConn struct {
	*dialogue.Conn

	mu      sync.Mutex             // guards the rest
	streams map[string]chan string // by the raw id of the request; "" is the standing stream
	over    chan struct{}          // closed when the session is over
}

func newDialogueServer(s *dialogue.Server, transport string) *dialogueServer {
	d := &dialogueServer{s: s, sse: transport == "sse", conns: map[string]*dialogueConn{}}
	if era.IsModern(s.Revision()) {
		d.connect("")
	}
	return d
}

func (d *dialogueServer) connect(id string) *dialogueConn {
	c := &dialogueConn{streams: map[string]chan string{"": make(chan string, 1<<10)}, over: make(chan struct{})}
	c.Conn = d.s.Connect(c.say, func() { d.end(id) })
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns[id] = c
	return c
}

// end ends a session.
func (d *dialogueServer) end(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.conns[id]; c != nil {
		delete(d.conns, id)
		close(c.over)
	}
}

// say sends a message on the stream of a request. What belongs to none goes on the standing stream.
func (c *dialogueConn) say(line, about string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to := c.streams[about]
	if to == nil {
		to = c.streams[""]
	}
	to <- line
}

// stream opens the stream of a request.
func (c *dialogueConn) stream(id string) chan string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams[id] == nil {
		c.streams[id] = make(chan string, 1<<10)
	}
	return c.streams[id]
}

// ServeHTTP implements http.Handler.
func (d *dialogueServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if d.s.Down() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	id := r.Header.Get("Mcp-Session-Id") + r.URL.Query().Get("session")
	d.mu.Lock()
	c := d.conns[id]
	if c == nil && id == "" {
		d.n++
		id = fmt.Sprint("session-", d.n)
	}
	d.mu.Unlock()
	m := gjson.ParseBytes(body)
	switch begins := m.Get("method").Str == "initialize"; {
	case c == nil && (d.sse && r.Method == http.MethodGet || !d.sse && begins):
		c = d.connect(id)
	case c == nil:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	switch {
	case r.Method == http.MethodDelete:
		c.Closed()
		d.end(id)
	case r.Method == http.MethodGet && d.sse:
		defer c.Closed()
		open(w)
		fmt.Fprintf(w, "event: endpoint\ndata: /mcp?session=%s\n\n", id)
		c.write(w, r, "")
	case r.Method == http.MethodGet:
		open(w)
		c.write(w, r, "")
	case d.sse || !m.Get("method").Exists() || !m.Get("id").Exists():
		w.WriteHeader(http.StatusAccepted)
		c.Take(string(body))
	default:
		d.answer(w, r, c, id, string(body), m.Get("id").Raw)
	}
}

func open(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
}

// answer serves a request on a stream of its own.
func (d *dialogueServer) answer(w http.ResponseWriter, r *http.Request, c *dialogueConn, session, body, id string) {
	c.stream(id)
	c.Take(body)
	if session != "" {
		w.Header().Set("Mcp-Session-Id", session)
	}
	open(w)
	if !c.write(w, r, id) && session == "" {
		c.Cancelled(id)
	}
	c.mu.Lock()
	delete(c.streams, id)
	c.mu.Unlock()
}

// write writes the messages of a stream, up to the answer. It reports false if the client left before.
func (c *dialogueConn) write(w http.ResponseWriter, r *http.Request, id string) bool {
	stream := c.stream(id)
	for {
		_ = http.NewResponseController(w).Flush()
		select {
		case line := <-stream:
			fmt.Fprintf(w, "event: message\ndata: %s\n\n", line)
			if m := gjson.Parse(line); id != "" && m.Get("id").Raw == id && !m.Get("method").Exists() {
				return true
			}
		case <-r.Context().Done():
			return false
		case <-c.over:
			return true
		}
	}
}
