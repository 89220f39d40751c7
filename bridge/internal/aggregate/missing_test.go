package aggregate_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
)

// logged returns a server that writes its log to the buffer.
func (a *actor) logged(to *bytes.Buffer) *actor {
	a.Log = slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return a
}

// lacks returns what the sessions' lists of tools lack.
func (s *stage) lacks() (all []string) {
	s.all.Lacking(func(server, why string) { all = append(all, server+": "+why) })
	return all
}

// A list says which servers it lacks, and why. The log warns when a server begins to be lacking; the aggregate knows it
// until the next list of tools has the server.
func TestMissing(t *testing.T) {
	const missing = `"dev.mcp-bridge/missing":[{"server":"two","why":"`
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		one := newActor(t, "one", era.Rev20251125, `{"tools":{},"prompts":{}}`, map[string]string{"tools/list": `{"tools":[{"name":"x"}]}`, "prompts/list": `{"prompts":[]}`})
		two := newActor(t, "two", era.Rev20251125, `{"tools":{},"prompts":{}}`, map[string]string{}).logged(&log)
		s := play(t, true, one, two)
		for i, tc := range []struct {
			name   string
			opened bool
			answer string
			after  time.Duration
			want   string
			lacks  string
			level  string
		}{
			{"starting", false, "", 20 * time.Second, missing + `it is still starting"`, "two: it is still starting", "WARN"},
			{"starting still", false, "", 20 * time.Second, missing + `it has not answered in time"`, "two: it has not answered in time", "DEBUG"},
		} {
			log.Reset()
			began := time.Now()
			done := s.ask("tools/list", `{}`)
			if i == 0 {
				two.Next() // and is not asked again
			}
			bridgetest.Contains(t, <-done, `"tools":[{"name":"one__x"}]`, tc.want)
			if took := time.Since(began); took != tc.after {
				t.Errorf("%s: it took %v", tc.name, took)
			}
			same(t, tc.name, strings.Join(s.lacks(), ", "), tc.lacks)
			bridgetest.Contains(t, log.String(), "level="+tc.level+` msg="left out of the list of all servers" method=tools/list`)
		}
		s.end()

		log.Reset()
		two.results["tools/list"] = `{"code":-5,"message":"broken"}`
		s = play(t, true, one, two)
		bridgetest.Contains(t, s.call("tools/list", `{}`), missing+`it answered with an error"`)
		same(t, "after an error", strings.Join(s.lacks(), ", "), "two: it answered with an error")
		two.results["prompts/list"] = `{"code":-5,"message":"broken"}`
		two.results["tools/list"] = `{"tools":[]}`
		bridgetest.Lacks(t, s.call("tools/list", `{}`), "missing")
		bridgetest.Contains(t, s.call("prompts/list", `{}`), missing)
		same(t, "with all tools, and without prompts", strings.Join(s.lacks(), ", "), "")
		log.Reset()
		two.results["tools/list"] = `{"code":-32601,"message":"none"}`
		bridgetest.Lacks(t, s.call("tools/list", `{}`), "missing")
		bridgetest.Contains(t, log.String(), `level=WARN msg="left out of the list of all servers" method=tools/list`)
		s.end()

		// One that fails is lacking at once, and in the next lists, until it works again.
		two.results["tools/list"] = `{"tools":[{"name":"y"}]}`
		two.set(func() { two.fails = &bridge.Error{Kind: bridge.ErrUnavailable, Public: "it is down"} })
		s = play(t, true, one, two)
		for range 2 {
			log.Reset()
			bridgetest.Contains(t, s.call("tools/list", `{}`), `"why":"it is down"`)
			same(t, "while it is down", strings.Join(s.lacks(), ", "), "two: it is down")
		}
		bridgetest.Contains(t, log.String(), `msg="left out of the list of all servers" method=tools/list err=`)
		same(t, "unknown", s.call("tools/call", `{"name":"z"}`), `{"jsonrpc":"2.0","error":{"code":-32602,"message":"Unknown tool: z (these servers do not work now: two)"}}`)
		two.set(func() { two.fails = nil })
		two.told()
		bridgetest.Lacks(t, s.call("tools/list", `{}`), "missing")
		same(t, "when it works", strings.Join(s.lacks(), ", "), "")
		same(t, "unknown", s.call("tools/call", `{"name":"z"}`), `{"jsonrpc":"2.0","error":{"code":-32602,"message":"Unknown tool: z"}}`)
		s.end()
	})
}

func cursorIn(t *testing.T, page string) string {
	t.Helper()
	_, rest, ok := strings.Cut(page, `"nextCursor":"`)
	if !ok {
		t.Fatalf("no cursor in %s", page)
	}
	next, _, _ := strings.Cut(rest, `"`)
	return next
}
