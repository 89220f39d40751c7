package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"go.uber.org/goleak"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/scaletest"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

func TestMain(m *testing.M) {
	scaletest.Waits(8) // instances of a cluster, for each other
	goleak.VerifyTestMain(m)
}

// Each server is served under its name, and all of them as one without. Who asks elsewhere is told so.
func TestPaths(t *testing.T) {
	for _, names := range [][]string{{"one"}, {"one", "two"}} {
		for _, base := range []string{"", "/tools/v1"} {
			t.Run(fmt.Sprint(len(names), base), func(t *testing.T) {
				run(t, func(c *config.Config) { c.BasePath = base }, names, func(t *testing.T, r *rig) {
					for _, name := range names {
						r.begin(base + "/" + name + "/mcp")
						r.begin(base + "/" + name + "/sse") // the new transport at the old URL
					}
					r.begin(base + "/sse")
					if a := r.Do("POST", base+"/mcp", initialize).Wait(); len(names) > 1 && !strings.Contains(a.Body(), fmt.Sprintf(`"version":%q`, Version())) {
						t.Errorf("initialize = %s, want the version %s of the program", a.Body(), Version())
					}
					for _, path := range []string{"/mcp/", "/sse/", "/one/mcp/", "/one/sse/"} { // as some clients are configured
						r.begin(base + path)
						if strings.HasSuffix(path, "/sse/") {
							stream := r.Do("GET", base+path, "", "Accept", "text/event-stream")
							synctest.Wait()
							if got := stream.Take(); stream.Status() != 200 || !strings.Contains(got, "data: "+base+strings.TrimSuffix(path, "sse/")+"messages?") {
								t.Errorf("GET %s = %d %q", base+path, stream.Status(), got)
							}
							stream.Leave()
						}
					}
					for _, path := range []string{"/nowhere", base + "/three/mcp", base + "/one/mcp//", base + "/one"} {
						a := r.Do("POST", path, initialize).Wait()
						if a.Status() != 404 || a.Header("Content-Type") != "application/json" {
							t.Errorf("%s = %d %s", path, a.Status(), a.Header("Content-Type"))
						}
						for _, at := range append(names, "") {
							if at != "" {
								at = "/" + at
							}
							if !strings.Contains(a.Body(), " "+base+at+"/mcp") {
								t.Errorf("%s = %s, want a hint to %s", path, a.Body(), base+at+"/mcp")
							}
						}
					}
					if a := r.Do("GET", base+"/one/messages", "").Wait(); a.Status() != 405 || !strings.Contains(a.Header("Allow"), "POST") {
						t.Errorf("GET of messages = %d, Allow %q", a.Status(), a.Header("Allow"))
					}
					if a := r.Do("PUT", base+"/one/mcp", "").Wait(); a.Status() != 405 || !strings.Contains(a.Header("Allow"), "DELETE") {
						t.Errorf("PUT = %d, Allow %q", a.Status(), a.Header("Allow"))
					}
					if a := r.Do("BREW", base+"/one/mcp", "").Wait(); a.Status() != 405 || a.Header("Allow") == "" {
						t.Errorf("BREW = %d, Allow %q", a.Status(), a.Header("Allow"))
					}
				})
			})
		}
	}
}

// A session lives under one server's URLs only: it is unknown under the others', and nothing of it shows.
func TestSessionOfOneServer(t *testing.T) {
	run(t, nil, []string{"one", "two"}, func(t *testing.T, r *rig) {
		id := r.begin("/one/mcp")
		for _, path := range []string{"/two/mcp", "/two/sse", "/mcp"} {
			for _, method := range []string{"POST", "GET", "DELETE"} {
				if a := r.Do(method, path, call("1", "echo"), "Mcp-Session-Id", id).Wait(); a.Status() != 404 {
					t.Errorf("%s %s = %d, want 404", method, path, a.Status())
				}
			}
		}
		for _, path := range []string{"/one/mcp", "/one/sse"} { // the same server's URLs are one
			if a := r.Do("POST", path, call("1", "echo"), "Mcp-Session-Id", id).Wait(); a.Status() != 200 {
				t.Errorf("POST %s = %d, want 200", path, a.Status())
			}
		}
	})
}

// At /sse a GET with a session is of Streamable HTTP, one without of HTTP+SSE. Clients without sessions are served there too
//
func TestBothAtSSE(t *testing.T) {
	run(t, nil, []string{"one"}, func(t *testing.T, r *rig) {
		id := r.begin("/sse")
		get, old := r.Do("GET", "/sse", "", "Mcp-Session-Id", id), r.Do("GET", "/sse", "")
		synctest.Wait()
		if e := get.Events(); get.Status() != 200 || len(e) != 1 || e[0].Type != "" || e[0].ID == "" {
			t.Errorf("with a session: %d %+v, want the priming event", get.Status(), e)
		}
		if e := old.Events(); old.Status() != 200 || len(e) != 1 || e[0].Type != "endpoint" {
			t.Errorf("without: %d %+v, want the endpoint", old.Status(), e)
		}
		if a := r.Do("DELETE", "/sse", "", "Mcp-Session-Id", id).Wait(); a.Status() != 204 {
			t.Errorf("DELETE = %d", a.Status())
		}
		get.Wait()
		old.Leave()
		for _, path := range []string{"/sse", "/one/sse", "/mcp", "/one/mcp"} {
			body, header := modernCall("server/discover", "")
			if r := r.Do("POST", path, body, header...).Wait(); r.Status() != 200 || !strings.Contains(r.Body(), `"supportedVersions":["2026-07-28","2025-11-25"`) || r.Header("Mcp-Session-Id") != "" {
				t.Errorf("discover at %s = %d %s", path, r.Status(), r.Body())
			}
		}
	})
}

// The endpoint is where the client can reach it: under the base path, under what a router has taken off the path, and
// under what a trusted proxy has taken off. What is no path, or leads to another host, is not believed
// . What is not there is answered with where the rest is.
func TestEndpoint(t *testing.T) {
	for _, test := range []struct {
		strip, base, peer, path, prefix, want string
	}{
		{"", "", peer, "/sse", "", "/messages"},
		{"", "", peer, "/one/sse", "", "/one/messages"},
		{"", "/tools", peer, "/tools/one/sse", "", "/tools/one/messages"},
		{"", "", proxy, "/one/sse", "/outer", "/outer/one/messages"},
		{"", "", proxy, "/one/sse", "/outer/", "/outer/one/messages"},
		{"", "", proxy, "/sse", "/", "/messages"},
		{"", "/tools", proxy, "/tools/sse", "/outer/x", "/outer/x/tools/messages"},
		{"", "", peer, "/one/sse", "/outer", "/one/messages"},
		{"", "", proxy, "/one/sse", "outer", "/one/messages"},
		{"", "", proxy, "/one/sse", "//evil.example.com", "/one/messages"},
		{"", "", proxy, "/one/sse", "/a, /b", "/one/messages"},
		{"", "", proxy, "/one/sse", "/a?x=", "/one/messages"},
		{"", "", proxy, "/one/sse", "/a\ndata: x", "/one/messages"},
		{"", "", proxy, "/one/sse", `/\evil.example.com`, "/one/messages"},
		{"", "", proxy, "/one/sse", "https://evil.example.com", "/one/messages"},
		{"", "", "@", "/one/sse", "/outer", "/one/messages"}, // of a socket without an address
		{"/x", "", proxy, "/x/sse", "", "/x/messages"},
		{"/x", "", proxy, "/x/one/sse", "", "/x/one/messages"},
		{"/x/y", "/tools", proxy, "/x/y/tools/one/sse", "", "/x/y/tools/one/messages"},
		{"/x", "", proxy, "/x/sse", "/outer", "/outer/x/messages"},
		{"/a b", "", proxy, "/a%20b/sse", "", "/a%20b/messages"},
		{"//evil.example.com", "", proxy, "//evil.example.com/sse", "", "/messages"},
		{"", "", proxy, "http://mcp.example.com/sse", "", "/messages"},
	} {
		r := newRig(t, func(c *config.Config) { exposed(c); c.BasePath = test.base }, "one")
		get := func(path string) string {
			q := from(test.peer, public, "GET", path, "Host", "mcp.example.com")
			if q.RequestURI = path; test.prefix != "" {
				q.Header["X-Forwarded-Prefix"] = []string{test.prefix}
			}
			if strings.HasPrefix(path, "//") { // httptest takes it for a host
				q.URL = &url.URL{Path: path}
			}
			ctx, cancel := context.WithCancel(q.Context())
			cancel() // the stream ends behind its first event
			w := httptest.NewRecorder()
			http.StripPrefix(test.strip, r.s.Handler()).ServeHTTP(w, q.WithContext(ctx))
			return w.Body.String()
		}
		if got := get(test.path); !strings.HasPrefix(got, "event: endpoint\ndata: "+test.want+"?sessionId=") {
			t.Errorf("%s without %q for %s with prefix %q: %q, want %s", test.path, test.strip, test.peer, test.prefix, got, test.want)
		}
		if path, ok := strings.CutSuffix(test.path, "/sse"); ok && test.prefix == "" && strings.HasPrefix(test.strip, "/x") {
			if got, want := get(path+"/nowhere"), "MCP endpoints: "+test.strip+test.base+"/mcp"; !strings.Contains(got, want) {
				t.Errorf("%s/nowhere without %q: %q, want %s", path, test.strip, got, want)
			}
		}
	}
}

// Nothing redirects: each path has one way to be written, but for a slash behind an endpoint.
func TestNoRedirects(t *testing.T) {
	r := newRig(t, nil, "one")
	for _, path := range []string{"//mcp", "/one//mcp", "/one/./mcp", "/x/../mcp", "/mcp//", "/one/mcp//", "/one/", "/", "", "/ONE/mcp", "/healthz/", "/hooks/", "/one/mcp/x"} {
		q := from(peer, loopback, "POST", "/mcp")
		q.URL = &url.URL{Path: path}
		if w := r.answer(q); w.Code != 404 || w.Header().Get("Location") != "" || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%q: %d %v", path, w.Code, w.Header())
		}
	}
}

// /healthz is about the process, /readyz about what is usable, with a reason for each server.
func TestHealth(t *testing.T) {
	for _, test := range []struct {
		names  []string
		status int
	}{{[]string{"one"}, 200}, {[]string{"one", "broken"}, 200}, {[]string{"broken"}, 503}} {
		run(t, nil, test.names, func(t *testing.T, r *rig) {
			lives := func(what string) {
				t.Helper()
				for _, method := range []string{"GET", "HEAD"} {
					for _, path := range []string{"/healthz", "/health"} {
						if a := r.Do(method, path, "").Wait(); a.Status() != 200 || method == "GET" && a.Body() != "ok\n" {
							t.Errorf("%v, %s: %s %s = %d %q", test.names, what, method, path, a.Status(), a.Body())
						}
					}
				}
			}
			ready := func(what string, status int, want string) {
				t.Helper()
				for _, path := range []string{"/readyz", "/ready"} {
					if a := r.Do("GET", path, "").Wait(); a.Status() != status || !strings.Contains(a.Body(), want) || strings.Count(a.Body(), `"state":`) != len(test.names) {
						t.Errorf("%v, %s: %s = %d %s, want %d %s", test.names, what, path, a.Status(), a.Body(), status, want)
					}
				}
			}
			lives("at first")
			ready("at first", test.status, fmt.Sprintf(`"ready": %t`, test.status == 200))
			if slices.Contains(test.names, "broken") {
				ready("a reason", test.status, "no such program")
			}
			if r.f.Opened() != 0 {
				t.Error("a probe has opened a connection")
			}
			_ = r.s.g.Drain(t.Context())
			ready("draining", 503, `"draining": true`)
			lives("draining")
		})
	}
}

// A fault in a handler is one request's fault, and nothing runs that would have followed that handler.
func TestPanic(t *testing.T) {
	var log bytes.Buffer
	r := newRig(t, nil, "one")
	r.s.log = slog.New(slog.NewTextHandler(&log, nil))
	quietly(func() {
		r.s.http.Handler.(*tree).engine.GET("/panics", func(*gin.Context) { panic("secret of a handler") }, func(*gin.Context) { t.Error("it goes on behind a panic") })
	})
	if a := r.answer(from(peer, loopback, "GET", "/panics")); a.Code != 500 || a.Body.Len() > 0 {
		t.Errorf("panic = %d %q", a.Code, a.Body)
	}
	if !strings.Contains(log.String(), "panic in a handler") {
		t.Errorf("log is %q", log.String())
	}
	r.begin("/mcp")
}

// A panic after the first bytes breaks the answer off: its client does not take it for whole, also in a program whose
// gin.Recovery takes such a panic for the end of the request, over HTTP/1.1 and HTTP/2. A handler that breaks off
// itself does so without a word.
func TestPanicAmidAnswer(t *testing.T) {
	handlers := map[string]func(http.ResponseWriter){
		"bytes": func(w http.ResponseWriter) {
			_, _ = w.Write([]byte("half"))
			panic("a fault")
		},
		"a status": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusOK)
			panic("a fault")
		},
		"a flush": func(w http.ResponseWriter) {
			_ = http.NewResponseController(w).Flush()
			panic("a fault")
		},
		"on purpose": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	}
	var log lines
	s := &tree{s: &server{log: slog.New(slog.NewTextHandler(&log, nil))}}
	var outer *gin.Engine
	quietly(func() {
		s.engine, outer = newEngine(), gin.New()
		s.engine.Use(s.recovered)
		s.engine.GET("/:how", func(c *gin.Context) {
			w, _ := of(c)
			handlers[c.Param("how")](w)
		})
		outer.Use(gin.RecoveryWithWriter(io.Discard))
		outer.GET("/:how", gin.WrapH(s))
	})
	for _, two := range []bool{false, true} {
		server := httptest.NewUnstartedServer(outer)
		server.EnableHTTP2 = two
		server.StartTLS()
		for how := range handlers {
			before := strings.Count(log.String(), "panic in a handler")
			res, err := server.Client().Get(server.URL + "/" + url.PathEscape(how))
			if err == nil { // otherwise nothing of the answer came
				var body []byte
				body, err = io.ReadAll(res.Body)
				_ = res.Body.Close()
				if err == nil {
					t.Errorf("%s, HTTP/%d: %q is taken for the whole answer", how, res.ProtoMajor, body)
				}
			}
			if logged := strings.Count(log.String(), "panic in a handler") > before; logged != (how != "on purpose") {
				t.Errorf("%s: the log has %s", how, log.String())
			}
		}
		server.Close()
	}
}

// Limits: headers. And who does not send them is cut off.
func TestHeaders(t *testing.T) {
	run(t, nil, []string{"one"}, func(t *testing.T, r *rig) {
		if a := r.Do("GET", "/healthz", "", "X-Pad", strings.Repeat("x", 15<<10)).Wait(); a.Status() != 200 {
			t.Errorf("15 KiB of headers = %d", a.Status())
		}
		if a := r.Do("GET", "/healthz", "", "X-Pad", strings.Repeat("x", 24<<10)).Wait(); a.Status() != 431 {
			t.Errorf("24 KiB of headers = %d, want 431", a.Status())
		}
		conn := r.Dial()
		began := time.Now()
		go func() { _, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n") }()
		_, _ = io.ReadAll(conn)
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("half of the headers held a connection for %v", took)
		}
		_ = conn.Close()
	})
}

// eager is a server that can start before its first connection.
type eager struct {
	*wiretest.Server
	started chan struct{}
}

// StartAhead implements bridge.StartsAhead.
func (e eager) StartAhead(ctx, _ context.Context) error {
	close(e.started)
	<-ctx.Done()
	return nil
}

// Servers start when the bridge begins to serve, before there is a client.
func TestServeStartsAhead(t *testing.T) {
	c, e := config.Default(), eager{&wiretest.Server{}, make(chan struct{})}
	c.Listen, c.Servers = "127.0.0.1:0", []config.Server{config.DefaultServer("one", "")}
	s := serveOn(t, build(&c, slog.New(slog.DiscardHandler), func(*server, *config.Server) backend {
		return backend{Adapter: e, transport: func() string { return "stdio" }}
	}))
	<-e.started
	s.end()
}

// A stop refuses new calls and lets those under way finish; then everything ends, also streams that nobody uses, and
// subscriptions with their result.
func TestStop(t *testing.T) {
	for _, finishes := range []bool{true, false} {
		t.Run(fmt.Sprintf("finishes=%t", finishes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil, "one")
				ctx, cancel := context.WithCancel(t.Context())
				served := make(chan error, 1)
				go func() { served <- r.s.Serve(ctx, r.Listener()) }()
				id := r.begin("/mcp")
				under := r.Do("POST", "/mcp", call("1", "wait"), "Mcp-Session-Id", id)
				get, old := r.Do("GET", "/mcp", "", "Mcp-Session-Id", id), r.Do("GET", "/sse", "")
				body, header := modernCall("subscriptions/listen", `"notifications":{},`)
				heard := r.Do("POST", "/one/mcp", body, header...)
				synctest.Wait()
				cancel()
				synctest.Wait()
				began := time.Now()
				if a := r.Do("POST", "/mcp", call(`"new"`, "echo"), "Mcp-Session-Id", id).Wait(); a.Status() != 503 || !strings.Contains(a.Body(), `"id":"new","error"`) {
					t.Errorf("a new call = %d %s", a.Status(), a.Body())
				}
				if finishes {
					r.f.Answer(`{"done":1}`)
				}
				under.Wait()
				if want := map[bool]string{true: `"id":1,"result":{"done":1}`, false: `"id":1,"error"`}[finishes]; !strings.Contains(under.Body(), want) {
					t.Errorf("the call under way = %q, want %s", under.Body(), want)
				}
				get.Wait()
				old.Wait()
				if e := heard.Wait().Events(); len(e) != 2 || !strings.Contains(e[0].Data, "acknowledged") || !strings.Contains(e[1].Data, `"result"`) || heard.Err() != nil {
					t.Errorf("a subscription = %+v, %v", e, heard.Err())
				}
				if err := <-served; err != nil {
					t.Errorf("Serve = %v", err)
				}
				want := time.Duration(0)
				if !finishes {
					want = 10 * time.Second
				}
				if took := time.Since(began); took > want+time.Second {
					t.Errorf("the stop took %v, want %v", took, want)
				}
			})
		})
	}
}
