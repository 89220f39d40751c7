package integration

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestMemory holds the bridge to max_bytes_in_flight: however large answers are
// and whoever does not read them, it stays small, and others are served as before.
// It moves gigabytes and looks at the clock: it runs if BRIDGE_TEST_MEMORY is set,
// with the program of that path or, if it is no path, the one that is built.
func TestMemory(t *testing.T) {
	if os.Getenv("BRIDGE_TEST_MEMORY") == "" {
		t.Skip("BRIDGE_TEST_MEMORY is not set")
	}
	const most = 256 << 20
	tenDeafStreams := func(t *testing.T, base string) {
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				d := deafSSE(t, base)
				for id := range 20 {
					d.call(t, id+1, 10e6)
				}
			})
		}
		all.Wait()
		settle()
	}
	fortyDeafPosts := func(t *testing.T, base string) {
		var all sync.WaitGroup
		for range 40 {
			r := openAt(t, base)
			all.Go(func() {
				text := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"flood","arguments":{"bytes":%d}}}`, int(10e6))
				deafPost(t, r.url, "Mcp-Session-Id: "+r.session+"\r\nMCP-Protocol-Version: "+legacy+"\r\nAccept: application/json, text/event-stream\r\n", text)
			})
		}
		all.Wait()
		settle()
	}
	for _, test := range []struct {
		share, name string
		load        func(t *testing.T, base string)
	}{
		{"all", "one HTTP+SSE client that does not read, 120 calls at once of 15 MB", func(t *testing.T, base string) {
			d := deafSSE(t, base)
			var all sync.WaitGroup
			for id := range 120 {
				all.Go(func() { d.call(t, id+1, 15e6) })
			}
			all.Wait()
			settle()
		}},
		{"all", "10 HTTP+SSE clients that do not read, 20 calls each of 10 MB", tenDeafStreams},
		{"session", "10 HTTP+SSE clients that do not read, 20 calls each of 10 MB", tenDeafStreams},
		{"all", "100 sessions that each read an answer of 10 MB as SSE", func(t *testing.T, base string) {
			for range 100 {
				c := openAt(t, base)
				text := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"flood","arguments":{"bytes":%d},"_meta":{"progressToken":1}}}`, int(10e6))
				r, err := c.post(t.Context(), []byte(text))
				if err != nil {
					t.Fatal(err)
				}
				if got, ok := r.text(); !ok || len(got) != 10e6 || !strings.HasPrefix(r.header.Get("Content-Type"), "text/event-stream") {
					t.Fatalf("got %s, %d bytes", r, len(got))
				}
			}
		}},
		{"all", "40 POSTs that do not read, 10 MB as JSON", fortyDeafPosts},
		{"session", "40 POSTs that do not read, 10 MB as JSON", fortyDeafPosts},
	} {
		t.Run("share "+test.share+"/"+test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "bridge.yaml")
			command := strconv.Quote(fakeProgram(t))
			text := "listen: 127.0.0.1:0\nmax_bytes_in_flight: 64MiB\nservers:\n  s: { share: " + test.share + ", stdio: { command: " + command + " } }\n  other: { stdio: { command: " + command + " } }\n"
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			program := os.Getenv("BRIDGE_TEST_MEMORY")
			if !filepath.IsAbs(program) {
				program = plainBridgeProgram(t)
			}
			p := start(t, exec.Command(program, "serve", "-c", file))
			other := openAt(t, p.base+"/other")
			alone := callFor(t, other, 3*time.Second, nil)
			done := make(chan struct{})
			var beside []time.Duration
			var calling sync.WaitGroup
			calling.Go(func() { beside = callFor(t, other, 10*time.Minute, done) })
			test.load(t, p.base+"/s")
			close(done)
			calling.Wait()
			peak := memory(t, p.cmd.Process.Pid, "VmHWM")
			t.Logf("peak %d MB, now %d MB, p50 of others %v alone, %v beside it (%d calls)",
				peak>>20, memory(t, p.cmd.Process.Pid, "VmRSS")>>20, median(alone), median(beside), len(beside))
			if peak > most {
				t.Errorf("the bridge took %d MB, more than %d", peak>>20, most>>20)
			}
		})
	}
}

// settle lets the bridge do for a while what it is said not to do.
func settle() { <-time.After(5 * time.Second) }

func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[len(d)/2]
}

// memory returns a line of the process's status, in bytes.
func memory(t *testing.T, pid int, what string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(status, []byte(what+":"))
	var kb int
	if _, err := fmt.Sscan(string(rest), &kb); err != nil {
		t.Fatal(err)
	}
	return kb << 10
}

// callFor makes small calls, one after another, until done or for a time. None may
// fail.
func callFor(t *testing.T, c *rawClient, limit time.Duration, done chan struct{}) (took []time.Duration) {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		select {
		case <-done:
			return took
		case <-time.After(5 * time.Millisecond):
		}
		began := time.Now()
		r, err := c.post(context.Background(), []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello"}}}`))
		if err != nil {
			t.Error(err)
			return took
		}
		if text, _ := r.text(); text != "hello" {
			t.Errorf("a call of somebody else: %s", r)
			return took
		}
		took = append(took, time.Since(began))
	}
	return took
}

func openAt(t *testing.T, at string) *rawClient {
	t.Helper()
	r, err := openRaw(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// dialDeaf makes a connection of which little is read ahead.
func dialDeaf(t *testing.T, at string) net.Conn {
	t.Helper()
	host, _, _ := strings.Cut(strings.TrimPrefix(at, "http://"), "/")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// deafPost posts and reads nothing.
func deafPost(t *testing.T, at, header, text string) {
	path := at[strings.Index(at[len("http://"):], "/")+len("http://"):]
	conn := dialDeaf(t, at)
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", path, header, len(text), text)
}

// deafClient is a client over HTTP+SSE that reads nothing of its stream but what
// it needs to call.
type deafClient struct{ endpoint string }

func deafSSE(t *testing.T, at string) *deafClient {
	t.Helper()
	conn := dialDeaf(t, at)
	path := at[strings.Index(at[len("http://"):], "/")+len("http://"):]
	fmt.Fprintf(conn, "GET %s/sse HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", path)
	d := &deafClient{}
	lines := bufio.NewReaderSize(conn, 16)
	for d.endpoint == "" {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if _, rest, ok := strings.Cut(line, "data: "); ok {
			d.endpoint = at[:len(at)-len(path)] + strings.TrimSpace(rest)
		}
	}
	d.post(t, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+legacy+`","capabilities":{},"clientInfo":{"name":"deaf","version":"1"}}}`)
	for line := ""; !strings.Contains(line, `"serverInfo"`); {
		var err error
		if line, err = lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func (d *deafClient) call(t *testing.T, id int, size int) {
	d.post(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"flood","arguments":{"bytes":%d}}}`, id, size))
}

func (d *deafClient) post(t *testing.T, text string) {
	res, err := rawHTTP.Post(d.endpoint, "application/json", strings.NewReader(text))
	if err != nil {
		t.Error(err)
		return
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	if res.StatusCode != http.StatusAccepted && res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("status %d", res.StatusCode)
	}
}
