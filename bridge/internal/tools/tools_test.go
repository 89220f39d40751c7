package tools_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/tools"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/arguments"
)

// server is an Upstream with a list of tools, which counts its requests.
type server struct {
	bridge.Upstream
	greeting bridge.Greeting
	list     string
	lists    int
	got      *bridge.Request // the last call
	answer   func(*bridge.Request) *jsonrpc.Message
}

func (s *server) Server() *bridge.Greeting { return &s.greeting }

func (s *server) Call(_ context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Method == "tools/list" {
		s.lists++
		return jsonrpc.NewResult(nil, []byte(s.list)), nil
	}
	if s.got = r; s.answer != nil {
		return s.answer(r), nil
	}
	return jsonrpc.NewResult(nil, []byte(`{"content":[]}`)), nil
}

func learned(s *server, o tools.Options) (*tools.Tools, bridge.Upstream) {
	t := tools.New("fake", o, slog.New(slog.DiscardHandler))
	return t, t.Wrap(s)
}

func ask(t *testing.T, up bridge.Upstream, from *bridge.Caller, method, params string) string {
	t.Helper()
	m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)
	a, err := up.Call(t.Context(), &bridge.Request{Message: m, From: from, Mirror: map[string][]string{"Mcp-Param-Y": {"client's"}}})
	if err != nil {
		t.Fatal(err)
	}
	return bridgetest.Text(a)
}

// The annotations of a list count for the principal that got it, until another list revokes them.
func TestIdempotent(t *testing.T) {
	s := &server{greeting: bridge.Greeting{Revision: era.LatestLegacy}}
	known, up := learned(s, tools.Options{Idempotent: true})
	from := &bridge.Caller{Principal: "p", Revision: era.LatestLegacy}
	check := func(want map[string]bool) {
		t.Helper()
		for tool, may := range want {
			if known.Idempotent("p", tool) != may {
				t.Errorf("%s may be called twice: %t", tool, !may)
			}
		}
	}
	s.list = `{"tools":[{"name":"reads","annotations":{"readOnlyHint":true}},{"name":"sets","annotations":{"idempotentHint":true,"destructiveHint":true}},` +
		`{"name":"both","annotations":{"readOnlyHint":true,"destructiveHint":true}},{"name":"words","annotations":{"readOnlyHint":"true"}},{"name":"silent"}]}`
	ask(t, up, from, "tools/list", `{}`)
	check(map[string]bool{"reads": true, "sets": true, "both": false, "words": false, "silent": false, "unknown": false})
	if known.Idempotent("other", "reads") {
		t.Error("what one principal was told is true for another")
	}
	s.list = `{"tools":[{"name":"more","annotations":{"idempotentHint":true}}]}`
	ask(t, up, from, "tools/list", `{"cursor":"2"}`)
	check(map[string]bool{"reads": true, "more": true})
	ask(t, up, from, "tools/list", `{}`)
	check(map[string]bool{"reads": false, "more": true})
}

// annotated is a list with a tool whose calls carry a header, and one that asks for
// two of the same name.
const annotated = `{"tools":[{"name":"good","inputSchema":{"type":"object","properties":{"x":{"type":"string","x-mcp-header":"X"}}}},` +
	`{"name":"bad","inputSchema":{"type":"object","properties":{"x":{"type":"string","x-mcp-header":"X"},"y":{"type":"string","x-mcp-header":"x"}}}}]}`

// A tool that cannot be called over HTTP is hidden if a modern server on HTTP annotated it. Of any other server it
// only loses the annotation, for modern clients. For legacy clients nothing changes.
func TestAnnotations(t *testing.T) {
	for name, test := range map[string]struct {
		server bridge.Greeting
		client string
		want   string
	}{
		"modern over HTTP":            {bridge.Greeting{Revision: era.LatestModern, Mirrors: true}, era.LatestModern, `["good"] true`},
		"modern over stdio":           {bridge.Greeting{Revision: era.LatestModern}, era.LatestModern, `["good","bad"] false`},
		"modern for a legacy session": {bridge.Greeting{Revision: era.LatestModern}, era.LatestLegacy, `["good","bad"] true`},
		"legacy for a modern client":  {bridge.Greeting{Revision: era.LatestLegacy}, era.LatestModern, `["good","bad"] false`},
		"legacy for a legacy session": {bridge.Greeting{Revision: era.LatestLegacy}, era.LatestLegacy, `["good","bad"] true`},
	} {
		s := &server{greeting: test.server, list: annotated}
		_, up := learned(s, tools.Options{})
		for range 2 { // the second time the stored result is edited
			a := ask(t, up, &bridge.Caller{Revision: test.client}, "tools/list", `{}`)
			last := gjson.Get(a, "result.tools.@reverse.0.inputSchema").Raw
			got := gjson.Get(a, "result.tools.#.name").Raw + " " + map[bool]string{true: "true", false: "false"}[gjson.Get(last, "properties.x.x-mcp-header").Exists()]
			if got != test.want {
				t.Errorf("%s: %s, want %s", name, got, test.want)
			}
		}
	}
}

// A call carries the headers of its tool, or the client's if the tool is unknown. If the server rejects them,
// the tools are listed again, once.
func TestHeaders(t *testing.T) {
	s := &server{greeting: bridge.Greeting{Revision: era.LatestModern, Mirrors: true}, list: annotated}
	known, up := learned(s, tools.Options{Check: true})
	from := &bridge.Caller{Revision: era.LatestModern}
	mismatch := func(*bridge.Request) *jsonrpc.Message {
		return jsonrpc.NewError(nil, jsonrpc.CodeHeaderMismatch, "which?", nil)
	}
	bridgetest.Contains(t, ask(t, up, from, "tools/call", `{"name":"good","arguments":{"x":1}}`), "x: must be a string")
	ask(t, up, from, "tools/call", `{"name":"unlisted","arguments":{"x":"1"}}`)
	if got := s.got.Mirror; len(got["Mcp-Param-Y"]) != 1 {
		t.Errorf("an unlisted tool is called with %v", got)
	}
	ask(t, up, from, "tools/call", `{"name":"good","arguments":{"x":"1"}}`)
	if got := s.got.Mirror; len(got) != 1 || got["Mcp-Param-X"][0] != "1" {
		t.Errorf("called with %v", got)
	}
	s.lists = 0
	s.answer = mismatch
	bridgetest.Contains(t, ask(t, up, from, "tools/call", `{"name":"good","arguments":{"x":"1"}}`), `"code":-32603`, "does not accept the headers", "which?")
	if s.lists != 1 {
		t.Errorf("the tools were listed %d times", s.lists)
	}
	r := &bridge.Request{From: from, Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"good","arguments":{"x":"1"}}}`)}
	if no := known.Misheaded(r); no != nil {
		t.Errorf("without headers: %s", bridgetest.Text(no))
	}
	r.Mirror = map[string][]string{"Mcp-Param-X": {"2"}}
	bridgetest.Contains(t, bridgetest.Text(known.Misheaded(r)), `"code":-32020`)
}

// Other options take effect at once. Only what the options ask for is stored.
func TestSet(t *testing.T) {
	s := &server{greeting: bridge.Greeting{Revision: era.LatestLegacy}, list: `{"tools":[{"name":"a","annotations":{"readOnlyHint":true},"inputSchema":{"type":"object","required":["n"]}}]}`}
	known, up := learned(s, tools.Options{})
	from := &bridge.Caller{Principal: "p", Revision: era.LatestLegacy}
	ask(t, up, from, "tools/list", `{}`)
	known.Set(tools.Options{Check: true, Idempotent: true})
	if known.Idempotent("p", "a") {
		t.Error("it is known what nobody has asked for")
	}
	bridgetest.Contains(t, ask(t, up, from, "tools/call", `{"name":"a"}`), `"isError":true`)
	if s.lists != 2 || !known.Idempotent("p", "a") {
		t.Errorf("the tools were listed %d times, idempotent: %t", s.lists, known.Idempotent("p", "a"))
	}
	known.Set(tools.Options{Check: true, Idempotent: true})
	if !known.Idempotent("p", "a") {
		t.Error("the same options have it forget")
	}
	known.Set(tools.Options{Idempotent: true})
	if !known.Idempotent("p", "a") {
		t.Error("arguments are not checked any more, and it is not known what may be called twice")
	}
	bridgetest.Contains(t, ask(t, up, from, "tools/call", `{"name":"a"}`), `"content":[]`)
	known.Set(tools.Options{})
	bridgetest.Contains(t, ask(t, up, from, "tools/call", `{"name":"a"}`), `"content":[]`)
}

// A value that the operator sets, or that is the default, is in its header as well, whatever the client's headers say.
func TestOverriddenHeaders(t *testing.T) {
	s := &server{
		greeting: bridge.Greeting{Revision: era.LatestModern, Mirrors: true},
		list: `{"tools":[{"name":"x","inputSchema":{"type":"object","properties":{"repo":{"type":"string","x-mcp-header":"Repo"},"y":{"type":"string","x-mcp-header":"Y"},` +
			`"path":{"type":"string","x-mcp-header":"Path"},"n":{"type":"integer","x-mcp-header":"N"}}}}]}`,
	}
	known, up := learned(s, tools.Options{Overrides: arguments.Overrides{"?": {
		"repo": {Value: json.RawMessage(`"acme/x"`)}, "n": {Default: json.RawMessage("7.0")}, "path": {As: "folder"},
	}}})
	from := &bridge.Caller{Revision: era.LatestModern}
	ask(t, up, from, "tools/list", `{}`)
	for args, want := range map[string]string{
		``:                                  "map[Mcp-Param-N:[7] Mcp-Param-Repo:[acme/x]]",
		`,"arguments":{"folder":"a","n":8}`: "map[Mcp-Param-N:[8] Mcp-Param-Path:[a] Mcp-Param-Repo:[acme/x]]",
	} {
		ask(t, up, from, "tools/call", `{"name":"x"`+args+`}`)
		if got := fmt.Sprint(map[string][]string(s.got.Mirror)); got != want {
			t.Errorf("%s: headers are %s, want %s", args, got, want)
		}
	}
	for h, wrong := range map[string]bool{"Path": false, "Repo": false, "Y": true} {
		r := &bridge.Request{Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"folder":"a"}}}`), From: from,
			Mirror: map[string][]string{"Mcp-Param-Path": {"a"}, "Mcp-Param-" + h: {"a"}}}
		if no := known.Misheaded(r); (no != nil) != wrong {
			t.Errorf("a client's header %s beside the argument folder is wrong: %t", h, no != nil)
		}
	}
}
