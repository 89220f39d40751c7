//go:build unix

package server

import (
	"bytes"
	"cmp"
	"io"
	"log/slog"
	"net/http"
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
	s := build(&c, slog.New(slog.DiscardHandler), func(*Server, *config.Server) backend {
		return backend{Adapter: instant{}, check: func() error { return nil }, transport: func() string { return "in-process" }}
	})
	defer s.Close(b.Context())
	h := s.http.Handler
	for _, path := range []string{"/one/mcp", "/many/mcp"} {
		b.Run("call"+path, func(b *testing.B) {
			a := &unheard{header: http.Header{}}
			q := from(peer, loopback, "POST", path, as(aliceKey)...)
			q.Header.Set("Accept", "application/json, text/event-stream")
			q.Body, q.ContentLength = io.NopCloser(bytes.NewReader([]byte(initialize))), int64(len(initialize))
			h.ServeHTTP(a, q)
			session := a.header.Get("Mcp-Session-Id")
			if session == "" {
				b.Fatal(a.status)
			}
			measure(b, h, "POST", path, session, call("7", "echo"), 200)
		})
	}
	b.Run("healthz", func(b *testing.B) { measure(b, h, "GET", "/healthz", "", "", 200) })
	b.Run("nowhere", func(b *testing.B) { measure(b, h, "GET", "/nowhere", "", "", 404) })
}

func measure(b *testing.B, h http.Handler, method, path, session, text string, status int) {
	a := &unheard{header: http.Header{}}
	q := from(peer, loopback, method, path, as(aliceKey)...)
	q.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		q.Header.Set("Mcp-Session-Id", session)
	}
	body := bytes.NewReader(nil)
	q.Body, q.ContentLength = io.NopCloser(body), int64(len(text))
	b.ReportAllocs()
	for b.Loop() {
		clear(a.header)
		a.status = 0
		body.Reset([]byte(text))
		again := *q // what is served may change it
		h.ServeHTTP(a, &again)
	}
	if a.status != status {
		b.Fatal(a.status)
	}
}
