package accesslog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/logs"
)

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

// Who makes a call does not wait for a log that is stuck: what is too much is lost. At the end it is not waited for either.
func TestAccessLogStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{room: -1, stuck: make(chan struct{})}
		l, _ := logTo(f)
		r := reportOf(t, `{"name":"x"}`)
		began := time.Now()
		for range 3 * logMost / 200 {
			l.Take(r)
		}
		if time.Since(began) > 0 { // in a bubble time passes only while everybody waits
			t.Error("a call has waited")
		}
		synctest.Wait()
		if l.Lost() == 0 {
			t.Errorf("no line is lost")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l.Close(ctx.Done())
		close(f.stuck)
		l.Close(nil)
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
