package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/toolchain"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// With an address of its own for operators, the page and its API are there and not where
// clients are served; all else is at both (O-010).
// O-010.
func TestConsoleListen(t *testing.T) {
	const (
		page, api, act, try = "/tools/ui/", "/tools/ui/api/v1/status", "/tools/ui/api/v1/drain", "/tools/ui/mcp/one"
		clients             = "/tools/one/mcp"
	)
	own := func(c *config.Config) {
		private(c)
		c.Admin = []string{"alice"}
	}
	for _, tc := range []struct {
		name         string
		change       func(*config.Config)
		secure, h2   bool
		key          string
		main, beside map[string]int // by path
	}{
		{
			"on loopback", func(*config.Config) {}, false, false, "",
			map[string]int{page: 404, api: 404, act: 404, try: 404, "/tools/ui": 404, clients: 200, "/tools/readyz": 200},
			map[string]int{page: 200, api: 200, act: 200, try: 200, clients: 200, "/tools/healthz": 200},
		},
		{
			"clients on all networks, without keys", func(c *config.Config) { c.Listen = "0.0.0.0:0" }, false, false, "",
			map[string]int{page: 404, api: 404, act: 404, clients: 200}, map[string]int{page: 200, api: 200, act: 200, try: 200},
		},
		{
			"with keys and TLS", own, true, false, aliceKey,
			map[string]int{page: 404, api: 404, try: 404, clients: 200}, map[string]int{page: 200, api: 200, act: 200, try: 200},
		},
		{
			"with a key that may not", own, true, true, bobKey,
			map[string]int{page: 404, api: 404, clients: 200}, map[string]int{page: 200, api: 200, act: 403},
		},
		{
			"with a wrong key", own, false, false, "a key of nobody at all",
			map[string]int{page: 401, api: 401, clients: 401}, map[string]int{page: 200, api: 401, act: 401, try: 401},
		},
		{
			"switched off", func(c *config.Config) { c.Console = config.ConsoleOff }, false, false, "",
			map[string]int{page: 404, api: 404, clients: 200}, map[string]int{page: 404, api: 200, act: 200, clients: 200},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := config.Default()
			c.Listen, c.ConsoleListen, c.BasePath, c.Drain = "127.0.0.1:0", "127.0.0.1:0", "/tools", 0
			c.Servers = []config.Server{config.DefaultServer("one", "")}
			tc.change(&c)
			transport := &http.Transport{ForceAttemptHTTP2: tc.h2}
			scheme := "http"
			if tc.secure {
				c.TLS = config.TLS{CertFile: filepath.Join(t.TempDir(), "tls.crt"), KeyFile: filepath.Join(t.TempDir(), "tls.key")}
				transport.TLSClientConfig, scheme = &tls.Config{RootCAs: certified(t, c.TLS, 1)}, "https"
			}
			s := build(&c, slog.New(slog.DiscardHandler), func(*server, *config.Server) backend {
				return backend{Adapter: &wiretest.Server{}, transport: func() string { return "stdio" }}
			})
			if s.ConsoleAddr() != nil {
				t.Error("there is an address before Listen")
			}
			l, err := s.Listen(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Serve(ctx, l) }()
			client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
			ask := func(at net.Addr, path string, header ...string) (int, string) {
				t.Helper()
				_, port, err := net.SplitHostPort(at.String())
				if err != nil {
					t.Fatal(err)
				}
				method, body := "GET", ""
				switch path {
				case clients, try:
					method, body = "POST", initialize
				case act:
					method, body = "POST", "{}"
				}
				r, err := http.NewRequestWithContext(t.Context(), method, scheme+"://127.0.0.1:"+port+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Accept", "application/json, text/event-stream")
				if tc.key != "" {
					r.Header.Set("X-API-Key", tc.key)
				}
				for i := 0; i+1 < len(header); i += 2 {
					r.Header.Set(header[i], header[i+1])
				}
				if host := r.Header.Get("Host"); host != "" {
					r.Host = host
				}
				res, err := client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				text, err := io.ReadAll(res.Body)
				if err != nil {
					t.Fatal(err)
				}
				if want := map[bool]int{false: 1, true: 2}[tc.h2 && !toolchain.Vulnerable(runtime.Version())]; res.ProtoMajor != want {
					t.Errorf("HTTP/%d, want %d", res.ProtoMajor, want)
				}
				return res.StatusCode, string(text)
			}
			for at, paths := range map[net.Addr]map[string]int{l.Addr(): tc.main, s.ConsoleAddr(): tc.beside} {
				for path, want := range paths {
					if path == act {
						continue // when all others were asked
					}
					if code, text := ask(at, path); code != want {
						t.Errorf("%s at %v = %d %s, want %d", path, at, code, text, want)
					}
				}
			}
			for _, header := range [][]string{{"Host", "evil.example"}, {"Origin", "https://evil.example"}, {"Sec-Fetch-Site", "cross-site"}} {
				for _, path := range []string{api, act, try, page} {
					if code, text := ask(s.ConsoleAddr(), path, header...); code != 403 {
						t.Errorf("%s with %v = %d %s", path, header, code, text)
					}
				}
			}
			if len(c.Access) == 0 {
				if code, text := ask(s.ConsoleAddr(), api, "X-Forwarded-For", "192.0.2.1"); code != 403 {
					t.Errorf("through a proxy: %d %s", code, text)
				}
			}
			for at, paths := range map[net.Addr]map[string]int{l.Addr(): tc.main, s.ConsoleAddr(): tc.beside} {
				if want, asked := paths[act]; asked {
					if code, text := ask(at, act); code != want {
						t.Errorf("%s at %v = %d %s, want %d", act, at, code, text, want)
					}
				}
			}
			transport.CloseIdleConnections()
			stop()
			if err := <-ended; err != nil {
				t.Errorf("Serve: %v", err)
			}
			for _, l := range []net.Listener{l, s.operators} {
				closed(t, l)
			}
		})
	}
}

// closed fails the test unless a listener is closed.
func closed(t *testing.T, l net.Listener) {
	t.Helper()
	if c, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v is still open: %v %v", l.Addr(), c, err)
	}
}

// Clients that take all connections keep no operator out.
func TestConsoleListenRoom(t *testing.T) {
	c := config.Default()
	c.Listen, c.ConsoleListen, c.Drain, c.MaxConnections = "127.0.0.1:0", "127.0.0.1:0", 0, 4
	s := build(&c, slog.New(slog.DiscardHandler), (*server).reach)
	l, err := s.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	var held []net.Conn
	for range c.MaxConnections {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
	}
	further, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := further.Read(make([]byte, 1)); err == nil { // it is closed: all places are taken
		t.Error("a connection without a place says something")
	}
	_ = further.Close()
	client := http.Client{Transport: &http.Transport{}}
	r, err := client.Get("http://" + s.ConsoleAddr().String() + "/ui/")
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.StatusCode != 200 {
		t.Errorf("the console: %d", r.StatusCode)
	}
	client.CloseIdleConnections()
	for _, conn := range held {
		_ = conn.Close()
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// With access rules, strangers that hold all connections keep out nobody with a key, at neither address. A
// connection on which a good key was shown stays.
func TestStrangersKeepNobodyOut(t *testing.T) {
	c := config.Default()
	private(&c)
	c.Listen, c.ConsoleListen, c.Drain, c.MaxConnections, c.Admin = "127.0.0.1:0", "127.0.0.1:0", 0, 4, []string{"alice"}
	s := build(&c, slog.New(slog.DiscardHandler), (*server).reach)
	l, err := s.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	for _, test := range []struct {
		at   net.Addr
		most int
		path string
	}{{l.Addr(), c.MaxConnections, "/metrics"}, {s.ConsoleAddr(), operatorConnections, "/ui/api/v1/status"}} {
		ask := func(conn net.Conn, header string) int {
			t.Helper()
			fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", test.path, header)
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatalf("%v: %v", test.at, err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			return res.StatusCode
		}
		dial := func() net.Conn {
			t.Helper()
			conn, err := net.Dial("tcp", test.at.String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			return conn
		}
		const key = "X-API-Key: " + aliceKey + "\r\n"
		first := dial()
		if code := ask(first, key); code != 200 {
			t.Errorf("%v with a key: %d", test.at, code)
		}
		for range 2 * test.most {
			if code := ask(dial(), ""); code != 401 {
				t.Errorf("%v without a key: %d", test.at, code)
			}
		}
		for _, conn := range []net.Conn{dial(), first} {
			if code := ask(conn, key); code != 200 {
				t.Errorf("%v with a key, beside strangers: %d", test.at, code)
			}
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// What becomes of the two addresses when one of them cannot be had, or is lost.
func TestConsoleListenFails(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	fresh := func(change func(*config.Config)) *server {
		c := config.Default()
		c.Listen, c.ConsoleListen, c.Drain = "127.0.0.1:0", "127.0.0.1:0", 0
		c.Servers = []config.Server{config.DefaultServer("one", "")}
		change(&c)
		return build(&c, slog.New(slog.DiscardHandler), func(*server, *config.Server) backend { return backend{Adapter: &wiretest.Server{}} })
	}
	s := fresh(func(c *config.Config) { c.ConsoleListen = taken.Addr().String() })
	if _, err := s.Listen(t.Context()); !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "console_listen:") {
		t.Errorf("an address that is taken: %v", err)
	}
	own, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(t.Context(), own); !errors.Is(err, syscall.EADDRINUSE) { // a program's own listener
		t.Errorf("Serve: %v", err)
	}
	closed(t, own)

	s = fresh(func(c *config.Config) { c.Listen = taken.Addr().String() })
	if _, err := s.Listen(t.Context()); err == nil || strings.Contains(err.Error(), "console_listen:") {
		t.Errorf("the clients' address is taken: %v", err)
	}
	s.Close(t.Context())
	closed(t, s.operators)

	for _, lost := range []string{"clients", "operators"} {
		s = fresh(func(*config.Config) {})
		l, err := s.Listen(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		gone := map[string]net.Listener{"clients": l, "operators": s.operators}[lost]
		_ = gone.Close()
		if err := s.Serve(t.Context(), l); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the listener of %s is lost: Serve = %v", lost, err)
		}
		closed(t, l)
		closed(t, s.operators)
	}
}
