package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/observe/report"
	"github.com/mcp-bridge/bridge/config"
)

// logged reads the lines of an access log, each of which must be JSON.
func logged(t *testing.T, path string) (all []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil || !strings.HasSuffix(line, "\n") {
			t.Fatalf("line %q: %v", line, err)
		}
		all = append(all, m)
	}
	return all
}

// There is a line for each call, which says whose it was and what became of it, and not what was in it.
func TestAccessLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "calls.jsonl")
	run(t, func(c *config.Config) { c.AccessLog.To = path }, []string{"one", "two"}, func(t *testing.T, r *rig) {
		id := r.begin("/mcp")
		r.Do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"one__echo","arguments":{"said":"something private"}}}`, "Mcp-Session-Id", id).Wait()
		r.Do("POST", "/mcp", call("2", "nobody\\n\u202e"), "Mcp-Session-Id", id).Wait()
		r.Do("POST", "/two/mcp", guest("3", "tools/list", ""), "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list").Wait()
		r.s.Close(context.Background())
		got := logged(t, path)
		if len(got) != 4 {
			t.Fatalf("%d lines, want 4: %v", len(got), got)
		}
		for i, want := range []map[string]any{
			{"server": "", "method": "initialize", "era": "legacy", "outcome": "ok", "msg": "call", "level": "INFO"},
			{"server": "one", "method": "tools/call", "name": "one__echo", "era": "legacy", "server_era": "legacy", "outcome": "ok", "session": got[0]["session"]},
			{"server": "", "name": "nobody\\n\u202e", "outcome": "error", "code": -32602.0},
			{"server": "two", "method": "tools/list", "era": "modern", "outcome": "ok", "session": nil, "params": nil, "result": nil},
		} {
			for name, value := range want {
				if got[i][name] != value {
					t.Errorf("line %d: %s = %v, want %v", i, name, got[i][name], value)
				}
			}
			if _, err := time.Parse(time.RFC3339, got[i]["time"].(string)); err != nil || got[i]["duration_ms"] == nil || got[i]["bytes_in"].(float64) <= 0 {
				t.Errorf("line %d: %v", i, got[i])
			}
		}
		text, _ := os.ReadFile(path)
		for _, secret := range []string{id, "something private", "\u202e"} { // the last one stands escaped
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%q is in the log", secret)
			}
		}
		if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("the file is %v, %v; want that only its owner may read it", info.Mode(), err)
		}
	})
}

// With payloads there is what was asked and answered, cut, and without secrets.
func TestAccessLogPayloads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "calls.jsonl")
	run(t, func(c *config.Config) { c.AccessLog = config.AccessLog{To: path, Payloads: true} }, []string{"one"}, func(t *testing.T, r *rig) {
		id := r.begin("/mcp")
		long := strings.Repeat("long ", 2000)
		r.Do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"api_key":"hunter2","n":12345678901234567890,"long":"`+long+`","after":1}}}`,
			"Mcp-Session-Id", id, "Authorization", "Bearer hunter2").Wait()
		r.s.Close(context.Background())
		text, _ := os.ReadFile(path)
		if bytes.Contains(text, []byte("hunter2")) {
			t.Errorf("a secret is in the log: %s", text)
		}
		line := logged(t, path)[1]
		if line["params_cut"] != true || line["result_cut"] != true || !bytes.Contains(text, []byte(`"n":12345678901234567890`)) || !bytes.Contains(text, []byte(`"api_key":"[redacted]"`)) {
			t.Errorf("line = %v", line)
		}
		if n := len(text); n > 3*2*maxPayload {
			t.Errorf("the log has %d bytes", n)
		}
	})
}

// A file that is moved away is begun anew, and one that is cut off is written on.
func TestAccessLogRotates(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "calls.jsonl")
	run(t, func(c *config.Config) { c.AccessLog.To = path }, []string{"one"}, func(t *testing.T, r *rig) {
		id := r.begin("/mcp")
		wait := func() {
			time.Sleep(2 * logEvery)
			synctest.Wait()
		}
		wait()
		if runtime.GOOS == "windows" { // files that are open cannot be moved
			return
		}
		if err := os.Rename(path, path+".1"); err != nil {
			t.Fatal(err)
		}
		wait()
		r.Do("POST", "/mcp", call("1", "echo"), "Mcp-Session-Id", id).Wait()
		wait()
		if old, now := logged(t, path+".1"), logged(t, path); len(old) != 1 || len(now) != 1 || now[0]["method"] != "tools/call" {
			t.Errorf("old: %v, new: %v", old, now)
		}
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		r.Do("POST", "/mcp", call("1", "echo"), "Mcp-Session-Id", id).Wait()
		wait()
		if now := logged(t, path); len(now) != 1 {
			t.Errorf("after it was cut off: %v", now)
		}
	})
}

// What cannot be opened is said before anything is served.
func TestAccessLogFault(t *testing.T) {
	r := newRig(t, func(c *config.Config) {
		c.Listen = "127.0.0.1:0"
		c.AccessLog.To = filepath.Join(t.TempDir(), "no", "such", "folder")
	}, "one")
	if _, err := r.s.Listen(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "access_log: to is ") {
		t.Errorf("Listen = %v", err)
	}
}

// faulty is a place that fails, or waits, as it is told.
type faulty struct {
	mu    sync.Mutex // guards the rest
	text  bytes.Buffer
	room  int // bytes that it takes; negative means any number
	stuck chan struct{}
}

func (f *faulty) Write(b []byte) (int, error) {
	f.mu.Lock()
	stuck := f.stuck
	f.mu.Unlock()
	if stuck != nil {
		<-stuck
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.room >= 0 && len(b) > f.room {
		n := f.room
		f.text.Write(b[:n])
		f.room = 0
		return n, errors.New("no space left on device")
	}
	f.text.Write(b)
	return len(b), nil
}

func (f *faulty) set(room int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.room = room
}

// logTo makes an access log that writes to f, and its log.
func logTo(f io.Writer) (*accessLog, *bytes.Buffer) {
	var said bytes.Buffer
	l := &accessLog{out: f, log: slog.New(slog.NewTextHandler(&said, nil)), full: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	go l.run()
	return l, &said
}

func reportOf(t testing.TB, params string) *report.Report {
	t.Helper()
	q, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return &report.Report{Server: "one", Request: q, Revision: "2025-11-25"}
}

// A full disk loses lines, counts them and says so once; when there is room again the next line is whole.
func TestAccessLogFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{room: -1}
		l, said := logTo(f)
		p := reportOf(t, `{"name":"x"}`)
		l.take(p)
		time.Sleep(2 * logEvery)
		f.set(10)
		for range 3 {
			l.take(p)
			time.Sleep(2 * logEvery)
		}
		f.set(-1)
		l.take(p)
		time.Sleep(2 * logEvery)
		l.Close(nil)
		if n := l.lost.Load(); n != 3 {
			t.Errorf("%d lines lost, want 3", n)
		}
		lines := strings.Split(strings.TrimSuffix(f.text.String(), "\n"), "\n")
		if len(lines) != 3 || !json.Valid([]byte(lines[0])) || len(lines[1]) != 10 || !json.Valid([]byte(lines[2])) {
			t.Errorf("written: %q", lines)
		}
		if n := strings.Count(said.String(), "cannot be written"); n != 1 || !strings.Contains(said.String(), "can be written again") || !strings.Contains(said.String(), "count=3") {
			t.Errorf("said: %s", said)
		}
	})
}

// Who makes a call does not wait for a log that is stuck: what is too much is lost. At the end it is not waited for either.
func TestAccessLogStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{room: -1, stuck: make(chan struct{})}
		l, _ := logTo(f)
		p := reportOf(t, `{"name":"x"}`)
		began := time.Now()
		for range 3 * logMost / 200 {
			l.take(p)
		}
		if time.Since(began) > 0 { // in a bubble time passes only while everybody waits
			t.Error("a call has waited")
		}
		synctest.Wait()
		if l.lost.Load() == 0 || len(l.queue) > logMost {
			t.Errorf("%d lines lost, %d bytes queued", l.lost.Load(), len(l.queue))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l.Close(ctx.Done())
		close(f.stuck)
		<-l.done
	})
}

// A client that holds up the end of the bridge, or whoever is in a hurry, does not cost the lines that wait to be written.
func TestAccessLogHastyEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "calls.jsonl")
	run(t, func(c *config.Config) { c.AccessLog.To = path }, []string{"one"}, func(t *testing.T, r *rig) {
		r.begin("/mcp")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r.s.Close(ctx)
		select {
		case <-r.s.access.done:
		default:
			t.Error("the access log is still being written")
		}
		if got := logged(t, path); len(got) != 1 {
			t.Errorf("%d lines, want 1", len(got))
		}
	})
}

// Lines of many callers are whole, and all are there.
func TestAccessLogConcurrently(t *testing.T) {
	f := &faulty{room: -1}
	l, _ := logTo(f)
	var wg sync.WaitGroup
	for i := range 8 {
		p := reportOf(t, fmt.Sprintf(`{"name":"tool %d"}`, i))
		wg.Go(func() {
			for range 500 {
				l.take(p)
			}
		})
	}
	wg.Wait()
	l.Close(nil)
	n := 0
	for line := range strings.Lines(f.text.String()) {
		if n++; !json.Valid([]byte(line)) {
			t.Fatalf("line %q", line)
		}
	}
	if n != 8*500 || l.lost.Load() != 0 {
		t.Errorf("%d lines, %d lost; want %d", n, l.lost.Load(), 8*500)
	}
}

func BenchmarkAccessLog(b *testing.B) {
	l, _ := logTo(io.Discard)
	p := reportOf(b, `{"name":"echo"}`)
	p.Session, p.Began, p.Took = "01234567", time.Now(), time.Millisecond
	b.ReportAllocs()
	for b.Loop() {
		l.take(p)
	}
	l.Close(nil)
}
