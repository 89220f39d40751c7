package lane_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
)

// starter is a server that can be started ahead.
type starter struct {
	server
	used  chan struct{} // closed by the first connection
	fault chan error    // the error that it ends with by itself
}

func (s *starter) StartAhead(ctx, _ context.Context) error {
	s.note("start")
	select {
	case <-s.used:
		return nil
	case err := <-s.fault:
		return err
	case <-ctx.Done():
		s.note("stop")
		return nil
	}
}

func (s *starter) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	close(s.used)
	return s.server.Open(ctx, from, rest)
}

// failing is a Health that records failures.
type failing struct {
	health
	s *server
}

func (f failing) Failed(err error) { f.s.note("failed: " + err.Error()) }

// A server that was started ahead has a slot until the first connection takes it over. An unused one is stopped,
// and one that fails is not started again. None is started if that is not allowed, or takes the slot of others.
func TestStartAhead(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(o *lane.Options)
		then   func(t *testing.T, o *lane.Options, s *starter, stop func())
		want   []string
		open   int64
	}{
		"used": {nil, func(t *testing.T, o *lane.Options, s *starter, _ func()) {
			o.Budget.Set(1) // there is no other slot
			l := lane.New(o, &bridge.Caller{}, lane.Ends{Client: bridge.Nobody{}, Observer: s})
			t.Cleanup(func() { _ = l.Close(context.Background()) })
			if err := call(t, l, "x", "{}"); err != nil {
				t.Error(err)
			}
		}, []string{"start", "open", "x"}, 1},
		"unused":   {nil, func(*testing.T, *lane.Options, *starter, func()) { time.Sleep(time.Hour) }, []string{"start", "stop"}, 0},
		"for ever": {func(o *lane.Options) { o.Idle = 0 }, func(*testing.T, *lane.Options, *starter, func()) { time.Sleep(10 * time.Minute) }, []string{"start", "stop"}, 0},
		"stopped":  {nil, func(_ *testing.T, _ *lane.Options, _ *starter, stop func()) { stop() }, []string{"start", "stop"}, 0},
		"failed":   {nil, func(_ *testing.T, _ *lane.Options, s *starter, _ func()) { s.fault <- errors.New("no key") }, []string{"start", "failed: no key"}, 0},
		"may not":  {func(o *lane.Options) { o.Ahead = false }, nil, nil, 0},
		"few places": {func(o *lane.Options) {
			o.Budget = lane.NewBudget("s", 2, limits.NewShares(2, 0), lane.NewTotal(1, limits.NewShares(1, 0)), nil)
		}, nil, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &starter{used: make(chan struct{}), fault: make(chan error)}
				o := options(&s.server)
				o.Adapter, o.Ahead, o.Health = s, true, failing{s: &s.server}
				total := lane.NewTotal(3, limits.NewShares(3, 0))
				o.Budget = lane.NewBudget("s", 2, limits.NewShares(2, 0), total, nil)
				if tc.before != nil {
					tc.before(o)
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				over := make(chan struct{})
				go func() {
					o.StartAhead(ctx, t.Context())
					close(over)
				}()
				synctest.Wait()
				if tc.then != nil {
					if n, open := total.Open(), o.Budget.Open(); n != 1 || open != 0 {
						t.Errorf("%d places are taken, %d connections open", n, open)
					}
					tc.then(t, o, s, stop)
				}
				<-over
				if got := s.take(); !slices.Equal(got, tc.want) || total.Open() != tc.open {
					t.Errorf("%q, %d places, want %q and %d", got, total.Open(), tc.want, tc.open)
				}
			})
		})
	}
}

// A client that comes while its server is being started ahead is not refused, although the only slot is taken.
func TestStartAheadMeanwhile(t *testing.T) {
	for range 300 {
		s := &starter{used: make(chan struct{}), fault: make(chan error)}
		o := options(&s.server)
		o.Adapter, o.Ahead = s, true
		total := lane.NewTotal(3, limits.NewShares(3, 0))
		o.Budget = lane.NewBudget("s", 1, limits.NewShares(1, 0), total, nil)
		var wg sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		wg.Go(func() { o.StartAhead(ctx, ctx) })
		l := lane.New(o, &bridge.Caller{}, lane.Ends{Client: bridge.Nobody{}, Observer: s})
		if err := call(t, l, "x", "{}"); err != nil {
			t.Error(err)
			stop() // the last use of the process ends
		}
		wg.Wait()
		if n, all := o.Budget.Open(), total.Open(); n != 1 || all != 1 {
			t.Errorf("%d connections are open, %d in all; want one", n, all)
		}
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
		stop()
	}
}
