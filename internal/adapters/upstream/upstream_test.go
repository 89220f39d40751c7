package upstream_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/adapters/upstream"
	"github.com/mcp-bridge/bridge/internal/conn"
	"github.com/mcp-bridge/bridge/jsonrpc"
)

const server = upstream.Name("fake")

// What was lost while a connection was opened is no loss of anybody's request; what
// is wrong otherwise is said as it was.
func TestUnopened(t *testing.T) {
	cause := errors.New("cause")
	declined := server.Rejected("no", cause)
	for _, tc := range []struct {
		err  error
		kind error
		want string
	}{
		{server.Lost("its stream has ended", cause), bridge.ErrUnavailable, "server fake: handshake: its stream has ended: cause"},
		{server.Invalid("nonsense", nil), bridge.ErrUnavailable, "server fake: handshake: nonsense"},
		{server.Unsent("its connection has ended", nil), bridge.ErrUnavailable, "server fake: handshake: its connection has ended"},
		{declined, bridge.ErrRejected, declined.Error()},
		{cause, cause, "cause"},
	} {
		if got := server.Unopened(tc.err); !errors.Is(got, tc.kind) || errors.Is(got, bridge.ErrLost) || got.Error() != tc.want {
			t.Errorf("%v became %v, want %q", tc.err, got, tc.want)
		}
	}
	if got := server.Ended(server.Lost("its process has ended", nil), server.Unsent("x", cause)); got.Error() != "server fake: handshake: its process has ended: cause" {
		t.Errorf("the end of a child: %v", got)
	}
	if got := server.Ended(nil, declined); got != error(declined) {
		t.Errorf("without an end: %v", got)
	}
}

// Why a connection has ended is said once, whoever has noticed it first.
func TestEnded(t *testing.T) {
	over := server.Lost("its process has ended", nil)
	for _, tc := range []struct {
		err  error
		want string
	}{
		{server.Unsent("its process has ended", over), "server fake: handshake: its process has ended"},
		{over, "server fake: handshake: its process has ended"},
		{server.Lost("its process has ended", errors.New("broken pipe")), "server fake: handshake: its process has ended"},
		{server.Lost("it does not read its input", errors.New("broken pipe")), "server fake: handshake: its process has ended: broken pipe"},
		{errors.New("late"), "server fake: handshake: its process has ended"},
	} {
		if got := server.Ended(over, tc.err); got.Error() != tc.want {
			t.Errorf("%v became %v, want %q", tc.err, got, tc.want)
		}
	}
}

func TestLife(t *testing.T) {
	why := server.Lost("it has ended", nil)
	var never, open, closed upstream.Life
	if news, gone := never.End(why); !news || gone || never.Opened() != error(why) || never.IsOpen() {
		t.Error("a connection that ends before Open does was opened, or somebody is told")
	}
	if err := open.Opened(); err != nil || !open.IsOpen() {
		t.Error("not opened:", err)
	}
	if news, gone := open.End(why); !news || !gone || open.Over() != why {
		t.Error("nobody is told of the end")
	}
	closed.Close()
	if news, gone := closed.End(why); news || gone || closed.Over() != nil || !closed.IsClosed() {
		t.Error("somebody is told of what the bridge has closed")
	}
}

func TestSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var s upstream.Signal
		ctx, stop := context.WithCancelCause(t.Context())
		var wg sync.WaitGroup
		errs := make([]error, 3)
		for i := range errs {
			wg.Go(func() {
				mu.Lock()
				within := t.Context()
				if i == 0 {
					within = ctx
				}
				errs[i] = s.Await(within, &mu)
			})
		}
		synctest.Wait()
		why := errors.New("no patience")
		stop(why)
		synctest.Wait()
		mu.Lock()
		s.Wake()
		s.Wake() // nobody waits any more
		mu.Unlock()
		wg.Wait()
		if !errors.Is(errs[0], why) || errs[1] != nil || errs[2] != nil {
			t.Error(errs)
		}
	})
}

// nowhere is a wire that nothing is sent on.
type nowhere struct{ conn.Sender }

func TestParser(t *testing.T) {
	var log bytes.Buffer
	c := conn.New("fake", nowhere{}, bridge.Nobody{}, conn.Timeouts{})
	p := upstream.Parser{Conn: c, Log: slog.New(slog.NewTextHandler(&log, nil)), Warning: "lines dropped", Unit: "lines"}
	in := c.Intake()
	var got []string
	for _, text := range []string{
		`{"jsonrpc":"2.0","method":"a"}`, `hello`, `[{"jsonrpc":"2.0","method":"b"},7,{"jsonrpc":"2.0","method":"c"}]`, `[]`, `{"jsonrpc":"2.0","method":"d"}`,
	} {
		buf := jsonrpc.NewBuffer(len(text))
		buf.B = append(buf.B, text...)
		p.Parse(buf, buf.B, &in, func(m *jsonrpc.Message) { got = append(got, m.Method) })
	}
	if !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Error("messages:", got)
	}
	p.Warn()
	if text := log.String(); strings.Count(text, "lines dropped") != 2 || !strings.Contains(text, "lines=1") || !strings.Contains(text, "lines=2") {
		t.Errorf("the log is told at once, and of the rest at the end:\n%s", text)
	}
}

func TestFilled(t *testing.T) {
	if o := (upstream.Options{}).Filled("fake"); o.Log == nil || o.MaxMessage != 16<<20 {
		t.Errorf("%+v", o)
	}
	if o := (upstream.Options{MaxMessage: 5}).Filled("fake"); o.MaxMessage != 5 {
		t.Errorf("%+v", o)
	}
}
