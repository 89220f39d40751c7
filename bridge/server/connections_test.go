package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// The configuration bounds the connections that are open at once, also without a key. Others are closed, and
// one that ends makes room for another.
func TestMaxConnections(t *testing.T) {
	l := onSocket(t, func(c *config.Config) { c.MaxConnections = 8 })
	var all []net.Conn
	for range 8 {
		all = append(all, l.dial())
	}
	works := func(c net.Conn) bool {
		_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		return err == nil && res.StatusCode == 200
	}
	for i, c := range all {
		if !works(c) {
			t.Errorf("connection %d does not work", i)
		}
	}
	if works(l.dial()) {
		t.Error("one connection too many works")
	}
	if log := l.log.String(); !strings.Contains(log, "connection refused") || !strings.Contains(log, "max_connections") {
		t.Errorf("the log has %s", log)
	}
	if n := l.s.clients.refused.Load(); n != 1 {
		t.Errorf("%d connections were refused", n)
	}
	_ = all[0].Close()
	for !works(l.dial()) { // until a place has become free
		time.Sleep(time.Millisecond)
	}
}

// Clients have half of the files that the process may open, whatever max_connections
// says, and one address a quarter of that.
func TestHalfOfTheFiles(t *testing.T) {
	files := maxOpenFiles()
	if files == 0 {
		t.Skip("no number bounds the files of a process here")
	}
	c := newConnections(1<<30, false, func(netip.Addr) bool { return false }, slog.New(slog.DiscardHandler))
	if c.most != files/2 || c.each != files/2/4 {
		t.Errorf("with %d files: %d connections, %d of one address; want %d and %d", files, c.most, c.each, files/2, files/2/4)
	}
	if c := newConnections(8, false, nil, nil); c.most != 8 || c.each != 2 {
		t.Errorf("with %d files, max_connections 8: %d connections, %d of one address", files, c.most, c.each)
	}
}

// An instance that stops waits for idle connections, until they end, or until its time is over.
func TestQuiet(t *testing.T) {
	c := newConnections(8, false, func(netip.Addr) bool { return false }, slog.New(slog.DiscardHandler))
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.waiting.Load() != 0 {
			t.Error("a connection with a request waits for one")
		}
		if r.URL.Path == "/last" {
			w.Header().Set("Connection", "close")
		}
	}))
	s.Listener = bounded{s.Listener, c}
	s.Config.ConnState = func(conn net.Conn, state http.ConnState) { clientOf(conn).countIdle(state) }
	s.Start()
	defer s.Close()
	get := func(path string) {
		t.Helper()
		res, err := s.Client().Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
	}
	get("/")
	for c.waiting.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	over, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if c.awaitIdle(over, time.Hour); over.Err() == nil {
		t.Error("one connection waits, and is not waited for")
	}
	c.awaitIdle(t.Context(), 30*time.Millisecond) // it is not used
	get("/last")
	if c.awaitIdle(t.Context(), time.Hour); c.waiting.Load() != 0 {
		t.Error("a connection still waits")
	}
}

// One address has a quarter of the connections, unless it is a proxy. With access rules, the oldest connection without a
// good key gives its place up for a new one: of the same address, if that has a quarter of the places. One with a good key
// keeps its place.
func TestConnectionsOfOneAddress(t *testing.T) {
	type entry struct {
		peer   string
		free   bool
		gone   int // the connection that goes for it; 0 for none
		useKey bool
	}
	for rules, entries := range map[bool][]entry{
		false: {
			{peer: "192.0.2.1:1000", free: true}, {peer: "[::ffff:192.0.2.1]:1001", free: true}, {peer: "192.0.2.1:1002"},
			{peer: "[2001:db8::1]:1", free: true}, {peer: "[2001:db8::2]:1", free: true}, {peer: "[2001:db8::3]:1"}, {peer: "[2001:db8:0:1::1]:1", free: true},
			{peer: "10.1.2.3:1", free: true}, {peer: "10.1.2.3:2", free: true}, {peer: "10.1.2.3:3", free: true},
			{peer: "127.0.0.1:1"}, // all places are taken
		},
		true: {
			{peer: "192.0.2.2:1", free: true},
			{peer: "192.0.2.1:1", free: true},
			{peer: "192.0.2.1:2", free: true, useKey: true},
			{peer: "192.0.2.1:3", free: true, gone: 2, useKey: true},
			{peer: "192.0.2.1:4"}, // none left of the address
			{peer: "10.0.0.1:1", free: true, useKey: true},
			{peer: "10.0.0.1:2", free: true, useKey: true},
			{peer: "10.0.0.1:3", free: true, useKey: true},
			{peer: "10.0.0.1:4", free: true, useKey: true},
			{peer: "10.0.0.1:5", free: true, useKey: true},
			{peer: "127.0.0.1:1", free: true, gone: 1, useKey: true}, // all places are taken
			{peer: "127.0.0.1:2"},                                    // none left
		},
	} {
		c := newConnections(8, rules, netip.MustParsePrefix("10.0.0.0/8").Contains, slog.New(slog.DiscardHandler))
		open := []*clientConn{nil}
		for i, e := range entries {
			client := &clientConn{all: c, from: addressOf(e.peer)}
			why, stranger := c.enter(client)
			if free := why == "" || stranger != nil; free != e.free || stranger != open[e.gone] {
				t.Errorf("rules: %t; %d, %s: %q, and %+v went; want a place: %t, and that %d goes", rules, i+1, e.peer, why, stranger, e.free, e.gone)
			}
			open = append(open, client)
			if e.useKey {
				markAuthenticated(context.WithValue(t.Context(), clientKey{}, client))
			}
		}
		for _, client := range open[1:] {
			c.leave(client)
		}
		if c.open != 0 || len(c.from) != 0 || c.strangers.Len() != 0 {
			t.Errorf("after all left: %d open, %v, %d strangers", c.open, c.from, c.strangers.Len())
		}
		for i := range 8 {
			if why, _ := c.enter(&clientConn{all: c, from: addressOf("127.0.0.1:1")}); why != "" {
				t.Errorf("connection %d of loopback: %s", i, why)
			}
		}
	}
}

// With access rules, an idle connection without a good key is closed after a minute, and any other after five.
func TestIdleStrangers(t *testing.T) {
	for _, test := range []struct {
		name, header string
		kept         time.Duration
	}{
		{"no key", "", time.Minute},
		{"a wrong key", "Authorization: Bearer guess-0123456789abcdef\r\n", time.Minute},
		{"a key", "Authorization: Bearer " + aliceKey + "\r\n", 5 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, private, "one")
				site := wiretest.NewClients(t)
				ended := make(chan error, 1)
				go func() { ended <- r.s.serve(site.Listener()) }()
				client := site.Dial()
				in := bufio.NewReader(client)
				for i := range 2 {
					time.Sleep(time.Duration(i) * 30 * time.Second) // of the bubble: each request begins the time anew
					fmt.Fprintf(client, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n%s\r\n", test.header)
					res, err := http.ReadResponse(in, nil)
					if err != nil {
						t.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, res.Body)
				}
				if a := r.answer(from("@", loopback, "GET", "/metrics", as("guess-0123456789abcdef")...)); a.Code != 401 {
					t.Errorf("a stranger without an address: %d", a.Code)
				}
				began := time.Now()
				if _, err := in.ReadByte(); err == nil {
					t.Error("something came")
				}
				if kept := time.Since(began); kept != test.kept {
					t.Errorf("the connection was kept for %v, want %v", kept, test.kept)
				}
				_ = client.Close()
				_ = r.s.http.Close()
				<-ended
			})
		})
	}
}
