package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/server/internal/placement"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// far is a remote server behind real HTTP: another bridge, whose server is in memory.
type far struct {
	*rig
	url string

	mu  sync.Mutex // guards got
	got []http.Header
}

// newFar serves only paths for which a transport is named: streamable or sse.
func newFar(t *testing.T, transports map[string]string) *far {
	f := &far{rig: newRig(t, nil, "far")}
	h := f.s.Handler()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.got = append(f.got, r.Header.Clone())
		f.mu.Unlock()
		switch transport := transports[r.URL.Path]; {
		case strings.HasSuffix(r.URL.Path, "/messages"): // it stands beside the stream, where the client sees that
			r.URL.Path = "/messages"
		case transport == "streamable":
			r.URL.Path = "/mcp"
		case transport == "sse" && r.Method == http.MethodGet:
			r.URL.Path = "/sse"
		case transport == "sse":
			http.Error(w, "not here", http.StatusMethodNotAllowed)
			return
		case transport == "denied":
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		default:
			http.NotFound(w, r)
			return
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		f.s.Close(context.Background())
		srv.Close()
	})
	f.url = srv.URL
	return f
}

// near is a bridge in front of remote servers.
type near struct {
	*wiretest.Site
	t *testing.T
	s *server
}

func newNear(t *testing.T, servers ...config.Server) *near {
	c := config.Default()
	c.Servers = servers
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	s := build(&c, slog.New(slog.DiscardHandler), (*server).reach)
	n := &near{wiretest.NewSiteFrom(t, s.http), t, s}
	t.Cleanup(func() { s.Close(context.Background()) })
	return n
}

// row is what /readyz says of a server.
type row struct {
	Name, State, Reason, Transport string
	Connections                    int
	Children                       *int
}

func (n *near) ready() (status int, rows []row) {
	n.t.Helper()
	r := n.Do("GET", "/readyz", "").Wait()
	var out struct{ Servers []row }
	if err := json.Unmarshal([]byte(r.Body()), &out); err != nil {
		n.t.Fatal(err)
	}
	return r.Status(), out.Servers
}

func remoteServer(name, transport, url string) config.Server {
	s := config.DefaultServer(name, "")
	s.HTTP = &remote.Config{URL: url, Transport: transport}
	return s
}

// Whatever a remote server speaks, clients of either era find it out from its address alone, or it is taken from the
// configuration (C2).
func TestRemote(t *testing.T) {
	for _, test := range []struct {
		name, transport, path string
		speaks                string
		isSSE                 bool
		public                string // a part of the error when it does not work
	}{
		{name: "streamable", path: "/mcp", speaks: "streamable"},
		{name: "streamable by configuration", transport: "streamable", path: "/any", speaks: "streamable"},
		{name: "streamable at a path that looks like the other", path: "/v1/sse", speaks: "streamable"},
		{name: "sse", path: "/events", speaks: "sse"},
		{name: "sse by configuration", transport: "sse", path: "/events", speaks: "sse"},
		{name: "sse by kind", path: "/events", isSSE: true, speaks: "sse"},
		{name: "auto said aloud", transport: "auto", path: "/events", speaks: "sse"},
		{name: "the wrong one by configuration", transport: "sse", path: "/mcp", speaks: "none", public: "server remote: "},
		{name: "neither", path: "/mcp", speaks: "none", public: "Streamable HTTP: "},
		{name: "without a right", path: "/mcp", speaks: "denied", public: "configure headers for it"},
	} {
		for _, modern := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, modern %t", test.name, modern), func(t *testing.T) {
				f := newFar(t, map[string]string{test.path: test.speaks})
				s := remoteServer("remote", test.transport, f.url+test.path+"?key=top-secret")
				s.StartsPerMinute = 1
				if test.isSSE {
					s.HTTP, s.SSE = nil, s.HTTP
				}
				n := newNear(t, s)
				if _, rows := n.ready(); rows[0].State != "idle" || rows[0].Children != nil {
					t.Errorf("before: %+v", rows[0])
				}
				body, header := call("0", "echo"), []string{}
				if modern {
					body = callStateless("0", "tools/call", `"name":"echo","arguments":{}`)
					header = []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "echo"}
				} else if r := n.Do("POST", "/mcp", initialize).Wait(); test.public == "" {
					header = []string{"Mcp-Session-Id", r.Header("Mcp-Session-Id")}
				} else {
					body = initialize
				}
				r := n.Do("POST", "/mcp", body, header...).Wait()
				status, rows := n.ready()
				if test.public != "" {
					if !strings.Contains(r.Body(), test.public) || !strings.Contains(r.Body(), `"id":0,"error"`) || strings.Contains(r.Body(), "top-secret") {
						t.Errorf("%s, want %s", r.Body(), test.public)
					}
					if rows[0].State != "failing" || rows[0].Transport != test.transport || strings.Contains(rows[0].Reason, "top-secret") {
						t.Errorf("after: %+v", rows[0])
					}
					return
				}
				if r.Status() != 200 || !strings.Contains(r.Body(), `"id":0,"result":{`) || !strings.Contains(r.Body(), `"echo":{}`) {
					t.Errorf("call = %d %s", r.Status(), r.Body())
				}
				if want := (row{Name: "remote", State: "ready", Transport: test.speaks, Connections: 1}); status != 200 || rows[0] != want {
					t.Errorf("after: %d %+v, want %+v", status, rows[0], want)
				}
			})
		}
	}
}

// A remote server gets the configured headers, and of the client's those that are forwarded and nothing else.
func TestRemoteHeaders(t *testing.T) {
	f := newFar(t, map[string]string{"/mcp": "streamable"})
	s := remoteServer("remote", "", f.url+"/mcp")
	s.HTTP.Headers = map[string]string{"Authorization": "Bearer ours", "X-Region": "eu"}
	s.Forward = []bridge.Forward{{From: "X-Tenant", To: "X-Tenant"}, {From: "X-User-Token", To: "Authorization"}}
	n := newNear(t, s)
	headers := []string{"X-Tenant", "t1", "X-Other", "no", "Authorization", "Bearer for the bridge", "Cookie", "a=b", "X-User-Token", "Bearer theirs"}
	r := n.Do("POST", "/mcp", initialize, headers...).Wait()
	n.Do("POST", "/mcp", call("1", "echo"), "Mcp-Session-Id", r.Header("Mcp-Session-Id"), "X-Tenant", "t2").Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	var tokens, tenants []string
	for _, h := range f.got {
		tokens, tenants = append(tokens, h.Get("Authorization")), append(tenants, h.Get("X-Tenant"))
		if h.Get("X-Other")+h.Get("Cookie")+h.Get("X-User-Token") != "" || h.Get("X-Region") != "eu" || len(h.Values("Authorization")) != 1 {
			t.Errorf("the server got %v", h)
		}
	}
	if tokens[0] != "Bearer theirs" || tenants[0] != "t1" || !slices.Contains(tenants, "t2") || slices.Contains(tokens, "Bearer for the bridge") {
		t.Errorf("tokens %q, tenants %q", tokens, tenants)
	}
}

// A server whose files cannot be used is failing before anybody has tried it, and keeps nobody else from working. One on
// stdio counts its connections as children too.
func TestUnusable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret-path.pem")
	if err := os.WriteFile(path, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newFar(t, map[string]string{"/mcp": "streamable"})
	broken := remoteServer("broken", "", "https://127.0.0.1:1/mcp")
	broken.HTTP.CAFile = path
	missing := remoteServer("missing", "", "https://127.0.0.1:1/mcp")
	missing.HTTP.CAFile = path + "-not"
	child := config.DefaultServer("child", "")
	child.Stdio = &stdio.Config{Command: "no-such-program-anywhere"}
	n := newNear(t, broken, missing, remoteServer("good", "", f.url+"/mcp"), child)
	_, rows := n.ready()
	if rows[0].State != "failing" || !strings.Contains(rows[0].Reason, "ca_file: there is no PEM certificate in it") || rows[1].State != "failing" || !strings.Contains(rows[1].Reason, "ca_file") {
		t.Errorf("readyz = %+v", rows)
	}
	if r := rows[3]; r.Transport != "stdio" || r.Children == nil || *r.Children != 0 || r.Connections != 0 {
		t.Errorf("readyz = %+v, want no children on stdio", r)
	}
	if r := n.Do("POST", "/good/mcp", initialize).Wait(); r.Status() != 200 || r.Header("Mcp-Session-Id") == "" {
		t.Errorf("good: %d %s", r.Status(), r.Body())
	}
	for _, name := range []string{"broken", "missing"} {
		r := n.Do("POST", "/"+name+"/mcp", initialize).Wait()
		if !strings.Contains(r.Body(), `"id":0,"error"`) || !strings.Contains(r.Body(), "its configuration cannot be used") || strings.Contains(r.Body(), "secret-path") {
			t.Errorf("%s: %d %s", name, r.Status(), r.Body())
		}
	}
	if status, rows := n.ready(); status != 200 || rows[0].State != "failing" || rows[1].State != "failing" || rows[2].State != "ready" {
		t.Errorf("readyz = %d %+v", status, rows)
	}
}

// A server whose settings lack a variable or a file is out of service from the start, for all to see. A reload may add
// such a server, and bring it back, but takes no other server out of service.
func TestOutOfService(t *testing.T) {
	const why = `stdio: env_file is "/etc/secret-path.env": does not exist`
	lacking := func(name string) config.Server {
		s := config.DefaultServer(name, "")
		s.Unusable = why
		return s
	}
	f := newFar(t, map[string]string{"/mcp": "streamable"})
	good := remoteServer("good", "", f.url+"/mcp")
	n := newNear(t, good, lacking("first"))
	failing := func(name string) {
		t.Helper()
		_, rows := n.ready()
		i := slices.IndexFunc(rows, func(r row) bool { return r.Name == name })
		if i < 0 || rows[i].State != "failing" || !strings.Contains(rows[i].Reason, why) {
			t.Errorf("readyz = %+v", rows)
		}
	}
	failing("first")
	r := n.Do("POST", "/first/mcp", initialize).Wait()
	if !strings.Contains(r.Body(), "server first: it is out of service, because a variable or a file") || strings.Contains(r.Body(), "secret-path") {
		t.Errorf("first: %s", r.Body())
	}
	apply := func(change func(c *config.Config)) error {
		next := n.s.other(change)
		_, planned := n.s.Plan(next)
		_, applied := n.s.Apply(next)
		if (planned == nil) != (applied == nil) {
			t.Errorf("Plan: %v, Apply: %v", planned, applied)
		}
		return applied
	}
	if err := apply(func(c *config.Config) { c.Servers = append(c.Servers, lacking("second")) }); err != nil {
		t.Error(err)
	}
	failing("second")
	if err := apply(func(c *config.Config) { c.Servers[0] = lacking("good") }); err == nil || !strings.Contains(err.Error(), `server "good" works now`) {
		t.Errorf("a reload takes good out of service: %v", err)
	}
	if err := apply(func(c *config.Config) { c.Servers[1] = remoteServer("first", "", f.url+"/mcp") }); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"good", "first"} {
		if r := n.Do("POST", "/"+name+"/mcp", initialize).Wait(); r.Status() != 200 || r.Header("Mcp-Session-Id") == "" {
			t.Errorf("%s: %d %s", name, r.Status(), r.Body())
		}
	}
}

// Traces and metrics say where each kind of server is.
func TestServerAddress(t *testing.T) {
	at := func(host string, port int) bridge.Address {
		return bridge.Address{Network: bridge.TCP, Host: host, Port: port}
	}
	for _, test := range []struct {
		name string
		c    config.Server
		want bridge.Address
	}{
		{"stdio", config.Server{Stdio: &stdio.Config{}}, bridge.Address{Network: bridge.Pipe}},
		{"https", config.Server{HTTP: &remote.Config{URL: "https://tools.example.com/mcp?key=secret"}}, at("tools.example.com", 443)},
		{"http", config.Server{HTTP: &remote.Config{URL: "http://tools.example.com"}}, at("tools.example.com", 80)},
		{"sse with a port", config.Server{SSE: &remote.Config{URL: "http://[::1]:8080/sse"}}, at("::1", 8080)},
		{"an API", config.Server{Rest: &rest.Config{BaseURL: "https://api.example.com:8443/v1"}}, at("api.example.com", 8443)},
		{"an API whose document says where", config.Server{Rest: &rest.Config{OpenAPI: "x.yaml"}}, bridge.Address{Network: bridge.TCP}},
		{"in this process", config.Server{Adapter: &wiretest.Server{}}, bridge.Address{}},
	} {
		if got := serverAddress(&test.c); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

// Everything that can be set for a server reaches the bridge. ServerSettings do so as a whole. A field that is added to
// gateway.ServerOptions is set by options, in server.go, and here; or it is named here as having no setting.
func TestOptions(t *testing.T) {
	settings := gateway.ServerSettings{Share: gateway.ShareCall, Validate: true}
	s := config.Server{
		Name:           "a",
		Stdio:          &stdio.Config{},
		ServerSettings: settings,
		Restart:        false,
		MaxTimeout:     time.Minute,
		IdleStop:       3 * time.Second,
		Forward:        []bridge.Forward{{From: "X-A", To: "X-B"}},
	}
	s.Limits.Calls = 2
	settings.Limits.Calls = 2
	fault := fmt.Errorf("no")
	fake := &wiretest.Server{}
	got := options(&s, backend{Adapter: fake, check: func() error { return fault }, local: &placement.Local{}})
	if got.Check == nil || got.Check() != fault {
		t.Error("Check is not that of the adapter")
	}
	got.Check = nil
	want := gateway.ServerOptions{
		Name:           "a",
		Adapter:        fake,
		ServerSettings: settings,
		EndWithServer:  true,
		Idle:           3 * time.Second,
		Queued:         2,
		MaxTask:        time.Minute,
		Forward:        []bridge.Forward{{From: "X-A", To: "X-B"}},
		Process:        true,
		Homed:          true,
		Address:        bridge.Address{Network: bridge.Pipe},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("options = %+v, want %+v", got, want)
	}
	for f, field := range reflect.ValueOf(want).Fields() {
		if f.Name != "Check" && f.Name != "Renew" && field.IsZero() { // Apply sets Renew
			t.Errorf("%s is not set by this test", f.Name)
		}
	}
	s.Rest = &rest.Config{}
	if options(&s, backend{Adapter: fake}).Validate {
		t.Error("the arguments of an API's tools are checked twice")
	}
	s.IdleStop = 0
	if got := options(&s, backend{Adapter: fake}); got.Idle >= 0 {
		t.Errorf("Idle of IdleStop 0 = %v, want it to be negative: never", got.Idle)
	}
}
