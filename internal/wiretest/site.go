package wiretest

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Site is an HTTP server in memory, and its clients.
type Site struct {
	t      testing.TB
	l      *listener
	http   *http.Server
	client *http.Client
	wg     sync.WaitGroup // waits for replies
}

// NewSite returns a site that serves h until the test ends.
func NewSite(t testing.TB, h http.Handler) *Site {
	return NewSiteFrom(t, &http.Server{Handler: h})
}

// NewSiteFrom returns a site that serves with the settings of srv until the test ends.
func NewSiteFrom(t testing.TB, srv *http.Server) *Site {
	s := newSite(t)
	s.http = srv
	if srv.ErrorLog == nil {
		srv.ErrorLog = log.New(io.Discard, "", 0)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(s.l)
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		s.client.CloseIdleConnections()
		<-served
		s.wg.Wait()
		if bubble() {
			Advance(time.Second) // net/http keeps connections open if it has not read their requests
		}
	})
	return s
}

// NewClients returns a site that another server serves, on the site's Listener.
func NewClients(t testing.TB) *Site {
	s := newSite(t)
	t.Cleanup(func() {
		_ = s.l.Close()
		s.client.CloseIdleConnections()
		s.wg.Wait()
	})
	return s
}

func newSite(t testing.TB) *Site {
	s := &Site{t: t, l: newListener()}
	s.client = &http.Client{Transport: &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return s.Dial(), nil },
		DisableKeepAlives: true,
	}}
	return s
}

// Listener returns the listener, for another server.
func (s *Site) Listener() net.Listener { return s.l }

// Client returns the client of the site's address.
func (s *Site) Client() *http.Client { return s.client }

// Dial connects to the site.
func (s *Site) Dial() net.Conn {
	client, server := net.Pipe()
	select {
	case s.l.conns <- local{server}:
	case <-s.l.done:
		_ = server.Close()
	}
	return client
}

// local is a connection from a loopback address.
type local struct{ net.Conn }

func (local) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8808} }
func (local) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40000} }

type listener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newListener() *listener {
	return &listener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *listener) Addr() net.Addr { return local{}.LocalAddr() }

// Reply is the part of the response to a request that has arrived.
type Reply struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the response is over

	mu     sync.Mutex // guards the rest
	status int
	header http.Header
	body   bytes.Buffer
	taken  int // bytes of body that Take has returned
	err    error
}

// Do makes a request and reads the response in the background. header has pairs of a name and a value. An empty value
// removes a default, and each line of a value is a header. A POST has the type JSON and accepts everything.
func (s *Site) Do(method, path, body string, header ...string) *Reply {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1:8808"+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	switch method {
	case http.MethodPost:
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
	case http.MethodGet:
		req.Header.Set("Accept", "text/event-stream")
	}
	for i := 0; i+1 < len(header); i += 2 {
		switch name, value := header[i], header[i+1]; {
		case value == "":
			req.Header.Del(name)
		case strings.EqualFold(name, "Host"):
			req.Host = value
		case strings.EqualFold(name, "Transfer-Encoding"):
			req.ContentLength = -1
		default:
			req.Header[http.CanonicalHeaderKey(name)] = strings.Split(value, "\n")
		}
	}
	r := &Reply{cancel: cancel, done: make(chan struct{})}
	s.wg.Go(func() {
		defer close(r.done)
		defer cancel()
		r.read(s.client.Do(req))
	})
	return r
}

func (r *Reply) read(resp *http.Response, err error) {
	if err != nil {
		r.mu.Lock()
		r.err = err
		r.mu.Unlock()
		return
	}
	defer resp.Body.Close()
	r.mu.Lock()
	r.status, r.header = resp.StatusCode, resp.Header
	r.mu.Unlock()
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		r.mu.Lock()
		r.body.Write(buf[:n])
		if err != nil && err != io.EOF {
			r.err = err
		}
		r.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Leave closes the connection.
func (r *Reply) Leave() {
	r.cancel()
	<-r.done
}

// Wait waits until the response is over.
func (r *Reply) Wait() *Reply {
	<-r.done
	return r
}

// Over reports whether the response is over.
func (r *Reply) Over() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// Err returns the reason why the response ended early, or nil.
func (r *Reply) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Status returns the status, or 0 before there is a status.
func (r *Reply) Status() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// Header returns a header of the response.
func (r *Reply) Header(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.header.Get(name)
}

// Body returns the part of the body that has arrived.
func (r *Reply) Body() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.body.String()
}

// Take returns the part of the body that has arrived since the last Take.
func (r *Reply) Take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := r.body.String()[r.taken:]
	r.taken = r.body.Len()
	return text
}

type Event struct{ ID, Type, Data string }

// Events returns the complete events that have arrived.
func (r *Reply) Events() []Event {
	var all []Event
	blocks := strings.Split(r.Body(), "\n\n")
	for _, block := range blocks[:len(blocks)-1] {
		var e Event
		for line := range strings.Lines(block) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			switch name {
			case "id":
				e.ID = value
			case "event":
				e.Type = value
			case "data":
				e.Data += value
			}
		}
		if e != (Event{}) {
			all = append(all, e)
		}
	}
	return all
}

// bubble reports whether the time is fake.
func bubble() (is bool) {
	defer func() { is = recover() == nil }()
	synctest.Wait()
	return
}

// Advance lets fake time pass, and waits for everything that happens meanwhile.
func Advance(d time.Duration) { <-time.After(d) }
