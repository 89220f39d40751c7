package gateway

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/arguments"
)

func raw(text string) json.RawMessage { return json.RawMessage(text) }

// depots returns a server with two tools, which answers calls with their arguments.
func depots() *fake {
	return &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		switch m.Method {
		case "tools/list":
			f.answer(m, `{"tools":[{"name":"plain","inputSchema":{"type":"object","properties":{"repo":{"type":"string"}}}},{"name":"get","inputSchema":{"type":"object","properties":{"tenant":{"type":"string"}}}}]}`)
		case "tools/call":
			f.answer(m, `{"content":[],"structuredContent":{"got":`+gjson.GetBytes(m.Append(nil, nil, nil), "params.arguments").Raw+"}}")
		default:
			return false
		}
		return true
	}}
}

// The operator's values hold in a group, and for tools that are found by a search and called by its tools.
func TestArgumentsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := filter.Rules{Override: map[string]filter.Override{"pl*": {Args: map[string]arguments.Change{"repo": {Value: raw(`"acme/x"`)}}}}}
		g := newGateway(Options{
			Log:    slog.New(slog.DiscardHandler),
			Groups: []Group{{Name: "team", Servers: []string{"fake"}, Listing: Listing{ToolsMode: ToolsSearch}}},
			Servers: []ServerOptions{
				{Name: "fake", ServerSettings: ServerSettings{Prefix: "f_", Lists: filter.Lists{Tools: rules}}, Adapter: depots()},
				{Name: "other", ServerSettings: ServerSettings{Prefix: "o_"}, Adapter: shop("other", nil)},
			},
		})
		defer g.Close(context.Background())
		s := sessionAt(t, g, "team", "", "")
		for args, want := range map[string]string{
			`{"name":"search_tools","arguments":{"names":["f_plain"]}}`:                               `\"inputSchema\":{\"type\":\"object\",\"properties\":{}}`,
			`{"name":"call_tool","arguments":{"name":"f_plain"}}`:                                     `"got":{"repo":"acme/x"}`,
			`{"name":"call_tool","arguments":{"name":"f_plain","arguments":"{\"x\":1}"}}`:             `"got":{"x":1,"repo":"acme/x"}`,
			`{"name":"call_tool","arguments":{"name":"f_plain","repo":"evil/x"}}`:                     `the operator of the bridge sets it`,
			`{"name":"call_tool","arguments":{"name":"f_plain","arguments":{"repo":"evil/x"}}}`:       `the operator of the bridge sets it`,
			`{"name":"call_tool","arguments":{"name":"f_plain","arguments":"{\"repo\":\"evil/x\"}"}}`: `the operator of the bridge sets it`,
			`{"name":"f_plain","arguments":{"Repo":"evil/x"}}`:                                        `the operator of the bridge sets it`,
		} {
			for i, got := range through(t, g, s, "", "tools/call", args) {
				if !strings.Contains(got, want) {
					t.Errorf("%d: %s: %s, want %s", i, args, got, want)
				}
			}
		}
	})
}

// The name of the caller is that in logs.
func TestArgumentsCaller(t *testing.T) {
	f := depots()
	rules := filter.Rules{Override: map[string]filter.Override{"get": {Args: map[string]arguments.Change{"tenant": {Value: raw(`"${caller.name}"`)}}}}}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Share: ShareAll, Lists: filter.Lists{Tools: rules}}}, func(t *testing.T, g *gateway) {
		for _, name := range []string{"ann", "bob"} { // over one connection
			s, _ := begin(t, g, name)
			bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"get"}`), `"got":{"tenant":"`+name+`"}`)
		}
		s, _ := begin(t, g, "")
		bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"get"}`), "${caller.name}, which this caller lacks")
	})
}

// New changes count for the next call. Clients are told that the list has changed.
func TestArgumentsReload(t *testing.T) {
	f := depots()
	o := ServerOptions{Name: "fake", Adapter: f, ServerSettings: ServerSettings{Lists: filter.Lists{Tools: filter.Rules{Override: map[string]filter.Override{"plain": {Args: map[string]arguments.Change{"repo": {Value: raw(`"a"`)}}}}}}}}
	run(t, o, func(t *testing.T, g *gateway) {
		s, st := begin(t, g, "")
		bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"plain"}`), `"got":{"repo":"a"}`)
		bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"get","arguments":{"x":1}}`), `"got":{"x":1}`)
		o.Tools.Override = map[string]filter.Override{"plain": {Args: map[string]arguments.Change{"repo": {As: "of"}}}}
		if err := g.Apply(Change{Names: []string{"fake"}, Tuned: []ServerOptions{o}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if told := strings.Join(st.take(), ""); strings.Count(told, "notifications/tools/list_changed") != 1 {
			t.Errorf("the client was told %q", told)
		}
		bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"plain","arguments":{"of":"b"}}`), `"got":{"repo":"b"}`)
		o.Tools.Override = nil
		if err := g.Apply(Change{Names: []string{"fake"}, Tuned: []ServerOptions{o}}); err != nil {
			t.Fatal(err)
		}
		bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"plain","arguments":{"repo":"c"}}`), `"got":{"repo":"c"}`)
	})
}
