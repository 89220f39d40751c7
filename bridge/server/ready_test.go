package server

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/server/status"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

func (r *rig) readyz(header ...string) (status int, got status.Bridge) {
	r.t.Helper()
	a := r.Do("GET", "/readyz", "", header...).Wait()
	if err := json.Unmarshal([]byte(a.Body()), &got); err != nil {
		r.t.Fatalf("/readyz = %d %s", a.Status(), a.Body())
	}
	return a.Status(), got
}

// /readyz has what an operator wants to know of each server, and of the bridge.
func TestReadyDetails(t *testing.T) {
	run(t, nil, []string{"one", "two"}, func(t *testing.T, r *rig) {
		_, got := r.readyz()
		if s := got.Servers[0]; s.Era != "" || s.Revision != "" || s.Connections != 0 || s.LastError != "" || s.RetryAt != nil {
			t.Errorf("before anything has happened: %+v", s)
		}
		id := r.begin("/mcp")
		one := r.begin("/one/mcp")
		x := r.Do("POST", "/one/mcp", call("1", "wait"), "Mcp-Session-Id", one)
		y := r.Do("POST", "/mcp", callStateless("2", "subscriptions/listen", `"notifications":{"toolsListChanged":true}`), "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen")
		synctest.Wait()
		status, got := r.readyz()
		if s := got.Servers[0]; status != 200 || s.Era != "legacy" || s.Revision != "2025-11-25" || s.Sessions != 1 || s.Calls != 1 || s.Transport != "stdio" || s.Connections == 0 || *s.Children != s.Connections {
			t.Errorf("in use: %d %+v", status, s)
		}
		if l := got.Whole; l.Sessions != 2 || l.Together != 1 || l.Calls != 1 || l.Subscriptions != 1 || l.Version != Version() || l.Connections == 0 {
			t.Errorf("the bridge: %+v", l)
		}
		r.f.Answer(`{}`)
		x.Wait()
		y.Leave()
		r.Do("POST", "/mcp", call("3", "one__quit"), "Mcp-Session-Id", id).Wait()
		synctest.Wait()
		if _, got = r.readyz(); got.Servers[0].LastError == "" || got.Servers[0].LastErrorAt == nil || got.Servers[0].State == "failing" {
			t.Errorf("after a loss: %+v", got.Servers[0])
		}
	})
}

// With ready: all each server has to work. The metrics say what /readyz says, and look once how a server fares.
func TestReadyAll(t *testing.T) {
	for _, test := range []struct {
		rule   string
		names  []string
		status int
		reason string
	}{
		{config.ReadyAny, []string{"one", "broken"}, 200, ""},
		{config.ReadyAll, []string{"one", "broken"}, 503, "broken: does not work, and all servers must work (ready: all)"},
		{config.ReadyAll, []string{"one"}, 200, ""},
		{config.ReadyAll, []string{"broken"}, 503, "no server works"},
	} {
		run(t, func(c *config.Config) { c.Ready = test.rule }, test.names, func(t *testing.T, r *rig) {
			up := map[bool]string{true: "1", false: "0"}[test.status == 200]
			if r.value("mcp_bridge_ready ", up); r.looks.Load() != int64(len(test.names)) {
				t.Errorf("looked %d times how %d servers fare", r.looks.Load(), len(test.names))
			}
			if status, got := r.readyz(); status != test.status || got.Reason != test.reason || got.Ready != (status == 200) {
				t.Errorf("%s of %v: %d %q, want %d %q", test.rule, test.names, status, got.Reason, test.status, test.reason)
			}
		})
	}
}

// A server that failed keeps failing until it works again, however seldom somebody asks. With ready: all the
// bridge itself tries it, since a probe keeps all clients away; a server with headers of clients, it cannot try.
func TestReadyFails(t *testing.T) {
	for _, test := range []struct {
		rule    string
		forward []bridge.Forward
		status  int // after the minute in which a failure counts
	}{
		{config.ReadyAny, nil, 200}, {config.ReadyAll, nil, 503}, {config.ReadyAll, []bridge.Forward{{From: "Authorization"}}, 200},
	} {
		run(t, func(c *config.Config) { c.Ready, c.Servers[0].Forward = test.rule, test.forward }, []string{"one", "two"}, func(t *testing.T, r *rig) {
			tries := 0
			r.f.Before = func(context.Context) error {
				tries++
				return &bridge.Error{Server: "one", Kind: bridge.ErrUnavailable, Public: "it cannot be reached"}
			}
			r.Do("POST", "/one/mcp", initialize).Wait()
			look := func(when string, status int, up string) {
				t.Helper()
				synctest.Wait()
				got, all := r.readyz()
				if r.value(`mcp_bridge_server_up{server="one"}`, up); got != status || (all.Servers[0].State == "failing") != (up == "0") {
					t.Errorf("%s %v: %s: %d, %s", test.rule, test.forward, when, got, all.Servers[0].State)
				}
			}
			look("at once", map[string]int{config.ReadyAny: 200, config.ReadyAll: 503}[test.rule], "0")
			before := tries
			for range 5 {
				time.Sleep(61 * time.Second)
				look("later", test.status, "0")
			}
			if tried := tries > before; tried != (test.status == 503) {
				t.Errorf("%s %v: the bridge tries %d times", test.rule, test.forward, tries-before)
			}
			if test.status == 503 {
				r.f.Before = nil
				time.Sleep(61 * time.Second)
				r.readyz()
				look("mended", 200, "1")
			}
		})
	}
}

// People get a table, if they ask for it; a HEAD gets the status.
func TestReadyText(t *testing.T) {
	run(t, nil, []string{"one", "broken"}, func(t *testing.T, r *rig) {
		r.begin("/one/mcp")
		time.Sleep(90 * time.Second)
		for _, at := range [][]string{{"/readyz?format=text"}, {"/readyz", "Accept", "text/plain"}, {"/readyz?format=text", "Accept", "application/json"}} {
			a := r.Do("GET", at[0], "", at[1:]...).Wait()
			lines := strings.Split(a.Body(), "\n")
			if a.Status() != 200 || !strings.HasPrefix(a.Header("Content-Type"), "text/plain") || a.Header("Cache-Control") != "no-store" || len(lines) != 7 {
				t.Fatalf("%v = %d %s", at, a.Status(), a.Body())
			}
			column := strings.Index(lines[3], "STATE")
			if lines[0] != "ready" || column < 0 || !strings.HasPrefix(lines[4][column:], "ready ") || !strings.HasPrefix(lines[5][column:], "failing ") || !strings.HasSuffix(lines[5], "no such program") {
				t.Errorf("%v:\n%s", at, a.Body())
			}
			if !regexp.MustCompile(`^one +ready +- +stdio +2025-11-25 +1 +0 +1 +0 +closed +- +-$`).MatchString(lines[4]) {
				t.Errorf("line %q", lines[4])
			}
		}
		for _, accept := range []string{"", "*/*", "application/json", "text/html,application/xhtml+xml,*/*;q=0.8", "application/json, text/plain"} {
			if a := r.Do("GET", "/readyz", "", "Accept", accept).Wait(); !strings.HasPrefix(a.Header("Content-Type"), "application/json") {
				t.Errorf("Accept: %s gets %s", accept, a.Header("Content-Type"))
			}
		}
		for _, path := range []string{"/readyz", "/metrics"} {
			if a := r.Do("HEAD", path, "").Wait(); a.Status() != 200 {
				t.Errorf("HEAD %s = %d %q", path, a.Status(), a.Body())
			}
		}
		_ = r.s.g.Drain(t.Context())
		if a := r.Do("GET", "/readyz?format=text", "").Wait(); a.Status() != 503 || !strings.HasPrefix(a.Body(), "not ready: the bridge is stopping\n") {
			t.Errorf("draining: %d %s", a.Status(), a.Body())
		}
	})
}

// A server that is left alone, of which old lists are given out.
func TestReadyTextFailing(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	st := gateway.Status{
		Name: "one", State: "failing", Reason: "it fails", Since: now.Add(-time.Minute), Last: "it\n fails " + strings.Repeat("x", 700), LastAt: now.Add(-2 * time.Second),
		Breaker: "open", RetryAt: now.Add(3 * time.Second), Trips: 1,
		Cache: cache.Status{Entries: 2, Bytes: 10, Oldest: 90 * time.Minute, Stale: true},
	}
	r := newRig(t, nil, "one")
	all := &status.Bridge{Reason: "no server works", Whole: &status.Load{}, Servers: []status.Server{r.s.state(&st)}}
	lines := strings.Split(all.Text(now), "\n")
	if want := regexp.MustCompile(`^one +failing +1m0s +stdio +- +0 +0 +0 +0 +open for 3s +2, 1h30m0s old, stale +\(2s ago\) it fails x{141} … x{450}$`); lines[0] != "not ready: no server works" || !want.MatchString(lines[4]) {
		t.Errorf("table:\n%s", strings.Join(lines, "\n"))
	}
}

// What a server has said cannot act on a terminal, and all of it can be read.
func TestReadyVisible(t *testing.T) {
	const evil = "boom \x1b]0;PWNED\x07\u009b31m\u202egnp"
	c := config.Default()
	c.Servers = []config.Server{config.DefaultServer("one", "")}
	s := build(&c, slog.New(slog.DiscardHandler), func(*server, *config.Server) backend {
		return backend{Adapter: &wiretest.Server{}, check: func() error { return errors.New(evil) }, transport: func() string { return "stdio" }}
	})
	defer s.Close(t.Context())
	for path, want := range map[string]string{
		"/readyz":             `boom \u001b]0;PWNED\u0007\u009b31m\u202egnp`,
		"/readyz?format=text": `boom ␛]0;PWNED␇\u009b31m\u202egnp`,
	} {
		w := httptest.NewRecorder()
		s.http.Handler.ServeHTTP(w, from(peer, loopback, "GET", path))
		if got := w.Body.String(); strings.ContainsAny(got, "\x1b\x07\u009b\u202e") || !strings.Contains(got, want) {
			t.Errorf("%s = %q, want %s in it", path, got, want)
		}
	}
}

// The last words of a server's process say why it has ended. Only operators see them in the
// state: they may be about the caller that the process was started for.
func TestReadyWords(t *testing.T) {
	const words = "Error: missing API key"
	lan := func(c *config.Config) { kinds(c); c.Listen = "0.0.0.0:8808" }
	for _, test := range []struct {
		name   string
		change func(*config.Config)
		peer   string
		header []string
		shown  bool
	}{
		{"alone", kinds, closeBy, nil, true},
		{"through a proxy", kinds, closeBy, []string{"Via", "1.1 x"}, false},
		{"where everybody may listen", lan, "192.0.2.1:5000", nil, false},
		{"an operator", operators, closeBy, []string{"X-API-Key", opsKey}, true},
		{"a viewer", operators, closeBy, []string{"X-API-Key", sinKey}, false},
		{"somebody", operators, closeBy, []string{"X-API-Key", devKey}, false},
		{"somebody where all may look", func(c *config.Config) { operators(c); c.PublicStatus = true }, closeBy, []string{"X-API-Key", devKey}, false},
	} {
		run(t, test.change, []string{"one"}, func(t *testing.T, r *rig) {
			r.f.Before = func(context.Context) error {
				return &bridge.Error{Server: "one", Kind: bridge.ErrUnavailable, Public: "its process has ended", Stderr: words}
			}
			if w := r.ask("POST", "/one/mcp", initialize, "Accept", "application/json, text/event-stream", "X-API-Key", opsKey); !strings.Contains(w.Body.String(), "its process has ended") || strings.Contains(w.Body.String(), words) {
				t.Fatalf("%s: a client over HTTP gets %d %s", test.name, w.Code, w.Body)
			}
			for _, path := range []string{"/readyz", "/readyz?format=text", "/ui/api/v1/status", "/ui/api/v1/servers/one"} {
				w := r.answer(from(test.peer, bridgeAt, "GET", path, test.header...))
				if got := strings.Contains(w.Body.String(), words); got != test.shown {
					t.Errorf("%s: %s = %d %s, want the words: %t", test.name, path, w.Code, w.Body, test.shown)
				}
			}
		})
	}
}
