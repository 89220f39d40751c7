package sse

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// secret marks text that must not be shown: it is in the session's id, in headers and in addresses.
const secret = "SECRET"

// fakePeer is a server of HTTP+SSE whose behaviour is the suite's, as far as the hooks do not change it.
type fakePeer struct {
	endpoint string // what the first event says; empty means a relative one with a query
	// get and post see each request first; false means that they have answered it.
	get  func(w http.ResponseWriter, r *http.Request) bool
	post func(w http.ResponseWriter, r *http.Request, s *stream, body []byte) bool

	mu      sync.Mutex // guards the rest
	streams map[string]*stream
	opened  int
	headers []http.Header // of all requests
}

// stream is one session of it.
type stream struct {
	*adaptertest.Server
	mu   sync.Mutex // guards w
	w    http.ResponseWriter
	over chan struct{}
	once sync.Once
	left int // bytes to be written before the stream breaks; negative means no limit
}

// write puts text on the stream.
func (s *stream) write(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.over:
		return
	default:
	}
	cut := s.left >= 0 && s.left <= len(text)
	if cut {
		text = text[:s.left]
	}
	if s.left >= 0 {
		s.left -= len(text)
	}
	_, _ = io.WriteString(s.w, text)
	s.w.(http.Flusher).Flush()
	if cut {
		s.die()
	}
}

func (s *stream) die() { s.once.Do(func() { close(s.over) }) }

func (f *fakePeer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.headers = append(f.headers, r.Header.Clone())
	f.mu.Unlock()
	if r.Method == http.MethodGet {
		if f.get == nil || f.get(w, r) {
			f.serve(w, r, -1)
		}
		return
	}
	body, err := io.ReadAll(r.Body)
	f.mu.Lock()
	s := f.streams[r.URL.Query().Get("session")]
	f.mu.Unlock()
	switch {
	case err != nil || s == nil:
		http.Error(w, "no such session", http.StatusNotFound)
	case f.post == nil || f.post(w, r, s, body):
		s.Receive(body)
		w.WriteHeader(http.StatusAccepted)
	}
}

// serve serves a stream of so many bytes.
func (f *fakePeer) serve(w http.ResponseWriter, r *http.Request, left int) {
	s := &stream{w: w, over: make(chan struct{}), left: left}
	s.Server = &adaptertest.Server{Die: s.die, Send: func(_, line []byte) { s.write("event: message\ndata: " + string(line) + "\n\n") }}
	f.mu.Lock()
	f.opened++
	id := fmt.Sprint(secret, f.opened)
	if f.streams == nil {
		f.streams = map[string]*stream{}
	}
	f.streams[id] = s
	f.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	endpoint := f.endpoint
	if endpoint == "" {
		endpoint = "/messages?session=$id"
	}
	s.write("event: endpoint\ndata: " + strings.ReplaceAll(endpoint, "$id", id) + "\n\n")
	lost := false
	select {
	case <-s.over:
		lost = true
	case <-r.Context().Done():
		s.die()
	}
	s.mu.Lock() // no writer is left
	defer s.mu.Unlock()
	if lost {
		panic(http.ErrAbortHandler) // without another word
	}
}

// the returns the only stream that was opened.
func (f *fakePeer) the(t testing.TB) *stream {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.streams {
		return s
	}
	t.Fatal("no stream")
	return nil
}

// serve serves f over TCP until the test ends, and returns an adapter for it. Nothing secret may be logged.
func serve(t testing.TB, f http.Handler, c remote.Config, o conn.Options) (*Upstream, *adaptertest.Log) {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	srv := httptest.NewUnstartedServer(f)
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	srv.Start()
	t.Cleanup(srv.Close)
	if c.URL == "" {
		c.URL = "/sse"
	}
	if strings.HasPrefix(c.URL, "/") {
		c.URL = srv.URL + c.URL
	}
	log := &adaptertest.Log{}
	o.Log = log.Logger()
	u, err := NewUpstream("fake", c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		u.Close()
		if strings.Contains(log.String(), secret) {
			t.Errorf("a secret is in the log:\n%s", log)
		}
	})
	return u, log
}

// inMemory is serve for a bubble.
func inMemory(t testing.TB, f http.Handler, o conn.Options) *Upstream {
	t.Helper()
	return inMemoryFrom(t, &http.Server{Handler: f}, o)
}

func inMemoryFrom(t testing.TB, srv *http.Server, o conn.Options) *Upstream {
	t.Helper()
	site := wiretest.NewSiteFrom(t, srv)
	o.Log = slog.New(slog.DiscardHandler)
	dial := func(context.Context, string, string) (net.Conn, error) { return site.Dial(), nil }
	u, err := NewUpstream("fake", remote.Config{URL: "http://fake/sse", Proxy: "none", Dial: dial}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	return u
}

func call(t testing.TB, up bridge.Upstream, params string) adaptertest.Outcome {
	t.Helper()
	return <-goCall(t.Context(), t, up, params)
}

func goCall(ctx context.Context, t testing.TB, up bridge.Upstream, params string) <-chan adaptertest.Outcome {
	t.Helper()
	return adaptertest.Go(ctx, t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"m","params":`+params+`}`)
}

func notify(t testing.TB, up bridge.Upstream, method string) {
	t.Helper()
	adaptertest.Notify(t, up, `{"jsonrpc":"2.0","method":"`+method+`"}`)
}

func newLine(text string) *jsonrpc.Buffer {
	b := jsonrpc.NewBuffer(len(text))
	b.B = append(b.B, text...)
	return b
}
