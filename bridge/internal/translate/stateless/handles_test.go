package stateless_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/stateless"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// What a modern server gives to one client is of no use to another.
func TestHandles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.LatestModern, `{"tools":{}}`, stateless.Options{})
		answer := `{"resultType":"input_required","requestState":"own","inputRequests":{}}`
		var got string
		s.serve = func(r *bridge.Request) *jsonrpc.Message {
			if got = string(r.Whole()); r.Method == era.Listen {
				r.Back.Notify(bridgetest.Notification(t, era.Acknowledged, `{"notifications":{"taskIds":["T","other"]}}`))
				r.Back.Notify(bridgetest.Notification(t, "notifications/tasks", `{"taskId":"T","status":"working"}`))
				r.Back.Notify(bridgetest.Notification(t, "notifications/tasks", `{"taskId":"other"}`))
			}
			return bridgetest.Result(t, answer)
		}
		asked := s.call("p", "tools/call", `{"name":"x"}`)
		bridgetest.Lacks(t, asked, `"own"`)
		state := statePattern.FindString(asked)
		bridgetest.Contains(t, s.call("p", "tools/call", `{"name":"x",`+state+`,"inputResponses":{}}`), "input_required")
		bridgetest.Contains(t, got, `"requestState":"own"`)
		for principal, params := range map[string]string{"q": `{"name":"x",` + state + `}`, "p": `{"name":"x","requestState":"own"}`} {
			bridgetest.Contains(t, s.call(principal, "tools/call", params), "was not given to this client")
		}
		for _, like := range []string{"RequestState", `reque\u017ftState`, `request\u017ftate`, "requeststate"} {
			bridgetest.Contains(t, s.call("p", "tools/call", `{"name":"x","`+like+`":"own"}`), "-32602", "in case only")
			bridgetest.Contains(t, s.call("p", "tools/call", `{"name":"x",`+state+`,"`+like+`":"own"}`), "-32602", "in case only")
		}
		bridgetest.Contains(t, s.call("p", "tools/call", `{"name":"x",`+state+`,"requestState":"own"}`), "-32602")

		answer = `{"resultType":"task","taskId":"T","status":"working"}`
		task := gjson.Get(s.call("p", "tools/call", `{"name":"x"}`), "result.taskId").Str
		answer = `{"resultType":"complete","taskId":"T","status":"completed"}`
		bridgetest.Contains(t, s.call("p", "tasks/get", `{"taskId":"`+task+`","TaskId":"z"}`), `"taskId":"`+task+`"`)
		bridgetest.Contains(t, got, `"taskId":"T"`)
		bridgetest.Lacks(t, got, "TaskId")
		s.call("p", "tasks/cancel", `{"taskId":"`+task+`","taskId":"other"}`)
		bridgetest.Lacks(t, got, "other")
		bridgetest.Contains(t, s.call("p", "tasks/get", `{}`), "-32602")
		for principal, id := range map[string]string{"q": task, "p": "T"} {
			for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
				bridgetest.Contains(t, s.call(principal, method, `{"taskId":"`+id+`"}`), "there is no such task")
			}
			bridgetest.Contains(t, s.call(principal, era.Listen, `{"notifications":{"taskIds":["`+id+`"]}}`), "there is no such task")
		}
		for _, others := range []string{`"notifications":{"TaskIds":["T"]}`, `"notifications":{"taskIds":["` + task + `"]},"Notifications":{"taskIds":["T"]}`, `"notifications":{"ta\u0073kId\u017f":["T"]}`} {
			bridgetest.Contains(t, s.call("p", era.Listen, `{`+others+`}`), "-32602")
		}
		v := s.ask("p", `{}`, era.Listen, `{"notifications":{"taskIds":["`+task+`"]}}`)
		v.answer()
		same(t, "the client got", strings.Join(v.Got(), "\n"), era.Acknowledged+` {"notifications":{"taskIds":["`+task+`"]}}`+"\n"+`notifications/tasks {"taskId":"`+task+`","status":"working"}`)
		for _, unusable := range []string{`{"resultType":"task","taskId":5}`, `{"resultType":"task","taskId":"a","taskId":"b"}`} {
			answer = unusable
			bridgetest.Contains(t, s.call("p", "tools/call", `{"name":"x"}`), "the server's taskId is not usable")
		}
		s.end()
	})
}
