package stdio

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

// startAhead starts a child before anybody connects, and returns what comes of it.
func startAhead(t *testing.T, ctx context.Context, a *Adapter) (c *child, over <-chan error) {
	t.Helper()
	came := make(chan error, 1)
	go func() { came <- a.StartAhead(ctx, done()) }()
	eventually(t, "the child is there", func() bool { return a.ahead.Load() != nil })
	e := a.ahead.Load()
	<-e.launched
	return e.u, came
}

// The first connection uses the child that was started ahead, and has a handshake of its
// own; the next one has a child of its own, too.
func TestStartAhead(t *testing.T) {
	quiet(t)
	a := adapter(t, "server", conn.Options{})
	u, over := startAhead(t, t.Context(), a)
	from := *adaptertest.Caller("")
	from.Header = http.Header{"TOKEN": {"x"}} // stands in the environment
	for i, c := range []struct {
		from *bridge.Caller
		want bool
	}{{&from, false}, {adaptertest.Caller(""), true}, {adaptertest.Caller(""), false}} {
		up, err := a.Open(t.Context(), c.from, &adaptertest.Client{})
		if err != nil {
			t.Fatal(err)
		}
		call(t, up, `{}`).Result(t)
		if up.(*child).Pid() == u.Pid() != c.want {
			t.Errorf("connection %d: the child that was started ahead is used: %t, want %t", i, !c.want, c.want)
		}
		if err := up.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
}

// Whichever comes first, the first connection and StartAhead start one child together.
func TestStartAheadOnce(t *testing.T) {
	quiet(t)
	for range 10 {
		var log bytes.Buffer
		a := adapter(t, "server", conn.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := a.StartAhead(t.Context(), done()); err != nil {
				t.Error(err)
			}
		})
		up, err := a.Open(t.Context(), adaptertest.Caller(""), &adaptertest.Client{})
		if err != nil {
			t.Fatal(err)
		}
		if err := up.Close(t.Context()); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if n := strings.Count(log.String(), "child started"); n != 1 {
			t.Errorf("%d children, want one:\n%s", n, log.String())
		}
	}
}

// An unused child is stopped; the end of one that exits by itself has the reason.
func TestStartAheadInVain(t *testing.T) {
	quiet(t)
	ctx, stop := context.WithCancel(t.Context())
	c, over := startAhead(t, ctx, adapter(t, "silent", conn.Options{}))
	stop()
	if err := <-over; err != nil || !c.p.hasExited() {
		t.Errorf("%v, ended: %t", err, c.p.hasExited())
	}
	a := adapter(t, "fails", conn.Options{})
	err := a.StartAhead(t.Context(), done())
	if err == nil || !strings.Contains(err.Error(), "its process has ended (exit status 3)") || !strings.HasSuffix(err.Error(), "\n  set FOO_KEY") {
		t.Errorf("StartAhead: %v, want the state and its stderr", err)
	}
	if _, again := a.Open(t.Context(), adaptertest.Caller(""), &adaptertest.Client{}); bridge.Brief(again) != bridge.Brief(err) {
		t.Errorf("Open: %v, want what was said before, which the log does not repeat", again)
	}
}
