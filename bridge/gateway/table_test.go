package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/calls"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// shift has a gateway serve other servers in a test, and knows which have gone.
type shift struct {
	*gateway
	mu   sync.Mutex // guards gone
	gone []string
}

func (s *shift) apply(names string, changed ...ServerOptions) {
	_ = s.Apply(Change{Names: strings.Fields(names), Servers: changed, Drain: 10 * time.Second, Gone: func(name string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.gone = append(s.gone, name)
	}})
}

func (s *shift) left() string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.gone, " ")
}

// shifting runs f in a bubble with a gateway whose servers come and go.
func shifting(t *testing.T, f func(t *testing.T, s *shift), servers ...ServerOptions) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &shift{gateway: newGateway(Options{Servers: servers, Log: slog.New(slog.DiscardHandler), Watch: func(report.Report) {}, Calls: calls.New()})}
		f(t, s)
		s.Close(context.Background())
		if n := s.lanes.Open(); n != 0 {
			t.Errorf("%d lanes are left", n)
		}
	})
}

// sells makes the options of a server with one tool.
func sells(name, tool string) (*fake, ServerOptions) {
	f := shop(name, map[string]string{"tools/list": toolList(tool)})
	return f, ServerOptions{Name: name, ServerSettings: ServerSettings{Prefix: name + "__"}, Adapter: f}
}

func changes(st *stream) int {
	return strings.Count(strings.Join(st.take(), "\n"), "notifications/tools/list_changed")
}

// Servers come and go under an open session at all as one, and under a subscription
// of a client without a session. The others notice nothing.
func TestTableComesAndGoes(t *testing.T) {
	one, first := sells("one", "a")
	two, second := sells("two", "b")
	three, third := sells("three", "c")
	shifting(t, func(t *testing.T, b *shift) {
		s, st := enter(t, b.gateway)
		same(t, "at first", names(t, do(t, s, "1", "tools/list", "{}")), []string{"one__a", "two__b"})
		subscription := visitor{}.ask(t, b.gateway, "1", era.Listen, `"notifications":{"toolsListChanged":true}`)
		time.Sleep(time.Second)
		changes(st)
		subscription.take()

		b.apply("one two three", third)
		time.Sleep(time.Second)
		if changes(st) == 0 || changes(&subscription.stream) == 0 {
			t.Error("nobody is told that a server has come")
		}
		if n := three.opened(); n > 1 { // the subscription listens to it
			t.Errorf("the server that has come was opened %d times", n)
		}
		same(t, "with three", names(t, do(t, s, "2", "tools/list", "{}")), []string{"one__a", "two__b", "three__c"})
		bridgetest.Contains(t, do(t, s, "3", "tools/call", `{"name":"three__c"}`), `"by":"three"`)
		bridgetest.Contains(t, visitor{}.call(t, b.gateway, "tools/call", `"name":"three__c"`), `"by":"three"`)
		opened := [2]int{one.opened(), three.opened()}

		b.apply("one three")
		if changes(st) == 0 || changes(&subscription.stream) == 0 {
			t.Error("nobody is told that a server has gone")
		}
		same(t, "without two", names(t, do(t, s, "4", "tools/list", "{}")), []string{"one__a", "three__c"})
		bridgetest.Contains(t, do(t, s, "5", "tools/call", `{"name":"two__b"}`), "-32602")
		time.Sleep(time.Second)
		if b.left() != "two" || b.Servers()[1] != "three" {
			t.Errorf("gone: %q; there are %q", b.left(), b.Servers())
		}
		if f := two.wire(two.open()); f.Fail(errors.New("late")) {
			t.Error("the connection to the server that has gone is open")
		}
		bridgetest.Contains(t, do(t, s, "6", "tools/call", `{"name":"one__a"}`), `"by":"one"`)
		if now := [2]int{one.opened(), three.opened()}; now != opened {
			t.Errorf("connections to servers that stayed: %v, then %v", opened, now)
		}
		subscription.take()
		one.wire(one.open()).say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		if time.Sleep(time.Second); changes(st)+changes(&subscription.stream) == 0 {
			t.Error("what a server that stayed has to say is lost")
		}
		subscription.cancel(nil)
		<-subscription.done
	}, first, second)
}

// A server that leaves gets no new calls and no new sessions. Calls under way may
// end, for as long as Drain; then its sessions end, and others do not.
func TestTableLeaves(t *testing.T) {
	one, first := sells("fake", "a")
	_, second := sells("two", "b")
	serve := one.serve
	one.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		return m.Name() == "hang" || serve(f, m)
	}
	for _, ends := range []bool{true, false} {
		shifting(t, func(t *testing.T, b *shift) {
			s, _ := begin(t, b.gateway, "")
			both, _ := enter(t, b.gateway)
			own := start(t, s, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hang"}}`)
			as := start(t, both, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fake__hang"}}`)
			synctest.Wait()
			b.apply("two")
			if _, _, err := initialize(t, b.gateway, "", bridgetest.InitializeParams); !errors.Is(err, bridge.ErrUnknownServer) {
				t.Errorf("a new session: %v", err)
			}
			bridgetest.Contains(t, do(t, s, "2", "tools/call", `{"name":"a"}`), "no longer serves it")
			time.Sleep(9 * time.Second)
			if own.over() || as.over() || b.left() != "" {
				t.Fatalf("before the time to drain is over: %s %s, gone %q", own.answer, as.answer, b.left())
			}
			if ends {
				for i := range one.open() {
					for _, line := range one.wire(i + 1).log() {
						if m := bridgetest.Parse(t, line); m.Name() == "hang" {
							one.wire(i+1).answer(m, `{"late":true}`)
						}
					}
				}
			}
			time.Sleep(2 * time.Second)
			if !own.over() || !as.over() || b.left() != "fake" {
				t.Fatalf("after the time to drain: gone %q", b.left())
			}
			for _, p := range []*pendingCall{own, as} {
				if ends != strings.Contains(p.answer, `"late":true`) {
					t.Errorf("a call under way that ends (%t): %s", ends, p.answer)
				}
			}
			select {
			case <-s.Done():
			default:
				t.Error("its session is open")
			}
			bridgetest.Contains(t, do(t, both, "2", "tools/call", `{"name":"two__b"}`), `"by":"two"`)
		}, first, second)
		one.mu.Lock()
		one.wires, one.opens = nil, nil
		one.mu.Unlock()
	}
}

// A server whose settings have changed: its sessions go on as they began, and new
// ones have the new settings.
func TestTableChanges(t *testing.T) {
	before, old := sells("fake", "a")
	after, changed := sells("fake", "b")
	changed.Tools.Rename = map[string]string{"b": "better"}
	_, other := sells("two", "c")
	shifting(t, func(t *testing.T, b *shift) {
		s, _ := begin(t, b.gateway, "")
		both, told := enter(t, b.gateway)
		same(t, "before", names(t, do(t, both, "1", "tools/list", "{}")), []string{"fake__a", "two__c"})
		changes(told)
		opened := before.open()
		bridgetest.Contains(t, visitor{server: "fake"}.call(t, b.gateway, "tools/call", `"name":"a"`), `"by":"fake"`)
		b.apply("fake two", changed)
		if time.Sleep(time.Second); changes(told) == 0 {
			t.Error("nobody is told")
		}
		if before.open() != opened+1 || before.wire(opened+1).Fail(errors.New("late")) {
			t.Error("the connection for clients without sessions is open, however long a session goes on with the former settings")
		}
		same(t, "all as one", names(t, do(t, both, "2", "tools/list", "{}")), []string{"fake__better", "two__c"})
		same(t, "the open session", names(t, do(t, s, "2", "tools/list", "{}")), []string{"a"})
		fresh, _ := begin(t, b.gateway, "")
		same(t, "a new session", names(t, do(t, fresh, "2", "tools/list", "{}")), []string{"better"})
		bridgetest.Contains(t, visitor{server: "fake"}.call(t, b.gateway, "tools/list", ""), `"better"`)

		before.wire(1).die()
		time.Sleep(time.Minute)
		n, m := before.open(), after.open()
		bridgetest.Contains(t, do(t, s, "3", "tools/call", `{"name":"a"}`), `"by":"fake"`)
		if before.open() != n+1 || after.open() != m {
			t.Errorf("the session's next connection is not to the server as it was: %d, then %d; to the new one %d, then %d", n, before.open(), m, after.open())
		}
		if b.left() != "" {
			t.Error("what the session uses has gone")
		}
		s.End(bridge.ErrEnded)
		if time.Sleep(time.Second); b.left() != "fake" {
			t.Errorf("gone: %q", b.left())
		}
		bridgetest.Contains(t, do(t, fresh, "3", "tools/call", `{"name":"better"}`), `"by":"fake"`)
	}, old, other)
}

// One server becomes several, and several one: sessions keep the shape that they
// began with.
func TestTableShape(t *testing.T) {
	_, first := sells("one", "a")
	_, second := sells("two", "b")
	shifting(t, func(t *testing.T, s *shift) {
		alone, _ := enter(t, s.gateway)
		s.apply("one two", second)
		two, _ := enter(t, s.gateway)
		same(t, "begun with one", names(t, do(t, alone, "1", "tools/list", "{}")), []string{"a"})
		same(t, "begun with two", names(t, do(t, two, "1", "tools/list", "{}")), []string{"one__a", "two__b"})
		s.apply("two")
		again, _ := enter(t, s.gateway)
		same(t, "begun with one again", names(t, do(t, again, "1", "tools/list", "{}")), []string{"b"})
		same(t, "begun with two, one is left", names(t, do(t, two, "2", "tools/list", "{}")), []string{"two__b"})
		if time.Sleep(2 * time.Second); s.Totals().Aggregate != 1 || s.Totals().Sessions != 2 {
			t.Errorf("%+v", s.Totals())
		}
	}, first)
}

// Many calls are under way while servers come, change and go: none at a server that
// stays fails, and its connections are the same.
func TestTableUnderLoad(t *testing.T) {
	synctest.Test(t, tableUnderLoad)
}

func tableUnderLoad(t *testing.T) {
	stays, first := sells("fake", "a")
	first.Share = ShareAll
	_, second := sells("two", "b")
	b := &shift{gateway: newGateway(Options{Servers: []ServerOptions{first, second}, Log: slog.New(slog.DiscardHandler), Watch: func(report.Report) {}})}
	clients := scaletest.Of(60, 200)
	var wg sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	for i := range clients {
		var call func() string
		switch i % 4 {
		case 0:
			s, _ := begin(t, b.gateway, "")
			call = func() string { return do(t, s, "1", "tools/call", `{"name":"a"}`) }
		case 1:
			s, _ := enter(t, b.gateway)
			call = func() string { return do(t, s, "1", "tools/call", `{"name":"fake__a"}`) }
		case 2:
			call = func() string { return visitor{server: "fake"}.call(t, b.gateway, "tools/call", `"name":"a"`) }
		case 3:
			call = func() string { return visitor{}.call(t, b.gateway, "tools/call", `"name":"fake__a"`) }
		}
		wg.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(40 * time.Millisecond) { // of the bubble, as below
				if a := call(); !strings.Contains(a, `"by":"fake"`) {
					t.Errorf("a call has failed: %s", a)
					return
				}
			}
		})
	}
	for i := range 30 {
		_, two := sells("two", fmt.Sprint("b", i))
		three, third := sells("three", "c")
		b.apply("fake two three", two, third)
		s, _ := enter(t, b.gateway)
		bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"three__c"}`), `"by":"three"`)
		b.apply("fake two")
		s.End(bridge.ErrEnded)
		if three.open() == 0 {
			t.Error("the server that came was not used")
		}
		time.Sleep(40 * time.Millisecond) // servers leave meanwhile
	}
	opened := stays.opened()
	stop()
	wg.Wait()
	b.Close(context.Background())
	if opened > 2 { // one for each era
		t.Errorf("the server that stayed was opened %d times", opened)
	}
	if n := b.lanes.Open(); n != 0 {
		t.Errorf("%d lanes are left", n)
	}
	if n := len(b.gone); n < 60 {
		t.Errorf("%d servers have gone, want 60 at least", n)
	}
}

// A server that leaves ends the sessions from before each of its changes, and these
// are counted as its own. It comes back, and its new sessions are no part of that.
func TestTableLeavesChanged(t *testing.T) {
	_, other := sells("two", "c")
	var began []*sitting
	_, first := sells("fake", "a0")
	shifting(t, func(t *testing.T, b *shift) {
		for i := range 3 {
			s, _ := begin(t, b.gateway, "")
			began = append(began, s)
			_, next := sells("fake", fmt.Sprint("a", i+1))
			b.apply("fake two", next)
			time.Sleep(time.Second)
		}
		for i, s := range began {
			same(t, "a session", names(t, do(t, s, "1", "tools/list", "{}")), []string{fmt.Sprint("a", i)})
		}
		if st := b.Status()[0]; st.Sessions != 3 || b.left() != "" {
			t.Errorf("%d sessions are counted; gone: %q", st.Sessions, b.left())
		}
		b.apply("two")
		_, again := sells("fake", "b")
		b.apply("two fake", again)
		s, _ := begin(t, b.gateway, "")
		if time.Sleep(time.Second); b.left() != "fake fake fake fake" {
			t.Errorf("gone: %q", b.left())
		}
		for _, old := range began {
			select {
			case <-old.Done():
			default:
				t.Error("a session at a server that has left is open")
			}
		}
		same(t, "come back", names(t, do(t, s, "1", "tools/list", "{}")), []string{"b"})
		if st := b.Status()[1]; st.Sessions != 1 {
			t.Errorf("%d sessions are counted", st.Sessions)
		}
	}, first, other)
}

// A server that leaves waits for the calls that may have found it, however long each takes to begin; and
// ends at once where nobody calls.
func TestTableWaitsForCallsThatBegin(t *testing.T) {
	for _, at := range []string{"one", ""} {
		t.Run("at "+at, func(t *testing.T) {
			_, first := sells("one", "a")
			_, second := sells("two", "b")
			_, third := sells("three", "c")
			synctest.Test(t, func(t *testing.T) {
				hold := make(chan struct{})
				s := &shift{gateway: newGateway(Options{
					Servers: []ServerOptions{first, second, third}, Log: slog.New(slog.DiscardHandler), Watch: func(report.Report) {}, Calls: calls.New(),
					Front: func(http.Header) string { // it is asked when the call has looked which servers there are
						<-hold
						return ""
					},
				})}
				defer s.Close(context.Background())
				m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a",`+statelessMeta+`}}`)
				g, _ := NewStateless(at, "", m)
				answer := make(chan string, 1)
				go func() {
					a, _ := s.Call(t.Context(), m, *g)
					answer <- bridgetest.Text(a)
				}()
				synctest.Wait()
				s.apply("two three")
				time.Sleep(5 * time.Second)
				if gone := s.left(); gone != "" {
					t.Errorf("gone: %q, but a call begins that may have found it", gone)
				}
				close(hold)
				if got := <-answer; at == "one" && !strings.Contains(got, `"by":"one"`) {
					t.Errorf("the call: %s", got)
				}
				time.Sleep(time.Second)
				if gone := s.left(); gone != "one" {
					t.Errorf("gone: %q, want one", gone)
				}
				s.apply("three")
				if gone := s.left(); gone != "one two" {
					t.Errorf("gone: %q, want two as well, at once", gone)
				}
			})
		})
	}
}

// A server that is removed waits for the calls of other instances' clients, which those instances report.
func TestTableWaitsForOtherInstances(t *testing.T) {
	for _, tunnel := range []bool{false, true} {
		t.Run(fmt.Sprintf("tunnel %t", tunnel), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hold := make(chan struct{})
				f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
					if m.Method != "tools/call" {
						return false
					}
					id := bytes.Clone(m.ID)
					go func() {
						<-hold
						f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"done":true}}`, id))
					}()
					return true
				}}
				g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: f, ServerSettings: ServerSettings{Share: SharePrincipal}}}, Log: slog.New(slog.DiscardHandler), Watch: func(report.Report) {}})
				defer g.Close(context.Background())
				call := func() (*jsonrpc.Message, error) {
					if !tunnel {
						m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a",`+statelessMeta+`}}`)
						s, _ := NewStateless("fake", "", m)
						return g.CallPool(t.Context(), "fake", &bridge.Request{Message: m, From: s.From, Back: (&StatelessClient{Back: &stream{}})})
					}
					m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}`)
					from := bridge.Caller{Revision: era.LatestLegacy, Capabilities: []byte("{}"), Params: []byte(bridgetest.InitializeParams)}
					j, _, err := g.Join("fake", from, bridge.Nobody{})
					if err != nil {
						return nil, err
					}
					return j.Call(t.Context(), &bridge.Request{Message: m, From: &from})
				}
				answer := make(chan string, 1)
				go func() {
					m, err := call()
					answer <- bridgetest.Text(m) + fmt.Sprint(err)
				}()
				synctest.Wait()
				gone := make(chan string, 1)
				if err := g.Apply(Change{Drain: time.Minute, Gone: func(name string) { gone <- name }}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(30 * time.Second)
				if len(gone) > 0 {
					t.Error("it is gone, and a call of another instance is in flight")
				}
				close(hold)
				if got := <-answer; !strings.Contains(got, `"done":true`) {
					t.Errorf("the call: %s", got)
				}
				<-gone
			})
		})
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
			s, _ := enter(t, b.gateway)
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
