//lint:file-ignore SA1019 roots are deprecated in 2026-07-28 and still part of everything.

package inprocess

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
)

// A handler that panics costs its caller an error, and says no more of why.
func TestPanic(t *testing.T) {
	var l adaptertest.Log
	s := newServer(&mcp.ServerOptions{
		RootsListChangedHandler: func(context.Context, *mcp.RootsListChangedRequest) { panic("in a notification") },
	}, map[string]handler{
		"panic": func(context.Context, *mcp.CallToolRequest) (string, error) { panic("the reason") },
		"bounds": func(_ context.Context, r *mcp.CallToolRequest) (string, error) {
			return r.Params.Name[100:], nil
		},
		"fine": func(context.Context, *mcp.CallToolRequest) (string, error) { return "fine", nil },
	})
	a := Shared("clock", s, Options{Log: slog.New(slog.NewTextHandler(&l, nil))})
	up := open(t, a, &adaptertest.Client{})
	for _, name := range []string{"panic", "bounds"} {
		o := adaptertest.Call(t.Context(), t, up, nil, tool(name, ""))
		if o.Err != nil || !strings.Contains(o.Answer, `"code":-32603`) || strings.Contains(o.Answer, "reason") {
			t.Errorf("%s: the call ended with %s, %v", name, o.Answer, o.Err)
		}
	}
	adaptertest.Notify(t, up, `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
	if got := said(t, adaptertest.Call(t.Context(), t, up, nil, tool("fine", ""))); got != "fine" {
		t.Errorf("the tool said %q", got)
	}
	for _, want := range []string{"the reason", "guard_test.go", "out of range", "in a notification", "server=clock"} {
		if !strings.Contains(l.String(), want) {
			t.Errorf("the log is %s\nwant %q in it", l.String(), want)
		}
	}
}

// A caller for whom there is no server gets an error, as does one whose server
// cannot be made.
func TestNoServer(t *testing.T) {
	for _, c := range []struct {
		name   string
		server func(*bridge.Caller) *mcp.Server
		want   string
	}{
		{"none", func(*bridge.Caller) *mcp.Server { return nil }, errNone.Error()},
		{"panic", func(*bridge.Caller) *mcp.Server { panic("no database") }, "no database"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := New("clock", c.server, quiet(Options{})).Open(t.Context(), caller(), &adaptertest.Client{})
			if !errors.Is(err, bridge.ErrUnavailable) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Open: %v, want ErrUnavailable with %q", err, c.want)
			}
		})
	}
	// Who asks decides which server it is.
	var asked *bridge.Caller
	a := New("clock", func(from *bridge.Caller) *mcp.Server { asked = from; return newServer(nil, nil) }, quiet(Options{}))
	from := caller()
	up, err := a.Open(t.Context(), from, &adaptertest.Client{})
	if err != nil {
		t.Fatal(err)
	}
	_ = up.Close(t.Context())
	if asked != from {
		t.Errorf("the server was made for %v", asked)
	}
}

// The contexts of all handlers end with the connection, also those of
// notifications, and Close waits for the handlers.
func TestCloseEndsHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l adaptertest.Log
		var mu sync.Mutex
		var ended []string
		until := func(ctx context.Context, what string) {
			<-ctx.Done()
			<-time.After(time.Second) // tidying up, in the bubble's time
			mu.Lock()
			defer mu.Unlock()
			ended = append(ended, what)
		}
		s := newServer(&mcp.ServerOptions{
			RootsListChangedHandler: func(ctx context.Context, _ *mcp.RootsListChangedRequest) { until(ctx, "notification") },
		}, map[string]handler{"hang": func(ctx context.Context, _ *mcp.CallToolRequest) (string, error) {
			until(ctx, "tool")
			return "", ctx.Err()
		}})
		up := open(t, Shared("clock", s, Options{Log: slog.New(slog.NewTextHandler(&l, nil))}), &adaptertest.Client{})
		call := adaptertest.Go(t.Context(), t, up, nil, tool("hang", ""))
		synctest.Wait()
		adaptertest.Notify(t, up, `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
		synctest.Wait()
		_ = up.Close(context.Background())
		mu.Lock()
		slices.Sort(ended)
		if !slices.Equal(ended, []string{"notification", "tool"}) {
			t.Errorf("when Close returned, %q had ended", ended)
		}
		mu.Unlock()
		if o := <-call; !errors.Is(o.Err, bridge.ErrLost) {
			t.Errorf("the call ended with %s, %v", o.Answer, o.Err)
		}
		if got := l.String(); got != "" {
			t.Errorf("the log is %s", got)
		}
	})
}

// A handler that does not heed its context holds up Close for a while, and is
// then named in the log.
func TestCloseDoesNotHang(t *testing.T) {
	for _, c := range []struct {
		name string
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		want time.Duration
	}{
		{"no hurry", func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} }, 7 * time.Second},
		{"a deadline", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 3*time.Second)
		}, 3*time.Second + closeGrace},
		{"no time", func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, cancel
		}, closeGrace},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l adaptertest.Log
				release := make(chan struct{})
				s := newServer(nil, map[string]handler{"deaf": func(ctx context.Context, r *mcp.CallToolRequest) (string, error) {
					<-release
					if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: "t", Progress: 1}); err == nil {
						t.Error("what is said after the end is not refused")
					}
					return "late", nil
				}})
				rest := &adaptertest.Client{}
				up := open(t, Shared("clock", s, Options{Stop: 7 * time.Second, Log: slog.New(slog.NewTextHandler(&l, nil))}), rest)
				call := adaptertest.Go(t.Context(), t, up, nil, tool("deaf", ""))
				synctest.Wait()
				ctx, cancel := c.ctx(t.Context())
				defer cancel()
				began := time.Now()
				_ = up.Close(ctx)
				if took := time.Since(began); took != c.want {
					t.Errorf("Close took %v, want %v", took, c.want)
				}
				if o := <-call; !errors.Is(o.Err, bridge.ErrLost) {
					t.Errorf("the call ended with %s, %v", o.Answer, o.Err)
				}
				if got := l.String(); !strings.Contains(got, "still runs") || !strings.Contains(got, "method=tools/call") {
					t.Errorf("the log is %s", got)
				}
				close(release)
				synctest.Wait() // the bubble does not end before the handler
				rest.NoGone(t)
			})
		})
	}
}

// A handler that heeds its context is not taken for one that does not, even
// when Close has no time.
func TestCloseInHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l adaptertest.Log
		s := newServer(nil, map[string]handler{"hang": func(ctx context.Context, _ *mcp.CallToolRequest) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}})
		up := open(t, Shared("clock", s, Options{Log: slog.New(slog.NewTextHandler(&l, nil))}), &adaptertest.Client{})
		call := adaptertest.Go(t.Context(), t, up, nil, tool("hang", ""))
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = up.Close(ctx)
		if n := len(slices.Collect(s.Sessions())); n != 0 {
			t.Errorf("%d sessions are left", n)
		}
		<-call
		if got := l.String(); got != "" {
			t.Errorf("the log is %s", got)
		}
	})
}

// a server that ends its session by itself: pending calls get an error,
// and the client is notified once.
func TestServerEndsSession(t *testing.T) {
	asked := make(chan struct{})
	s := newServer(nil, map[string]handler{"hang": func(ctx context.Context, r *mcp.CallToolRequest) (string, error) {
		close(asked)
		<-ctx.Done()
		return "", ctx.Err()
	}})
	rest := &adaptertest.Client{}
	up := open(t, Shared("clock", s, quiet(Options{})), rest)
	session := slices.Collect(s.Sessions())[0]
	ctx, cancel := context.WithCancel(t.Context())
	call := adaptertest.Go(ctx, t, up, nil, tool("hang", ""))
	<-asked
	closed := make(chan error)
	go func() { closed <- session.Close() }()
	cancel() // the SDK lets calls in flight finish
	<-call
	if err := <-closed; err != nil {
		t.Errorf("the session's Close: %v", err)
	}
	if err := rest.WaitGone(t); !errors.Is(err, bridge.ErrLost) || !strings.Contains(err.Error(), "it ended the session") {
		t.Errorf("Gone(%v)", err)
	}
	if o := adaptertest.Call(t.Context(), t, up, nil, tool("hang", "")); !errors.Is(o.Err, bridge.ErrUnsent) && !errors.Is(o.Err, bridge.ErrLost) {
		t.Errorf("a later call ended with %s, %v", o.Answer, o.Err)
	}
	_ = up.Close(t.Context())
	if gone := rest.Gones(); len(gone) != 1 {
		t.Errorf("Gone was called %d times", len(gone))
	}
}

// The SDK's own pings are answered, and stop with the connection.
func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rest := &adaptertest.Client{}
		s := newServer(&mcp.ServerOptions{KeepAlive: time.Second}, nil)
		up := open(t, Shared("clock", s, quiet(Options{})), rest)
		<-time.After(time.Minute)
		if gone := rest.Gones(); len(gone) > 0 || up.Err() != nil {
			t.Errorf("Gone(%v), %v", gone, up.Err())
		}
		_ = up.Close(t.Context())
	})
	ignore := goleak.IgnoreCurrent()
	s := newServer(&mcp.ServerOptions{KeepAlive: time.Hour}, nil)
	up := open(t, Shared("clock", s, quiet(Options{})), &adaptertest.Client{})
	_ = up.Close(t.Context())
	goleak.VerifyNone(t, ignore)
}

// The guard leaves alone what is not the adapter's, is added once, and keeps no
// server alive.
func TestGuard(t *testing.T) {
	s := newServer(nil, map[string]handler{"fine": func(ctx context.Context, _ *mcp.CallToolRequest) (string, error) {
		s, ours := ctx.Value(upstreamKey{}).(*session)
		if !ours {
			return "not guarded", nil
		}
		s.runs.mu.Lock()
		defer s.runs.mu.Unlock()
		return fmt.Sprint("guards: ", s.runs.by["tools/call"]), nil // each guard counts
	}})
	a := Shared("clock", s, quiet(Options{}))
	for range 3 {
		up := open(t, a, &adaptertest.Client{})
		if got := said(t, adaptertest.Call(t.Context(), t, up, nil, tool("fine", ""))); got != "guards: 1" {
			t.Errorf("the tool said %q", got)
		}
	}
	if n := len(a.guards.have); n != 1 {
		t.Errorf("%d servers have the guard, want 1", n)
	}
	near, far := mcp.NewInMemoryTransports()
	session, err := s.Connect(t.Context(), near, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil).Connect(t.Context(), far, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "fine"})
	if err != nil || r.Content[0].(*mcp.TextContent).Text != "not guarded" {
		t.Errorf("CallTool = %v, %v", r, err)
	}
	_ = client.Close()
	_ = session.Wait()

	b := New("clock", func(*bridge.Caller) *mcp.Server { return newServer(nil, nil) }, quiet(Options{}))
	for range 20 {
		up, err := b.Open(t.Context(), caller(), &adaptertest.Client{})
		if err != nil {
			t.Fatal(err)
		}
		_ = up.Close(t.Context())
	}
	for n := 1; n > 0; {
		runtime.GC()
		b.guards.mu.Lock()
		n = len(b.guards.have)
		b.guards.mu.Unlock()
		runtime.Gosched()
	}
}
