//go:build unix

package server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/cluster/redis/redistest"
)

// way is one way to make a call, and the least that a call over it has cost in a round.
type way struct {
	name      string
	call      func([]byte) ([]byte, error)
	cpu, took time.Duration
}

// BenchmarkCluster measures one call after the other: where there is one instance (S-002), at the instance of several
// that has the session, and at another one, from which it takes a hop. For comparison, bare is an HTTP server before
// the same child process, bareHop the same behind a server that sends requests on by net/http over mutual TLS, and
// proxy behind a reverse proxy of the standard library. The ways take turns, so that whatever else the machine does
// hits all of them, and the least of the rounds counts. The processor time is that of the instances and the client.
func BenchmarkCluster(b *testing.B) {
	for _, size := range []struct {
		name         string
		bytes, batch int
	}{{"100B", 100, 500}, {"64KB", 64 << 10, 100}, {"1MB", 1 << 20, 20}} {
		b.Run(size.name, func(b *testing.B) {
			request := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"b__echo","arguments":{"message":"` + strings.Repeat("x", size.bytes) + `"}}}`)
			store := redistest.Start(b)
			owner, other := dialSeveral(b, store)
			child := dialDirect(b).call
			ways := []*way{
				{name: "alone", call: dialStreamable(b).call},
				{name: "owner", call: owner.call},
				{name: "hop", call: other.call},
				{name: "bare", call: dialPlain(b, nothing, child).call},
				{name: "bareHop", call: dialPlain(b, bareHop, child).call},
				{name: "proxy", call: dialPlain(b, reverseProxy, child).call},
			}
			asked, calls := commands(b, store), 0
			for b.Loop() {
				for _, w := range ways {
					before, begun := worked(b), time.Now()
					for range size.batch {
						if answer, err := w.call(request); err != nil || len(answer) < size.bytes {
							b.Fatalf("%s: %.200q of %d bytes, %v", w.name, answer, len(answer), err)
						}
					}
					w.least((worked(b)-before)/time.Duration(size.batch), time.Since(begun)/time.Duration(size.batch))
				}
				calls += 2 * size.batch
			}
			b.ReportMetric(0, "ns/op") // which counts all ways
			b.ReportMetric(float64(commands(b, store)-asked)/float64(calls), "commands/call")
			for _, w := range ways {
				b.ReportMetric(float64(w.cpu)/1000, "cpu-us/"+w.name)
				b.ReportMetric(float64(w.took)/1000, "us/"+w.name)
			}
		})
	}
}

func (w *way) least(cpu, took time.Duration) {
	if w.took == 0 {
		w.cpu, w.took = cpu, took
	}
	w.cpu, w.took = min(w.cpu, cpu), min(w.took, took)
}

// worked returns the time that this process has worked.
func worked(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// commands returns how many commands a store has had: instances tell it something every second.
func commands(b *testing.B, store *redistest.Server) (n int) {
	b.Helper()
	c := store.Client()
	defer c.Close()
	text, err := c.Info(context.Background(), "stats").Result()
	if err != nil {
		b.Fatal(err)
	}
	_, after, _ := strings.Cut(text, "total_commands_processed:")
	if _, err := fmt.Sscan(after, &n); err != nil {
		b.Fatalf("Redis does not say how many commands it has had: %s", text)
	}
	return n
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
func dialSeveral(tb testing.TB, store *redistest.Server) (owner, other caller) {
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
