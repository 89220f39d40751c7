package server

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/server/internal/accesslog"
	"github.com/mcp-bridge/bridge/bridge/server/internal/admin"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/config/reload"
)

// other returns a copy of the configuration that counts, as change makes it.
func (s *server) other(change func(*config.Config)) *config.Config {
	c := *s.Config()
	c.Servers, c.Access = slices.Clone(c.Servers), slices.Clone(c.Access)
	change(&c)
	return &c
}

// apply applies it, and returns what has changed.
func (r *rig) apply(change func(*config.Config)) string {
	r.t.Helper()
	changes, err := r.s.Apply(r.s.other(change))
	if err != nil {
		r.t.Fatal(err)
	}
	var all []string
	for _, c := range changes {
		all = append(all, c.String())
	}
	return strings.Join(all, "; ")
}

const (
	opsKey = "0123456789abcdef-ops"
	devKey = "0123456789abcdef-dev"
	newKey = "0123456789abcdef-new"
)

// rules are those of two callers.
func rules(c *config.Config) {
	kinds(c)
	c.Access = []config.Access{{Name: "ops", Token: opsKey}, {Name: "dev", Token: devKey}}
}

// kinds has the servers be of a kind, as those of a file are.
func kinds(c *config.Config) {
	for i := range c.Servers {
		if c.Servers[i].Stdio == nil {
			c.Servers[i].Stdio = &config.Stdio{Command: "true"}
		}
	}
}

// as makes a request with a key, and returns the id of a session that begins, or the answer.
func (r *rig) as(key, path, session, body string) (int, string) {
	r.t.Helper()
	header := as(key)
	if session != "" {
		header = append(header, "Mcp-Session-Id", session)
	}
	a := r.Do("POST", path, body, header...).Wait()
	if id := a.Header("Mcp-Session-Id"); session == "" && id != "" {
		return a.Status(), id
	}
	return a.Status(), a.Body()
}

// Who may call, and what, changes while sessions are open: who goes is out, who has
// another key goes on, and what somebody may not use any more ends.
func TestApplyAccess(t *testing.T) {
	run(t, rules, []string{"one", "two"}, func(t *testing.T, r *rig) {
		sessions := map[string]string{}
		for _, at := range []struct{ key, path string }{{opsKey, "/one/mcp"}, {devKey, "/one/mcp"}, {devKey, "/two/mcp"}} {
			code, id := r.as(at.key, at.path, "", initialize)
			if code != 200 {
				t.Fatalf("%d %s", code, id)
			}
			sessions[at.key+at.path] = id
		}
		expect := func(what, key, path string, want int) {
			t.Helper()
			synctest.Wait()
			if got, body := r.as(key, path, sessions[key+path], `{"jsonrpc":"2.0","id":1,"method":"ping"}`); got != want {
				t.Errorf("%s: %d %s, want %d", what, got, body, want)
			}
		}
		if got := r.apply(func(c *config.Config) { c.Access[1].Servers = []string{"two"} }); got != "access.dev.servers (live)" {
			t.Errorf("changes: %s", got)
		}
		expect("of another caller", opsKey, "/one/mcp", 200)
		expect("where it may not be any more", devKey, "/one/mcp", 404)
		expect("where it may be still", devKey, "/two/mcp", 200)
		if code, _ := r.as(devKey, "/one/mcp", "", initialize); code != 404 {
			t.Errorf("it begins where it may not: %d", code)
		}

		r.apply(func(c *config.Config) { c.Access[1].Token = newKey })
		expect("the former key", devKey, "/two/mcp", 401)
		sessions[newKey+"/two/mcp"] = sessions[devKey+"/two/mcp"]
		expect("another key of the same caller", newKey, "/two/mcp", 200)

		r.apply(func(c *config.Config) { c.Access = append(c.Access, config.Access{Name: "ci", Token: devKey}) })
		if code, _ := r.as(devKey, "/one/mcp", "", initialize); code != 200 {
			t.Errorf("one who has come: %d", code)
		}
		expect("the session of another caller", devKey, "/two/mcp", 404)

		r.apply(func(c *config.Config) { c.Access = append(c.Access[:1:1], c.Access[2]) })
		expect("one who has gone", newKey, "/two/mcp", 401)
		expect("of another caller", opsKey, "/one/mcp", 200)

		if got := r.apply(func(c *config.Config) { c.Access = nil }); got != "access (restart)" {
			t.Errorf("changes: %s", got)
		}
		expect("without rules", opsKey, "/one/mcp", 200)
		if code, _ := r.as("", "/one/mcp", "", initialize); code != 401 {
			t.Errorf("without rules and a key: %d", code)
		}
	})
}

// Whoever a configuration takes out that cannot count is let in again.
func TestApplyAccessFault(t *testing.T) {
	run(t, rules, []string{"one"}, func(t *testing.T, r *rig) {
		r.s.g.Close(t.Context())
		if _, err := r.s.Apply(r.s.other(func(c *config.Config) { c.Access = c.Access[:1] })); err == nil {
			t.Fatal("a bridge that is stopping takes a configuration")
		}
		if code, body := r.as(devKey, "/one/mcp", "", initialize); code == 401 {
			t.Errorf("its key is gone: %d %s", code, body)
		}
	})
}

// An operator hides a tool: open sessions are told, and cannot call it any more. When it is there again, they go on with
// the process that they had. So it is with a tool that is taken away from a caller.
func TestApplyHides(t *testing.T) {
	s := newSite(t, rules, tells("one", "1"), tells("two", "2"))
	changed := make(chan struct{}, 9)
	own, all := s.connect("/one/mcp", devKey, changed), s.connect("/mcp", devKey, changed)
	says := func() string { return who(t.Context(), own, "who") + ", " + who(t.Context(), all, "one__who") }
	was := says()
	for what, change := range map[string]func(c *config.Config, deny []string){
		"of the server": func(c *config.Config, deny []string) { c.Servers[0].Tools.Deny = deny },
		"of the caller": func(c *config.Config, deny []string) { c.Access[1].Tools.Deny = deny },
	} {
		hide := func(deny ...string) {
			t.Helper()
			changes, err := s.Apply(s.other(func(c *config.Config) { change(c, deny) }))
			if err != nil || len(changes) != 1 || changes[0].Effect != config.EffectLive {
				t.Fatalf("%v, %v", changes, err)
			}
			for range 2 {
				<-changed
			}
		}
		hide("*who")
		if got := says(); strings.Count(got, "nknown tool") != 2 {
			t.Errorf("%s, hidden: %s", what, got)
		}
		hide()
		if got := says(); got != was {
			t.Errorf("%s, there again: %s, want %s", what, got, was)
		}
	}
}

// A server gets another command: the sessions at its address go on with that, each of them
// is told, and the former process stops.
func TestApplyRenew(t *testing.T) {
	for _, share := range []gateway.Share{config.ShareSession, config.ShareAll} {
		one := func(word string) config.Server {
			s := tells("one", word)
			s.Share = share
			return s
		}
		s := newSite(t, func(c *config.Config) { c.Offer = config.OfferLegacy }, one("1")) // clients with sessions
		changed := make(chan struct{}, 1)
		sessions := []*mcp.ClientSession{s.connect("/one/mcp", "", changed), s.connect("/one/sse", "", nil), s.connect("/mcp", "", nil)}
		for _, session := range sessions {
			if got := who(t.Context(), session, "who"); !strings.HasPrefix(got, "1 ") {
				t.Fatal(got)
			}
		}
		changes, err := s.Apply(s.other(func(c *config.Config) { c.Servers[0] = one("2") }))
		if err != nil || len(changes) != 1 || changes[0].String() != "servers.one.stdio.args (renew)" {
			t.Fatalf("%v, %v", changes, err)
		}
		<-changed
		for _, session := range sessions {
			if got := who(t.Context(), session, "who"); !strings.HasPrefix(got, "2 ") {
				t.Errorf("share: %s: the former process answers: %s", share, got)
			}
		}
		eventually(t, "the former settings are not in use", func() bool {
			s.changing.Lock()
			defer s.changing.Unlock()
			return len(s.leaving) == 0
		})
		for _, session := range sessions {
			if got := who(t.Context(), session, "who"); !strings.HasPrefix(got, "2 ") {
				t.Errorf("share: %s: when the former process has ended: %s", share, got)
			}
		}
	}
}

// Settings of the bridge as a whole count for the next request.
func TestApplySettings(t *testing.T) {
	run(t, func(c *config.Config) { rules(c); c.SessionIdle = time.Hour }, []string{"one", "broken"}, func(t *testing.T, r *rig) {
		page := func(path string, header ...string) int {
			return r.answer(from("127.0.0.1:1", "127.0.0.1:8808", "GET", path, header...)).Code
		}
		if page("/healthz", "Origin", "https://a.example.com") != 403 || page("/readyz") != 200 || page("/metrics") != 401 {
			t.Fatal("it is not as it should be to begin with")
		}
		r.apply(func(c *config.Config) {
			c.AllowedOrigins, c.AllowedHosts = []string{"https://a.example.com"}, []string{"b.example.com"}
			c.Ready, c.PublicStatus, c.SessionIdle = config.ReadyAll, true, time.Minute
			c.PerPrincipal.Sessions = 1
		})
		if got := page("/healthz", "Origin", "https://a.example.com"); got != 200 {
			t.Errorf("an origin that is allowed now: %d", got)
		}
		if got := page("/healthz", "Host", "b.example.com"); got != 200 {
			t.Errorf("a host that is allowed now: %d", got)
		}
		if got := page("/readyz"); got != 503 {
			t.Errorf("ready: all: %d", got)
		}
		if got := page("/metrics"); got != 200 {
			t.Errorf("public_status: %d", got)
		}
		_, id := r.as(opsKey, "/one/mcp", "", initialize)
		if code, body := r.as(opsKey, "/one/mcp", "", initialize); code != 503 {
			t.Errorf("one session too many: %d %s", code, body)
		}
		const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
		if code, _ := r.as(opsKey, "/one/mcp", id, ping); code != 200 {
			t.Errorf("the session: %d", code)
		}
		time.Sleep(3 * time.Minute)
		if code, _ := r.as(opsKey, "/one/mcp", id, ping); code != 404 {
			t.Errorf("after session_idle: %d", code)
		}
		if got := r.apply(func(c *config.Config) { c.MaxSessions = 7; c.Drain = 0 }); got != "max_sessions 10000 → 7 (restart); drain 10s → 0s (live)" {
			t.Errorf("changes: %s", got)
		}
		if c := r.s.Config(); c.MaxSessions != 10000 || c.Drain != 0 {
			t.Errorf("max_sessions %d, drain %v", c.MaxSessions, c.Drain)
		}
	})
}

// What fails leaves everything as it was.
func TestApplyFault(t *testing.T) {
	folder := t.TempDir()
	bad := filepath.Join(folder, "ca.pem")
	if err := os.WriteFile(bad, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newSite(t, nil, tells("one", "1"))
	before, conf := s.table.Load(), s.Config()
	for what, change := range map[string]func(*config.Config){
		"no servers":    func(c *config.Config) { c.Servers = nil },
		"no access log": func(c *config.Config) { c.AccessLog.To = folder; c.Servers = append(c.Servers, tells("two", "2")) },
		"no certificate": func(c *config.Config) {
			s := config.DefaultServer("two", "")
			s.HTTP = &remote.Config{URL: "https://a", CAFile: bad}
			c.Servers = append(c.Servers, s)
		},
	} {
		if _, err := s.Apply(s.other(change)); err == nil {
			t.Errorf("%s is no error", what)
		}
		if s.table.Load() != before || s.Config() != conf {
			t.Errorf("%s has changed something", what)
		}
	}
	if changes, err := s.Apply(s.other(func(*config.Config) {})); err != nil || len(changes) > 0 || s.table.Load() != before {
		t.Errorf("the same: %v, %v", changes, err)
	}
	s.Close(t.Context())
	if _, err := s.Apply(s.other(func(c *config.Config) { c.Servers = append(c.Servers, tells("two", "2")) })); err == nil {
		t.Error("a bridge that has been closed takes a configuration")
	}
}

// Each call, and what operators do, is a line in the former access log or in the new one, also what cannot be read
// (O-013).
func TestApplyAccessLog(t *testing.T) {
	const each, many, logs = 500, 4, 20
	folder := t.TempDir()
	path := func(n int) string { return filepath.Join(folder, fmt.Sprint(n)) }
	s := newSite(t, func(c *config.Config) { c.AccessLog.To = path(0) }, tells("one", "1"))
	api := s.newAPI()
	api.Add(admin.Route{Method: "POST", Path: "reload", Right: admin.Act, Do: func(*admin.Call) (any, error) { return "done", nil }})
	operator := func(http.ResponseWriter, *http.Request) (admin.Caller, bool, error) {
		return admin.Caller{Act: true}, true, nil
	}
	session := s.connect("/one/mcp", "", nil)
	begun := make(chan struct{}, many*each)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range each {
			_ = who(t.Context(), session, "who")
		}
	})
	for range many {
		wg.Go(func() {
			for n := range each {
				begun <- struct{}{}
				q := from("127.0.0.1:5000", "127.0.0.1:8808", "POST", "/ui/api/v1/reload")
				if n%2 == 0 {
					q.Body = http.NoBody
				}
				api.Serve(httptest.NewRecorder(), q, "reload", operator)
			}
		})
	}
	for n := 1; n <= logs; n++ {
		for range many * each / (logs + 1) {
			<-begun
		}
		if _, err := s.Apply(s.other(func(c *config.Config) { c.AccessLog.To = path(n) })); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	former, tries := s.accessLog.Load(), 0
	s.note(func(l *accesslog.Log) bool { // the log is replaced just now
		if tries++; l != former {
			return true
		}
		if _, err := s.Apply(s.other(func(c *config.Config) { c.AccessLog.To = path(logs + 1) })); err != nil {
			t.Fatal(err)
		}
		return false
	})
	s.note(func(*accesslog.Log) bool { tries++; return false }) // nor is there another one
	if tries != 3 {
		t.Errorf("lines were tried %d times", tries)
	}
	s.Close(t.Context())
	all := ""
	for n := range logs + 1 {
		data, err := os.ReadFile(path(n))
		if err != nil {
			t.Fatal(err)
		}
		all += string(data)
	}
	for line := range strings.Lines(all) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a line: %s", line)
		}
	}
	for part, want := range map[string]int{
		`"method":"tools/call"`:                               each,
		`"msg":"console","action":"reload","outcome":"ok"`:    many * each / 2,
		`"msg":"console","action":"reload","outcome":"error"`: many * each / 2,
	} {
		if n := strings.Count(all, part); n != want {
			t.Errorf("%d lines have %s, want %d", n, part, want)
		}
	}
}

// Who may have the configuration read again (O-012).
func TestReloadRights(t *testing.T) {
	const local, far = "127.0.0.1:5000", "192.0.2.1:5000"
	build := func(t *testing.T, change func(*config.Config)) *rig {
		r := newRig(t, change, "one")
		again := reload.New(reload.Options{File: "none", Load: func() (*config.Config, error) { return r.s.other(func(*config.Config) {}), nil }, Log: slog.New(slog.DiscardHandler)})
		if _, err := again.Load(); err != nil {
			t.Fatal(err)
		}
		r.s.Reloads(again)
		return r
	}
	synctest.Test(t, func(t *testing.T) {
		open := build(t, kinds)
		lan := build(t, func(c *config.Config) { kinds(c); c.Listen = "0.0.0.0:8808" })
		keys := build(t, func(c *config.Config) { rules(c); c.Admin = []string{"ops"} })
		none := newRig(t, nil, "one")
		for _, tc := range []struct {
			name             string
			r                *rig
			peer, at, method string
			header           []string
			want             int
		}{
			{"from the same machine", open, local, "127.0.0.1:8808", "POST", nil, 200},
			{"by the bridge's own page", open, local, "127.0.0.1:8808", "POST", []string{"Origin", "http://127.0.0.1:8808", "Sec-Fetch-Site", "same-origin"}, 200},
			{"by another page", open, local, "127.0.0.1:8808", "POST", []string{"Origin", "https://evil.example.com"}, 403},
			{"by another page of this machine", open, local, "127.0.0.1:8808", "POST", []string{"Origin", "http://localhost:3000"}, 403},
			{"by a sandboxed page", open, local, "127.0.0.1:8808", "POST", []string{"Origin", "null"}, 403},
			{"by a page without Origin", open, local, "127.0.0.1:8808", "POST", []string{"Sec-Fetch-Site", "same-site"}, 403},
			{"under another name", open, local, "127.0.0.1:8808", "POST", []string{"Host", "evil.example.com"}, 403},
			{"a form", open, local, "127.0.0.1:8808", "POST", []string{"Content-Type", "text/plain"}, 415},
			{"a form after JSON", open, local, "127.0.0.1:8808", "POST", []string{"Content-Type", "text/plain; application/json"}, 415},
			{"through a proxy", open, local, "127.0.0.1:8808", "POST", []string{"X-Forwarded-For", "192.0.2.1"}, 403},
			{"from elsewhere", open, far, "127.0.0.1:8808", "POST", nil, 403},
			{"GET", open, local, "127.0.0.1:8808", "GET", nil, 405},
			{"where everybody may listen", lan, local, "127.0.0.1:8808", "POST", nil, 403},
			{"without a key", keys, local, "127.0.0.1:8808", "POST", nil, 401},
			{"with a wrong key", keys, local, "127.0.0.1:8808", "POST", []string{"X-API-Key", newKey}, 401},
			{"with a key of nobody who may", keys, local, "127.0.0.1:8808", "POST", []string{"X-API-Key", devKey}, 403},
			{"with a good key", keys, local, "127.0.0.1:8808", "POST", []string{"X-API-Key", opsKey}, 200},
			{"with a good key by another page", keys, local, "127.0.0.1:8808", "POST", []string{"X-API-Key", opsKey, "Origin", "http://localhost:3000"}, 403},
			{"where nothing is read", none, local, "127.0.0.1:8808", "POST", nil, 404},
		} {
			q := from(tc.peer, tc.at, tc.method, "/ui/api/v1/reload", tc.header...)
			q.Body = http.NoBody
			for _, kind := range q.Header["Content-Type"][1:] { // given here, in the place of the usual one
				q.Header["Content-Type"] = []string{kind}
			}
			body := strings.NewReader(`{"dry_run":true}`)
			q = q.Clone(q.Context())
			q.Body = readCloser{body}
			w := tc.r.answer(q)
			if w.Code != tc.want {
				t.Errorf("%s: %d %s, want %d", tc.name, w.Code, w.Body, tc.want)
			}
		}
		for body, want := range map[string]int{``: 400, `{"dry_run":true,"more":1}`: 400, `[]`: 400, `{}`: 200} {
			q := from(local, "127.0.0.1:8808", "POST", "/ui/api/v1/reload")
			q.Body = readCloser{strings.NewReader(body)}
			if w := open.answer(q); w.Code != want {
				t.Errorf("%q: %d %s, want %d", body, w.Code, w.Body, want)
			}
		}
		_, page := open.metricsPage()
		for _, want := range []string{"mcp_bridge_config_last_reload_successful 1", `mcp_bridge_config_reloads_total{outcome="ok"} 1`, "mcp_bridge_config_last_reload_success_timestamp_seconds 9.46"} {
			if !strings.Contains(page, want) {
				t.Errorf("the metrics do not have %q", want)
			}
		}
	})
}

func (r *rig) metricsPage() (int, string) {
	w := r.answer(from("127.0.0.1:1", "127.0.0.1:8808", "GET", "/metrics"))
	return w.Code, w.Body.String()
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }
