//go:build unix

package server

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/config"
)

// unheard takes answers that nobody reads.
type unheard struct {
	header http.Header
	status int
}

func (u *unheard) Header() http.Header             { return u.header }
func (u *unheard) WriteHeader(status int)          { u.status = status }
func (u *unheard) SetReadDeadline(time.Time) error { return nil }

func (u *unheard) Write(b []byte) (int, error) {
	u.status = cmp.Or(u.status, http.StatusOK)
	return len(b), nil
}

// BenchmarkRoutes measures a request from the HTTP server's hands on, without a connection,
// a server or a log: a call of a session with a key, and the least that is served.
func BenchmarkRoutes(b *testing.B) {
	c := config.Default()
	c.Servers = []config.Server{config.DefaultServer("one", ""), config.DefaultServer("many", "")}
	private(&c)
	s := build(&c, slog.New(slog.DiscardHandler), func(*server, *config.Server) backend {
		return backend{Adapter: instant{}, check: func() error { return nil }, transport: func() string { return "in-process" }}
	})
	defer s.Close(b.Context())
	h := s.http.Handler
	for _, path := range []string{"/one/mcp", "/many/mcp"} {
		b.Run("call"+path, func(b *testing.B) {
			u := &unheard{header: http.Header{}}
			q := from(peer, loopback, "POST", path, as(aliceKey)...)
			q.Header.Set("Accept", "application/json, text/event-stream")
			q.Body, q.ContentLength = io.NopCloser(bytes.NewReader([]byte(initialize))), int64(len(initialize))
			h.ServeHTTP(u, q)
			session := u.header.Get("Mcp-Session-Id")
			if session == "" {
				b.Fatal(u.status)
			}
			measure(b, h, "POST", path, session, call("7", "echo"), 200)
		})
	}
	b.Run("healthz", func(b *testing.B) { measure(b, h, "GET", "/healthz", "", "", 200) })
	b.Run("nowhere", func(b *testing.B) { measure(b, h, "GET", "/nowhere", "", "", 404) })
}

// page is an event stream that is read at once, and counted.
type page struct {
	http.ResponseWriter
	header http.Header
	bytes  atomic.Int64
}

func (p *page) Header() http.Header              { return p.header }
func (p *page) WriteHeader(int)                  {}
func (p *page) SetWriteDeadline(time.Time) error { return nil }
func (p *page) FlushError() error                { return nil }
func (p *page) Flush()                           {}

func (p *page) Write(b []byte) (int, error) {
	p.bytes.Add(int64(len(b)))
	return len(b), nil
}

// BenchmarkWatched measures what a call costs more while a page is open that shows all calls: processor time at 6,000
// calls a second. A bridge with and one without a page take turns, and the median of the differences counts. The reader
// of the page costs nothing here. With -cpu 1, garbage is collected only by who needs it.
func BenchmarkWatched(b *testing.B) {
	const batches, batch, pause = 50, 60, 10 * time.Millisecond
	for _, topics := range []string{"servers,calls", "traffic"} {
		b.Run(topics, func(b *testing.B) {
			var alone, more []time.Duration
			var rounds [2]func() time.Duration
			for way := range rounds {
				c := config.Default()
				c.Servers = []config.Server{config.DefaultServer("one", ""), config.DefaultServer("many", "")}
				s := build(&c, slog.New(slog.DiscardHandler), func(*server, *config.Server) backend {
					return backend{Adapter: instant{}, check: func() error { return nil }, transport: func() string { return "in-process" }}
				})
				defer s.Close(b.Context())
				h := s.http.Handler
				begun := &unheard{header: http.Header{}}
				q := from(closeBy, bridgeAt, "POST", "/one/mcp", "Accept", "application/json, text/event-stream")
				q.Body, q.ContentLength = io.NopCloser(bytes.NewReader([]byte(initialize))), int64(len(initialize))
				h.ServeHTTP(begun, q)
				if way == 1 {
					ctx, stop := context.WithCancel(b.Context())
					ended := make(chan struct{})
					p := &page{header: http.Header{}}
					open := from(closeBy, bridgeAt, "GET", "/ui/api/v1/events?topics="+topics)
					open = open.WithContext(context.WithValue(ctx, http.LocalAddrContextKey, open.Context().Value(http.LocalAddrContextKey)))
					go func() {
						defer close(ended)
						h.ServeHTTP(p, open)
					}()
					for p.bytes.Load() == 0 {
						time.Sleep(time.Millisecond)
					}
					defer func() { stop(); <-ended }()
				}
				q.Header.Set("Mcp-Session-Id", begun.header.Get("Mcp-Session-Id"))
				text := []byte(call("7", "echo"))
				rounds[way] = func() time.Duration {
					before := cpu(b)
					for range batches {
						for range batch {
							again := *q
							again.Body, again.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
							h.ServeHTTP(&unheard{header: http.Header{}}, &again)
						}
						time.Sleep(pause)
					}
					return (cpu(b) - before) / (batches * batch)
				}
			}
			for b.Loop() {
				alone = append(alone, rounds[0]())
				more = append(more, rounds[1]()-alone[len(alone)-1])
			}
			slices.Sort(alone)
			slices.Sort(more)
			b.ReportMetric(float64(alone[len(alone)/2])/1000, "µs/alone")
			b.ReportMetric(float64(more[len(more)/2])/1000, "µs/more")
		})
	}
}

func measure(b *testing.B, h http.Handler, method, path, session, text string, status int) {
	u := &unheard{header: http.Header{}}
	q := from(peer, loopback, method, path, as(aliceKey)...)
	q.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		q.Header.Set("Mcp-Session-Id", session)
	}
	body := bytes.NewReader(nil)
	q.Body, q.ContentLength = io.NopCloser(body), int64(len(text))
	b.ReportAllocs()
	for b.Loop() {
		clear(u.header)
		u.status = 0
		body.Reset([]byte(text))
		again := *q // what is served may change it
		h.ServeHTTP(u, &again)
	}
	if u.status != status {
		b.Fatal(u.status)
	}
}
