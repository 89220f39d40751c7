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

// A server that leaves while a call waits for its list is not found any more.
func TestTablePrefixLeaves(t *testing.T) {
	_, first := sells("fake", "a")
	_, second := sells("two", "c")
	slow, next := sells("fake", "a")
	next.Prefix = "new."
	serve := slow.serve
	slow.serve = func(f *fakeWire, m *jsonrpc.Message) bool { return m.Method == "tools/list" || serve(f, m) }
	for _, name := range []string{"fake__a", "new.a", "other"} {
		shifting(t, func(t *testing.T, b *shift) {
			s, _, _ := enter(t, b.gateway)
			b.apply("fake two", next)
			call := start(t, s, `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"`+name+`"}}`)
			if time.Sleep(time.Second); call.over() {
				t.Fatalf("%s: it has not waited for the list: %s", name, call.answer)
			}
			b.apply("two")
			if time.Sleep(time.Minute); !call.over() || !strings.Contains(call.answer, `"error"`) {
				t.Errorf("%s: %s", name, call.answer)
			}
		}, first, second)
	}
}

// Who may not use the server that has a prefix now does not get to the one that had it.
func TestTablePrefixOfAnother(t *testing.T) {
	for _, former := range []string{"prod.", ""} {
		_, first := sells("one", "prod.a")
		first.Prefix = former
		_, second := sells("two", "a")
		synctest.Test(t, func(t *testing.T) {
			s := &shift{gateway: newGateway(Options{Servers: []ServerOptions{first, second}, Log: slog.New(slog.DiscardHandler), Grants: callers, Watch: func(report.Report) {}})}
			ask, _ := asks(t, s.gateway, "one", "", false)
			_, next := sells("one", "prod.a")
			if former != "" {
				_, next = sells("one", "a")
			}
			next.Prefix = "new."
			s.apply("one two", next)
			call := func() string { return ask("tools/call", `"name":"prod.a"`) }
			bridgetest.Contains(t, call(), `"by":"one"`)
			_, its := sells("two", "a")
			its.Prefix = "prod."
			s.apply("one two", its)
			if a := call(); strings.Contains(a, `"by"`) {
				t.Errorf("with %q: %s", former, a)
			}
			s.Close(context.Background())
		})
	}
}
