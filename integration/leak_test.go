package integration

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// TestNothingLeaks opens many sessions and ends them in all the ways there
// are. Afterwards the bridge has no more processes and files than before.
func TestNothingLeaks(t *testing.T) {
	t.Parallel()
	sessions := scaletest.Of(100, 1000)
	p := startBridge(t, nil, fakeProgram(t))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	// The first use of everything may open what stays open.
	for way := range len(ways) {
		if err := ways[way](ctx, p.base); err != nil {
			t.Fatalf("%d: %v", way, err)
		}
	}
	rawHTTP.CloseIdleConnections()
	p.childless(t)
	files, goroutines := descriptors(p.cmd.Process.Pid), goroutines(t, p)

	work := make(chan int)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for n := range work {
				if err := ways[n%len(ways)](ctx, p.base); err != nil {
					t.Errorf("session %d: %v", n, err)
				}
			}
		})
	}
	for n := range sessions {
		work <- n
	}
	close(work)
	workers.Wait()

	rawHTTP.CloseIdleConnections()
	p.childless(t)
	if now, ok := eventually(func() (int, bool) {
		now := descriptors(p.cmd.Process.Pid)
		return now, now <= files+4 // the runtime may hold one more poller or so
	}); !ok {
		t.Errorf("%d open files after %d sessions, %d before", now, sessions, files)
	}
	if now, ok := eventually(func() (int, bool) {
		rawHTTP.CloseIdleConnections()
		now := goroutinesOf(p)
		return now, now <= goroutines+4
	}); !ok {
		t.Errorf("%d goroutines after %d sessions, %d before", now, sessions, goroutines)
	}
}

// ways are the ways in which a session can go.
var ways = []func(ctx context.Context, base string) error{
	func(ctx context.Context, base string) error { // in good order
		r, err := openRaw(ctx, base)
		if err != nil {
			return err
		}
		if _, err := r.tool(ctx, "echo", map[string]any{"message": "a"}); err != nil {
			return err
		}
		return r.end(ctx)
	},
	func(ctx context.Context, base string) error { // the client gives up waiting, then ends the session under the call
		r, err := openRaw(ctx, base)
		if err != nil {
			return err
		}
		own, done := withOwnClient(ctx)
		defer done()
		short, cancel := context.WithTimeout(own, time.Duration(rand.IntN(30))*time.Millisecond)
		defer cancel()
		if _, err := r.tool(short, "hang", map[string]any{"message": "a"}); err == nil {
			return fmt.Errorf("a call that hangs was answered")
		}
		return r.end(ctx)
	},
	func(ctx context.Context, base string) error { // the server is killed
		c, err := openRaw(ctx, base)
		if err != nil {
			return err
		}
		r, err := c.tool(ctx, "pid", nil)
		if err != nil {
			return err
		}
		text, _ := r.text()
		pid, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("pid: %v", r)
		}
		if err := kill(pid); err != nil {
			return err
		}
		return c.end(ctx)
	},
	func(ctx context.Context, base string) error { // the server crashes over a call
		c, err := openRaw(ctx, base)
		if err != nil {
			return err
		}
		if r, err := c.tool(ctx, "crash", nil); err != nil || r.answer.Error == nil {
			return fmt.Errorf("crash: %v %w", r, err)
		}
		return c.end(ctx)
	},
	func(ctx context.Context, base string) error { // the client disconnects
		r, err := openSSE(ctx, base)
		if err != nil {
			return err
		}
		return r.stream.Close()
	},
	func(ctx context.Context, base string) error { // the client disconnects in the middle of a call
		r, err := openSSE(ctx, base)
		if err != nil {
			return err
		}
		defer r.stream.Close()
		return r.post(ctx, string(rawCall("hang", map[string]any{"message": "a"})))
	},
	func(ctx context.Context, base string) error { // the client goes before it has heard anything
		own, done := withOwnClient(ctx)
		defer done()
		short, cancel := context.WithTimeout(own, time.Duration(rand.IntN(10))*time.Millisecond)
		defer cancel()
		if r, err := openSSE(short, base); err == nil {
			r.stream.Close()
		}
		return nil
	},
}

// goroutines is how many the bridge runs, as its metrics say.
func goroutines(t *testing.T, p *process) int {
	t.Helper()
	n := goroutinesOf(p)
	if n < 0 {
		t.Log("the bridge does not say how many goroutines it has: not checked")
	}
	return n
}

func goroutinesOf(p *process) int {
	resp, err := rawHTTP.Get(p.base + "/metrics")
	if err != nil {
		return -1
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return -1
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "go_goroutines "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
			if err != nil {
				return -1
			}
			return int(n)
		}
	}
	return -1
}
