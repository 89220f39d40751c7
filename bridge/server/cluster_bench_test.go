package server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/cluster/redis/redistest"
)

// BenchmarkCluster measures one call after the other: where there is one instance (S-002), at the
// instance of several that has the session, and at another one, from which it takes a hop.
// For comparison, bare is a handler that answers at once, and bareHop the same behind a
// handler that sends requests on to it by net/http over mutual TLS. So a hop costs hop less
// owner, and a bare one bareHop less bare.
func BenchmarkCluster(b *testing.B) {
	ways := []struct {
		name string
		dial func(testing.TB) caller
	}{
		{"alone", dialStreamable},
		{"owner", func(tb testing.TB) caller { c, _ := dialSeveral(tb); return c }},
		{"hop", func(tb testing.TB) caller { _, c := dialSeveral(tb); return c }},
		{"bare", func(tb testing.TB) caller { return dialPlain(tb, nothing, atOnce) }},
		{"bareHop", func(tb testing.TB) caller { return dialPlain(tb, bareHop, atOnce) }},
	}
	for _, size := range []struct {
		name  string
		bytes int
	}{{"100B", 100}, {"64KB", 64 << 10}, {"1MB", 1 << 20}} {
		payload := strings.Repeat("x", size.bytes)
		request := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"b__echo","arguments":{"message":"` + payload + `"}}}`)
		for _, way := range ways {
			b.Run(way.name+"/"+size.name, func(b *testing.B) {
				c := way.dial(b)
				b.ReportAllocs()
				for b.Loop() {
					answer, err := c.call(request)
					if err != nil {
						b.Fatal(err)
					}
					if len(answer) < size.bytes {
						b.Fatalf("call = %.200q of %d bytes", answer, len(answer))
					}
				}
			})
		}
	}
}

// measured returns the configuration of an instance in front of the echo server.
func measured(tb testing.TB, store *redistest.Server) *config.Config {
	tb.Helper()
	c := config.Default()
	c.Servers = []config.Server{child(tb, "b")}
	c.Cluster.Redis, c.Cluster.Secret = "redis://"+store.Address, strings.Repeat("secret of the test ", 3)
	c.Cluster.Listen, c.Cluster.Lease = "127.0.0.1:0", 3*time.Second
	return &c
}

// dialSeveral starts two instances and returns the same session at its owner, and at the
// other one.
func dialSeveral(tb testing.TB) (owner, other caller) {
	store := redistest.Start(tb)
	quiet := slog.New(slog.DiscardHandler)
	a, _ := serveAs(tb, measured(tb, store), quiet)
	b, _ := serveAs(tb, measured(tb, store), quiet)
	for _, at := range []string{a, b} {
		until(tb, "two members", func() bool { return readyz(tb, at).Get("members.#").Int() == 2 })
	}
	s := dialAt(tb, a).(*streamable)
	return s, &streamable{wire: dial(tb, b), headers: s.headers}
}

// What stands before the handler that dialPlain calls.
type between int

const (
	nothing      between = iota
	bareHop              // the least that net/http can do: it reads the body, sends it on, reads the answer, and writes that
	reverseProxy         // what any hop has to do besides: headers travel, whoever goes away takes the request back, and answers are passed on as they come
)

// atOnce answers with what it gets.
func atOnce(body []byte) ([]byte, error) { return body, nil }

// dialPlain calls a handler that answers as answer does, by way of another server that
// speaks to it over mutual TLS, or of none.
func dialPlain(tb testing.TB, way between, answer func(request []byte) ([]byte, error)) caller {
	whole := func(w http.ResponseWriter, body []byte) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			body, err = answer(body)
		}
		if err != nil {
			tb.Error(err)
		}
		whole(w, body)
	})
	if way != nothing {
		far := httptest.NewUnstartedServer(handler)
		far.TLS = &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert}
		far.StartTLS()
		tb.Cleanup(far.Close)
		client := far.Client()
		client.Transport.(*http.Transport).TLSClientConfig.Certificates = far.TLS.Certificates
		to, err := url.Parse(far.URL)
		if err != nil {
			tb.Fatal(err)
		}
		proxy := &httputil.ReverseProxy{Transport: client.Transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
		handler = func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				tb.Error(err)
			}
			if way == reverseProxy {
				r.Body = io.NopCloser(bytes.NewReader(body))
				proxy.ServeHTTP(w, r)
				return
			}
			res, err := client.Post(far.URL, "application/json", bytes.NewReader(body))
			if err != nil {
				tb.Error(err)
				return
			}
			defer res.Body.Close()
			if body, err = io.ReadAll(res.Body); err != nil {
				tb.Error(err)
			}
			whole(w, body)
		}
	}
	near := httptest.NewServer(handler)
	tb.Cleanup(near.Close)
	return &streamable{wire: dial(tb, strings.TrimPrefix(near.URL, "http://"))}
}

// BenchmarkTakeOver measures the first call of a session after its instance has stopped in
// good order: it is taken over, with a new child process. It reports what a session takes
// in Redis, too.
func BenchmarkTakeOver(b *testing.B) {
	store := redistest.Start(b)
	quiet := slog.New(slog.DiscardHandler)
	c := store.Client()
	defer c.Close()
	other, _ := serveAs(b, measured(b, store), quiet)
	call := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"b__echo","arguments":{"message":"m"}}}`)
	var took time.Duration
	var size int64
	n := 0
	for b.Loop() {
		owner, stop := serveAs(b, measured(b, store), quiet)
		until(b, "two members", func() bool { return readyz(b, other).Get("members.#").Int() == 2 })
		s := dialAt(b, owner).(*streamable)
		id := strings.TrimSuffix(strings.TrimPrefix(strings.SplitN(s.headers, "\r\n", 2)[0], "Mcp-Session-Id: "), "\r\n")
		size = c.MemoryUsage(context.Background(), "bridge:s:"+session.Key(id)).Val()
		stop()
		at := &streamable{wire: dial(b, other), headers: s.headers}
		begun := time.Now()
		if _, err := at.call(call); err != nil {
			b.Fatal(err)
		}
		took += time.Since(begun)
		n++
		until(b, "one member", func() bool { return readyz(b, other).Get("members.#").Int() == 1 })
	}
	b.ReportMetric(float64(took.Microseconds())/1000/float64(n), "ms/takeover")
	b.ReportMetric(float64(size), "Redis-B/session")
	b.ReportMetric(0, "ns/op") // which counts starting and stopping
}

// until waits for something that another goroutine does.
func until(tb testing.TB, what string, is func() bool) {
	tb.Helper()
	for !is() {
		time.Sleep(10 * time.Millisecond)
	}
}

// readyz returns what an instance says of itself.
func readyz(tb testing.TB, address string) gjson.Result {
	tb.Helper()
	res, err := http.Get("http://" + address + "/readyz")
	if err != nil {
		tb.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return gjson.ParseBytes(text).Get("cluster")
}
