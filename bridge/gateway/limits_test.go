package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// inquisitive is a server whose tool ask puts a question to the client, of the method
// that is its argument q, and answers when that has an answer; slow never
// answers.
func inquisitive() *fake {
	var mu sync.Mutex
	waiting := map[string]*jsonrpc.Message{} // calls, by the id of their question
	return &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case m.Name() == "ask":
			id := fmt.Sprintf(`"q%d"`, len(waiting))
			waiting[id] = m.Clone()
			params := map[bool]string{true: `{}`, false: `{"message":"?","requestedSchema":{"type":"object","properties":{}}}`}
			method := "elicitation/create"
			if strings.Contains(string(m.Params), "roots/list") {
				method = "roots/list"
			}
			f.say(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params[method == "roots/list"] + `}`)
		case m.IsResponse():
			if call := waiting[string(m.ID)]; call != nil { // otherwise the question was about none
				f.answer(call, `{"content":[]}`)
			}
		default:
			return m.Name() == "slow"
		}
		return true
	}}
}

// The same for a client without a session, whose call is parked.
func TestParkedCallGivesPlaceBack(t *testing.T) {
	o := Options{Servers: []ServerOptions{{Name: "fake", Adapter: inquisitive(), ServerSettings: ServerSettings{Limits: limits.Options{Calls: 1, Wait: time.Second}}}}}
	limited(t, o, func(t *testing.T, g *gateway) {
		bridgetest.Contains(t, visitor{}.call(t, g, "tools/call", `"name":"ask","arguments":{}`), `"input_required"`)
		if s := g.Status()[0]; s.Slots != 0 || s.Slotless != 1 {
			t.Errorf("%d places, %d that ask, want none and 1", s.Slots, s.Slotless)
		}
		bridgetest.Contains(t, visitor{}.call(t, g, "tools/call", `"name":"x"`), `"result"`)
	})
}

// Nor has one of a client without a session, of those that come before anything
// is known of the server; and when the one that has asked what it is goes away,
// or cannot be told, the others do not wait for nothing.
func TestQueueStartsNothingCold(t *testing.T) {
	f := &fake{serve: silent("tools/call")}
	var broken atomic.Bool
	f.before = func(ctx context.Context, _ int) error {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if broken.Load() {
			return failure(bridge.ErrUnavailable)
		}
		return nil
	}
	o := Options{Servers: []ServerOptions{{Name: "fake", Adapter: f, ServerSettings: ServerSettings{Share: ShareCall, Limits: limits.Options{Calls: 2, Queue: 100}}}}}
	limited(t, o, func(t *testing.T, g *gateway) {
		ask := func() *visiting { return visitor{caps: "{}"}.ask(t, g, "1", "tools/call", `"name":"x"`) }
		broken.Store(true)
		began := time.Now()
		var all []*visiting
		for range 50 {
			all = append(all, ask())
		}
		for _, v := range all {
			<-v.done
			bridgetest.Contains(t, v.answer, "upstream_unavailable")
		}
		if n, took := f.opened(), time.Since(began); n > 2 || took > 3*time.Second {
			t.Errorf("%d processes were started for nothing, in %v", n, took)
		}
		broken.Store(false)
		before := f.opened()
		first := ask()
		synctest.Wait()
		all = nil
		for range 50 {
			all = append(all, ask())
		}
		synctest.Wait()
		first.cancel(bridge.ErrCancelled)
		time.Sleep(10 * time.Second)
		if st, n := state(g), f.opened()-before; st.Slots != 2 || st.Queued != 48 || n > 4 {
			t.Errorf("%d calls under way, %d in line, %d processes were started", st.Slots, st.Queued, n)
		}
		for _, v := range all {
			v.cancel(bridge.ErrCancelled)
			<-v.done
		}
	})
}

// A subscription that the server does not acknowledge in time has failed, and
// gives its place back. That is no reason to leave the server alone.
func TestListenNotAcknowledged(t *testing.T) {
	p := newPeer()
	mute := true
	answer := p.serve
	p.serve = func(f *fakeWire, m *jsonrpc.Message) bool { return mute && m.Method == era.Listen || answer(f, m) }
	o := Options{Servers: []ServerOptions{{Name: "fake", Adapter: p, ServerSettings: ServerSettings{HandshakeTimeout: time.Minute, Limits: limits.Options{Calls: 1, Wait: time.Hour}}}}}
	limited(t, o, func(t *testing.T, g *gateway) {
		hear := func() *visiting {
			return visitor{}.ask(t, g, "1", era.Listen, `"notifications":{"toolsListChanged":true}`)
		}
		for range 10 {
			v := hear()
			synctest.Wait()
			call := visitor{}.ask(t, g, "2", "tools/call", `"name":"x"`)
			time.Sleep(time.Minute - time.Millisecond)
			if v.over() || call.over() {
				t.Fatalf("it is over: %s %s", v.answer, call.answer)
			}
			time.Sleep(time.Millisecond)
			if !v.over() || !call.over() {
				t.Fatal("it goes on, or holds its place")
			}
			bridgetest.Contains(t, v.answer, "server fake: it did not acknowledge the subscription within 1m0s")
			bridgetest.Contains(t, call.answer, `"got"`)
		}
		if st := g.Status()[0]; st.Breaker != "closed" || st.State != "ready" {
			t.Errorf("the server is %s, its breaker %s", st.State, st.Breaker)
		}

		// One that has begun lasts, and ends if the server takes it no more.
		mute = false
		v := hear()
		time.Sleep(time.Hour)
		if got := v.take(); v.over() || len(got) != 1 || !strings.Contains(got[0], "acknowledged") {
			t.Fatalf("it heard %q and ended with %s", got, v.answer)
		}
		mute = true
		p.wire(1).die()
		time.Sleep(2 * time.Minute)
		if v.over() {
			t.Errorf("it has ended soon: %s", v.answer)
		}
		time.Sleep(8 * time.Minute)
		if !v.over() {
			t.Error("it goes on, though the server does not acknowledge it")
		}
		bridgetest.Contains(t, v.answer, `"resultType":"complete"`)
	})
}

// Answers count among the bytes under way from when they come until they are
// released, by whatever kind of client; what has no room is refused, and not as
// if it could be called again.
func TestAnswersUnderWay(t *testing.T) {
	large := strings.Repeat("x", 300<<10)
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Name() == "large" {
			f.answer(m, `{"content":[{"type":"text","text":"`+large+`"}]}`)
		}
		return m.Name() == "large"
	}}
	limited(t, Options{MaxBytes: 9 << 17, // an eighth is for requests only
		Servers: []ServerOptions{{Name: "fake", Adapter: f}}}, func(t *testing.T, b *gateway) {
		s, _ := begin(t, b, "")
		modern := visitor{caps: "{}"}
		call := func(session bool) (*jsonrpc.Message, error) {
			m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"large",`+statelessReserved+`}}}`)
			if session {
				return s.Call(m, nil, nil)
			}
			g, no := NewStateless("", modern.principal, m)
			if no != nil {
				t.Fatal(bridgetest.Text(no))
			}
			g.Back = &stream{}
			return b.Call(t.Context(), m, *g)
		}
		var held []*jsonrpc.Message
		for i := range 3 {
			m, err := call(i%2 == 0)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, m)
		}
		if n := b.bytes.Used(); n < 900<<10 || n > 1<<20 {
			t.Errorf("%d bytes are under way", n)
		}
		for _, session := range []bool{true, false} {
			m, err := call(session)
			if !errors.Is(err, bridge.ErrTooLarge) || bridge.RetryAfter(err) != 0 {
				t.Errorf("the fourth: %v", err)
			}
			bridgetest.Contains(t, bridgetest.Text(m), "does not fit into max_bytes_in_flight; the call was executed", `"bridge":"upstream_too_large"`)
		}
		bridgetest.Contains(t, do(t, s, "1", "tools/call", tool("small")), `"result"`)
		held[0].Release()
		held[0].Release()
		a, err := call(true)
		if err != nil || len(a.Result) < len(large) {
			t.Errorf("when one was released: %v", err)
		}
		for _, m := range append(held, a) {
			m.Release()
		}
		if n := b.bytes.Used(); n != 0 {
			t.Errorf("%d bytes are under way when all were released", n)
		}
	})
}

// One that is for several servers does not ask the one that never acknowledges it
// all the time.
func TestListenNotAcknowledgedByOne(t *testing.T) {
	p := newPeer()
	answer, asked := p.serve, 0
	p.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == era.Listen {
			asked++
			return true
		}
		return answer(f, m)
	}
	o := Options{Servers: []ServerOptions{{Name: "fake", Adapter: p, ServerSettings: ServerSettings{HandshakeTimeout: 2 * time.Minute}}, {Name: "other", Adapter: newPeer()}}}
	limited(t, o, func(t *testing.T, g *gateway) {
		v := visitor{}.ask(t, g, "1", era.Listen, `"notifications":{"toolsListChanged":true}`)
		time.Sleep(time.Hour)
		synctest.Wait()
		if asked < 15 || asked > 24 {
			t.Errorf("asked %d times in an hour", asked)
		}
		if got := v.take(); v.over() || len(got) != 1 || !strings.Contains(got[0], "acknowledged") {
			t.Errorf("it heard %q and ended with %s", got, v.answer)
		}
		v.cancel(bridge.ErrCancelled)
		<-v.done
	})
}
