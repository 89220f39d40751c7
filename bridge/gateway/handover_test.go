package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/guard/drain"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// renewed makes the options of a server whose connections are made in another way, and
// which tells by its name that they are.
func renewed(name, by, tool string) (*fake, ServerOptions) {
	f, s := sells(by, tool)
	f.result = strings.Replace(f.result, `"x-`+by, `"x-`+name, 1) // it can do what it could
	s.Name, s.Prefix, s.Renew = name, name+"__", true
	return f, s
}

// answersLater has a tool of a server's answer when it is told.
func answersLater(f *fake) (answer func(n int, result string)) {
	serve := f.serve
	var mu sync.Mutex
	var asked *jsonrpc.Message
	f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Name() != "hang" {
			return serve(f, m)
		}
		mu.Lock()
		defer mu.Unlock()
		asked = m.Clone()
		return true
	}
	return func(n int, result string) {
		mu.Lock()
		defer mu.Unlock()
		f.wire(n).answer(asked, result)
	}
}

const laterCall = `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"hang"}}`

func renewUnderLoad(t *testing.T, how Share) {
	next := func() ServerOptions {
		_, s := renewed("fake", "fake", "a")
		s.Share, s.MaxChildren, s.StartsPerMinute = how, 10_000, 1_000_000
		return s
	}
	b := &shift{gateway: newGateway(Options{Servers: []ServerOptions{next()}, Log: slog.New(slog.DiscardHandler), MaxLanes: 10_000, Watch: func(report.Report) {}})}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range scaletest.Of(16, 40) {
		s, _ := begin(t, b.gateway, "")
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				time.Sleep(40 * time.Millisecond) // of the bubble, as below
				if a := do(t, s, "1", "tools/call", `{"name":"a"}`); !strings.Contains(a, `"by":"fake"`) {
					t.Errorf("a call has failed: %s", a)
					return
				}
				if i%4 == 0 && n%10 == 9 { // others begin
					s.End(bridge.ErrEnded)
					s, _ = begin(t, b.gateway, "")
				}
			}
		})
	}
	const times = 25
	for range times {
		b.apply("fake", next())
		time.Sleep(40 * time.Millisecond) // former settings go meanwhile
	}
	stop()
	wg.Wait()
	b.Close(context.Background())
	if n, gone := b.lanes.Open(), fmt.Sprint(len(b.gone)); n != 0 || gone != fmt.Sprint(times) {
		t.Errorf("%d lanes are left, and %s former settings have gone, want %d", n, gone, times)
	}
}

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

// A session goes on with a new connection: its next call uses it, what it has set is there
// again, its client is told, and the former connection is closed when its calls have ended.
func TestRenew(t *testing.T) {
	before, first := sells("fake", "a")
	answer := answersLater(before)
	after, next := renewed("fake", "new", "b")
	shifting(t, func(t *testing.T, b *shift) {
		s, st := begin(t, b.gateway, "")
		bridgetest.Contains(t, do(t, s, "1", "logging/setLevel", `{"level":"error"}`), `"result"`)
		bridgetest.Contains(t, do(t, s, "2", "resources/subscribe", `{"uri":"fake:1"}`), `"result"`)
		under := start(t, s, laterCall)
		synctest.Wait()
		changes(st)
		b.apply("fake", next)
		synctest.Wait()
		if changes(st) == 0 {
			t.Error("the client is not told that the tools may be others")
		}
		got := strings.Join(after.wire(1).received(), "\n")
		if strings.Count(got, `"resources/subscribe"`) != 1 || !strings.Contains(got, "fake:1") || strings.Count(got, "logging/setLevel") != 1 {
			t.Errorf("the new connection was told\n%s", got)
		}
		bridgetest.Contains(t, do(t, s, "3", "tools/call", `{"name":"b"}`), `"by":"new"`)
		same(t, "its tools", names(t, do(t, s, "4", "tools/list", "{}")), []string{"b"})
		if time.Sleep(5 * time.Second); under.over() || b.left() != "" {
			t.Fatalf("the call under way has ended: %s; gone %q", under.answer, b.left())
		}
		answer(1, `{"late":true}`)
		time.Sleep(time.Second)
		if !under.over() || !strings.Contains(under.answer, `"late":true`) || b.left() != "fake" {
			t.Errorf("the call under way: %s; gone %q", under.answer, b.left())
		}
		if before.wire(1).Fail(errors.New("late")) {
			t.Error("the former connection is open")
		}
		after.wire(1).say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"fake:1"}}`)
		synctest.Wait()
		bridgetest.Contains(t, strings.Join(st.take(), "\n"), "fake:1")
		if st := b.Status()[0]; st.Sessions != 1 || st.Lanes != 1 {
			t.Errorf("%d sessions, %d connections", st.Sessions, st.Lanes)
		}
	}, first)
}

// A call that hangs is given up after the time to drain, and the session goes on. The former connection of a session without
// calls is closed at once, whatever others do.
func TestRenewDrain(t *testing.T) {
	before, first := sells("fake", "a")
	answersLater(before)
	_, next := renewed("fake", "new", "b")
	shifting(t, func(t *testing.T, b *shift) {
		s, _ := begin(t, b.gateway, "")
		_, _ = begin(t, b.gateway, "")
		under := start(t, s, laterCall)
		synctest.Wait()
		b.apply("fake", next)
		if synctest.Wait(); before.wire(2).Fail(errors.New("late")) {
			t.Error("the connection of who does nothing is open")
		}
		if time.Sleep(9 * time.Second); under.over() {
			t.Errorf("before the time is over: %s", under.answer)
		}
		if time.Sleep(2 * time.Second); !under.over() || !errors.Is(under.err, bridge.ErrLost) || b.left() != "fake" {
			t.Errorf("after it: %v; gone %q", under.err, b.left())
		}
		bridgetest.Contains(t, do(t, s, "3", "tools/call", `{"name":"b"}`), `"by":"new"`)
	}, first)
}

// The loss of the former connection meanwhile is no reason to end a session, and a session
// that began under older settings gets the new connection too.
func TestRenewOlder(t *testing.T) {
	zero, first := sells("fake", "a")
	answersLater(zero)
	_, second := sells("fake", "b")
	_, third := renewed("fake", "new", "c")
	for i, end := range []bool{false, true} {
		zero.mu.Lock()
		zero.wires, zero.opens = nil, nil
		zero.mu.Unlock()
		first.EndWithServer = end
		shifting(t, func(t *testing.T, s *shift) {
			old, _ := begin(t, s.gateway, "")
			s.apply("fake", second)
			time.Sleep(time.Second)
			younger, _ := begin(t, s.gateway, "")
			under := start(t, old, laterCall)
			synctest.Wait()
			s.apply("fake", third)
			bridgetest.Contains(t, do(t, younger, "1", "tools/call", `{"name":"c"}`), `"by":"new"`)
			if !end {
				zero.wire(1).die()
				synctest.Wait()
				bridgetest.Contains(t, do(t, old, "1", "tools/call", `{"name":"c"}`), `"by":"new"`)
			}
			time.Sleep(30 * time.Second)
			select {
			case <-old.Done():
				if !end {
					t.Errorf("case %d: the session has ended: %v", i, context.Cause(old.ctx))
				}
			default:
				if end {
					t.Error("with restart: false, the session is open")
				}
			}
			if !under.over() || s.left() != "fake fake" {
				t.Errorf("case %d: the call under way: %s; gone %q", i, under.answer, s.left())
			}
			bridgetest.Contains(t, do(t, younger, "2", "tools/call", `{"name":"c"}`), `"by":"new"`)
		}, first)
	}
}

// A server that has become another one ends the session: what the client was told of it
// holds no more.
func TestRenewOther(t *testing.T) {
	_, first := sells("fake", "a")
	other, next := renewed("fake", "new", "b")
	other.result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"new","version":"1"}}`
	shifting(t, func(t *testing.T, b *shift) {
		s, _ := begin(t, b.gateway, "")
		b.apply("fake", next)
		bridgetest.Contains(t, do(t, s, "3", "tools/call", `{"name":"b"}`), "initialize again")
		select {
		case <-s.Done():
		default:
			t.Error("the session is open")
		}
	}, first)
}

// Sessions begin, call and end while their server is renewed again and again, for every way
// to share it: no call fails, and nothing is left.
func TestRenewUnderLoad(t *testing.T) {
	for _, how := range []Share{ShareSession, SharePrincipal, ShareAll, ShareCall} {
		t.Run(string(how), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { renewUnderLoad(t, how) }) })
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
