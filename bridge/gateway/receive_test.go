package gateway

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
)

// A client may be asked what it has declared, and gets the question
// under an id and a token of the bridge's own.
func TestRefusal(t *testing.T) {
	for _, tc := range []struct {
		caps, method, params string
		code                 string // of the refusal, empty when it is asked
	}{
		{`{}`, "sampling/createMessage", `{}`, "-32601"},
		{`{}`, "vendor/ask", `{}`, ""},
		{`{"sampling":{}}`, "sampling/createMessage", `{}`, ""},
		{`{"elicitation":{}}`, "elicitation/create", `{}`, ""},
		{`{"elicitation":{"url":{}}}`, "elicitation/create", `{"mode":"form"}`, "-32602"},
	} {
		f := &fake{}
		run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
			s, a, err := initialize(t, g, "", `{"protocolVersion":"2025-11-25","capabilities":`+tc.caps+`,"clientInfo":{"name":"c","version":"1"}}`)
			if err != nil {
				t.Fatalf("Initialize = %s, %v", a, err)
			}
			st := &stream{}
			s.Attach(st)
			s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`), nil)
			f.wire(1).say(fmt.Sprintf(`{"jsonrpc":"2.0","id":77,"method":%q,"params":%s}`, tc.method, tc.params))
			asked, got := st.take(), strings.Join(f.wire(1).received(), "\n")
			if (tc.code == "") != (len(asked) == 1) || (tc.code == "") != (got == "") || !strings.Contains(got, tc.code) {
				t.Errorf("%s %s of a client with %s: the server got %q, the client %q, want code %q", tc.method, tc.params, tc.caps, got, asked, tc.code)
			}
		})
	}
}

// T-S2C-1: a question reaches the client with ids of our own; the answer, and
// progress on the way, reach the server with its own.
func TestQuestion(t *testing.T) {
	f := &fake{serve: silent("slow")}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, st := begin(t, g, "")
		foreign, _ := begin(t, g, "")
		w := f.wire(1)
		w.say(`{"jsonrpc":"2.0","id":"q-9","method":"sampling/createMessage","params":{"x":1,"_meta":{"progressToken":"theirs"}}}`)
		got := strings.Join(st.take(), "\n")
		bridgetest.Contains(t, got, `"id":1,"method":"sampling/createMessage"`, `"progressToken":1}`, `"x":1`)
		s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":5}}`), nil)
		s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"1","progress":6}}`), nil)
		if err := foreign.Answer(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"result":{"stolen":1}}`)); err == nil {
			t.Error("a foreign session could answer")
		}
		if err := s.Answer(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":"one","result":{}}`)); err == nil {
			t.Error(`"one" could answer 1`)
		}
		if err := s.Answer(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":"1","result":{"big":12345678901234567890}}`)); err != nil {
			t.Error(err)
		}
		if err := s.Answer(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"result":{}}`)); err == nil {
			t.Error("a second answer was taken")
		}
		synctest.Wait()
		want := []string{
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"theirs","progress":5}}`,
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"theirs","progress":6}}`,
			`{"jsonrpc":"2.0","id":"q-9","result":{"big":12345678901234567890}}`,
		}
		if got := w.received(); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("the server got %q", got)
		}
		// The server may take a question back.
		w.say(`{"jsonrpc":"2.0","id":5,"method":"roots/list"}`)
		w.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
		got = strings.Join(st.take(), "\n")
		bridgetest.Contains(t, got, `"id":2,"method":"roots/list"`, `"notifications/cancelled","params":{"requestId":2`)
		// A lost connection takes its questions along.
		w.say(`{"jsonrpc":"2.0","id":6,"method":"roots/list"}`)
		w.die()
		bridgetest.Contains(t, strings.Join(st.take(), "\n"), `"requestId":3`)
	})
}

// Questions and logs go with the one call that they can be about, otherwise on
// the open stream; progress goes nowhere else than its call's stream.
func TestAttribution(t *testing.T) {
	f := &fake{serve: silent("slow")}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, st := begin(t, g, "")
		w := f.wire(1)
		say := func() {
			w.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
			w.say(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
			w.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":1}}`)
			w.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
			w.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		}
		one := start(t, s, `{"jsonrpc":"2.0","id":"a","method":"slow","params":{"_meta":{"progressToken":"t"}}}`)
		synctest.Wait()
		say()
		got, rest := strings.Join(one.back.take(), "\n"), strings.Join(st.take(), "\n")
		bridgetest.Contains(t, got, `"data":1`, "roots/list", `"progressToken":"t"`, "notifications/cancelled")
		bridgetest.Contains(t, rest, "list_changed")
		bridgetest.Lacks(t, got, "list_changed")
		bridgetest.Lacks(t, rest, "roots/list", "progress", "data", "cancelled")
		one.back.close()
		say()
		bridgetest.Contains(t, strings.Join(st.take(), "\n"), `"data":1`, "roots/list", "cancelled")
		two := start(t, s, `{"jsonrpc":"2.0","id":"b","method":"slow"}`)
		synctest.Wait()
		say()
		got = strings.Join(st.take(), "\n")
		bridgetest.Contains(t, got, `"data":1`, "roots/list")
		bridgetest.Lacks(t, got, "progress")
		if got := two.back.take(); len(got) != 0 {
			t.Errorf("the other call's stream got %q", got)
		}
	})
}

// What the server says on the stream of a call that its client has left is not
// lost, but for progress and log messages: the open stream has it.
func TestAttributionLeft(t *testing.T) {
	f := &fake{serve: silent("slow")}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, st := begin(t, g, "")
		one := start(t, s, `{"jsonrpc":"2.0","id":"a","method":"slow","params":{"_meta":{"progressToken":"t"}}}`) // call 2
		synctest.Wait()
		say := func() {
			for _, line := range []string{
				`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`,
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":1}}`,
				`{"jsonrpc":"2.0","method":"notifications/x"}`,
			} {
				f.wire(1).sayOn(2, line)
			}
		}
		say()
		if got, rest := one.back.take(), st.take(); len(got) != 3 || !strings.Contains(got[2], "notifications/x") || len(rest) != 0 {
			t.Errorf("the call's stream has %q, the open one %q", got, rest)
		}
		one.back.close()
		say()
		if got := st.take(); len(got) != 1 || !strings.Contains(got[0], "notifications/x") {
			t.Errorf("the open stream has %q", got)
		}
	})
}

// A question waits 10 minutes for its answer, and 30 s for a stream; what is
// given up before it was sent is not sent later.
func TestQuestionExpires(t *testing.T) {
	f := &fake{}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, _, err := initialize(t, g, "", bridgetest.InitializeParams)
		if err != nil {
			t.Fatal(err)
		}
		do(t, s, "1", "x", `{}`)
		w := f.wire(1)
		refused := func(id string) bool {
			synctest.Wait()
			return strings.Contains(strings.Join(w.received(), "\n"), `"id":`+id+`,"error":{"code":-32603`)
		}
		w.say(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
		synctest.Wait()
		time.Sleep(streamTTL - time.Second)
		if refused("1") {
			t.Error("refused too early")
		}
		time.Sleep(2 * time.Second)
		if !refused("1") {
			t.Error("not refused without a stream")
		}
		w.say(`{"jsonrpc":"2.0","id":2,"method":"roots/list"}`)
		synctest.Wait()
		st := &stream{}
		s.Attach(st)
		if got := st.take(); len(got) != 1 || !strings.Contains(got[0], `"id":2,`) {
			t.Errorf("the stream got %q", got)
		}
		time.Sleep(questionTTL - time.Second)
		if refused("2") {
			t.Error("refused too early")
		}
		time.Sleep(2 * time.Second)
		if !refused("2") {
			t.Error("not refused after 10 minutes")
		}
		bridgetest.Contains(t, strings.Join(st.take(), "\n"), `"notifications/cancelled","params":{"requestId":2`)
		if err := s.Answer(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":2,"result":{}}`)); err == nil {
			t.Error("a late answer was taken")
		}
	})
}

// A client has at most 64 questions to answer; the end of its session answers
// the server.
func TestQuestionLimit(t *testing.T) {
	f := &fake{}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, st := begin(t, g, "")
		w := f.wire(1)
		for i := range bridge.MaxQuestions + 1 {
			w.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"roots/list"}`, i))
		}
		if got := st.take(); len(got) != bridge.MaxQuestions {
			t.Errorf("%d questions reached the client, want %d", len(got), bridge.MaxQuestions)
		}
		if got := w.received(); len(got) != 1 || !strings.Contains(got[0], `"id":64,"error"`) {
			t.Errorf("the server got %q", got)
		}
		if err := s.Answer(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"result":{}}`)); err != nil {
			t.Error(err)
		}
		w.say(`{"jsonrpc":"2.0","id":99,"method":"roots/list"}`)
		if got := st.take(); len(got) != 1 {
			t.Errorf("an answer made no room: %q", got)
		}
		s.mu.Lock()
		questions := len(s.questions)
		s.mu.Unlock()
		if questions != bridge.MaxQuestions {
			t.Errorf("%d questions, want %d", questions, bridge.MaxQuestions)
		}
		answers := len(w.received())
		s.finish(bridge.ErrEnded)
		synctest.Wait()
		if got := len(w.received()) - answers; got != bridge.MaxQuestions {
			t.Errorf("the end answered %d questions, want %d", got, bridge.MaxQuestions)
		}
		s.release(t.Context())
	})
}

// A question for which there is no room is refused, and does not take the
// place of another that waits.
func TestQuestionsWithoutRoom(t *testing.T) {
	f := &fake{}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, _, err := initialize(t, g, "", bridgetest.InitializeParams)
		if err != nil {
			t.Fatal(err)
		}
		do(t, s, "1", "x", `{}`)
		w := f.wire(1)
		large := strings.Repeat("x", 11<<20) + `"}}`
		for id := 1; id <= 3; id++ { // of which two fit into what may wait
			w.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"roots/list","params":{"x":"`, id) + large)
		}
		synctest.Wait()
		if got := strings.Join(w.received(), "\n"); !strings.Contains(got, `"id":3,"error":{"code":-32603`) || strings.Contains(got, `"id":2,"error"`) {
			t.Errorf("the server got %q, want a refusal of question 3 alone", got)
		}
		w.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`)
		st := &stream{}
		defer s.Attach(st)()
		if got := st.take(); len(got) != 2 {
			t.Errorf("%d questions reached the client, want 2", len(got))
		}
	})
}

// asker is a modern server that asks for roots before it answers a call of a tool. The answer has the tool, the
// requestState and the root.
func asker() *modernFake {
	s := modernShop("asker", nil)
	serve := s.serve
	s.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method != "tools/call" {
			return serve(f, m)
		}
		p := gjson.ParseBytes(m.Params)
		if root := p.Get("inputResponses.r.roots.0.uri"); root.Exists() {
			f.answer(m, fmt.Sprintf(`{"resultType":"complete","content":[{"type":"text","text":%q}]}`, strings.Join([]string{m.Name(), p.Get("requestState").Str, root.Str}, " ")))
		} else {
			f.answer(m, fmt.Sprintf(`{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}},"requestState":%q}`, "state of "+m.Name()))
		}
		return true
	}
	return s
}

// Calls that ask at the same time keep their questions, each on its own stream, and their answers apart, also over a
// connection that everybody shares. A ping meanwhile is answered.
func TestQuestionsApart(t *testing.T) {
	for _, share := range []Share{ShareSession, SharePrincipal, ShareAll, ShareCall} {
		run(t, ServerOptions{Adapter: asker(), ServerSettings: ServerSettings{Share: share}}, func(t *testing.T, g *gateway) {
			var all []*sitting
			var calls []*pendingCall
			for i := range 4 {
				if i%2 == 0 {
					s, _ := begin(t, g, "")
					all = append(all, s)
				}
				calls = append(calls, start(t, all[i/2], fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t%d"}}`, i, i)))
			}
			for i, p := range calls {
				s := all[i/2]
				if got := do(t, s, "9", "ping", `{}`); got != `{"jsonrpc":"2.0","id":9,"result":{}}` {
					t.Errorf("%s: ping = %s", share, got)
				}
				asked := p.back.take()
				if len(asked) != 1 {
					t.Fatalf("%s: call %d was asked %q", share, i, asked)
				}
				if err := s.Answer(bridgetest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"roots":[{"uri":"file:///%d"}]}}`, gjson.Get(asked[0], "id").Raw, i))); err != nil {
					t.Error(err)
				}
				if want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"t%d state of t%d file:///%d"}]}}`, i, i, i, i); !p.over() || p.answer != want {
					t.Errorf("%s: got %s, want %s", share, p.answer, want)
				}
			}
		})
	}
}

// A stream that breaks takes no call back: the question goes to another stream of the session, and the call goes
// on.
func TestQuestionAfterBreak(t *testing.T) {
	f := asker()
	serve := f.serve
	var let chan struct{}
	f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "tools/call" {
			<-let
		}
		return serve(f, m)
	}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		let = make(chan struct{}) // in the bubble
		s, st := begin(t, g, "")
		call := start(t, s, `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"t"}}`)
		if call.over() {
			t.Fatal(call.answer)
		}
		call.back.close()
		close(let)
		asked := st.take()
		if len(asked) != 1 {
			t.Fatalf("the other stream has %q", asked)
		}
		if err := s.Answer(bridgetest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"roots":[{"uri":"file:///a"}]}}`, gjson.Get(asked[0], "id").Raw))); err != nil {
			t.Error(err)
		}
		if !call.over() || !strings.Contains(call.answer, "t state of t file:///a") {
			t.Errorf("the call ended with %q", call.answer)
		}
	})
}

// What a server says on a shared lane takes nobody's room in particular, and on
// another its principal's.
func TestRoomOfLane(t *testing.T) {
	for share, principal := range map[Share]string{ShareSession: "bob", ShareAll: ""} {
		f := &fake{}
		run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: share}}, func(t *testing.T, g *gateway) {
			begin(t, g, "bob")
			if f.wire(1).rest.(bridge.Roomy).Room() != g.Room(principal).Incoming() {
				t.Errorf("%s: not the room of %q", share, principal)
			}
		})
	}
}

// deafStream takes nothing.
type deafStream struct{}

func (deafStream) Send(replay.Event) bool { return false }

// A question that finds no room any more when it is to be put on a stream, and is
// taken back, does not take another one along.
func TestQuestionWithoutRoom(t *testing.T) {
	g := &gateway{bytes: limits.NewBytes(200_000, 0)}
	s := &sitting{g: g, caller: &bridge.Caller{}, ready: true}
	s.questions = map[string]*question{}
	for _, id := range []string{"1", "2"} {
		size := map[string]int{"1": 1000, "2": 80_000}[id]
		q := &question{timer: time.NewTimer(time.Hour), reply: func(*jsonrpc.Message) {}}
		if _, ok := s.put(replay.Event{Data: make([]byte, size), Must: true}); !ok {
			t.Fatal("no room to begin with")
		}
		s.placed(q, nil)
		s.questions[id] = q
	}
	if !g.Room("").Reserve(119_000) {
		t.Fatal("no room for a request")
	}
	g.Room("").Outgoing().Force(1000) // somebody is quicker
	s.streams = []*attachment{{deafStream{}}}
	s.flush()
	if n := s.pending.Bytes(); n != 1000 {
		t.Fatalf("%d bytes are pending, want the small question", n)
	}
	s.withdraw("2", s.questions["2"], "")
	if n := s.pending.Bytes(); n != 1000 {
		t.Error("the question that waits was taken back with the one that found no room")
	}
}

// A call whose answer was none is told so, and counts as one that was lost: it may
// have been executed. For the breaker it is a failure: see TestInvalidFails.
func TestInvalidIsLost(t *testing.T) {
	err := error(&bridge.Error{Server: "fake", Kind: bridge.ErrInvalid, Public: "no answer"})
	bridgetest.Contains(t, string(Refusal([]byte("1"), err).Error), `{"bridge":"upstream_invalid"}`)
	if got := bridge.OutcomeOf(err); got != bridge.Lost {
		t.Errorf("its outcome is %v, want %v", got, bridge.Lost)
	}
}
