package gateway

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// asksWho is a server that asks with each call of a tool what the tool is called,
// after a moment, and answers with its name and the answer. It does not say which
// call a question is about.
func asksWho() func(*fakeWire, *jsonrpc.Message) bool {
	var mu sync.Mutex
	open := map[string]string{} // names, by question
	return func(f *fakeWire, m *jsonrpc.Message) bool {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case m.Method == "tools/call":
			id := fmt.Sprintf("%d/%s", f.n, m.ID)
			name := m.Name()
			open[id] = name
			time.AfterFunc(time.Millisecond, func() {
				f.say(`{"jsonrpc":"2.0","id":"` + id + `","method":"elicitation/create","params":{"message":"for ` + name + `","requestedSchema":{"type":"object","properties":{}}}}`)
			})
			return true
		case m.IsResponse():
			id := strings.Trim(string(m.ID), `"`)
			_, call, _ := strings.Cut(id, "/")
			f.say(`{"jsonrpc":"2.0","id":` + call + `,"result":{"content":[],"was":` + rawjson.Quote(open[id]) + `,"said":` + string(m.Result) + `}}`)
			delete(open, id)
		}
		return false
	}
}

// Two clients that are asked at the same time over one server: each is shown its
// own question, again and again, and gives its own answer.
func TestQuestionsGoToTheirClients(t *testing.T) {
	f := &fake{serve: asksWho()}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		var clients sync.WaitGroup
		for _, who := range []string{"ann", "bob"} {
			clients.Go(func() {
				for i := range scaletest.Of(150, 1000) {
					name := fmt.Sprint(who, i)
					asked := visitor{}.call(t, g, "tools/call", `"name":"`+name+`"`)
					if !strings.Contains(asked, `"message":"for `+name+`"`) {
						t.Errorf("%s was shown %s", name, asked)
						return
					}
					time.Sleep(2 * claimPatience) // somebody reads the question
					got := visitor{}.call(t, g, "tools/call", `"name":"`+name+`","inputResponses":{"r1":{"action":"accept","content":{"i":"`+name+`"}}},"requestState":"`+stateOf(t, asked)+`"`)
					if !strings.Contains(got, `"was":"`+name+`"`) || !strings.Contains(got, `"i":"`+name+`"`) {
						t.Errorf("%s got %s", name, got)
						return
					}
				}
			})
		}
		clients.Wait()
		if n := f.opened(); n != 2 {
			t.Errorf("%d connections, want 2", n)
		}
	})
}

// Connections of the same clients are used one after the other; another one is
// opened only when all have been taken for a moment.
func TestClaimReuses(t *testing.T) {
	f := &fake{serve: silent("slow")}
	f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Name() == "slow" {
			time.AfterFunc(claimPatience/2, func() { f.answer(m, `{"content":[]}`) })
		}
		return m.Name() == "slow"
	}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		for range 20 {
			visitor{}.call(t, g, "tools/call", `"name":"x"`)
		}
		one, two := visitor{}.ask(t, g, "1", "tools/call", `"name":"slow"`), visitor{}.ask(t, g, "2", era.Complete, `"name":"x"`)
		bridgetest.Contains(t, visitor{}.call(t, g, "tools/list", ""), `"result"`) // about lists nothing is asked
		<-one.done
		<-two.done
		if n := f.opened(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
		var all []*visiting
		for range 4 {
			all = append(all, visitor{}.ask(t, g, "1", "tools/call", `"name":"slow"`))
		}
		for range 4 { // these can be asked nothing
			all = append(all, visitor{caps: "{}"}.ask(t, g, "1", "tools/call", `"name":"slow"`))
		}
		for _, v := range all {
			<-v.done
			bridgetest.Contains(t, v.answer, `"result"`)
		}
		if n := f.opened(); n < 3 || n > 5 {
			t.Errorf("%d connections, want those that were missing", n)
		}
	})
}

// Calls wait in line when there is no room for another connection, are served
// in their order, and refused when none becomes free. No call is lost when the
// bridge ends.
func TestClaimWaitsInLine(t *testing.T) {
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Name() == "slow" {
			time.AfterFunc(time.Second, func() { f.answer(m, `{"content":[]}`) })
		}
		return m.Name() == "slow" || m.Name() == "never"
	}}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{MaxChildren: 2, Limits: limits.Options{Queue: 3}}}, func(t *testing.T, g *gateway) {
		began := time.Now()
		var all []*visiting
		for range 5 {
			all = append(all, visitor{}.ask(t, g, "1", "tools/call", `"name":"slow"`))
			synctest.Wait()
			time.Sleep(claimPatience)
		}
		if st := g.Status()[0]; st.Queued != 3 {
			t.Errorf("%d wait in line", st.Queued)
		}
		bridgetest.Contains(t, visitor{}.call(t, g, "tools/call", `"name":"slow"`), "-32603", "limits: queue")
		for _, v := range all {
			<-v.done
			bridgetest.Contains(t, v.answer, `"result"`)
		}
		if took := time.Since(began); took < 3*time.Second || took > 4*time.Second || f.opened() != 2 {
			t.Errorf("it took %v, with %d connections", took, f.opened())
		}
		for range 2 {
			all = append(all, visitor{}.ask(t, g, "1", "tools/call", `"name":"never"`))
		}
		gone := visitor{}.ask(t, g, "1", "tools/call", `"name":"slow"`)
		time.Sleep(claimPatience)
		gone.cancel(bridge.ErrCancelled)
		<-gone.done
		late := visitor{}.ask(t, g, "1", "tools/call", `"name":"slow"`)
		began = time.Now()
		<-late.done
		if took := time.Since(began); took != 30*time.Second || !errors.Is(late.err, bridge.ErrOverloaded) {
			t.Errorf("refused after %v with %v", took, late.err)
		}
		bridgetest.Contains(t, late.answer, "-32603", "limits: wait")
		if st := g.Status()[0]; st.Queued != 0 || st.Refused["wait"] != 1 {
			t.Errorf("left: %+v", st)
		}
		last := visitor{}.ask(t, g, "1", "tools/call", `"name":"slow"`)
		synctest.Wait()
		g.Close(t.Context())
		<-last.done
		bridgetest.Contains(t, last.answer, `"error"`)
		for _, v := range all {
			<-v.done
		}
	})
}

// The places of sessions count too: where they take all, calls share what is
// left one after the other.
func TestClaimBesideSessions(t *testing.T) {
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Name() == "slow" {
			time.AfterFunc(time.Second, func() { f.answer(m, `{"content":[]}`) })
		}
		return m.Name() == "slow"
	}}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{MaxChildren: 2}}, func(t *testing.T, g *gateway) {
		begin(t, g, "")
		var all []*visiting
		for range 5 {
			all = append(all, visitor{}.ask(t, g, "1", "tools/call", `"name":"slow"`))
		}
		for _, v := range all {
			<-v.done
			bridgetest.Contains(t, v.answer, `"result"`)
		}
		if n := g.lanes.Open(); n != 2 {
			t.Errorf("%d connections", n)
		}
	})
}

// A question that comes after a call was cancelled may be about that one. No other
// client is shown it until the server has heard of the cancellation.
func TestQuestionOfCancelledCall(t *testing.T) {
	for what, deaf := range map[string]bool{"it is busy": true, "it goes on with cancelled calls": false} {
		t.Run(what, func(t *testing.T) {
			f := &fake{serve: func(_ *fakeWire, m *jsonrpc.Message) bool {
				return m.Method == "tools/call" || deaf && m.Method == "ping"
			}}
			run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
				leave := func() {
					v := visitor{}.ask(t, g, "1", "tools/call", `"name":"x"`)
					time.Sleep(claimPatience)
					synctest.Wait()
					v.cancel(bridge.ErrCancelled)
					<-v.done
					synctest.Wait()
				}
				leave()
				if !deaf { // a question about no call shows what it is
					f.wire(1).say(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"secret"}}`)
					synctest.Wait()
					leave()
					f.wire(1).say(`{"jsonrpc":"2.0","id":"q2","method":"elicitation/create","params":{"message":"secret"}}`)
					synctest.Wait()
				}
				other := visitor{}.ask(t, g, "2", "tools/call", `"name":"y"`)
				synctest.Wait()
				if n := f.opened(); deaf && n != 1 {
					t.Errorf("%d connections: a server that has never asked anything keeps its own", n)
				}
				f.wire(1).say(`{"jsonrpc":"2.0","id":"q3","method":"elicitation/create","params":{"message":"secret"}}`)
				time.Sleep(time.Second)
				if other.over() || deaf && !strings.Contains(strings.Join(f.wire(1).received(), ""), `"id":"q3","error":{"code":-32603`) {
					t.Errorf("got %s", other.answer)
				}
				leave() // over a second one, which is not used again
				last := visitor{}.ask(t, g, "3", "tools/call", `"name":"z"`)
				time.Sleep(claimPatience)
				synctest.Wait()
				n := f.opened()
				f.wire(n - 1).say(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"secret"}}`)
				f.wire(n).say(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"mine"}}`)
				<-last.done
				bridgetest.Contains(t, last.answer, "mine")
				if other.over() {
					t.Errorf("got %s", other.answer)
				}
				other.cancel(bridge.ErrCancelled)
				<-other.done
			})
		})
	}
}

// Once the server has heard that a call is cancelled its connection is as good as
// before: the next call goes to the same process, and can be asked about.
func TestConnectionOfCancelledCall(t *testing.T) {
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Name() == "ask" {
			time.AfterFunc(time.Millisecond, func() {
				f.say(`{"jsonrpc":"2.0","id":"` + string(m.ID) + `","method":"elicitation/create","params":{"message":"mine"}}`)
			})
		}
		return m.Method == "tools/call"
	}}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		for range 3 {
			v := visitor{}.ask(t, g, "1", "tools/call", `"name":"hang"`)
			synctest.Wait()
			v.cancel(bridge.ErrCancelled)
			<-v.done
			v = visitor{}.ask(t, g, "2", "tools/call", `"name":"ask"`)
			<-v.done
			bridgetest.Contains(t, v.answer, `"message":"mine"`)
			if n := f.opened(); n != 1 {
				t.Fatalf("%d connections, want 1", n)
			}
			state := stateOf(t, v.answer)
			v = visitor{}.ask(t, g, "3", "tools/call", `"name":"ask","inputResponses":{"r1":{"action":"decline"}},"requestState":"`+state+`"`)
			synctest.Wait()
			v.cancel(bridge.ErrCancelled)
			<-v.done
		}
	})
}

// Where the wire says which call a question is about, calls share a connection,
// until the server has asked something beside its calls.
func TestClaimOfTellingWire(t *testing.T) {
	f := &fake{told: true, serve: silent("tools/call")}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		one := visitor{}.ask(t, g, "1", "tools/call", `"name":"x"`)
		synctest.Wait()
		two := visitor{}.ask(t, g, "2", "tools/call", `"name":"y"`)
		synctest.Wait()
		if n := f.opened(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
		f.wire(1).say(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"m"}}`)
		time.Sleep(time.Second)
		if one.over() || two.over() {
			t.Errorf("a question of which it cannot be told whose it is was shown: %s%s", one.answer, two.answer)
		}
		bridgetest.Contains(t, strings.Join(f.wire(1).received(), ""), `"id":"q","error":{"code":-32603`)
		three := visitor{}.ask(t, g, "3", "tools/call", `"name":"z"`)
		synctest.Wait()
		four := visitor{}.ask(t, g, "4", "tools/call", `"name":"z"`)
		time.Sleep(claimPatience)
		synctest.Wait()
		if n := f.opened(); n != 3 {
			t.Errorf("%d connections, want 3", n)
		}
		for i, v := range []*visiting{three, four} {
			f.wire(i + 2).say(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"m"}}`)
			<-v.done
			bridgetest.Contains(t, v.answer, `"input_required"`)
		}
		for _, v := range []*visiting{one, two} {
			v.cancel(bridge.ErrCancelled)
			<-v.done
		}
	})
}

// With share: principal all clients of a caller have one connection: a question
// is put when it can only be about one call.
func TestQuestionsWithSharePrincipal(t *testing.T) {
	f := &fake{serve: silent("tools/call")}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: SharePrincipal}}, func(t *testing.T, g *gateway) {
		one := visitor{}.ask(t, g, "1", "tools/call", `"name":"x"`)
		synctest.Wait()
		two := visitor{}.ask(t, g, "2", "tools/call", `"name":"y"`)
		synctest.Wait()
		f.wire(1).say(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
		bridgetest.Contains(t, strings.Join(f.wire(1).received(), ""), `"id":1,"error":{"code":-32603`)
		f.wire(1).say(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		<-one.done
		f.wire(1).say(`{"jsonrpc":"2.0","id":2,"method":"roots/list"}`)
		<-two.done
		bridgetest.Contains(t, two.answer, `"roots/list"`)
		if n := f.opened(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
}

// A client that leaves a question open does not make what the server asks outside
// of calls hang: that is refused as it is without a parked call.
func TestQuestionBesideParkedCall(t *testing.T) {
	for _, c := range []struct {
		share Share
		meta  string
	}{{"", ""}, {SharePrincipal, ""}, {"", `,"dev.mcp-bridge/lane":"k"`}} {
		f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
			switch {
			case m.Method == "tools/call":
				f.say(`{"jsonrpc":"2.0","id":"call","method":"elicitation/create","params":{"message":"m"}}`)
			case m.Method == era.Complete:
				f.say(`{"jsonrpc":"2.0","id":"completion ` + string(m.ID) + `","method":"elicitation/create","params":{"message":"m"}}`)
			case m.IsResponse() && strings.HasPrefix(string(m.ID), `"completion `):
				id := strings.Trim(strings.TrimPrefix(string(m.ID), `"completion `), `"`)
				f.say(`{"jsonrpc":"2.0","id":` + id + `,"result":{"completion":{"values":[]},"got":` + rawjson.Quote(bridgetest.Text(m)) + `}}`)
			default:
				return false
			}
			return true
		}}
		f.result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"completions":{}},"serverInfo":{"name":"fake","version":"1"}}`
		run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: c.share}}, func(t *testing.T, g *gateway) {
			v := visitor{meta: c.meta}
			park(t, g, v)
			began := time.Now()
			bridgetest.Contains(t, v.call(t, g, era.Complete, `"ref":{"type":"ref/prompt","name":"p"}`), `"result"`, "-32602", "no client request")
			if took := time.Since(began); took > claimPatience {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// What changes on one of the connections is told to those who listen on another.
func TestListenHearsAllConnections(t *testing.T) {
	f := &fake{serve: silent("tools/call")}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		v := visitor{}.ask(t, g, "1", era.Listen, `"notifications":{"toolsListChanged":true}`)
		bridgetest.Contains(t, strings.Join(v.take(), ""), "acknowledged")
		var calls []*visiting
		for range 2 {
			calls = append(calls, visitor{}.ask(t, g, "1", "tools/call", `"name":"x"`))
			time.Sleep(2 * claimPatience)
		}
		f.wire(2).say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		if got := v.take(); len(got) != 1 || !strings.Contains(got[0], "tools/list_changed") {
			t.Errorf("got %q", got)
		}
		for _, c := range append(calls, v) {
			c.cancel(bridge.ErrCancelled)
			<-c.done
		}
	})
}
