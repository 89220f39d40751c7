package integration

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkIsolation measures what bad servers cost the clients of a good one:
// the 99th percentile of its answers while nobody calls the others, and while
// all are called, in turns of one run. Of the others one is not there, one takes
// 5 s for each call, one comes and goes each second, and one answers with
// garbage. Clients call at random times, whatever becomes of their calls, as many
// clients do that know nothing of each other. The bridge, the servers and the
// clients are a process each.
//
// What it reports is the two percentiles, their ratio, and how many calls were
// made to the good server while all were called. None may fail.
func BenchmarkIsolation(b *testing.B) {
	names, file := badServers(b)
	p := start(b, exec.Command(plainBridgeProgram(b), "serve", "-c", file))
	var alone, together []time.Duration
	for b.Loop() { // -benchtime 8x, to measure more than that it runs
		alone = append(alone, callAll(b, p.base, names[:1])...)
		together = append(together, callAll(b, p.base, names)...)
	}
	a, t := percentile(b, alone), percentile(b, together)
	b.ReportMetric(float64(a.Microseconds())/1000, "ms-p99-alone")
	b.ReportMetric(float64(t.Microseconds())/1000, "ms-p99-together")
	b.ReportMetric(float64(t)/float64(a), "p99-ratio")
	b.ReportMetric(float64(len(together)), "calls")
	p.stop(b)
}

// badServers starts the servers and returns their names, the good one's first,
// and a configuration for them.
func badServers(b *testing.B) (names []string, file string) {
	cmd := exec.Command(badServersProgram(b))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	})
	text := "listen: 127.0.0.1:0\nservers:\n"
	lines := bufio.NewScanner(out)
	for len(names) < 5 && lines.Scan() {
		name, at, _ := strings.Cut(lines.Text(), " ")
		names = append(names, name)
		text += fmt.Sprintf("  %s: { http: { url: \"http://%s/mcp\" }, era: legacy }\n", name, at)
	}
	if len(names) < 5 {
		b.Fatalf("the servers said where %q are, and ended: %v", names, lines.Err())
	}
	file = filepath.Join(b.TempDir(), "bridge.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	return names, file
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
func callAll(b *testing.B, base string, servers []string) (took []time.Duration) {
	const (
		turn  = 3 * time.Second
		pause = 3 * time.Millisecond  // between calls to the good server, on the average
		bad   = 15 * time.Millisecond // and to each of the others
	)
	runtime.GC() // now, and not while it would count as the bridge's time
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 512}, Timeout: 20 * time.Second}
	defer client.CloseIdleConnections()
	var mu sync.Mutex // guards took
	var failed atomic.Int64
	var calls, loads sync.WaitGroup
	ctx, cancel := context.WithTimeout(b.Context(), turn)
	defer cancel()
	for i, name := range servers {
		every := bad
		if i == 0 {
			every = pause
		}
		loads.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			next := time.NewTimer(every)
			defer next.Stop()
			for due := time.Now().Add(every); ; {
				select {
				case <-ctx.Done():
					return
				case <-next.C:
				}
				// Whoever knows nothing of the others does not call in step with them.
				due = due.Add(time.Duration(random.ExpFloat64() * float64(every)))
				next.Reset(time.Until(due))
				calls.Go(func() {
					began := time.Now()
					ok := callStateless(client, base+"/"+name+"/mcp")
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
func callStateless(client *http.Client, url string) bool {
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{},"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(call))
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
