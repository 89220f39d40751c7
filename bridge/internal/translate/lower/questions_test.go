package lower_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lower"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// Questions that this client cannot be asked are refused, and the call goes on.
func TestQuestionRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, lower.Clients{})
		v := s.ask(bridgetest.Caller(era.LatestModern, "", `{"roots":{}}`), "tools/call", `{"name":"x"}`)
		c := s.Next()
		got := make(replies, 1)
		for method, want := range map[string]string{"elicitation/create": `"code":-32602`, "vendor/ask": `"code":-32601`} {
			c.Back.Ask(bridgetest.Question(t, method, `{}`), got.take)
			bridgetest.Contains(t, <-got, want)
		}
		for range bridge.MaxQuestions {
			c.Back.Ask(bridgetest.Question(t, "roots/list", `{}`), func(*jsonrpc.Message) {})
		}
		c.Back.Ask(bridgetest.Question(t, "roots/list", `{}`), got.take)
		bridgetest.Contains(t, <-got, "too many unanswered questions")
		bridgetest.Contains(t, v.answer(), `"r64"`)
		s.end()

		// A client that can be asked nothing has calls that carry no question.
		s = play(t, era.Rev20251125, `{}`, lower.Clients{})
		s.from.Capabilities = []byte(`{}`)
		s.tr = s.s.Translator(lower.Clients{Tools: &list.TaskTools{}}, s, func(bridge.Client) lower.Line { return s })
		v = s.ask(s.from, "tools/call", `{"name":"x"}`)
		c = s.Next()
		c.Back.Ask(bridgetest.Question(t, "sampling/createMessage", `{}`), got.take)
		bridgetest.Contains(t, <-got, "no client request to attach to")
		c.Answer(t, `{}`)
		bridgetest.Contains(t, v.answer(), envelope)
	})
}

// Questions that name no call go to the only one there is; the server hears why others are refused.
func TestUnattributed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, lower.Clients{})
		got := make(replies, 4)
		s.tr.Ask(bridgetest.Question(t, "vendor/ask", `{}`), got.take)
		bridgetest.Contains(t, <-got, "unknown method")
		if s.s.Unattributed() {
			t.Error("a method that is no question counts as one")
		}
		s.tr.Ask(bridgetest.Question(t, "sampling/createMessage", `{}`), got.take)
		bridgetest.Contains(t, <-got, "no client request to attach to")
		if !s.s.Unattributed() {
			t.Error("the question does not count")
		}
		// Roots wait for a call: one question is taken up, one withdrawn, one too old. Only so many wait.
		var refused atomic.Int64
		for range 2 * bridge.MaxQuestions {
			s.tr.Ask(bridgetest.Question(t, "roots/list", `{}`), func(*jsonrpc.Message) { refused.Add(1) })
		}
		if refused.Load() != bridge.MaxQuestions {
			t.Errorf("%d questions were refused at once", refused.Load())
		}
		time.Sleep(10*time.Second + time.Millisecond)
		if synctest.Wait(); refused.Load() != 2*bridge.MaxQuestions {
			t.Errorf("%d questions were refused in the end", refused.Load())
		}
		s.tr.Ask(bridgetest.Question(t, "roots/list", `{}`), got.take)
		time.Sleep(11 * time.Second)
		bridgetest.Contains(t, <-got, "no request of a client is in flight")
		s.tr.Ask(bridgetest.Question(t, "roots/list", `{}`), got.take)("")
		s.tr.Ask(bridgetest.Question(t, "roots/list", `{}`), got.take)
		v := s.ask(s.from, "tools/call", `{"name":"x"}`)
		c := s.Next()
		asked := v.answer()
		bridgetest.Contains(t, asked, `"inputRequests":{"r1":{"method":"roots/list","params":{}}}`)
		next := s.ask(s.from, "tools/call", `{"name":"x",`+state(t, asked)+`,"inputResponses":{"r1":{"roots":[]}}}`)
		bridgetest.Contains(t, <-got, `"roots":[]`)
		synctest.Wait()

		// Two calls: neither client may see the question.
		other := s.ask(s.from, "tools/call", `{"name":"y"}`)
		d := s.Next()
		s.seen()
		s.tr.Ask(bridgetest.Question(t, "roots/list", `{}`), got.take)
		bridgetest.Contains(t, <-got, "the question names no call")
		same(t, "the connection", s.seen(), "retire")
		c.Answer(t, `{}`)
		bridgetest.Contains(t, next.answer(), envelope)
		d.Answer(t, `{}`)
		bridgetest.Contains(t, other.answer(), envelope)
		s.tr.Ask(bridgetest.Question(t, "roots/list", `{}`), got.take) // waits until the end
		s.end()
		bridgetest.Contains(t, <-got, `"error"`)
	})
}

// A question that names no call is about a call that waits for its client only while no other request is in flight
// that may be its cause.
func TestQuestionBesideParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, lower.Clients{})
		v := s.ask(s.from, "tools/call", `{"name":"x"}`)
		c := s.Next()
		got := make(replies, 3)
		list := s.ask(s.from, "tools/list", `{}`)
		l := s.Next()
		s.tr.Ask(bridgetest.Question(t, "roots/list", `{}`), got.take)
		asked := v.answer()
		s.tr.Ask(bridgetest.Question(t, "sampling/createMessage", `{}`), got.take)
		bridgetest.Contains(t, <-got, "no client request to attach to")
		l.Answer(t, `{"tools":[]}`)
		list.answer()
		s.tr.Ask(bridgetest.Question(t, "sampling/createMessage", `{"messages":[],"maxTokens":1}`), got.take)
		s.tr.Ask(bridgetest.Question(t, "elicitation/create", `{"message":"who?","requestedSchema":{"type":"object","properties":{}}}`), got.take)

		// The client comes back with fewer capabilities: what it has answered counts, and the rest of what it cannot
		// be asked any more is refused.
		less := bridgetest.Caller(era.LatestModern, "", `{"elicitation":{"form":{}}}`)
		next := s.ask(less, "tools/call", `{"name":"x",`+state(t, asked)+`,"inputResponses":{"r1":{"roots":[]}}}`)
		synctest.Wait()
		same(t, "the server got", <-got+<-got, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"the client no longer has the capability for this question"}}{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}`)
		bridgetest.Contains(t, next.answer(), `"inputRequests":{"r3":{"method":"elicitation/create"`)
		last := s.ask(less, "tools/call", `{"name":"x",`+state(t, next.answer())+`,"inputResponses":{"r3":{"action":"decline"}}}`)
		bridgetest.Contains(t, <-got, "decline")
		c.Answer(t, `{}`)
		bridgetest.Contains(t, last.answer(), envelope)
		s.end()
	})
}

// With a handle, a guessed question moves to another call when its own ends first.
func TestGuessed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, lower.Clients{Keyed: true})
		one, c := s.ask(s.from, "tools/call", `{"name":"x"}`), s.Next()
		two, d := s.ask(s.from, "tools/call", `{"name":"y"}`), s.Next()
		got := make(replies, 1)
		s.tr.Ask(bridgetest.Question(t, "roots/list", `{}`), got.take) // about the last call, it seems
		d.Answer(t, `{}`)
		bridgetest.Contains(t, two.answer(), envelope)
		asked := one.answer()
		bridgetest.Contains(t, asked, `"roots/list"`)
		third := s.ask(s.from, "tools/call", `{"name":"x",`+state(t, asked)+`,"inputResponses":{"r1":{"roots":[]}}}`)
		bridgetest.Contains(t, <-got, `"roots":[]`)
		c.Answer(t, `{}`)
		bridgetest.Contains(t, third.answer(), envelope)
		s.end()
	})
}
