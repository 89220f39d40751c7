package drain

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// server is one that answers everything.
type server struct{ bridge.Upstream }

func (server) Call(context.Context, *bridge.Request) (*jsonrpc.Message, error) {
	return jsonrpc.NewResult(nil, []byte("{}")), nil
}

const legacy = era.LatestLegacy

// New calls are refused while an order counts; what has begun before goes on.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if up := (server{}); New(false).Of("files").Wrap(up) != bridge.Upstream(up) || New(false).Of("files").Err() != nil {
			t.Error("without operators there is something in the way")
		}
		all := New(true)
		s := all.Of("files")
		up := s.Wrap(server{})
		call := func(revision, method, params string) error {
			m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)
			r := &bridge.Request{Message: m, From: &bridge.Caller{Revision: revision}}
			_, err := up.Call(t.Context(), r)
			if again := s.Refuses(m, r.From); (again == nil) != (err == nil) {
				t.Errorf("%s %s: %v, and Refuses says %v", method, params, err, again)
			}
			if _, err := up.Call(Passing(t.Context()), r); err != nil || s.Refuses(nil, r.From) != nil {
				t.Errorf("%s of the bridge's own: %v", method, err)
			}
			return err
		}
		if err := call(legacy, "tools/call", `{"name":"x"}`); err != nil {
			t.Errorf("without an order: %v", err)
		}
		s.Set(&Order{By: "ops", Since: time.Now(), Until: time.Now().Add(time.Minute)})
		if all.Of("files") != s || all.Of("other").Now() != nil {
			t.Error("an order is lost, or is another server's")
		}
		for _, tc := range []struct {
			method, params  string
			refused, modern bool // by a client of 2025-11-25, and by one of 2026-07-28
		}{
			{"initialize", "{}", true, true}, {"tools/call", `{"name":"x"}`, true, true}, {"tools/list", "{}", true, true}, {"server/discover", "{}", true, true}, {"tasks/list", "{}", true, true},
			{"subscriptions/listen", "{}", true, true}, {"resources/subscribe", "{}", true, true}, {"tools/call", `{"name":"requestState","arguments":{"requestState":"x"}}`, true, true},
			{"tasks/get", "{}", false, false}, {"tasks/cancel", "{}", false, false}, {"resources/unsubscribe", "{}", false, false},
			{"tools/call", `{"name":"x","requestState":"s"}`, true, false}, {"tools/call", `{"name":"x","inputResponses":{}}`, true, false},
		} {
			for revision, refused := range map[string]bool{legacy: tc.refused, era.LatestModern: tc.modern} {
				err := call(revision, tc.method, tc.params)
				if (err != nil) != refused || err != nil && (!errors.Is(err, bridge.ErrDrained) || !errors.Is(err, bridge.ErrUnavailable) || bridge.RetryAfter(err) != time.Minute) {
					t.Errorf("%s: %s %s: %v", revision, tc.method, tc.params, err)
				}
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := call(legacy, "tools/call", `{"name":"x"}`); err != nil || s.Now() != nil {
			t.Errorf("after its time: %v", err)
		}
		s.Set(&Order{})
		if err := call(legacy, "tools/call", "{}"); err == nil || bridge.RetryAfter(err) != 0 {
			t.Errorf("without an end: %v", err)
		}
		time.Sleep(100 * time.Hour)
		if s.Now() == nil {
			t.Error("an order without an end has ended")
		}
	})
}

// Who waits for the end of an order is told once, whether it is taken back or its time is
// over, and not by an order that another has replaced.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(true).Of("files")
		other := false
		s.Await(func() { t.Error("told without an order") }, func() func() { other = true; return nil })
		if !other {
			t.Error("without an order it is not waited for otherwise")
		}
		var told atomic.Int32
		never := func() func() { t.Error("waited for otherwise"); return nil }
		s.Set(&Order{Until: time.Now().Add(time.Minute)})
		s.Await(func() { told.Add(1) }, never)
		s.Await(func() { t.Error("told after stop") }, never)()
		s.Set(&Order{Until: time.Now().Add(time.Hour)})
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		if told.Load() != 0 {
			t.Error("told by an order that has been replaced")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if told.Load() != 1 {
			t.Errorf("told %d times by the end", told.Load())
		}
		s.Set(&Order{})
		s.Await(func() { told.Add(1) }, never)
		s.Set(nil)
		s.Set(nil)
		if told.Load() != 2 {
			t.Errorf("told %d times", told.Load())
		}
	})
}
