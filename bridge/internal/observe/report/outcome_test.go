package report_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// slow is a server that takes a second for each call.
type slow struct {
	bridge.Upstream
	answer *jsonrpc.Message
	err    error
}

func (s slow) Server() *bridge.Greeting { return &bridge.Greeting{Revision: "2025-06-18"} }

func (s slow) Call(context.Context, *bridge.Request) (*jsonrpc.Message, error) {
	time.Sleep(time.Second)
	return s.answer, s.err
}

// Each request of a client is reported once, with what became of it: what its client gets. A tool that fails is reported as
// that, and the result of a task; nothing else is, whatever its result says. What the bridge asks by itself is not.
func TestReports(t *testing.T) {
	for _, tc := range []struct {
		method, answer string
		err            error
		room           bool // among the bytes in flight
		want           string
	}{
		{"tools/call", `"result":{"content":[]}`, nil, true, "ok"},
		{"tools/call", `"result":{"content":[],"isError":true}`, nil, true, "tool_error"},
		{"tools/call", `"result":{"resultType":"complete","content":[],"isError":true}`, nil, true, "tool_error"},
		{"tasks/result", `"result":{"content":[],"isError":true}`, nil, true, "tool_error"},
		{"prompts/get", `"result":{"content":[],"isError":true}`, nil, true, "ok"},
		{"tools/call", `"error":{"code":-32602,"message":"no"}`, nil, true, "error -32602"},
		{"tools/call", `"result":{}`, &bridge.Error{Kind: bridge.ErrTimeout}, true, "timeout"},
		{"tools/call", `"result":{}`, &bridge.Error{Kind: bridge.ErrLost}, true, "lost"},
		{"tools/call", `"result":{}`, &bridge.Error{Kind: bridge.ErrTooLarge}, true, "too_large"},
		{"tools/call", `"result":{}`, bridge.ErrCancelled, true, "cancelled"},
		{"tools/call", `"result":{}`, bridge.ErrRevoked, true, "denied"},
		{era.Listen, `"result":{}`, bridge.ErrCancelled, true, "ok"}, // its usual end
		{era.Listen, `"result":{}`, bridge.ErrShutdown, true, "ok"},
		{"tools/call", `"result":{}`, nil, false, "too_large"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var got []string
			r := report.New(func(r report.Report) {
				line := fmt.Sprintf("%s %s %s: %v", r.Server, r.Request.Method, r.Session, r.Outcome)
				if r.Code != 0 {
					line += fmt.Sprint(" ", r.Code)
				}
				if r.Took != time.Second || r.Principal != "p" || r.Revision != "2025-11-25" || r.Speaks != "2025-06-18" || r.Network != bridge.Pipe {
					t.Errorf("%s: %+v", line, r)
				}
				if (r.Answer != nil) != (r.Outcome <= bridge.ErrorAnswer && tc.err == nil) {
					line += " with the wrong answer"
				}
				got = append(got, line)
			}, func(string, *bridge.Caller, *jsonrpc.Message) error {
				if !tc.room {
					return &bridge.Error{Kind: bridge.ErrTooLarge}
				}
				return nil
			}, nil, nil)
			from := bridgetest.Caller("2025-11-25", "p", "{}")
			s := r.Server("s", nil)
			up := s.Wrap(slow{answer: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,`+tc.answer+`}`), err: tc.err})
			q := bridgetest.Request(t, from, nil, tc.method, `{"name":"x"}`)
			if _, err := up.Call(t.Context(), q); !errors.Is(err, tc.err) || len(got) > 0 {
				t.Errorf("of the bridge's own: %v, reported %q", err, got)
			}
			came := r.Arrive(new(report.Arrival), "wire", "s", "01234567", nil, "", nil)
			q.Call = came.Call()
			m, err := up.Call(t.Context(), q)
			if err = r.Conclude(came, "s", from, q.Message, m, err); (err == nil) != (tc.err == nil && tc.room) {
				t.Errorf("%s: the client gets %v", tc.want, err)
			}
			if want := "s " + tc.method + " 01234567: " + tc.want; len(got) != 1 || got[0] != want || s.Calls() != 0 {
				t.Errorf("reported %q, want %s; %d calls are left", got, want, s.Calls())
			}
		})
	}
}
