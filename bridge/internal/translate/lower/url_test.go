package lower_test

import (
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lower"
)

// A server that wants URLs visited first: the client is asked, and the call is made again.
func TestURL(t *testing.T) {
	const needed = `{"code":-32042,"message":"visit","data":{"elicitations":[{"mode":"url","url":"https://a.example/","elicitationId":"e1","message":"m"}]}}`
	synctest.Test(t, func(t *testing.T) {
		s := play(t, era.Rev20251125, `{}`, lower.Clients{})
		v := s.ask(s.from, "tools/call", `{"name":"x"}`)
		s.Next().Refuse(t, needed)
		asked := v.answer()
		bridgetest.Contains(t, asked, `"r1":{"method":"elicitation/create","params":{"mode":"url","url":"https://a.example/"`)
		bridgetest.Lacks(t, asked, "elicitationId")
		st := state(t, asked)
		next := s.ask(s.from, "tools/call", `{"name":"x",`+st+`,"inputResponses":{"r1":{"action":"accept"}}}`)
		if !next.pending() {
			t.Fatal("nobody waits for the completion")
		}
		s.tr.Notify(bridgetest.Notification(t, "notifications/elicitation/complete", `{"elicitationId":"e1"}`))
		s.Next().Answer(t, `{}`)
		bridgetest.Contains(t, next.answer(), envelope)

		declined := `,` + st + `,"inputResponses":{"r1":{"action":"decline"}}}`
		bridgetest.Contains(t, s.ask(s.from, "tools/call", `{"name":"x"`+declined).answer(), `"isError":true`, "was declined")
		bridgetest.Contains(t, s.ask(s.from, "tools/call", `{"name":"x",`+st+`,"inputResponses":{"r1":{}}}`).answer(), "inputResponses.r1")
		v = s.ask(s.from, "prompts/get", `{"name":"x"}`)
		s.Next().Refuse(t, needed)
		prompt := state(t, v.answer())
		bridgetest.Contains(t, s.ask(s.from, "prompts/get", `{"name":"x",`+prompt+`,"inputResponses":{"r1":{"action":"cancel"}}}`).answer(), `"error":{"code":-32603`, "was cancelled")

		// The server is patient for some rounds only, and the client must be able to.
		for range 4 {
			v = s.ask(s.from, "prompts/get", `{"name":"x",`+prompt+`,"inputResponses":{"r1":{"action":"accept"}}}`)
			s.Next().Refuse(t, needed)
			prompt = state(t, v.answer())
		}
		v = s.ask(s.from, "prompts/get", `{"name":"x",`+prompt+`,"inputResponses":{"r1":{"action":"accept"}}}`)
		s.Next().Refuse(t, needed)
		bridgetest.Contains(t, v.answer(), "too often (the limit is 5)")
		v = s.ask(bridgetest.Caller(era.LatestModern, "", `{"elicitation":{}}`), "tools/call", `{"name":"x"}`)
		s.Next().Refuse(t, needed)
		bridgetest.Contains(t, v.answer(), `"code":-32021`, `"requiredCapabilities":{"elicitation":{"url":{}}}`)
		for _, broken := range []string{`{"code":-32042,"message":"m"}`, `{"code":-32042,"message":"m","data":{"elicitations":[5]}}`} {
			v = s.ask(s.from, "tools/call", `{"name":"x"}`)
			s.Next().Refuse(t, broken)
			bridgetest.Contains(t, v.answer(), `"code":-32603,"message":"m"`)
		}
		s.end()
	})
}
