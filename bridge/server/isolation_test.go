package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/adapters/httpclient"
	"github.com/mcp-bridge/bridge/config"
)

// BenchmarkIsolation measures what bad servers cost the clients of a good one:
// the 99th percentile of its answers while nobody calls the others, and while
// all are called, in turns of one run. Of the others one is not there, one takes
// 5 s for each call, one comes and goes each second, and one answers with
// garbage. Clients call at a fixed rate, whatever becomes of their calls, as
// many clients do that know nothing of each other.
//
// What it reports is the two percentiles, their ratio, and how many calls to the
// good server failed: none may.
func BenchmarkIsolation(b *testing.B) {
	servers := []config.Server{
		remote("good", startHTTP(b, answering)),
		remote("dead", "127.0.0.1:"+unusedPort(b)),
		remote("slow", startHTTP(b, slowly)),
		remote("flapping", startFlapping(b)),
		remote("garbage", startHTTP(b, garbage)),
	}
	at := serve(b, servers...)
	var alone, together []time.Duration
	for b.Loop() { // -benchtime 8x, to measure more than that it runs
		alone = append(alone, callAll(b, at, servers[:1])...)
		together = append(together, callAll(b, at, servers)...)
	}
	p, q := percentile(b, alone), percentile(b, together)
	b.ReportMetric(float64(p.Microseconds())/1000, "ms-p99-alone")
	b.ReportMetric(float64(q.Microseconds())/1000, "ms-p99-together")
	b.ReportMetric(float64(q)/float64(p), "p99-ratio")
	b.ReportMetric(float64(len(together)), "calls")
}

// percentile returns the 99th.
func percentile(b *testing.B, took []time.Duration) time.Duration {
	if len(took) < 100 {
		b.Fatalf("%d calls are too few", len(took))
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// callAll calls the servers for some time, and returns how long the calls to the
// first one took.
func callAll(b *testing.B, at string, servers []config.Server) (took []time.Duration) {
	const (
		turn  = 3 * time.Second
		pause = 3 * time.Millisecond // between calls to the good server
		bad   = 15 * time.Millisecond
	)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 512}, Timeout: 20 * time.Second}
	defer client.CloseIdleConnections()
	var mu sync.Mutex // guards took
	var failed atomic.Int64
	var calls, loads sync.WaitGroup
	ctx, cancel := context.WithTimeout(b.Context(), turn)
	defer cancel()
	for i, s := range servers {
		every := bad
		if i == 0 {
			every = pause
		}
		loads.Go(func() {
			ticker := time.NewTicker(every)
			defer ticker.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
				}
				calls.Go(func() {
					began := time.Now()
					ok := callStateless(client, at, s.Name)
					if i > 0 {
						return // whatever became of it
					}
					if !ok {
						failed.Add(1)
					}
					mu.Lock()
					defer mu.Unlock()
					took = append(took, time.Since(began))
				})
			}
		})
	}
	loads.Wait()
	calls.Wait()
	if n := failed.Load(); n > 0 {
		b.Errorf("%d calls to the good server failed", n)
	}
	return took
}

// callStateless makes one call of a client without a session, and reports
// whether it got a result.
func callStateless(client *http.Client, at, server string) bool {
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{},"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	r, err := http.NewRequest(http.MethodPost, "http://"+at+"/"+server+"/mcp", strings.NewReader(call))
	if err != nil {
		return false
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "echo",
	} {
		r.Header.Set(name, value)
	}
	res, err := client.Do(r)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return err == nil && bytes.Contains(body, []byte(`"content"`))
}

func remote(name, address string) config.Server {
	s := config.DefaultServer(name, "")
	s.HTTP = &httpclient.Config{URL: "http://" + address + "/mcp", Transport: httpclient.TransportStreamable}
	s.Era = config.EraLegacy
	return s
}

// startHTTP starts a server that is ended with the benchmark, and returns its
// address.
func startHTTP(b *testing.B, h http.HandlerFunc) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	stop := serveOn(l, h)
	b.Cleanup(stop)
	return l.Addr().String()
}

func serveOn(l net.Listener, h http.HandlerFunc) (stop func()) {
	s := &http.Server{Handler: h}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l)
	}()
	return func() {
		_ = s.Close()
		<-ended
	}
}

// startFlapping starts a server that comes and goes each second.
func startFlapping(b *testing.B) string {
	at := "127.0.0.1:" + unusedPort(b)
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		stop := func() {}
		for up := false; ; up = !up {
			if up {
				stop()
				stop = func() {}
			} else if l, err := net.Listen("tcp", at); err == nil {
				stop = serveOn(l, answering)
			}
			select {
			case <-ticker.C:
			case <-quit:
				stop()
				return
			}
		}
	}()
	b.Cleanup(func() {
		close(quit)
		<-ended
	})
	return at
}

// unusedPort returns one that nobody listens on.
func unusedPort(b *testing.B) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	return port
}

// answering is a server of the least that works, without sessions.
func answering(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	result := `{"content":[{"type":"text","text":"here"}]}`
	switch {
	case bytes.Contains(body, []byte(`"initialize"`)):
		result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"answering","version":"1"}}`
	case bytes.Contains(body, []byte(`"tools/list"`)):
		result = `{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`
	case !bytes.Contains(body, []byte(`"id"`)):
		w.WriteHeader(http.StatusAccepted)
		return
	}
	id := []byte("0")
	if _, after, ok := bytes.Cut(body, []byte(`"id":`)); ok {
		id = after[:bytes.IndexAny(after, ",}")]
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

// slowly takes 5 s for all but the handshake.
func slowly(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if bytes.Contains(body, []byte(`"tools/call"`)) {
		timer := time.NewTimer(5 * time.Second)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
	}
	answering(w, r)
}

// garbage answers everything with what is none.
func garbage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":7,"result":{"content":[`+strings.Repeat("\x00}{", 1000))
}
