package accesslog

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

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/logs"
)

// faulty is a place that takes so many bytes.
type faulty struct {
	mu   sync.Mutex // guards the rest
	text bytes.Buffer
	room int // negative means any number
}

func (f *faulty) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.room < 0 || len(b) <= f.room {
		return f.text.Write(b)
	}
	n, _ := f.text.Write(b[:f.room])
	f.room = 0
	return n, errors.New("no space left on device")
}

func (f *faulty) set(room int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.room = room
}

// logTo makes an access log that writes to f, and its log.
func logTo(f io.Writer) (*Log, *bytes.Buffer) {
	var said bytes.Buffer
	t := &target{Writer: f, log: slog.New(slog.NewTextHandler(&said, nil))}
	l := &Log{Writer: logs.NewWriter(t, logMost, logEvery), to: t}
	return l, &said
}

func reportOf(t testing.TB, params string) *report.Report {
	t.Helper()
	m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return &report.Report{Server: "one", Request: m, Revision: "2025-11-25"}
}

// A full disk loses lines, counts them and says so once; when there is room again the next line is whole.
func TestAccessLogFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{room: -1}
		l, said := logTo(f)
		r := reportOf(t, `{"name":"x"}`)
		l.Take(r)
		time.Sleep(2 * logEvery)
		f.set(10)
		for range 3 {
			l.Take(r)
			time.Sleep(2 * logEvery)
		}
		f.set(-1)
		l.Take(r)
		time.Sleep(2 * logEvery)
		l.Close(nil)
		if n := l.Lost(); n != 3 {
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

// The end of the bridge does not wait for a log that is stuck.
func TestAccessLogStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe() // which nobody reads
		l, said := logTo(w)
		l.Take(reportOf(t, `{"name":"x"}`))
		time.Sleep(2 * logEvery)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if l.Close(ctx.Done()); !strings.Contains(said.String(), "queued lines are lost") {
			t.Errorf("said: %s", said)
		}
		_ = r.Close()
		l.Close(nil)
	})
}

// inFile opens an access log in a file.
func inFile(t *testing.T, payloads bool) (l *Log, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "calls.jsonl")
	l, err := Open(config.AccessLog{To: path, Payloads: payloads}, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return l, path
}

// With payloads there is what was asked and answered, cut, and without secrets.
func TestAccessLogPayloads(t *testing.T) {
	l, path := inFile(t, true)
	r := reportOf(t, `{"name":"echo","arguments":{"api_key":"hunter2","n":12345678901234567890,"long":"`+strings.Repeat("long ", 2000)+`","after":1}}`)
	r.Answer = jsonrpc.NewResult(nil, r.Request.Params)
	l.Take(r)
	l.Close(nil)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if line := gjson.ParseBytes(text); !line.Get("params_cut").Bool() || !line.Get("result_cut").Bool() || len(text) > 3*maxPayload {
		t.Errorf("%d bytes: %s", len(text), text)
	}
	for part, want := range map[string]int{"hunter2": 0, `"n":12345678901234567890`: 2, `"api_key":"[redacted]"`: 2} {
		if n := bytes.Count(text, []byte(part)); n != want {
			t.Errorf("%d times %s, want %d: %s", n, part, want, text)
		}
	}
}

// A file that is moved away is begun anew, and one that is cut off is written on.
func TestAccessLogRotates(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files that are open cannot be moved")
	}
	synctest.Test(t, func(t *testing.T) {
		l, path := inFile(t, false)
		defer l.Close(nil)
		take := func(name string) {
			l.Take(reportOf(t, `{"name":"`+name+`"}`))
			time.Sleep(2 * logEvery)
		}
		has := func(when, path, name string) {
			t.Helper()
			if text, err := os.ReadFile(path); err != nil || bytes.Count(text, []byte("\n")) != 1 || gjson.GetBytes(text, "name").Str != name {
				t.Errorf("%s: %s, %v", when, text, err)
			}
		}
		take("first")
		if err := os.Rename(path, path+".1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * logEvery)
		take("second")
		has("moved", path+".1", "first")
		has("after it was moved", path, "second")
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		take("third")
		has("after it was cut off", path, "third")
	})
}

// Lines of many callers are whole, and all are there.
func TestAccessLogConcurrently(t *testing.T) {
	f := &faulty{room: -1}
	l, _ := logTo(f)
	var wg sync.WaitGroup
	for i := range 8 {
		r := reportOf(t, fmt.Sprintf(`{"name":"tool %d"}`, i))
		wg.Go(func() {
			for range 500 {
				l.Take(r)
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
	if n != 8*500 || l.Lost() != 0 {
		t.Errorf("%d lines, %d lost; want %d", n, l.Lost(), 8*500)
	}
}

func BenchmarkAccessLog(b *testing.B) {
	l, _ := logTo(io.Discard)
	r := reportOf(b, `{"name":"echo"}`)
	r.Session, r.Began, r.Took = "01234567", time.Now(), time.Millisecond
	b.ReportAllocs()
	for b.Loop() {
		l.Take(r)
	}
	l.Close(nil)
}
