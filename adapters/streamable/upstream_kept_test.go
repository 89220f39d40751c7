package streamable

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// ending is a server of one era. It reads each request on a kept connection and ends the connection without an answer.
type ending struct {
	modern bool
	fresh  string // requests of this method end a fresh connection as well
	hang   bool   // it ends a connection only after the client

	seen []string // methods, with "…" when there was no answer; requests come one after the other
}

type onConnection struct{}

func (e *ending) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var t told
	_ = json.Unmarshal(body, &t)
	before := r.Context().Value(onConnection{}).(*atomic.Int32).Add(1) - 1
	switch {
	case r.Method == http.MethodGet:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case before > 0 || t.Method == e.fresh:
		e.seen = append(e.seen, t.Method+"…")
		if e.hang {
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	}
	e.seen = append(e.seen, t.Method)
	switch {
	case t.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	case t.Method == "initialize" && !e.modern:
		plainly(w, string(t.ID), strings.ReplaceAll(agreed, "%q", `"2025-11-25"`))
	case t.Method == "server/discover" && e.modern:
		plainly(w, string(t.ID), discovered)
	default:
		respond(http.StatusBadRequest, failure("$id", -32601, "Method not found"))(w, r, string(t.ID))
	}
}

// adapter returns the adapter for the server.
func (e *ending) adapter(t *testing.T) *Upstream {
	return inMemory(t, new(atomic.Int32), &http.Server{Handler: e, ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, onConnection{}, new(atomic.Int32))
	}})
}

// inMemory returns an adapter for a server. Each of its connections is in memory, and counted.
func inMemory(t *testing.T, dialled *atomic.Int32, srv *http.Server) *Upstream {
	site := wiretest.NewSiteFrom(t, srv)
	dial := func(context.Context, string, string) (net.Conn, error) {
		dialled.Add(1)
		return site.Dial(), nil
	}
	u, err := NewUpstream("fake", remote.Config{URL: "http://fake/mcp", Proxy: "none", Dial: dial}, conn.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	return u
}

// The handshake is sent again when a kept connection ends under it. A call is not (D0.8): the server may have acted on it. A
// fresh connection that ends is a failure, and a handshake that is given up is not sent again.
func TestUpstreamKeptEnds(t *testing.T) {
	late := errors.New("no patience")
	for _, c := range []struct {
		name string
		e    ending
		from *bridge.Caller
		err  string // of Open; empty if it succeeds, and a call is made
		want string // what the server gets
	}{
		{"legacy", ending{}, adaptertest.Caller(""), "", "initialize notifications/initialized… notifications/initialized tools/call…"},
		{"legacy, probed", ending{}, adaptertest.ModernCaller(), "", "server/discover initialize… initialize notifications/initialized… notifications/initialized tools/call…"},
		{"modern", ending{modern: true}, adaptertest.ModernCaller(), "", "server/discover tools/call…"},
		{"modern, probed", ending{modern: true}, adaptertest.Caller(""), "", "initialize server/discover… server/discover tools/call…"},
		{"legacy, for good", ending{fresh: "initialize"}, adaptertest.ModernCaller(), "handshake: the connection to it broke", "server/discover initialize… initialize…"},
		{"modern, for good", ending{modern: true, fresh: "server/discover"}, adaptertest.Caller(""), "Method not found", "initialize server/discover… server/discover…"},
		{"given up", ending{hang: true}, adaptertest.ModernCaller(), late.Error(), "server/discover initialize…"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, late)
				defer cancel()
				up, err := c.e.adapter(t).Open(ctx, c.from, &adaptertest.Client{})
				if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
					t.Errorf("Open = %v, want %q", err, c.err)
				}
				if err == nil {
					if o := adaptertest.Call(t.Context(), t, up, nil, ask); !errors.Is(o.Err, bridge.ErrLost) || errors.Is(o.Err, bridge.ErrUnsent) {
						t.Errorf("the call ended with %q, %v, want ErrLost", o.Answer, o.Err)
					}
					_ = up.Close(t.Context())
				}
				synctest.Wait() // the server is done
				if got := strings.Join(c.e.seen, " "); got != c.want {
					t.Errorf("the server got %s\nwant %s", got, c.want)
				}
			})
		})
	}
}
