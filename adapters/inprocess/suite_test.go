package inprocess

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quiet(o Options) Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// fake is an adapter with the suite's server behind the queue, in place of the
// SDK's. hold, if not nil, keeps it from reading on after the handshake.
func fake(o Options, hold <-chan struct{}) *Adapter {
	a := New("fake", nil, quiet(o))
	a.join = func(u *session, _ *bridge.Caller) (func() error, error) {
		dead := false
		s := &adaptertest.Server{
			Send: func(_, line []byte) {
				m, err := jsonrpc.Parse(line)
				if err != nil {
					panic(err)
				}
				_ = u.limited(m) // a connection that has ended ends in take too
			},
			Die: func() { dead = true },
		}
		return func() error {
			for n := 0; !dead; n++ {
				if n == 2 && hold != nil {
					<-hold
				}
				o, err := u.queue.Take()
				if err != nil {
					return err
				}
				s.Receive(o.Line.B)
				o.Line.Free()
			}
			return nil
		}, nil
	}
	return a
}

func TestAdapter(t *testing.T) {
	adaptertest.Run(t, func(*testing.T) bridge.Adapter { return fake(Options{}, nil) })
}

// D0.11: a server that asks on and on and reads no answer loses its connection
// before memory is full, and its calls end.
func TestServerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		rest := &adaptertest.Client{}
		a := fake(Options{MaxMessage: 1000}, hold)
		var s *session
		join := a.join
		a.join = func(up *session, from *bridge.Caller) (func() error, error) { s = up; return join(up, from) }
		up := adaptertest.Open(t, a, rest)
		call := adaptertest.Go(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`)
		synctest.Wait()
		pings := 0
		for s.Err() == nil && pings < 1000 {
			pings++
			m := adaptertest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":"%d","method":"ping"}`, pings))
			_ = s.deliver(m)
		}
		if pings < 20 || pings == 1000 {
			t.Errorf("the connection ended after %d pings", pings)
		}
		if o := <-call; !errors.Is(o.Err, bridge.ErrLost) || !strings.Contains(o.Err.Error(), unreadWhy) {
			t.Errorf("the call ended with %q, %v", o.Answer, o.Err)
		}
		close(hold)
		if err := rest.WaitGone(t); !errors.Is(err, bridge.ErrLost) || !strings.Contains(err.Error(), unreadWhy) {
			t.Errorf("Gone(%v)", err)
		}
	})
}

// what is above the limit costs the request it belongs to, not the
// connection. A question that is too large is refused.
func TestTooLarge(t *testing.T) {
	rest := &adaptertest.Client{}
	up := adaptertest.Open(t, fake(Options{MaxMessage: 1000}, nil), rest)
	pad := strings.Repeat("x", 1000+conn.EnvelopeRoom)
	o := adaptertest.Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"result":{"pad":"`+pad+`"}}}`)
	if o.Err != nil || !strings.Contains(o.Answer, "larger than the limit of 1000 bytes") || !strings.Contains(o.Answer, "upstream_too_large") {
		t.Errorf("the call ended with %.300q, %v", o.Answer, o.Err)
	}
	adaptertest.Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"result":{},"await":"larger than the limit","say":[`+
		`{"jsonrpc":"2.0","id":"big","method":"sampling/createMessage","params":{"pad":"`+pad+`"}},`+
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"pad":"`+pad+`"}}]}}`).Result(t)
	if got := rest.Said(); len(got) > 0 {
		t.Errorf("a notification above the limit was passed on: %.100q", got)
	}
	if o := adaptertest.Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"result":{"n":1}}}`).Result(t); o != `{"n":1}` {
		t.Errorf("result = %s", o)
	}
}
