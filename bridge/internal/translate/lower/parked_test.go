package lower_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lower"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// A question parks the call. A request with the answers resumes it, and its answer stays for a client that lost it.
func TestParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, lower.Clients{})
		first := s.ask(s.from, "tools/call", `{"name":"x","arguments":{"a":1,"b":2},"_meta":{"progressToken":"one"}}`)
		c := s.Next()
		c.Back.Notify(bridgetest.Notification(t, "notifications/progress", `{"progressToken":"one","progress":1}`))
		c.Back.Notify(bridgetest.Notification(t, "notifications/message", `{"level":"error","data":"not wanted"}`))
		c.Back.Notify(bridgetest.Notification(t, "notifications/tools/list_changed", ``))
		got := make(replies, 4)
		form := `{"message":"who?","requestedSchema":{"type":"object","properties":{}}}`
		c.Back.Ask(bridgetest.Question(t, "elicitation/create", form), got.take)
		c.Back.Ask(bridgetest.Question(t, "roots/list", `{}`), got.take)
		asked := first.answer()
		bridgetest.Contains(t, asked, `"resultType":"input_required"`, `"inputRequests":{"r1":{"method":"elicitation/create","params":`+form+`},"r2":{"method":"roots/list","params":{}}}`)
		same(t, "the client got", strings.Join(first.Got(), "\n"), `notifications/progress {"progressToken":"one","progress":1}`)
		if st := s.s.Status(); st.Waiting != 1 || st.Kept != 1 || st.Requests != 1 {
			t.Errorf("Status() = %+v", st)
		}
		c.Back.Notify(bridgetest.Notification(t, "notifications/progress", `{"progressToken":"one","progress":2}`))

		// A request without any answer is asked again, one with an invalid answer is refused.
		same(t, "asked again", statePattern.ReplaceAllString(s.ask(s.from, "tools/call", `{"name":"x","arguments":{"b":2,"a":1},`+state(t, asked)+`}`).answer(), ""), statePattern.ReplaceAllString(asked, ""))
		bridgetest.Contains(t, s.ask(s.from, "tools/call", `{"name":"x","arguments":{"b":2,"a":1},`+state(t, asked)+`,"inputResponses":{"r1":{"action":"maybe"}}}`).answer(), "requestState")
		again := s.ask(s.from, "tools/call", `{"name":"x","arguments":{"b":2,"a":1},`+state(t, asked)+`}`).answer()
		bridgetest.Contains(t, s.ask(s.from, "tools/call", `{"name":"x","arguments":{"b":2,"a":1},`+state(t, again)+`,"inputResponses":{"r1":{"action":"maybe"}}}`).answer(), `inputResponses.r1: action`)

		params := `{"name":"x","arguments":{"b":2,"a":1},"_meta":{"progressToken":"two"},` + state(t, again) + `,"inputResponses":{"r1":{"action":"decline"},"r2":{"roots":[]}}}`
		second := s.ask(s.from, "tools/call", params)
		same(t, "the server got", <-got+<-got, `{"jsonrpc":"2.0","id":1,"result":{"action":"decline"}}{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}`)
		synctest.Wait()
		bridgetest.Contains(t, s.ask(s.from, "tools/call", params).answer(), "another request")
		c.Answer(t, `{"content":[]}`)
		same(t, "the answer", second.answer(), `{"jsonrpc":"2.0","id":1,"result":{`+envelope+`,"content":[]}}`)
		same(t, "the client got", strings.Join(second.Got(), "\n"), `notifications/progress {"progressToken":"two","progress":2}`)
		same(t, "the answer once more", s.ask(s.from, "tools/call", params).answer(), second.answer())
		if st := s.s.Status(); st.Waiting != 0 || st.Kept != 1 || st.Bytes == 0 {
			t.Errorf("Status() = %+v", st)
		}
		same(t, "uses of the connection", s.seen(), "hold, leave")
		time.Sleep(11 * time.Minute)
		bridgetest.Contains(t, s.ask(s.from, "tools/call", params).answer(), "-32602")
		s.end()
	})
}

// Too many parked calls refuse further questions, and give way when nobody has come back to them for a minute.
func TestMaxParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, lower.Clients{})
		from := bridgetest.Caller(era.LatestModern, "p", able)
		park := func() string {
			v := s.ask(from, "tools/call", `{"name":"x"}`)
			c := s.Next()
			c.Back.Ask(bridgetest.Question(t, "roots/list", `{}`), func(*jsonrpc.Message) {})
			return v.answer()
		}
		for range lower.MaxParked {
			bridgetest.Contains(t, park(), "input_required")
		}
		v := s.ask(from, "tools/call", `{"name":"x"}`)
		c, got := s.Next(), make(replies, 1)
		c.Back.Ask(bridgetest.Question(t, "elicitation/create", `{"message":"m","requestedSchema":{}}`), got.take)
		same(t, "one too many", v.answer(), "error: the server asks its client a question, and too many calls are parked (the limit is 32)")
		same(t, "the server got", <-got, `{"jsonrpc":"2.0","id":1,"result":{"action":"cancel"}}`) // nobody answers in the client's name
		<-c.Ctx.Done()
		if s.s.EvictStale("p", true) {
			t.Error("a call gives way at once")
		}
		time.Sleep(61 * time.Second)
		bridgetest.Contains(t, park(), "input_required")
		if !s.s.EvictStale("p", true) || s.s.EvictStale("q", true) || s.s.Status().Waiting != lower.MaxParked-1 {
			t.Errorf("Status() = %+v", s.s.Status())
		}
		s.end()
		for _, line := range []string{"too many calls are parked\" method=tools/call max=32\n", `parked call evicted for another one" method=tools/call waited=1m2s`} {
			if strings.Count(s.log.String(), line) != 1 { // at most one warning a minute
				t.Errorf("the log has not once %s\n%s", line, s.log.String())
			}
		}
	})
}

// A parked call that the server has ended meanwhile gives way too, before one that still waits. It needs no
// connection, so it does not give way for one.
func TestMaxParkedEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, lower.Clients{})
		from := bridgetest.Caller(era.LatestModern, "p", able)
		park := func() (string, *bridgetest.Call) {
			v := s.ask(from, "tools/call", `{"name":"x"}`)
			c := s.Next()
			c.Back.Ask(bridgetest.Question(t, "roots/list", `{}`), func(*jsonrpc.Message) {})
			return v.answer(), c
		}
		waits, _ := park()
		other, _ := park()
		for range lower.MaxParked - 2 {
			_, c := park()
			c.Answer(t, `{"content":[],"isError":true}`)
		}
		time.Sleep(61 * time.Second)
		if s.s.EvictStale("q", false) || !s.s.EvictStale("p", true) {
			t.Error("the call that waits does not give way for a connection")
		}
		bridgetest.Contains(t, s.ask(from, "tools/call", `{"name":"x",`+state(t, waits)+`}`).answer(), "no longer exists")
		for range lower.MaxParked - 3 {
			if !s.s.EvictStale("p", false) {
				t.Error("a call that has ended does not give way")
			}
		}
		bridgetest.Contains(t, s.ask(from, "tools/call", `{"name":"x",`+state(t, other)+`}`).answer(), "input_required")
		if s.s.EvictStale("p", true) {
			t.Error("a call that has ended gives way for a connection")
		}
		for range 2 {
			got, _ := park()
			bridgetest.Contains(t, got, "input_required")
		}
		s.end()
	})
}

// A client that leaves in the very moment in which its call is parked has not heard of it: the call is cancelled.
func TestCancelAgainstParking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, lower.Clients{})
		const calls = 50
		for range calls {
			v := s.ask(s.from, "tools/call", `{"name":"x"}`)
			s.Next().Back.Ask(bridgetest.Question(t, "roots/list", `{}`), func(*jsonrpc.Message) {})
			time.AfterFunc(30*time.Millisecond, func() { v.cancel(bridge.ErrCancelled) }) // the window for questions
			if got := v.answer(); v.err == nil {
				again := s.ask(s.from, "tools/call", `{"name":"x",`+state(t, got)+`}`)
				again.cancel(bridge.ErrCancelled)
				again.answer()
			}
		}
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if n := strings.Count(strings.Join(s.Got(), "\n"), "cancelled tools/call"); n != calls {
			t.Errorf("%d of %d calls were cancelled", n, calls)
		}
		if st := s.s.Status(); st != (lower.Status{}) {
			t.Errorf("left: %+v", st)
		}
		s.end()
	})
}

// Questions that nobody answers get a reply when the call is dropped: it expires, is revoked, or the bridge stops.
func TestUnanswered(t *testing.T) {
	for name, drop := range map[string]func(s *stage){
		"expired": func(*stage) { time.Sleep(10*time.Minute + time.Second) },
		"revoked": func(s *stage) { s.s.Revoke("", bridge.ErrRevoked) },
		"stopped": func(s *stage) { s.s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := play(t, era.Rev20251125, `{}`, lower.Clients{})
				v := s.ask(s.from, "tools/call", `{"name":"x"}`)
				c := s.Next()
				got := make(replies, 3)
				c.Back.Ask(bridgetest.Question(t, "elicitation/create", `{"message":"m","requestedSchema":{}}`), got.take)
				c.Back.Ask(bridgetest.Question(t, "sampling/createMessage", `{"messages":[],"maxTokens":1}`), got.take)
				c.Back.Ask(bridgetest.Question(t, "roots/list", `{}`), got.take)
				st := state(t, v.answer())
				drop(s)
				same(t, "elicitation", <-got, `{"jsonrpc":"2.0","id":1,"result":{"action":"cancel"}}`)
				bridgetest.Contains(t, <-got, `"code":-1,`)
				bridgetest.Contains(t, <-got, `"code":-32603,`)
				synctest.Wait()
				bridgetest.Contains(t, strings.Join(s.Got(), "\n"), "cancelled tools/call")
				bridgetest.Contains(t, s.ask(s.from, "tools/call", `{"name":"x",`+st+`}`).answer(), "-32602")
				s.end()
			})
		})
	}
}
