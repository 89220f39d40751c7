package lane_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// portable is a server whose connections another process can resume.
type portable struct{ *server }

func (p portable) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	if _, err := p.server.Open(ctx, from, rest); err != nil {
		return nil, err
	}
	return carried{conn{p.server, "{}"}}, nil
}

func (p portable) Resume(_ context.Context, _ *bridge.Caller, rest bridge.Client, carry []byte, above int64) (bridge.Upstream, error) {
	if string(carry) != "conversation" || above != 7 {
		return nil, errors.New("it is none of this server's")
	}
	p.note("resume")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rest = rest
	return carried{conn{p.server, "{}"}}, nil
}

type carried struct{ conn }

func (carried) ResumeData() []byte { return []byte("conversation") }
func (c carried) Detach()          { c.s.note("leave") }

// stay is a session that another instance may resume.
type stay struct {
	s     *server
	carry []byte
	moves bool
	sure  error
}

func (s *stay) Confirm(context.Context) error { return s.sure }
func (s *stay) SaveResume(_ string, carry []byte) {
	s.s.note("carried " + string(carry))
}
func (s *stay) TakeResume(string) ([]byte, int64) {
	carry := s.carry
	s.carry = nil
	return carry, 7
}
func (s *stay) HandedOver() bool { return s.moves }

// A lane resumes the connection of another instance, once, and hands over its own. A connection that is closed
// for good is not handed over.
func TestCarry(t *testing.T) {
	for _, c := range []struct {
		name  string
		carry string
		moves bool
		bound bool // restart: false
		want  []string
	}{
		{name: "nothing to go on with", want: []string{"open", "carried conversation", "ping", "close"}},
		{name: "another's", carry: "conversation", want: []string{"resume", "carried conversation", "ping", "close"}},
		{name: "handed on", carry: "conversation", moves: true, want: []string{"resume", "carried conversation", "ping", "leave", "close"}},
		{name: "not readable", carry: "x", want: []string{"open", "carried conversation", "ping", "close"}},
		{name: "not readable, and never a second face", carry: "x", bound: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				o := options(s)
				o.Adapter = portable{s}
				o.Set(lane.Settings{EndWithServer: c.bound, Restarts: 30, MaxPause: time.Minute})
				st := &stay{s: s, carry: []byte(c.carry)}
				if c.carry == "" {
					st.carry = nil
				}
				client := &leaver{}
				l := lane.New(o, &bridge.Caller{}, lane.Ends{Client: client, Observer: unseen{}, Handover: st})
				if err := call(t, l, "ping", "{}"); (err != nil) != (c.want == nil) {
					t.Errorf("ping = %v", err)
				}
				if ended := client.gone != nil; ended != (c.want == nil) {
					t.Errorf("the session's end = %v", client.gone)
				}
				st.moves = c.moves
				_ = l.Close(t.Context())
				if got := s.take(); !slices.Equal(got, c.want) {
					t.Errorf("the server saw %q, want %q", got, c.want)
				}
			})
		})
	}
}

// leaver is a client whose session ends with its server.
type leaver struct {
	bridge.Nobody
	gone error
}

func (l *leaver) Gone(err error) { l.gone = err }

// Without a connection there is nothing to resume.
func TestCarryLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		o := options(s)
		o.Adapter = portable{s}
		l := lane.New(o, &bridge.Caller{}, lane.Ends{Client: bridge.Nobody{}, Observer: unseen{}, Handover: &stay{s: s, carry: []byte("conversation")}})
		_ = call(t, l, "ping", "{}")
		s.rest.Gone(&bridge.Error{Kind: bridge.ErrLost, Public: "it died"})
		_ = call(t, l, "ping", "{}")
		if got, want := s.take(), []string{"resume", "carried conversation", "ping", "carried ", "close", "open", "carried conversation", "ping"}; !slices.Equal(sorted(got), sorted(want)) {
			t.Errorf("the server saw %q, want %q", got, want)
		}
		time.Sleep(2 * time.Hour) // it becomes idle
		if got, want := s.take(), []string{"carried ", "close"}; !slices.Equal(got, want) {
			t.Errorf("after a long time the server saw %q, want %q", got, want)
		}
		_ = l.Close(t.Context())
	})
}

func sorted(all []string) []string { return slices.Sorted(slices.Values(all)) }

// A call that waited for its connection is not sent if another instance may have the session by then (S-012).
func TestSure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		l := lane.New(options(s), &bridge.Caller{}, lane.Ends{Client: bridge.Nobody{}, Observer: unseen{}})
		defer l.Close(t.Context())
		st := &stay{s: s, sure: errors.New("another instance has the session")}
		ask := func() error {
			_, err := l.Call(t.Context(), &bridge.Request{Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`), From: &bridge.Caller{Handover: st}})
			return err
		}
		if err := ask(); !errors.Is(err, st.sure) {
			t.Errorf("a call of a session that another instance may have = %v", err)
		}
		st.sure = nil
		if err := ask(); err != nil {
			t.Error(err)
		}
		if got, want := s.take(), []string{"open", "tools/call"}; !slices.Equal(got, want) {
			t.Errorf("the server saw %q, want %q", got, want)
		}
	})
}

// unseen is an Observer that ignores everything.
type unseen struct{}

func (unseen) Reopened(bool)             {}
func (unseen) Replaced()                 {}
func (unseen) Ended()                    {}
func (unseen) Notified(*jsonrpc.Message) {}

// queued is a server whose openings wait for their turn.
type queued struct {
	*server
	takes time.Duration
}

func (queued) BoundsOpenings() time.Duration { return time.Minute }

func (q queued) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	select {
	case <-time.After(q.takes):
		return q.server.Open(ctx, from, rest)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// The time limit of a handshake does not include the wait for the opening's turn.
func TestQueuedHandshake(t *testing.T) {
	for takes, fails := range map[time.Duration]bool{time.Minute: false, 3 * time.Minute: true} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{}
			o := options(s)
			o.Adapter, o.Handshake = queued{s, takes}, time.Second
			l := lane.New(o, &bridge.Caller{}, lane.Ends{Client: &leaver{}, Observer: unseen{}})
			if err := call(t, l, "ping", "{}"); (err != nil) != fails {
				t.Errorf("an opening that takes %v: %v", takes, err)
			}
			_ = l.Close(t.Context())
		})
	}
}
