package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// rig is a Server whose MCP servers are in memory, and the site that it serves.
type rig struct {
	*wiretest.Site
	t testing.TB
	s *server
	f *wiretest.Server
	// looks counts how often it was looked how a server fares that was not used yet.
	looks atomic.Int64
}

func newRig(t testing.TB, change func(*config.Config), names ...string) *rig {
	return newRigLog(t, slog.New(slog.DiscardHandler), change, names...)
}

// newRigLog is newRig with a log that is looked at.
func newRigLog(t testing.TB, log *slog.Logger, change func(*config.Config), names ...string) *rig {
	c := config.Default()
	for _, name := range names {
		c.Servers = append(c.Servers, config.DefaultServer(name, ""))
	}
	if change != nil {
		change(&c)
	}
	r := &rig{t: t, f: &wiretest.Server{}}
	r.s = build(&c, log, func(_ *server, s *config.Server) backend {
		check := func() error {
			r.looks.Add(1)
			if s.Name == "broken" {
				return errors.New("no such program")
			}
			return nil
		}
		return backend{Adapter: r.f, check: check, transport: func() string { return "stdio" }}
	})
	r.Site = wiretest.NewSiteFrom(t, r.s.http)
	t.Cleanup(func() { r.s.Close(context.Background()) })
	return r
}

// run runs f in a bubble.
func run(t *testing.T, change func(*config.Config), names []string, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newRig(t, change, names...)) })
}

const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`

// begin starts a session at that path.
func (r *rig) begin(path string) (session string) {
	r.t.Helper()
	a := r.Do("POST", path, initialize).Wait()
	if a.Status() != 200 || a.Header("Mcp-Session-Id") == "" {
		r.t.Fatalf("initialize at %s = %d %s", path, a.Status(), a.Body())
	}
	return a.Header("Mcp-Session-Id")
}

func call(id, tool string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":{}}}`, id, tool)
}

// from makes a request that comes from peer to the address at.
func from(peer, at, method, path string, header ...string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	host, _, _ := net.SplitHostPort(at)
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.ParseIP(host), Port: 8808})))
	r.RemoteAddr, r.Host = peer, "127.0.0.1:8808"
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// peerOf returns one of many peers, the first of which is peer. One address may show
// few wrong keys.
func peerOf(n int) string { return fmt.Sprintf("198.51.%d.%d:1234", 100+(7+n)/256, (7+n)%256) }

func (r *rig) answer(q *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r.s.http.Handler.ServeHTTP(w, q)
	return w
}
