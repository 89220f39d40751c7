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
	"sync"
	"syscall"
	"testing"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/toolchain"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// served is a Server on a real address.
type served struct {
	*server
	l   net.Listener
	end func() // stops it, and waits
}

// serveOn has a Server listen and serve until end.
func serveOn(t *testing.T, s *server) *served {
	t.Helper()
	l, err := s.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	return &served{s, l, sync.OnceFunc(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})}
}

// onStdio makes the server of one server, which is in memory.
func onStdio(c *config.Config, log *slog.Logger, f *wiretest.Server) *server {
	c.Servers = []config.Server{config.DefaultServer("one", "")}
	return build(c, log, func(*server, *config.Server) backend {
		return backend{Adapter: f, transport: func() string { return "stdio" }}
	})
}

// consoled are the settings of a bridge with an address of its own for operators.
func consoled(change func(*config.Config)) *config.Config {
	c := config.Default()
	c.Listen, c.ConsoleListen, c.Drain = "127.0.0.1:0", "127.0.0.1:0", 0
	change(&c)
	return &c
}

// With an address of its own for operators, the page and its API are there and not where
// clients are served; all else is at both (O-010).
func TestConsoleListen(t *testing.T) {
	const (
		page, api, act, try = "/tools/ui/", "/tools/ui/api/v1/status", "/tools/ui/api/v1/drain", "/tools/ui/mcp/one"
		clients             = "/tools/one/mcp"
	)
	ruled := func(c *config.Config) {
		private(c)
		c.Admin = []string{"alice"}
	}
	for _, tc := range []struct {
		name         string
		change       func(*config.Config)
		key          string
		main, beside map[string]int // by path
	}{
		{
			"on loopback", func(*config.Config) {}, "",
			map[string]int{page: 404, api: 404, act: 404, try: 404, "/tools/ui": 404, clients: 200, "/tools/readyz": 200},
			map[string]int{page: 200, api: 200, act: 200, try: 200, clients: 200, "/tools/healthz": 200},
		},
		{
			"clients on all networks, without keys", func(c *config.Config) { c.Listen = "0.0.0.0:0" }, "",
			map[string]int{page: 404, api: 404, act: 404, clients: 200}, map[string]int{page: 200, api: 200, act: 200, try: 200},
		},
		{
			"with a key", ruled, aliceKey,
			map[string]int{page: 404, api: 404, try: 404, clients: 200}, map[string]int{page: 200, api: 200, act: 200, try: 200},
		},
		{
			"with a key that may not", ruled, bobKey,
			map[string]int{page: 404, api: 404, clients: 200}, map[string]int{page: 200, api: 200, act: 403},
		},
		{
			"with a wrong key", ruled, wrongKey,
			map[string]int{page: 401, api: 401, clients: 401}, map[string]int{page: 200, api: 401, act: 401, try: 401},
		},
		{
			"switched off", func(c *config.Config) { c.Console = config.ConsoleOff }, "",
			map[string]int{page: 404, api: 404, clients: 200}, map[string]int{page: 404, api: 200, act: 200, clients: 200},
		},
	} {
		c := consoled(tc.change)
		c.BasePath = "/tools"
		r := &rig{t: t, s: onStdio(c, slog.New(slog.DiscardHandler), &wiretest.Server{})}
		ask := func(beside bool, path string, want int, header ...string) {
			t.Helper()
			method, body := "GET", ""
			switch path {
			case clients, try:
				method, body = "POST", initialize
			case act:
				method, body = "POST", "{}"
			}
			header = append(header, "Accept", "application/json, text/event-stream")
			if tc.key != "" {
				header = append(header, "X-API-Key", tc.key)
			}
			q := from(closeBy, bridgeAt, method, path, header...)
			q.Body, q.ContentLength = readCloser{strings.NewReader(body)}, int64(len(body))
			if beside {
				q = q.WithContext(context.WithValue(q.Context(), atOperators{}, true))
			}
			if w := r.answer(q); w.Code != want {
				t.Errorf("%s: %s beside %t with %v = %d %s, want %d", tc.name, path, beside, header, w.Code, w.Body, want)
			}
		}
		for _, last := range []bool{false, true} { // to act is to drain
			for beside, paths := range map[bool]map[string]int{false: tc.main, true: tc.beside} {
				for path, want := range paths {
					if (path == act) == last {
						ask(beside, path, want)
					}
				}
			}
		}
		for _, header := range [][]string{{"Host", "evil.example"}, {"Origin", "https://evil.example"}, {"Sec-Fetch-Site", "cross-site"}} {
			for _, path := range []string{api, act, try, page} {
				ask(true, path, 403, header...)
			}
		}
		if len(c.Access) == 0 {
			ask(true, api, 403, "X-Forwarded-For", "192.0.2.1")
		}
		r.s.Close(t.Context())
	}
}

// Both addresses are served with the certificate, in both versions of HTTP, and close together.
func TestConsoleAddress(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		c := consoled(private)
		c.TLS = config.TLS{CertFile: filepath.Join(t.TempDir(), "tls.crt"), KeyFile: filepath.Join(t.TempDir(), "tls.key")}
		transport := &http.Transport{ForceAttemptHTTP2: h2, TLSClientConfig: &tls.Config{RootCAs: certified(t, c.TLS, 1)}}
		s := onStdio(c, slog.New(slog.DiscardHandler), &wiretest.Server{})
		if s.ConsoleAddr() != nil {
			t.Error("there is an address before Listen")
		}
		on := serveOn(t, s)
		for at, want := range map[net.Addr]int{on.l.Addr(): 404, s.ConsoleAddr(): 200} {
			r, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+at.String()+"/ui/", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-API-Key", aliceKey)
			res, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if proto := map[bool]int{false: 1, true: 2}[h2 && !toolchain.Vulnerable(runtime.Version())]; res.StatusCode != want || res.ProtoMajor != proto {
				t.Errorf("the page at %v: %d in %s, want %d", at, res.StatusCode, res.Proto, want)
			}
		}
		transport.CloseIdleConnections()
		on.end()
		closed(t, on.l)
		closed(t, s.operators)
	}
}

// closed fails the test unless a listener is closed.
func closed(t *testing.T, l net.Listener) {
	t.Helper()
	if c, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v is still open: %v %v", l.Addr(), c, err)
	}
}

// dial connects until the test ends.
func dial(t *testing.T, at net.Addr) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// get asks for a path over a connection, and returns the status of the answer.
func get(t *testing.T, conn net.Conn, path, header string) int {
	t.Helper()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", path, header)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// Clients that take all connections keep no operator out.
func TestConsoleListenRoom(t *testing.T) {
	c := consoled(func(c *config.Config) { c.MaxConnections = 4 })
	on := serveOn(t, build(c, slog.New(slog.DiscardHandler), (*server).reach))
	defer on.end()
	for range c.MaxConnections {
		dial(t, on.l.Addr())
	}
	if _, err := dial(t, on.l.Addr()).Read(make([]byte, 1)); err == nil { // it is closed: all places are taken
		t.Error("a connection without a place says something")
	}
	conn := dial(t, on.ConsoleAddr())
	if code := get(t, conn, "/ui/", ""); code != 200 {
		t.Errorf("the console: %d", code)
	}
	_ = conn.Close()
}

// With access rules, strangers that hold all connections keep out nobody with a key, at neither address. A
// connection on which a good key was shown stays.
func TestStrangersKeepNobodyOut(t *testing.T) {
	c := consoled(private)
	c.MaxConnections, c.Admin = 4, []string{"alice"}
	on := serveOn(t, build(c, slog.New(slog.DiscardHandler), (*server).reach))
	defer on.end()
	for _, test := range []struct {
		at   net.Addr
		most int
		path string
	}{{on.l.Addr(), c.MaxConnections, "/metrics"}, {on.ConsoleAddr(), operatorConnections, "/ui/api/v1/status"}} {
		const key = "X-API-Key: " + aliceKey + "\r\n"
		first := dial(t, test.at)
		if code := get(t, first, test.path, key); code != 200 {
			t.Errorf("%v with a key: %d", test.at, code)
		}
		for range 2 * test.most {
			if code := get(t, dial(t, test.at), test.path, ""); code != 401 {
				t.Errorf("%v without a key: %d", test.at, code)
			}
		}
		for _, conn := range []net.Conn{dial(t, test.at), first} {
			if code := get(t, conn, test.path, key); code != 200 {
				t.Errorf("%v with a key, beside strangers: %d", test.at, code)
			}
		}
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
		return onStdio(consoled(change), slog.New(slog.DiscardHandler), &wiretest.Server{})
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
