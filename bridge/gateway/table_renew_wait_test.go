package gateway

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/guard/drain"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// startsIn has a server need that long to start.
func startsIn(f *fake, d time.Duration) {
	f.before = func(ctx context.Context, _ int) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// A call that waits for the new connection is not lost when the server is renewed once more:
// it goes there if that is ready within the time to drain, and otherwise where calls go now.
func TestRenewTwice(t *testing.T) {
	for _, tc := range []struct {
		starts time.Duration
		by     string
	}{{8 * time.Second, "two"}, {40 * time.Second, "three"}} {
		_, first := sells("fake", "a")
		slow, second := renewed("fake", "two", "b")
		startsIn(slow, tc.starts)
		_, third := renewed("fake", "three", "b")
		shifting(t, func(t *testing.T, b *shift) {
			s, _ := begin(t, b.gateway, "")
			b.apply("fake", second)
			call := start(t, s, `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"b"}}`)
			if time.Sleep(3 * time.Second); call.over() {
				t.Fatalf("it has not waited: %s", call.answer)
			}
			b.apply("fake", third)
			if time.Sleep(4 * time.Second); call.over() {
				t.Errorf("before the server has started: %s", call.answer)
			}
			if time.Sleep(10 * time.Second); !call.over() || !strings.Contains(call.answer, `"by":"`+tc.by+`"`) {
				t.Errorf("a server that starts in %s: %s", tc.starts, call.answer)
			}
			if time.Sleep(time.Minute); b.left() != "fake fake" {
				t.Errorf("gone: %q", b.left())
			}
			if st := b.Status()[0]; st.Sessions != 1 || st.Lanes > 1 {
				t.Errorf("%d sessions, %d connections", st.Sessions, st.Lanes)
			}
		}, first)
	}
}

// A server that has become another one by mistake does not end a session whose calls go to
// the next one already, also if it was only found out then.
func TestRenewMistake(t *testing.T) {
	_, first := sells("fake", "a")
	mistake, second := renewed("fake", "two", "b")
	mistake.result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"two","version":"1"}}`
	startsIn(mistake, 5*time.Second)
	_, third := renewed("fake", "three", "b")
	shifting(t, func(t *testing.T, b *shift) {
		s, _ := begin(t, b.gateway, "")
		b.apply("fake", second)
		call := start(t, s, `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"b"}}`)
		time.Sleep(time.Second)
		b.apply("fake", third)
		if time.Sleep(10 * time.Second); !call.over() || !strings.Contains(call.answer, `"by":"three"`) {
			t.Errorf("a call that has waited for the mistake: %s", call.answer)
		}
		if err := context.Cause(s.ctx); err != nil {
			t.Errorf("the session has ended: %v", err)
		}
	}, first)
}

// What a client has set over the former connection reaches the next one also if the client
// does not wait for that.
func TestRenewSetsCancelled(t *testing.T) {
	const want = `"resources/subscribe","params":{"uri":"fake:2"}`
	before, first := sells("fake", "a")
	after, next := renewed("fake", "new", "b")
	shifting(t, func(t *testing.T, b *shift) {
		hold := func(f *fake) chan *jsonrpc.Message {
			asked, serve := make(chan *jsonrpc.Message, 1), f.serve
			f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
				if m.Method != "resources/subscribe" {
					return serve(f, m)
				}
				asked <- m.Clone()
				return true
			}
			return asked
		}
		old, fresh := hold(before), hold(after)
		s, _ := begin(t, b.gateway, "")
		sets := start(t, s, `{"jsonrpc":"2.0","id":9,"method":"resources/subscribe","params":{"uri":"fake:2"}}`)
		synctest.Wait()
		b.apply("fake", next)
		bridgetest.Contains(t, do(t, s, "2", "tools/call", `{"name":"b"}`), `"by":"new"`)
		before.wire(1).answer(<-old, "{}")
		synctest.Wait()
		s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}`), nil)
		if !sets.over() {
			t.Error("a call that its client has cancelled goes on")
		}
		got := strings.Join(after.wire(1).received(), "\n")
		if bridgetest.Contains(t, got, want); strings.Contains(got, "notifications/cancelled") {
			t.Errorf("what was set is taken back:\n%s", got)
		}
		after.wire(1).answer(<-fresh, "{}")
	}, first)
}

// What a client sets over the former connection while the next one is told what it has set
// counts there too.
func TestRenewSets(t *testing.T) {
	for _, tc := range []struct{ method, params, want string }{
		{"resources/subscribe", `{"uri":"fake:2"}`, `"resources/subscribe","params":{"uri":"fake:2"}`},
		{"resources/unsubscribe", `{"uri":"fake:1"}`, `"resources/unsubscribe","params":{"uri":"fake:1"}`},
		{"logging/setLevel", `{"level":"debug"}`, `"logging/setLevel","params":{"level":"debug"}`},
	} {
		before, first := sells("fake", "a")
		after, next := renewed("fake", "new", "b")
		shifting(t, func(t *testing.T, b *shift) {
			s, _ := begin(t, b.gateway, "")
			do(t, s, "1", "resources/subscribe", `{"uri":"fake:1"}`)
			asked := make(chan *jsonrpc.Message, 1)
			serve := before.serve
			before.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
				if m.Method != tc.method {
					return serve(f, m)
				}
				asked <- m.Clone()
				return true
			}
			sets := start(t, s, `{"jsonrpc":"2.0","id":9,"method":"`+tc.method+`","params":`+tc.params+`}`)
			synctest.Wait()
			b.apply("fake", next)
			bridgetest.Contains(t, do(t, s, "2", "tools/call", `{"name":"b"}`), `"by":"new"`)
			if got := strings.Join(after.wire(1).received(), "\n"); strings.Contains(got, tc.want) {
				t.Fatalf("%s: it was told already\n%s", tc.method, got)
			}
			before.wire(1).answer(<-asked, "{}")
			if !sets.over() || !strings.Contains(sets.answer, `"result":{}`) {
				t.Errorf("%s: %s", tc.method, sets.answer)
			}
			bridgetest.Contains(t, strings.Join(after.wire(1).received(), "\n"), tc.want)
		}, first)
	}
}

// An operator drains a server, changes it, and has it take calls again: meanwhile nothing is
// opened but for what belongs to earlier calls, and then clients that only listen hear of it.
func TestRenewDrained(t *testing.T) {
	_, first := sells("fake", "a")
	after, next := renewed("fake", "new", "b")
	for _, task := range []bool{false, true} {
		after.mu.Lock()
		after.wires, after.opens = nil, nil
		after.mu.Unlock()
		shifting(t, func(t *testing.T, b *shift) {
			s, st := begin(t, b.gateway, "")
			do(t, s, "1", "resources/subscribe", `{"uri":"fake:1"}`)
			ended, _ := begin(t, b.gateway, "")
			do(t, ended, "1", "resources/subscribe", `{"uri":"fake:1"}`)
			order := b.drains.Of("fake")
			order.Set(&drain.Order{By: "ops", Since: time.Now()})
			b.apply("fake", next)
			for range 3 {
				detach := s.Attach(&stream{})
				synctest.Wait()
				detach()
			}
			bridgetest.Contains(t, do(t, s, "2", "tools/call", `{"name":"b"}`), "draining")
			if n := after.opened(); n != 0 {
				t.Errorf("%d connections were opened to a server that takes no calls", n)
			}
			if task {
				bridgetest.Lacks(t, do(t, s, "3", "tasks/get", `{"taskId":"t"}`), "draining")
				if n := after.opened(); n != 1 {
					t.Errorf("%d connections were opened for a task", n)
				}
			}
			ended.End(bridge.ErrEnded)
			synctest.Wait()
			order.Set(nil)
			synctest.Wait()
			if got := strings.Join(after.wire(1).received(), "\n"); strings.Count(got, "resources/subscribe") != 1 || after.opened() != 1 {
				t.Errorf("%d connections were opened; the first was told\n%s", after.opened(), got)
			}
			bridgetest.Contains(t, strings.Join(st.take(), "\n"), `resources/updated","params":{"uri":"fake:1"}`) // it may have changed meanwhile
			time.Sleep(time.Second)
			after.wire(1).say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"fake:1"}}`)
			synctest.Wait()
			bridgetest.Contains(t, strings.Join(st.take(), "\n"), "fake:1")
		}, first)
	}
}
