package stateless_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/stateless"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Calls whose clients can be asked have a legacy connection each, and wait for one where there are no more.
func TestClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lanes := 2
		s := play(t, era.Rev20251125, `{}`, stateless.Options{Budget: budget(lanes), Queue: queue{10 * time.Second, 1}})
		began := time.Now()
		one := s.ask("", able, "tools/call", `{"name":"1"}`)
		a := s.all0().Next()
		two := s.ask("", able, "tools/call", `{"name":"2"}`)
		synctest.Wait()
		if len(s.all) != 1 || s.pool.Status().Queued != 1 {
			t.Errorf("%d connections, %+v", len(s.all), s.pool.Status())
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		b := s.all[1].Next()
		if waited := time.Since(began); waited != 100*time.Millisecond {
			t.Errorf("another connection was opened after %v", waited)
		}
		three := s.ask("", able, "tools/call", `{"name":"3"}`)
		synctest.Wait()
		same(t, "one too many", s.ask("", able, "tools/call", `{"name":"4"}`).answer(), "error: refused: all its connections serve calls with possible questions, and 1 more calls wait (limits: queue)")
		bridgetest.Contains(t, s.call("", "tools/call", `{"name":"x"}`), "error: server fake: it has too many connections") // for other capabilities
		a.Answer(t, `{}`)
		one.answer()
		synctest.Wait()
		c := s.all[0].Next() // the free one
		four := s.ask("", able, "tools/call", `{"name":"4"}`)
		bridgetest.Contains(t, four.answer(), "error: lapsed: all its connections serve calls with possible questions")
		five := s.ask("", able, "tools/call", `{"name":"5"}`)
		synctest.Wait()
		five.cancel(bridge.ErrCancelled)
		same(t, "cancelled", five.answer(), "error: cancelled by the client")
		b.Answer(t, `{}`)
		c.Answer(t, `{}`)
		two.answer()
		three.answer()

		// There is no room for another one although the limit allows it: the call waits as well.
		lanes, s.full = 3, 2
		one = s.ask("", able, "tools/call", `{"name":"1"}`)
		a = s.all[0].Next()
		two = s.ask("", able, "tools/call", `{"name":"2"}`)
		b = s.all[1].Next()
		three = s.ask("", able, "tools/call", `{"name":"3"}`)
		time.Sleep(3 * time.Second)
		a.Answer(t, `{}`)
		one.answer()
		s.all[0].Next().Answer(t, `{}`)
		bridgetest.Contains(t, three.answer(), `"resultType":"complete"`)
		b.Answer(t, `{}`)
		two.answer()

		// On a wire that attributes questions, calls share a connection.
		s.attributes, s.full = true, 0
		s.serve = func(*bridge.Request) *jsonrpc.Message { return bridgetest.Result(t, `{}`) }
		s.call("", "tools/list", `{}`)
		s.serve = nil
		one, two = s.ask("", able, "tools/call", `{"name":"1"}`), s.ask("", able, "tools/call", `{"name":"2"}`)
		for range 2 {
			s.all[0].Next().Answer(t, `{}`)
		}
		bridgetest.Contains(t, one.answer()+two.answer(), `"resultType":"complete"`)
		s.end()
	})
}

// A question that comes after a call was cancelled may be about that one: no other client is shown it, and a server that
// has asked so gets no further call over that connection. Where the wire attributes questions, calls share a connection
// until the server asks beside its calls.
func TestSuspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, stateless.Options{})
		s.mute = bridge.ErrTimeout
		refused := make(chan string, 1)
		beside := func(c *connection) {
			c.rest.Ask(bridgetest.Question(t, "elicitation/create", `{"message":"secret"}`), func(m *jsonrpc.Message) { refused <- string(m.Error) })
			bridgetest.Contains(t, <-refused, `"code":-32603`)
		}
		gone := s.ask("", able, "tools/call", `{"name":"x"}`)
		s.all0().Next()
		gone.cancel(bridge.ErrCancelled)
		gone.answer()
		other := s.ask("", able, "tools/call", `{"name":"y"}`) // over the same one: the server has never asked anything
		c := s.all[0].Next()
		beside(s.all[0])
		c.Answer(t, `{}`)
		bridgetest.Contains(t, other.answer(), `"complete"`)
		last := s.ask("", able, "tools/call", `{"name":"z"}`)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if len(s.all) != 2 {
			t.Fatalf("%d connections", len(s.all))
		}
		s.all[1].Next().Answer(t, `{}`)
		last.answer()
		s.end()

		s = play(t, era.Rev20251125, `{}`, stateless.Options{})
		s.attributes = true
		calls := func(connections ...int) {
			var visits []*visit
			for range connections {
				visits = append(visits, s.ask("", able, "tools/call", `{"name":"x"}`))
				synctest.Wait()
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			var open []*bridgetest.Call
			for _, n := range connections {
				open = append(open, s.all[n].Next())
			}
			if len(connections) > 1 && connections[1] == 0 {
				beside(s.all[0])
			}
			for i, c := range open {
				c.Answer(t, `{}`)
				visits[i].answer()
			}
		}
		calls(0, 0)
		calls(1, 2)
		s.end()
	})
}
