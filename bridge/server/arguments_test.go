package server

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/calls"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth/authtest"
)

// onlooker is an operator who sees messages with their payloads.
type onlooker struct {
	mu  sync.Mutex // guards got
	got []string
}

func (o *onlooker) Wants(string, string) (it, payload bool) { return true, true }

func (o *onlooker) Passed(m *calls.Message) {
	if m.Method == "tools/call" && m.Kind == "request" {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.got = append(o.got, m.Side+" "+gjson.Get(m.Payload, "arguments").Raw)
	}
}

// Each call over a shared connection has the values of its own caller: the claims of its token, its headers and its
// name. Operators see no value that they have not written into the call themselves.
func TestArgumentsOfCallers(t *testing.T) {
	identified(t, func(c *config.Config) {
		s := &c.Servers[0]
		s.Share, s.Prefix, s.Forward = config.SharePrincipal, "o_", []bridge.Forward{{From: "X-Team", To: "Team"}}
		s.Tools.Override = map[string]config.Override{"ech?": {Args: map[string]config.Argument{
			"who": {Value: json.RawMessage(`{"of":["${caller.claims.groups}","${header.x-team}"],"name":"${caller.name}"}`)},
			"n":   {As: "count", Default: json.RawMessage("1")},
		}}}
	}, func(t *testing.T, r *rig, i *authtest.Issuer) {
		if err := r.s.Config().Validate(); err != nil && strings.Contains(err.Error(), "override") {
			t.Error(err)
		}
		r.f.Tools = `{"name":"echo","inputSchema":{"type":"object","properties":{"who":{"type":"object"},"n":{"type":"integer"}},"required":["who","n"]}}`
		ann := eng(i, "ann", here, time.Hour)
		for path, tool := range map[string]string{"/one/mcp": "echo", "/mcp": "o_echo"} {
			for _, stateless := range []bool{false, true} {
				say := func(args, team string, who []string) string {
					header, meta := append(who[:len(who):len(who)], "X-Team", team), ""
					if stateless {
						header = append(header, "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", tool)
						meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
					} else {
						header = append(header, "Mcp-Session-Id", r.Do("POST", path, initialize, who...).Wait().Header("Mcp-Session-Id"))
					}
					return r.Do("POST", path, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","arguments":`+args+meta+`}}`, header...).Wait().Body()
				}
				for _, tc := range []struct {
					args, team string
					who        []string
					want       string
				}{
					{`{"count":2}`, "red", ann, `"echo":{"n":2,"who":{"of":["eng","red"],"name":"staff/https://idp.example.com#ann"}}`},
					{`{}`, "blue", ann, `"echo":{"n":1,"who":{"of":["eng","blue"],"name":"staff/https://idp.example.com#ann"}}`},
					{`{"who":{}}`, "red", ann, `argument \"who\": the operator of the bridge sets it`},
					{`{}`, "red", as(aliceKey), `${caller.claims.groups}, which this caller lacks`},
					{`{}`, "", ann, `${header.x-team}, which this caller lacks`},
				} {
					if got := say(tc.args, tc.team, tc.who); !strings.Contains(got, tc.want) {
						t.Errorf("%s, stateless %t: %s with the team %q: %s, want %s", path, stateless, tc.args, tc.team, got, tc.want)
					}
				}
			}
		}
		seen := &onlooker{}
		defer r.s.calls.Traffic.Look(seen)()
		id := r.Do("POST", "/one/mcp", initialize, ann...).Wait().Header("Mcp-Session-Id")
		r.Do("POST", "/one/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"count":2}}}`, append(ann, "X-Team", "red", "Mcp-Session-Id", id)...).Wait()
		seen.mu.Lock()
		defer seen.mu.Unlock()
		if got := strings.Join(seen.got, "; "); got != `server {"n":2,"who":"[redacted]"}` {
			t.Errorf("an operator saw %s", got)
		}
	})
}
