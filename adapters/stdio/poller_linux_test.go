package stdio

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

// sleepy is an adapter whose pumps are parked as soon as there is a pause.
func sleepy(t testing.TB) *Adapter {
	a := adapter(t, "server", conn.Options{})
	a.quiet = time.Millisecond
	return a
}

// parked waits until nothing but the poller waits for n files.
func parked(t testing.TB, n int) {
	t.Helper()
	eventually(t, "all is parked", func() bool {
		thePoller.mu.Lock()
		defer thePoller.mu.Unlock()
		return len(thePoller.parked) == n
	})
}

// Everything holds as well when each pause parks the pumps.
func TestSuiteParked(t *testing.T) {
	adaptertest.Run(t, func(t *testing.T) bridge.Adapter { return sleepy(t) })
}

// An idle child has no goroutine, is there when it is called, and its end is
// noticed.
func TestParkedChild(t *testing.T) {
	quiet(t)
	rest := &adaptertest.Client{}
	up := adaptertest.Open(t, sleepy(t), rest)
	const files = 3 // stdout, stderr, the pidfd
	for range 3 {
		parked(t, files)
		if o := call(t, up, `{"result":{"n":1}}`); o.Err != nil {
			t.Fatal(o.Err)
		}
	}
	parked(t, files)
	kill(t, up)
	if err := rest.WaitGone(t); !strings.Contains(err.Error(), "signal: killed") {
		t.Errorf("Gone(%v), want that it was killed", err)
	}
	parked(t, 0)
}

// Close ends a child that is parked.
func TestParkedChildIsClosed(t *testing.T) {
	quiet(t)
	up := adaptertest.Open(t, sleepy(t), &adaptertest.Client{})
	parked(t, 3)
	if err := up.Close(t.Context()); err != nil {
		t.Error(err)
	}
	parked(t, 0)
}

// What is parked must not miss the end of a child whose descendant holds its
// output open.
func TestParkedWhileAGrandchildHoldsTheOutput(t *testing.T) {
	quiet(t)
	rest := &adaptertest.Client{}
	a := sleepy(t)
	a.c.StopStdin = hasty
	up := adaptertest.Open(t, a, rest)
	parked(t, 3)
	if o := call(t, up, `{"leave":true}`); o.Err == nil || !strings.Contains(o.Err.Error(), "its process has ended (exit status 5)") {
		t.Errorf("the call ended with %q, %v", o.Answer, o.Err)
	}
	rest.WaitGone(t)
}

// A child is over when it has ended, also while a descendant of it keeps on
// talking.
func TestTalkativeGrandchild(t *testing.T) {
	quiet(t)
	a := New("fake", Config{Command: "/bin/sh", StopStdin: hasty, StopTerm: hasty, Args: []string{"-c", `
		read -r line; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}'
		read -r line; read -r line
		(while :; do echo noise; sleep 0.02; done) &
		exit 3`}}, conn.Options{Log: slog.New(slog.DiscardHandler)})
	a.quiet = 100 * time.Millisecond // shorter than the time for last words, longer than the pauses
	rest := &adaptertest.Client{}
	up := adaptertest.Open(t, a, rest)
	if o := call(t, up, `{}`); o.Err == nil || !strings.Contains(o.Err.Error(), "its process has ended (exit status 3)") {
		t.Errorf("the call ended with %q, %v", o.Answer, o.Err)
	}
	rest.WaitGone(t)
}
