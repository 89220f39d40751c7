package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// check returns what is wrong with the bookkeeping of a cache that nobody uses.
func (c *Cache) check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var bytes int64
	for _, e := range c.entries.Values() {
		bytes += e.size
	}
	switch {
	case bytes != c.bytes:
		return fmt.Errorf("the entries have %d bytes, and %d are counted", bytes, c.bytes)
	case len(c.fetches)+len(c.inFlight) > 0:
		return errors.New("a fetch is left")
	}
	return nil
}

// moody is a lane and its Upstream. Its lists have one page or two, come late, or fail.
type moody struct {
	bridge.Upstream
	greeting *bridge.Greeting
	mu       sync.Mutex // guards rng
	rng      *rand.Rand
}

func (m *moody) State() lane.State        { return lane.State(m.n(int(lane.Ended) + 1)) }
func (m *moody) Server() *bridge.Greeting { return m.greeting }

func (m *moody) n(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rng.IntN(n)
}

func (m *moody) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	select {
	case <-time.After(time.Duration(m.n(3)) * time.Second):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	switch m.n(8) {
	case 0:
		return nil, &bridge.Error{Kind: bridge.ErrLost, Public: "lost"}
	case 1:
		return jsonrpc.NewError(nil, jsonrpc.CodeInternal, "no", nil), nil
	case 2:
		return jsonrpc.NewResult(nil, []byte(`{"tools":[{"name":"a"}],"nextCursor":"2"}`)), nil
	case 3:
		return jsonrpc.NewResult(nil, []byte(`{"tools":[]}`)), nil
	}
	return jsonrpc.NewResult(nil, fmt.Appendf(nil, `{"tools":[{"name":"%0*d"}]}`, 1+m.n(900), 1)), nil
}

// The bookkeeping is right after any sequence of calls and changes.
func TestBooks(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 2))
			c := New(Options{Lists: time.Duration(seed%4) * time.Second, Bytes: 8 << 10, Shared: seed%5 == 0}, Server{
				Name: "moody", Process: seed%2 == 0, Shared: seed%3 == 0, Log: slog.New(slog.DiscardHandler),
			})
			defer c.Close()
			var calls sync.WaitGroup
			for range 4 {
				from := &bridge.Caller{Principal: fmt.Sprint("p", rng.IntN(2)), Revision: era.LatestLegacy}
				caps := []byte(`{"tools":{"listChanged":true}}`)
				m := &moody{greeting: &bridge.Greeting{Revision: era.LatestLegacy, Capabilities: caps}, rng: rand.New(rand.NewPCG(seed, 3))}
				s := c.Source(from)
				up := s.Wrap(m, m)
				for range 60 {
					switch rng.IntN(9) {
					case 0:
						c.Forget()
					case 1:
						s.Notified(jsonrpc.NewNotification("notifications/tools/list_changed", nil))
					case 2:
						s.Reopened(rng.IntN(2) == 0)
					case 3:
						c.Set(Options{Lists: time.Duration(rng.IntN(4)) * time.Second, Bytes: 8 << 10})
					case 4:
						[]func(){s.Ended, s.Replaced, func() { c.Heard(jsonrpc.NewNotification("notifications/tools/list_changed", nil)) }}[rng.IntN(3)]()
					default:
						params := []string{`{}`, `{"cursor":"2"}`, `{"cursor":"3"}`}[rng.IntN(3)]
						ctx, end := context.WithTimeout(t.Context(), time.Duration(rng.IntN(3000))*time.Millisecond)
						m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":`+params+`}`)
						calls.Go(func() {
							defer end()
							a, _ := up.Call(ctx, &bridge.Request{Message: m, From: from, Back: bridge.Nobody{}})
							a.Release()
						})
					}
					time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
				}
			}
			calls.Wait()
			time.Sleep(maxFetch)
			synctest.Wait()
			if err := c.check(); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
	}
}
