package lower_test

import (
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lower"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// A tool that must be called as a task is called as one, and polled to its end.
func TestTask(t *testing.T) {
	const tasks = `{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}}`
	const tools = `{"tools":[{"name":"x","execution":{"taskSupport":"required"}},{"name":"y"}]}`
	for _, tc := range []struct {
		name string
		rest func(s *stage)
		want string
	}{
		{"completed", func(s *stage) {
			s.Next().Answer(s.t, `{"taskId":"T","status":"working","pollInterval":1}`)
			s.Next().Answer(s.t, `{"taskId":"T","status":"completed"}`)
			s.Next().Answer(s.t, `{"content":[]}`)
		}, envelope},
		{"asks the client", func(s *stage) {
			s.Next().Answer(s.t, `{"taskId":"T","status":"input_required"}`)
			c := s.Next()
			m := bridgetest.Question(s.t, "roots/list", `{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"T"}}}`)
			s.tr.Ask(m, func(*jsonrpc.Message) { c.Answer(s.t, `{}`) })
		}, "input_required"},
		{"cancelled by the server", func(s *stage) { s.Next().Answer(s.t, `{"taskId":"T","status":"cancelled"}`) }, "the server has cancelled the task"},
		{"unknown to the server", func(s *stage) { s.Next().Refuse(s.t, `{"code":-5,"message":"no task"}`) }, "no task"},
		{"too slow", func(s *stage) {
			for range 60 {
				s.Next().Answer(s.t, `{"taskId":"T","status":"working"}`)
			}
			if c := s.Next(); c.Method != "tasks/cancel" {
				s.t.Errorf("the server got %s", c.Method)
			} else {
				c.Answer(s.t, `{}`)
			}
		}, "error: server fake: tools/call had no answer within 1m0s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := play(t, era.Rev20251125, tasks, lower.Clients{})
				v := s.ask(s.from, "tools/call", `{"name":"x","arguments":{}}`)
				s.Next().Answer(t, tools)
				c := s.Next()
				same(t, "the call", string(c.Whole()), `{"task":{},"name":"x","arguments":{}}`)
				c.Answer(t, `{"task":{"taskId":"T","status":"working"}}`)
				tc.rest(s)
				got := v.answer()
				if v.err != nil {
					got = "error: " + v.err.(*bridge.Error).Told()
				}
				bridgetest.Contains(t, got, tc.want)
				s.end()
			})
		})
	}
	t.Run("not needed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := play(t, era.Rev20251125, tasks, lower.Clients{})
			v := s.ask(s.from, "tools/call", `{"name":"y"}`)
			s.Next().Answer(t, tools)
			s.Next().Answer(t, `{"content":[]}`)
			bridgetest.Contains(t, v.answer(), envelope)
			// A tool that is not listed fails as it fails.
			v = s.ask(s.from, "tools/call", `{"name":"z"}`)
			for c := s.Next(); ; c = s.Next() {
				if c.Method == "tools/call" {
					c.Refuse(t, `{"code":-32601,"message":"no z"}`)
					break
				}
				c.Answer(t, tools)
			}
			for v.pending() {
				s.Next().Answer(t, tools)
			}
			bridgetest.Contains(t, v.answer(), "no z")
			// A task that is done at once has its result.
			v = s.ask(s.from, "tools/call", `{"name":"x"}`)
			s.Next().Answer(t, `{"content":[]}`)
			bridgetest.Contains(t, v.answer(), envelope)
			s.end()
		})
	})
}
