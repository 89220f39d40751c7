package tools_test

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
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/tools"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/arguments"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
)

// server is an Upstream with a list of tools, which counts its requests.
type server struct {
	bridge.Upstream
	greeting bridge.Greeting
	list     string
	lists    int
	since    time.Time       // of the last request for the list
	got      *bridge.Request // the last call
	answer   func(*bridge.Request) *jsonrpc.Message
}

func (s *server) Server() *bridge.Greeting { return &s.greeting }

func (s *server) Call(_ context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Method == "tools/list" {
		s.lists, s.since = s.lists+1, r.NotBefore
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

// till is a list of tools with one that has a schema, one whose schema cannot be used, and one without.
const till = `{"tools":[{"name":"pay","inputSchema":{"type":"object","properties":{"amount":{"type":"integer","minimum":1},"to":{"type":"string"}},"required":["amount","to"]}},` +
	`{"name":"odd","inputSchema":{"type":"nonsense"}},{"name":"bare"}]}`

// Nothing is refused by a schema that is not true any more; what was refused by it is by the new one, or not at all. A
// list that is a second old is good enough to refuse a call by. A schema that cannot be used is said once.
func TestCheckChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := &server{greeting: bridge.Greeting{Revision: era.LatestLegacy}, list: till}
		up := tools.New("fake", tools.Options{Check: true}, slog.New(slog.NewTextHandler(&log, nil))).Wrap(s)
		from := &bridge.Caller{Revision: era.LatestLegacy}
		pay := func(args, want string) {
			t.Helper()
			bridgetest.Contains(t, ask(t, up, from, "tools/call", `{"name":"pay","arguments":`+args+`}`), want)
		}
		if pay(`{"amount":"7"}`, `"isError":true`); s.lists != 1 {
			t.Errorf("listed %d times", s.lists)
		}
		if pay(`{"amount":"7"}`, `"isError":true`); s.lists != 2 || !s.since.Equal(time.Now().Add(-time.Second)) { // the cache knows it
			t.Errorf("listed %d times, and not before %v", s.lists, s.since)
		}
		s.list = strings.Replace(till, `"integer"`, `"string"`, 1)
		pay(`{"amount":"7","to":"x"}`, `"content":[]`)
		pay(`{"amount":7,"to":"x"}`, "amount: must be a string, not 7")
		s.list = `{"tools":[]}`
		pay(`{}`, `"content":[]`) // what has become of it is for the server to say
		pay(`{}`, `"content":[]`)
		s.list = till
		for range 3 {
			ask(t, up, from, "tools/call", `{"name":"odd","arguments":{"secret":1}}`)
		}
		if got := log.String(); strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, "tool=odd") || strings.Contains(got, "secret") {
			t.Errorf("the log has %s", got)
		}
	})
}

// What could mean one thing to us and another to the server is refused. So is a call that is to become a task in a form
// that its client understands.
func TestCheckRefuses(t *testing.T) {
	s := &server{greeting: bridge.Greeting{Revision: era.LatestLegacy}, list: till}
	_, up := learned(s, tools.Options{Check: true})
	for _, params := range []string{
		`{"name":"pay","arguments":{"amount":1,"to":"a"},"arguments":{}}`,
		`{"name":"pay","arguments":{"amount":1,"to":"a"},"Arguments":{}}`,
		`{"name":"pay","argument\u0053":{}}`,
		`{"name":"bare","Name":"pay"}`,
		`{"name":"pay","arguments":{"amount":1},"task":{}}`,
	} {
		bridgetest.Contains(t, ask(t, up, &bridge.Caller{Revision: era.LatestLegacy}, "tools/call", params), `"code":-32602`)
	}
	if s.got != nil {
		t.Errorf("the server got %s", s.got.Params)
	}
}

// Calls that come at once list the tools once, and one that is given up neither waits for that nor keeps the others from it.
func TestCheckAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := bridgetest.NewUpstream(era.LatestLegacy, "{}")
		checked := tools.New("fake", tools.Options{Check: true}, slog.New(slog.DiscardHandler)).Wrap(up)
		from := bridgetest.Caller(era.LatestLegacy, "", "{}")
		var cancels []context.CancelFunc
		var done []chan string
		for range 9 {
			ctx, cancel := context.WithCancel(t.Context())
			cancels, done = append(cancels, cancel), append(done, make(chan string, 1))
			answer := done[len(done)-1]
			go func() {
				m, _ := checked.Call(ctx, bridgetest.Request(t, from, nil, "tools/call", `{"name":"pay"}`))
				answer <- bridgetest.Text(m)
			}()
			synctest.Wait()
		}
		up.Next()
		for _, n := range []int{8, 0} { // one that waits, and the one that lists
			cancels[n]()
			if synctest.Wait(); len(done[n]) == 0 && n == 8 {
				t.Error("a call that was given up still waits")
			}
		}
		up.Next().Answer(t, till)
		for _, answer := range done[1:8] {
			bridgetest.Contains(t, <-answer, "amount: is missing")
		}
		if got := strings.Join(up.Got(), "\n"); strings.Count(got, "tools/list") != 3 { // one was cancelled, which is said
			t.Errorf("the server got %s", got)
		}
	})
}

// depot is a list of tools: one that the operator changes, one that a pattern changes, one of which nothing can be promised,
// one that nobody changes.
const depot = `{"tools":[{"name":"put","inputSchema":{"type":"object","properties":{"repo":{"type":"string"},"path":{"type":"string"},"size":{"type":"integer"},"region":{"type":"string"},"tenant":{"type":"string"},"dry_run":{"type":"boolean"}},"required":["repo","path","region","tenant"],"additionalProperties":false}},` +
	`{"name":"get","inputSchema":{"type":"object","properties":{"tenant":{"type":"string"}}}},` +
	`{"name":"any","inputSchema":{"oneOf":[{"type":"object","properties":{"tenant":{"type":"string"}}}]}},` +
	`{"name":"plain","inputSchema":{"type":"object","properties":{"repo":{"type":"string"}}}}]}`

// Clients see and send what the operator leaves to them. The server gets the rest, and nothing that was refused.
func TestOverrides(t *testing.T) {
	for _, checks := range []bool{false, true} {
		var log bytes.Buffer
		s := &server{greeting: bridge.Greeting{Revision: era.LatestLegacy}, list: depot}
		up := tools.New("fake", tools.Options{Check: checks, Overrides: arguments.Overrides{
			"put": {
				"repo": {Value: json.RawMessage(`"acme/x"`)}, "path": {As: "folder", About: "Where"}, "region": {Default: json.RawMessage(`"eu"`)}, "dry_run": {Off: true},
			},
			"*": {"tenant": {Value: json.RawMessage(`"${caller.claims.tenant}/${header.X-Team}/${caller.name}"`)}},
		}}, slog.New(slog.NewTextHandler(&log, nil))).Wrap(s)
		from := &bridge.Caller{Principal: "ann", Revision: era.LatestLegacy}
		team, ann := http.Header{"X-Team": {"red"}}, identity.New(map[string][]string{"tenant": {`t"1`}}, nil)
		request := func(params string, from *bridge.Caller, h http.Header, id *identity.Identity) string {
			t.Helper()
			s.got = nil
			m, err := up.Call(t.Context(), &bridge.Request{Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`), From: from, Header: h, Identity: id})
			if err != nil {
				t.Fatal(err)
			}
			return bridgetest.Text(m)
		}
		for params, want := range map[string]string{ // before any list: the tools are listed
			`{"name":"put","arguments":{ "folder":"a\u0062", "size":12345678901234567890 }}`: `{ "path":"a\u0062", "size":12345678901234567890 ,"region":"eu","repo":"acme/x","tenant":"t\"1/red/ann"}`,
			`{"name":"put","arguments":{"folder":"a","region":"us"}}`:                        `{"path":"a","region":"us","repo":"acme/x","tenant":"t\"1/red/ann"}`,
			`{"name":"get"}`:                            `{"tenant":"t\"1/red/ann"}`,
			`{"name":"get","arguments":null}`:           `{"tenant":"t\"1/red/ann"}`,
			`{"name":"plain","arguments":{"repo":"y"}}`: `{"repo":"y"}`,
		} {
			request(params, from, team, ann)
			if got := gjson.GetBytes(s.got.Whole(), "arguments").Raw; got != want {
				t.Errorf("%s: the server got %s, want %s", params, got, want)
			}
		}
		listed := gjson.Get(ask(t, up, from, "tools/list", `{}`), "result.tools")
		if names := listed.Get("#.name").Raw; names != `["put","get","plain"]` {
			t.Errorf("listed are %s", names)
		}
		for tool, want := range map[string]string{
			"0": `{"type":"object","properties":{"folder":{"type":"string","description":"Where"},"size":{"type":"integer"},"region":{"type":"string","default":"eu"}},"required":["folder"],"additionalProperties":false}`,
			"1": `{"type":"object","properties":{}}`,
		} {
			if schema := listed.Get(tool + ".inputSchema").Raw; schema != want {
				t.Errorf("the schema is %s", schema)
			}
		}
		sets := func(name string) string { return `argument \"` + name + `\": the operator of the bridge sets it` }
		const twice, put = "params must not have name or arguments twice", `{"name":"put","arguments":{"folder":"a"`
		for _, tc := range []struct {
			params string
			from   *bridge.Caller
			header http.Header
			id     *identity.Identity
			want   string
		}{
			{put + `,"repo":"evil/x"}}`, from, team, ann, sets("repo")},
			{put + `,"r\u0065po":"evil/x"}}`, from, team, ann, sets("repo")},
			{put + `,"Tenant":"evil"}}`, from, team, ann, sets("Tenant")},
			{put + `,"dry_run":true}}`, from, team, ann, sets("dry_run")},
			{put + `},"arguments":{}}`, from, team, ann, twice},
			{put + `},"Arguments":{"repo":"evil/x"}}`, from, team, ann, twice},
			{put + `},"argument\u0073":{"repo":"evil/x"}}`, from, team, ann, twice},
			{`{"name":"put","arguments":{"path":"a"}}`, from, team, ann, "folder"},
			{`{"name":"put","arguments":[]}`, from, team, ann, "must be an object"},
			{`{"name":"any","arguments":{"tenant":"evil"}}`, from, team, ann, "Unknown tool: any"},
			{`{"name":"absent","arguments":{}}`, from, team, ann, "Unknown tool: absent"},
			{`{"name":"get"}`, from, team, nil, sets("tenant") + " to ${caller.claims.tenant}, which this caller lacks"},
			{`{"name":"get"}`, from, http.Header{"X-Team": {"red", "blue"}}, ann, sets("tenant") + " to ${header.X-Team}, which this caller lacks"},
			{`{"name":"get"}`, &bridge.Caller{Revision: era.LatestLegacy}, team, ann, sets("tenant") + " to ${caller.name}, which this caller lacks"},
		} {
			if bridgetest.Contains(t, request(tc.params, tc.from, tc.header, tc.id), tc.want); s.got != nil {
				t.Errorf("%s: the server got %s", tc.params, s.got.Params)
			}
		}
		if checks {
			bridgetest.Contains(t, request(`{"name":"put","arguments":{"folder":1}}`, from, team, ann), "folder: must be a string")
		}
		if got := log.String(); strings.Count(got, "the override of an argument does not apply") != 1 || !strings.Contains(got, "tool=any argument=tenant") {
			t.Errorf("the log has %s", got)
		}
	}
}
