package gateway

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// filters returns what the subscriptions that the server was asked for are
// about, in order.
func (s *statelessWire) filters() []string {
	var all []string
	for _, m := range s.received(era.Listen) {
		all = append(all, gjson.GetBytes(m.Params, "notifications").Raw)
	}
	return all
}

// cancelled returns the ids of what the server was told that it is not wanted
// any more.
func (s *statelessWire) cancelled() []string {
	var all []string
	for _, m := range s.received("notifications/cancelled") {
		all = append(all, string(m.RequestID()))
	}
	return all
}

const bothLists = `"toolsListChanged":true,"resourcesListChanged":true`

// protocol.md D2.5: the life of a session's subscription.
func TestListen(t *testing.T) {
	f := &statelessFake{serve: func(s *statelessWire, m *jsonrpc.Message) bool {
		if m.Method == era.Listen {
			s.acknowledge(m, "x:no")
		}
		return true
	}}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, st, _ := beginAs(t, g, able("2025-11-25"))
		w := f.wire(1)
		same(t, "filters", w.filters(), []string{`{` + bothLists + `}`})
		first := w.received(era.Listen)[0]
		bridgetest.Contains(t, string(first.Meta()), `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`)

		// What it brings comes without its id, and nothing else does.
		w.tell(first.ID, "notifications/tools/list_changed", "")
		w.tell(first.ID, "notifications/progress", "")
		w.tell(first.ID, "notifications/vendor", "")
		same(t, "the client", st.take(), []string{`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}`})

		// Several at once are one change, which is made before the other ends.
		began := time.Now()
		var calls []*pendingCall
		for i, uri := range []string{"x:b", "x:no", "x:a"} {
			calls = append(calls, start(t, s, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"resources/subscribe","params":{"uri":%q}}`, i, uri)))
		}
		for _, p := range calls {
			<-p.done
		}
		if took := time.Since(began); took != gatherFor {
			t.Errorf("subscribing took %v", took)
		}
		same(t, "answers", []string{calls[0].answer, calls[2].answer}, []string{`{"jsonrpc":"2.0","id":0,"result":{}}`, `{"jsonrpc":"2.0","id":2,"result":{}}`})
		bridgetest.Contains(t, calls[1].answer, `"id":1`, "-32602", "x:no")
		same(t, "filters", w.filters()[1:], []string{`{` + bothLists + `,"resourceSubscriptions":["x:a","x:b","x:no"]}`})
		same(t, "cancelled", w.cancelled(), []string{string(first.ID)})
		second := w.received(era.Listen)[1]
		w.tell(second.ID, "notifications/resources/updated", "x:a")
		w.tell(second.ID, "notifications/resources/updated", "x:a/part")
		same(t, "the client", st.take(), []string{`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:a"}}`,
			`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:a/part"}}`})

		// What is known to be heard takes no time; what ends, ends later.
		began = time.Now()
		for _, c := range []struct{ method, uri string }{{"subscribe", "x:a"}, {"unsubscribe", "x:b"}, {"unsubscribe", "x:never"}} {
			if got := do(t, s, "9", "resources/"+c.method, `{"uri":"`+c.uri+`"}`); got != `{"jsonrpc":"2.0","id":9,"result":{}}` {
				t.Errorf("%s %s: %s", c.method, c.uri, got)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
		w.tell(second.ID, "notifications/resources/updated", "x:b")
		if got := st.take(); len(got) > 0 {
			t.Errorf("the client got %q of what it had ended", got)
		}
		// The refused one makes another subscription too, without it.
		time.Sleep(shrinkAfter)
		filters := w.filters()
		if got := filters[len(filters)-1]; got != `{`+bothLists+`,"resourceSubscriptions":["x:a"]}` {
			t.Errorf("in the end it was %s", got)
		}
		if n := len(filters); n != 3 {
			t.Errorf("%d subscriptions: %q", n, filters)
		}
	})
	if n := f.wire1(t).Pending(); n != 0 {
		t.Errorf("%d calls are left", n)
	}
}

// wire1 is the first connection, outside of a bubble.
func (s *statelessFake) wire1(t *testing.T) *statelessWire {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wires[0]
}

// What comes on the stream of another call, which is read at the same time, is
// not of the subscription, whatever it says.
func TestListenOnItsOwnStream(t *testing.T) {
	f := &statelessFake{serve: func(*statelessWire, *jsonrpc.Message) bool { return true }}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, st, _ := beginAs(t, g, able("2025-11-25"))
		call := start(t, s, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`)
		w := f.wire(1)
		const own, other = 2, 3 // behind server/discover
		say := func(on int64, method string) {
			w.DeliverOn(on, parseRaw(`{"jsonrpc":"2.0","method":"`+method+`","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":2},"notifications":{}}}`))
		}
		var wg sync.WaitGroup
		for _, on := range []int64{own, other} {
			wg.Go(func() { say(on, "notifications/subscriptions/acknowledged") })
		}
		wg.Wait()
		say(other, "notifications/tools/list_changed")
		if got := st.take(); len(got) > 0 {
			t.Errorf("the client got %q", got)
		}
		say(own, "notifications/tools/list_changed")
		if got := st.take(); len(got) != 1 {
			t.Errorf("the client got %q", got)
		}
		w.reply(w.received("tools/call")[0], `{"resultType":"complete","content":[]}`)
		<-call.done
	})
}

// What the server has refused once it is asked for again: it may exist by now.
func TestListenRefusesResource(t *testing.T) {
	var exists atomic.Bool
	f := &statelessFake{serve: func(s *statelessWire, m *jsonrpc.Message) bool {
		switch {
		case m.Method == era.Listen && exists.Load():
			s.acknowledge(m)
		case m.Method == era.Listen:
			s.acknowledge(m, "x:a")
		}
		return true
	}}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, _, _ := beginAs(t, g, able("2025-11-25"))
		for range 2 {
			bridgetest.Contains(t, do(t, s, "1", "resources/subscribe", `{"uri":"x:a"}`), "-32602")
		}
		exists.Store(true)
		bridgetest.Contains(t, do(t, s, "2", "resources/subscribe", `{"uri":"x:a"}`), `"result":{}`)
		bridgetest.Contains(t, do(t, s, "3", "resources/subscribe", `{}`), "-32602")
		if n := len(f.wire(1).filters()); n != 4 {
			t.Errorf("%d subscriptions", n)
		}
	})
}

// A server that announces no changes is not listened to before there is a
// resource to hear of, and not when there is none any more.
func TestListenForResourcesOnly(t *testing.T) {
	f := &statelessFake{discover: strings.Replace(silentServer, `"resources":{}`, `"resources":{"subscribe":true}`, 1), serve: completely("{}")}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, _, _ := beginAs(t, g, able("2025-11-25"))
		if got := f.wire(1).filters(); len(got) > 0 {
			t.Errorf("it was asked for %q", got)
		}
		bridgetest.Contains(t, do(t, s, "1", "resources/subscribe", `{"uri":"x:a"}`), `"result":{}`)
		same(t, "filters", f.wire(1).filters(), []string{`{"resourceSubscriptions":["x:a"]}`})
		bridgetest.Contains(t, do(t, s, "2", "resources/unsubscribe", `{"uri":"x:a"}`), `"result":{}`)
		time.Sleep(shrinkAfter)
		if got := f.wire(1).cancelled(); len(got) != 1 || len(f.wire(1).filters()) != 1 {
			t.Errorf("cancelled %q, asked for %q", got, f.wire(1).filters())
		}
	})
}

// a subscription that ends is opened again, and what may have been missed
// is told once, when nothing more can be. The lane tells it too when it has
// opened another connection: that is not passed on.
func TestListenAgain(t *testing.T) {
	changed := []string{`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, `{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}`,
		`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:a"}}`}
	ends := map[string]func(f *statelessFake, s *sitting, m *jsonrpc.Message){
		"with a result": func(s *statelessFake, _ *sitting, m *jsonrpc.Message) {
			s.wire(1).reply(m, `{"resultType":"complete"}`)
		},
		"with the connection": func(s *statelessFake, _ *sitting, _ *jsonrpc.Message) { s.wire(1).die() },
		"with the connection, which another call opens again": func(f *statelessFake, s *sitting, _ *jsonrpc.Message) {
			f.wire(1).die()
			synctest.Wait()
			_, _ = s.Call(parseRaw(`{"jsonrpc":"2.0","id":"again","method":"tools/list"}`), nil, nil)
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			var slow chan *jsonrpc.Message
			var hold atomic.Bool
			f := &statelessFake{serve: func(s *statelessWire, m *jsonrpc.Message) bool {
				if hold.Load() && m.Method == era.Listen {
					slow <- m
					return true
				}
				return completely("{}")(s, m)
			}}
			run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
				s, st, _ := beginAs(t, g, able("2025-11-25"))
				bridgetest.Contains(t, do(t, s, "1", "resources/subscribe", `{"uri":"x:a"}`), `"result":{}`)
				open := f.wire(1).received(era.Listen)
				slow = make(chan *jsonrpc.Message, 9)
				hold.Store(true)
				end(f, s, open[len(open)-1])
				again := <-slow
				if got := st.take(); len(got) > 0 {
					t.Errorf("before it has begun again the client got %q", got)
				}
				f.wire(f.opened()).acknowledge(again)
				same(t, "the client", st.take(), changed)
				time.Sleep(time.Minute)
				if got := st.take(); len(got) > 0 || len(slow) > 0 {
					t.Errorf("later the client got %q", got)
				}
			})
		})
	}
}

func parseRaw(text string) *jsonrpc.Message {
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		panic(err)
	}
	return m
}

// A server that takes no subscriptions is not asked for ever; the session goes on
// without, and what the lane has to tell is told.
func TestListenRefused(t *testing.T) {
	var accept atomic.Bool
	f := &statelessFake{serve: func(s *statelessWire, m *jsonrpc.Message) bool {
		if m.Method != era.Listen || accept.Load() {
			return completely("{}")(s, m)
		}
		s.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32601,"message":"no"}}`)
		return true
	}}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, st, _ := beginAs(t, g, able("2025-11-25"))
		time.Sleep(time.Hour)
		if n := len(f.wire(1).filters()); n != maxRefusals {
			t.Errorf("it was asked %d times", n)
		}
		bridgetest.Contains(t, do(t, s, "1", "resources/subscribe", `{"uri":"x:a"}`), "-32601")
		bridgetest.Contains(t, do(t, s, "2", "tools/list", `{}`), `"result":{}`)
		f.wire(1).die()
		time.Sleep(time.Minute)
		bridgetest.Contains(t, do(t, s, "3", "tools/list", `{}`), `"result":{}`)
		same(t, "the client", st.take(), []string{`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, `{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}`})
		accept.Store(true)
		bridgetest.Contains(t, do(t, s, "4", "resources/subscribe", `{"uri":"x:a"}`), `"result":{}`)
		same(t, "filters", f.wire(2).filters(), []string{`{` + bothLists + `,"resourceSubscriptions":["x:a"]}`})
	})
}

// what may have changed before the first subscription could be opened is
// told too.
func TestListenLate(t *testing.T) {
	var open atomic.Bool
	s := &statelessFake{serve: func(s *statelessWire, m *jsonrpc.Message) bool {
		if m.Method == era.Listen && !open.Swap(true) {
			s.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32603,"message":"too much to do"}}`)
			return true
		}
		return completely("{}")(s, m)
	}}
	run(t, ServerOptions{Adapter: s}, func(t *testing.T, g *gateway) {
		_, st, _ := beginAs(t, g, able("2025-11-25"))
		time.Sleep(time.Minute)
		same(t, "the client", st.take(), []string{`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, `{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}`})
	})
}

// A server's error may have line breaks between its tokens; on the client's wire
// it is one line.
func TestListenErrorIsOneLine(t *testing.T) {
	f := &statelessFake{serve: func(s *statelessWire, m *jsonrpc.Message) bool {
		if m.Method != era.Listen {
			return completely("{}")(s, m)
		}
		s.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + ",\"error\":{\n\"code\":-32603,\n\"message\":\"no\"}}")
		return true
	}}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, _, _ := beginAs(t, g, able("2025-11-25"))
		if got, want := do(t, s, "1", "resources/subscribe", `{"uri":"x:a"}`), `{"jsonrpc":"2.0","id":1,"error":{ "code":-32603, "message":"no"}}`; got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}

// A server that does not acknowledge a subscription is not waited for for ever,
// and what there was before goes on.
func TestListenUnacknowledged(t *testing.T) {
	first := true
	f := &statelessFake{serve: func(s *statelessWire, m *jsonrpc.Message) bool {
		if m.Method == era.Listen && !first {
			return true
		}
		first = first && m.Method != era.Listen
		return completely("{}")(s, m)
	}}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, st, _ := beginAs(t, g, able("2025-11-25"))
		began := time.Now()
		bridgetest.Contains(t, do(t, s, "1", "resources/subscribe", `{"uri":"x:a"}`), "-32603", "acknowledge", "upstream_timeout")
		if took := time.Since(began); took != gatherFor+ackWithin {
			t.Errorf("it took %v", took)
		}
		open := f.wire(1).received(era.Listen)
		same(t, "cancelled", f.wire(1).cancelled(), []string{string(open[1].ID)})
		f.wire(1).tell(open[0].ID, "notifications/tools/list_changed", "")
		if got := st.take(); len(got) != 1 {
			t.Errorf("the client got %q", got)
		}
	})
}

// A subscription that ends as soon as it has begun is opened less and less
// often.
func TestListenBackOff(t *testing.T) {
	s := &statelessFake{serve: func(s *statelessWire, m *jsonrpc.Message) bool {
		if m.Method == era.Listen {
			s.acknowledge(m)
			s.reply(m, `{"resultType":"complete"}`)
		}
		return true
	}}
	run(t, ServerOptions{Adapter: s}, func(t *testing.T, g *gateway) {
		_, _, _ = beginAs(t, g, able("2025-11-25"))
		time.Sleep(10 * time.Minute)
		if n := len(s.wire(1).filters()); n < 14 || n > 30 {
			t.Errorf("it was opened %d times", n)
		}
	})
}

// What is wanted while a subscription is about to begin comes with the next one,
// and what is not wanted any more goes.
func TestListenWhileBeginning(t *testing.T) {
	var hold atomic.Bool
	f := &statelessFake{serve: func(s *statelessWire, m *jsonrpc.Message) bool {
		if m.Method == era.Listen && hold.Load() {
			return true
		}
		return completely("{}")(s, m)
	}}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, _, _ := beginAs(t, g, able("2025-11-25"))
		subscribe := func(uri string) *pendingCall {
			return start(t, s, `{"jsonrpc":"2.0","id":"`+uri+`","method":"resources/subscribe","params":{"uri":"`+uri+`"}}`)
		}
		hold.Store(true)
		first := subscribe("x:a")
		time.Sleep(time.Second)
		second := subscribe("x:b")
		time.Sleep(time.Second)
		bridgetest.Contains(t, do(t, s, "3", "resources/unsubscribe", `{"uri":"x:a"}`), `"result":{}`)
		if first.over() || second.over() || len(f.wire(1).filters()) != 2 {
			t.Fatalf("the server was asked for %q", f.wire(1).filters())
		}
		hold.Store(false)
		f.wire(1).acknowledge(f.wire(1).received(era.Listen)[1])
		if !first.over() || second.over() {
			t.Error("what was acknowledged was not answered, or what was not was")
		}
		began := time.Now()
		if <-second.done; time.Since(began) != gatherFor {
			t.Errorf("the other one took %v more", time.Since(began))
		}
		bridgetest.Contains(t, first.answer+second.answer, `"id":"x:a","result":{}`, `"id":"x:b","result":{}`)
		// Once more, with something that is only taken away.
		hold.Store(true)
		third := subscribe("x:c")
		time.Sleep(time.Second)
		bridgetest.Contains(t, do(t, s, "4", "resources/unsubscribe", `{"uri":"x:b"}`), `"result":{}`)
		time.Sleep(shrinkAfter)
		hold.Store(false)
		f.wire(1).acknowledge(f.wire(1).received(era.Listen)[3])
		<-third.done
		time.Sleep(shrinkAfter)
		var all []string
		for _, filter := range f.wire(1).filters() {
			all = append(all, gjson.Get(filter, "resourceSubscriptions").Raw)
		}
		same(t, "resources", all, []string{``, `["x:a"]`, `["x:b"]`, `["x:b","x:c"]`, `["x:c"]`})
	})
}

// what is wanted again while the subscription without it is about to
// begin is answered when the one after that has begun.
func TestListenWantedAgain(t *testing.T) {
	var hold atomic.Bool
	f := &statelessFake{serve: func(s *statelessWire, m *jsonrpc.Message) bool {
		if m.Method == era.Listen && hold.Load() {
			return true
		}
		return completely("{}")(s, m)
	}}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, _, _ := beginAs(t, g, able("2025-11-25"))
		bridgetest.Contains(t, do(t, s, "1", "resources/subscribe", `{"uri":"x:a"}`), `"result":{}`)
		bridgetest.Contains(t, do(t, s, "2", "resources/unsubscribe", `{"uri":"x:a"}`), `"result":{}`)
		hold.Store(true)
		time.Sleep(shrinkAfter)
		w := f.wire(1)
		again := start(t, s, `{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"x:a"}}`)
		open := w.received(era.Listen)
		hold.Store(false)
		w.acknowledge(open[len(open)-1])
		<-again.done
		bridgetest.Contains(t, again.answer, `"result":{}`)
		var all []string
		for _, filter := range w.filters() {
			all = append(all, gjson.Get(filter, "resourceSubscriptions").Raw)
		}
		same(t, "resources", all, []string{``, `["x:a"]`, ``, `["x:a"]`})
	})
}

// What the server once accepted is wanted for as long as the client does not end
// it: that asking for it again came to nothing changes nothing.
func TestListenWantedTwice(t *testing.T) {
	var refuse atomic.Bool
	f := &statelessFake{serve: func(s *statelessWire, m *jsonrpc.Message) bool {
		if m.Method == era.Listen && refuse.Load() {
			s.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32603,"message":"no"}}`)
			return true
		}
		return completely("{}")(s, m)
	}}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, st, _ := beginAs(t, g, able("2025-11-25"))
		bridgetest.Contains(t, do(t, s, "1", "resources/subscribe", `{"uri":"x:a"}`), `"result":{}`)
		refuse.Store(true)
		w := f.wire(1)
		open := w.received(era.Listen)
		w.reply(open[len(open)-1], `{"resultType":"complete"}`)
		synctest.Wait()
		bridgetest.Contains(t, do(t, s, "2", "resources/subscribe", `{"uri":"x:a"}`), `-32603`)
		bridgetest.Contains(t, do(t, s, "3", "resources/subscribe", `{"uri":"x:b"}`), `-32603`)
		refuse.Store(false)
		time.Sleep(time.Minute)
		bridgetest.Contains(t, strings.Join(st.take(), "\n"), `"notifications/resources/updated","params":{"uri":"x:a"}`)
		filters := w.filters()
		bridgetest.Contains(t, filters[len(filters)-1], `"resourceSubscriptions":["x:a"]`)
	})
}

// What comes of a subscription does not answer those who wait for the next one
// with the same resource.
func TestListenWantedByTwo(t *testing.T) {
	for name, end := range map[string]func(s *statelessWire, m *jsonrpc.Message){
		"-32603": func(s *statelessWire, m *jsonrpc.Message) {
			s.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32603,"message":"no"}}`)
		},
		"-32602": func(s *statelessWire, m *jsonrpc.Message) { s.acknowledge(m, "x:a") },
	} {
		var hold atomic.Bool
		f := &statelessFake{serve: func(s *statelessWire, m *jsonrpc.Message) bool {
			if m.Method == era.Listen && hold.Load() {
				return true
			}
			return completely("{}")(s, m)
		}}
		run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
			s, _, _ := beginAs(t, g, able("2025-11-25"))
			subscribe := func(id string) *pendingCall {
				return start(t, s, `{"jsonrpc":"2.0","id":`+id+`,"method":"resources/subscribe","params":{"uri":"x:a"}}`)
			}
			w := f.wire(1)
			hold.Store(true)
			first := subscribe("1")
			time.Sleep(time.Second)
			second := subscribe("2")
			open := w.received(era.Listen)
			hold.Store(false)
			end(w, open[len(open)-1])
			<-first.done
			<-second.done
			bridgetest.Contains(t, first.answer, name)
			bridgetest.Contains(t, second.answer, `"result":{}`)
			with := `{` + bothLists + `,"resourceSubscriptions":["x:a"]}`
			if got := w.filters(); len(got) != 3 || got[2] != with {
				t.Errorf("%s: filters %q, want %s twice", name, got, with)
			}
		})
	}
}

// When all is quiet the server hears exactly what the client wants.
func TestListenConverges(t *testing.T) {
	f := &statelessFake{serve: completely("{}")}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, _, _ := beginAs(t, g, able("2025-11-25"))
		want := map[string]bool{}
		for i := range 60 {
			uri, method := fmt.Sprintf("x:%d", i*i%11), "subscribe"
			if i%3 == 0 {
				method = "unsubscribe"
			}
			want[uri] = i%3 != 0
			bridgetest.Contains(t, do(t, s, "1", "resources/"+method, `{"uri":"`+uri+`"}`), `"result":{}`)
			time.Sleep(time.Duration(i%7) * 10 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		var uris []string
		for uri, on := range want {
			if on {
				uris = append(uris, uri)
			}
		}
		slices.Sort(uris)
		filters := f.wire(1).filters()
		var got []string
		for _, u := range gjson.Get(filters[len(filters)-1], "resourceSubscriptions").Array() {
			got = append(got, u.Str)
		}
		same(t, "resources", got, uris)
		if open, ended := len(filters), len(f.wire(1).cancelled()); ended != open-1 {
			t.Errorf("%d subscriptions were opened and %d ended", open, ended)
		}
	})
}
