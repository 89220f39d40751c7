package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// TestInterleaved has 100 clients call at once, each with id 1 for everything,
// and checks that each answer is the caller's own. Answers come out of order.
func TestInterleaved(t *testing.T) {
	scaletest.Large(t)
	const clients, workers, rounds = 100, 4, 25
	for _, share := range []string{"session", "all"} {
		t.Run(share, func(t *testing.T) {
			p := startBridge(t, []string{"--share", share}, fakeProgram(t))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var all sync.WaitGroup
			for n := range clients {
				all.Go(func() {
					c, err := openRaw(ctx, p.base)
					if err != nil {
						t.Errorf("client %d: %v", n, err)
						return
					}
					var calls sync.WaitGroup
					for w := range workers {
						calls.Go(func() {
							for i := range rounds {
								want := fmt.Sprintf("client %d worker %d call %d", n, w, i)
								r, err := c.tool(ctx, "sleep", map[string]any{"message": want, "ms": rand.IntN(5)})
								if err != nil {
									t.Errorf("%s: %v", want, err)
									return
								}
								if got, _ := r.text(); got != want || string(r.answer.ID) != "1" {
									t.Errorf("%s was answered by %q with id %s: %v", want, got, r.answer.ID, r)
								}
							}
						})
					}
					calls.Wait()
					if err := c.end(ctx); err != nil {
						t.Errorf("client %d: end: %v", n, err)
					}
				})
			}
			all.Wait()
			if share == "session" {
				p.childless(t)
			}
		})
	}
}

// TestKilledChild kills the server in the middle of a call: that call fails at
// once and the next one works.
func TestKilledChild(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"kill", "crash"} {
		t.Run(how, func(t *testing.T) {
			p := startBridge(t, nil, fakeProgram(t))
			c := mustOpenRaw(t, p.base)
			pid, err := strconv.Atoi(c.must(t, "pid", nil))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			type outcome struct {
				r   *reply
				err error
			}
			pending := make(chan outcome, 1)
			go func() {
				r, err := c.tool(ctx, "hang", map[string]any{"message": "a"})
				pending <- outcome{r, err}
			}()
			// The server has the call: now it can die over it.
			eventually(func() (string, bool) {
				got := c.must(t, "cancelled", map[string]any{"message": "a"})
				return got, strings.HasPrefix(got, "known=true")
			})
			if how == "kill" {
				if err := kill(pid); err != nil {
					t.Fatal(err)
				}
			} else if r, err := c.tool(ctx, "crash", nil); err != nil || r.answer.Error == nil {
				t.Errorf("the call that crashed the server: %v %v, want an error", r, err)
			}
			got := <-pending
			if got.err != nil || got.r.answer.Error == nil {
				t.Fatalf("the call in flight: %v %v, want an error", got.r, got.err)
			}
			t.Logf("the call in flight: %v", got.r)
			if again := c.must(t, "pid", nil); again == strconv.Itoa(pid) {
				t.Errorf("the new process has the old id %s", again)
			}
		})
	}
}

// TestKilledBridge checks that nothing outlives a bridge that had no chance to
// clean up, not even servers that ignore the end of stdin and SIGTERM, and
// what they have started.
func TestKilledBridge(t *testing.T) {
	t.Parallel()
	p := start(t, bridgeCommand(t, nil, fakeProgram(t), "-deaf", "-parent"))
	for range 3 {
		mustOpenRaw(t, p.base).must(t, "echo", map[string]any{"message": "hello"})
	}
	if family := p.family.look(); len(family) < 6 {
		t.Fatalf("%d processes below the bridge, want at least 6: %v", len(family), family)
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.exited
	p.allGone(t)
}

// TestDeafChild checks that a session's end and the bridge's take a server
// along that ignores both the end of stdin and SIGTERM.
func TestDeafChild(t *testing.T) {
	t.Parallel()
	p := serveFile(t, configure(t, map[string]any{"stdio": map[string]any{"command": fakeProgram(t), "args": []string{"-deaf", "-parent"}}}))
	// The first session may not find the process that is started ahead, the second does.
	eventually(func() (struct{}, bool) { return struct{}{}, strings.Contains(p.output.String(), "child started") })
	for _, r := range []*rawClient{mustOpenRaw(t, p.base), mustOpenRaw(t, p.base)} {
		r.must(t, "echo", map[string]any{"message": "hello"})
		if err := r.end(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	p.childless(t)
	mustOpenRaw(t, p.base).must(t, "echo", map[string]any{"message": "hello"}) // left for the end of the bridge
}

// TestSizes sends what is just within the limit for one message, and more, in
// both directions.
func TestSizes(t *testing.T) {
	scaletest.Large(t)
	t.Parallel()
	const limit = 16 << 20
	p := startBridge(t, nil, fakeProgram(t))
	c := mustOpenRaw(t, p.base)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	envelope := len(rawCall("echo", map[string]any{"message": ""}))
	fits := strings.Repeat("x", limit-envelope)
	r, err := c.tool(ctx, "echo", map[string]any{"message": fits})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := r.text(); got != fits {
		t.Errorf("a request of %d bytes came back with %d bytes of text, want %d: %v", limit, len(got), len(fits), r)
	}
	c.must(t, "echo", map[string]any{"message": "after the largest"})

	// The answer may come while the body is still on its way.
	r, err = c.tool(ctx, "echo", map[string]any{"message": strings.Repeat("x", 17<<20)})
	switch {
	case err != nil:
		t.Errorf("a request of 17 MiB: %v, want an answer that says why", err)
	case r.status != http.StatusRequestEntityTooLarge:
		t.Errorf("a request of 17 MiB: %v, want status 413", r)
	default:
		t.Logf("a request of 17 MiB: %v", r)
	}
	c.must(t, "echo", map[string]any{"message": "after too large a request"})

	r, err = c.tool(ctx, "flood", map[string]any{"bytes": 17 << 20})
	if err != nil || r.answer.Error == nil {
		t.Errorf("an answer of 17 MiB: %v %v, want an error", r, err)
	} else {
		t.Logf("an answer of 17 MiB: %v", r)
	}
	c.must(t, "echo", map[string]any{"message": "after too large an answer"})
}

// TestEnvironment checks that a server gets nothing of the bridge's own
// environment but what programs need to run.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	cmd := bridgeCommand(t, nil, fakeProgram(t))
	cmd.Env = append(cmd.Environ(), "BRIDGE_TEST_SECRET=hunter2")
	p := start(t, cmd)
	t.Cleanup(func() { p.stop(t) })
	got := mustOpenRaw(t, p.base).must(t, "env", nil)
	if strings.Contains(got, "hunter2") {
		t.Error("the server sees a variable of the bridge's own")
	}
	contains(t, "environment", got, "PATH=")
	if strings.Contains(p.output.String(), "hunter2") {
		t.Error("the bridge has logged a variable's value")
	}
}

// kill ends a process without a chance to do anything about it.
func kill(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}
