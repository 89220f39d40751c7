package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/arguments"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
)

// depot is a list of tools: one that the operator changes, one that a pattern changes, one of which nothing can be
// promised, one that nobody changes.
const depot = `"tools":[{"name":"put","inputSchema":{"type":"object","properties":{"repo":{"type":"string"},"path":{"type":"string"},"size":{"type":"integer"},"region":{"type":"string"},"tenant":{"type":"string"},"dry_run":{"type":"boolean"}},"required":["repo","path","region","tenant"],"additionalProperties":false}},` +
	`{"name":"get","inputSchema":{"type":"object","properties":{"tenant":{"type":"string"}}}},` +
	`{"name":"any","inputSchema":{"oneOf":[{"type":"object","properties":{"tenant":{"type":"string"}}}]}},` +
	`{"name":"plain","inputSchema":{"type":"object","properties":{"repo":{"type":"string"}}}}]}`

func raw(text string) json.RawMessage { return json.RawMessage(text) }

// depotRules are the operator's changes of these. The server's put is called store.
var depotRules = filter.Rules{
	Rename: map[string]string{"put": "store"},
	Override: map[string]filter.Override{
		"put": {Args: map[string]arguments.Change{
			"repo": {Value: raw(`"acme/x"`)}, "path": {As: "folder", About: "Where"}, "region": {Default: raw(`"eu"`)}, "dry_run": {Off: true},
		}},
		"*": {Args: map[string]arguments.Change{"tenant": {Value: raw(`"${caller.claims.tenant}/${header.X-Team}"`)}}},
	},
}

// depots returns a legacy and a modern server with these tools, which answer calls with their params.
func depots() map[string]*fake {
	say := func(more string) func(f *fakeWire, m *jsonrpc.Message) bool {
		return func(f *fakeWire, m *jsonrpc.Message) bool {
			switch m.Method {
			case "tools/list":
				f.answer(m, "{"+more+depot)
			case "tools/call":
				f.answer(m, "{"+more+`"content":[],"structuredContent":{"got":`+gjson.GetBytes(m.Append(nil, nil, nil), "params.arguments").Raw+"}}")
			default:
				return false
			}
			return true
		}
	}
	modern := newPeer().fake
	discover := modern.serve
	modern.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		return say(`"resultType":"complete","ttlMs":0,"cacheScope":"private",`)(f, m) || discover(f, m)
	}
	return map[string]*fake{"legacy": {serve: say("")}, "modern": modern}
}

// patron makes requests at an address, as a session or without one, with a header and a claim.
type patron struct {
	g         *gateway
	server    string // empty for the joint address
	stateless bool
	s         *sitting
}

func (p *patron) ask(t *testing.T, method, params string, h http.Header, id *identity.Identity) string {
	t.Helper()
	if p.stateless {
		m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+params+statelessMeta+`}}`)
		one, no := NewStateless(p.server, "", m)
		if no != nil {
			t.Fatal(bridgetest.Text(no))
		}
		one.Back, one.Header, one.Identity = &stream{}, h, id
		answer, _ := p.g.Call(t.Context(), m, *one)
		return bridgetest.Text(answer)
	}
	if p.s == nil {
		s, _, err := p.g.initialize(context.Background(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+bridgetest.InitializeParams+`}`),
			SessionOptions{Server: p.server, ID: fmt.Sprint("id", sessions.Add(1)), Envelope: &Envelope{Header: h}})
		if err != nil {
			t.Fatal(err)
		}
		p.s = s
	}
	answer, _ := p.s.Call(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+strings.TrimSuffix(params, ",")+`}}`), &Envelope{Header: h, Identity: id}, nil)
	return bridgetest.Text(answer)
}

// Clients of each kind, at each address and before each kind of server, see and send what the operator leaves to them. The
// server gets the rest, and nothing that was refused.
func TestArguments(t *testing.T) {
	ann := identity.New(map[string][]string{"tenant": {`t"1`}}, nil)
	team := http.Header{"X-Team": {"red"}}
	for kind := range depots() {
		for _, server := range []string{"fake", ""} {
			for _, stateless := range []bool{false, true} {
				for _, checks := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/joint=%t/stateless=%t/validate=%t", kind, server == "", stateless, checks), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							f := depots()[kind]
							adapter := bridge.Adapter(f)
							if kind == "modern" {
								adapter = &peer{f}
							}
							var log bytes.Buffer
							g := newGateway(Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Servers: []ServerOptions{
								{Name: "fake", ServerSettings: ServerSettings{Prefix: "f_", Validate: checks, Lists: filter.Lists{Tools: depotRules}}, Adapter: adapter, Forward: []bridge.Forward{{From: "X-Team", To: "Team"}}},
								{Name: "other", ServerSettings: ServerSettings{Prefix: "o_"}, Adapter: shop("other", nil)},
							}})
							defer g.Close(context.Background())
							c := &patron{g: g, server: server, stateless: stateless}
							prefix := map[bool]string{true: "f_"}[server == ""]
							call := func(name, args string) string {
								return c.ask(t, "tools/call", `"name":"`+prefix+name+`"`+args+",", team, ann)
							}
							got := func(name, args, want string) {
								t.Helper()
								bridgetest.Contains(t, call(name, args), `"got":`+want)
							}
							// Before any list: the bridge lists the tools itself.
							got("store", `,"arguments":{ "folder":"a\u0062", "size":12345678901234567890 }`, `{ "path":"a\u0062", "size":12345678901234567890 ,"region":"eu","repo":"acme/x","tenant":"t\"1/red"}`)
							got("store", `,"arguments":{"folder":"a","region":"us"}`, `{"path":"a","region":"us","repo":"acme/x","tenant":"t\"1/red"}`)
							got("get", ``, `{"tenant":"t\"1/red"}`)
							got("get", `,"arguments":null`, `{"tenant":"t\"1/red"}`)
							if !checks { // which refuses it
								got("plain", `,"arguments":{"repo":"y","repo":1.0}`, `{"repo":"y","repo":1.0}`)
							}

							list := c.ask(t, "tools/list", "", team, ann)
							tools := gjson.Get(list, "result.tools")
							if names := tools.Get("#.name").Raw; names != `["`+prefix+`store","`+prefix+`get","`+prefix+`plain"]` {
								t.Errorf("listed are %s", names)
							}
							if schema := tools.Get("0.inputSchema").Raw; schema != `{"type":"object","properties":{"folder":{"type":"string","description":"Where"},"size":{"type":"integer"},"region":{"type":"string","default":"eu"}},"required":["folder"],"additionalProperties":false}` {
								t.Errorf("the schema is %s", schema)
							}
							if schema := tools.Get("1.inputSchema").Raw; schema != `{"type":"object","properties":{}}` {
								t.Errorf("the schema is %s", schema)
							}

							before := callsOf(f)
							for args, want := range map[string]string{
								`,"arguments":{"folder":"a","repo":"evil/x"}`:                    `argument \"repo\": the operator of the bridge sets it`,
								`,"arguments":{"folder":"a","r\u0065po":"evil/x"}`:               `argument \"repo\": the operator of the bridge sets it`,
								`,"arguments":{"folder":"a","Tenant":"evil"}`:                    `argument \"Tenant\": the operator of the bridge sets it`,
								`,"arguments":{"folder":"a","dry_run":true}`:                     `argument \"dry_run\": the operator of the bridge sets it`,
								`,"arguments":{"folder":"a"},"arguments":{}`:                     "params must not have name or arguments twice",
								`,"arguments":{"folder":"a"},"Arguments":{"repo":"evil/x"}`:      "params must not have name or arguments twice",
								`,"arguments":{"folder":"a"},"argument\u0073":{"repo":"evil/x"}`: "params must not have name or arguments twice",
							} {
								bridgetest.Contains(t, call("store", args), want, "-32602")
							}
							for args, want := range map[string]string{ // where arguments are checked, a result says it
								`,"arguments":{"path":"a"}`: "folder",
								`,"arguments":[]`:           "must be an object",
							} {
								bridgetest.Contains(t, call("store", args), want)
							}
							bridgetest.Contains(t, call("any", `,"arguments":{"tenant":"evil"}`), "Unknown tool: any")
							bridgetest.Contains(t, call("absent", `,"arguments":{}`), "Unknown tool: absent")
							for lacks, no := range map[string]string{
								"${caller.claims.tenant}": c.ask(t, "tools/call", `"name":"`+prefix+`get",`, team, nil),
								"${header.X-Team}":        c.ask(t, "tools/call", `"name":"`+prefix+`get",`, http.Header{"X-Team": {"red", "blue"}}, ann),
							} {
								bridgetest.Contains(t, no, `argument \"tenant\": the operator of the bridge sets it to `+lacks+`, which this caller lacks`)
							}
							if after := callsOf(f); after != before {
								t.Errorf("the server got %d calls that were refused", after-before)
							}
							if checks {
								bridgetest.Contains(t, call("store", `,"arguments":{"folder":1}`), "folder: must be a string")
							}
							if got := log.String(); strings.Count(got, "the override of an argument does not apply") != 1 || !strings.Contains(got, "tool=any argument=tenant") {
								t.Errorf("the log has %s", got)
							}
						})
					})
				}
			}
		}
	}
}

// callsOf counts the calls of tools that a server got.
func callsOf(f *fake) (n int) {
	for i := range f.opened() {
		n += len(requestsOf(f.wire(i+1).received(), "tools/call"))
	}
	return n
}

// New changes count for the next call. Clients are told that the list has changed.
func TestArgumentsReload(t *testing.T) {
	f := depots()["legacy"]
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

// The operator's values hold in a group, and for tools that are found by a search and called by its tools.
func TestArgumentsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := filter.Rules{Override: map[string]filter.Override{"pl*": {Args: map[string]arguments.Change{"repo": {Value: raw(`"acme/x"`)}}}}}
		g := newGateway(Options{
			Log:    slog.New(slog.DiscardHandler),
			Groups: []Group{{Name: "team", Servers: []string{"fake"}, Listing: Listing{ToolsMode: ToolsSearch}}},
			Servers: []ServerOptions{
				{Name: "fake", ServerSettings: ServerSettings{Prefix: "f_", Lists: filter.Lists{Tools: rules}}, Adapter: depots()["legacy"]},
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
	f := depots()["legacy"]
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
