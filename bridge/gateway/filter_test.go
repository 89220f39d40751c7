package gateway

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/filter"
)

func ptr(s string) *string { return &s }

// Clients see and use what the filters let through, under the names that they
// give, and nothing else.
func TestFilter(t *testing.T) {
	f := shop("one", map[string]string{
		"tools/list":               `{"tools":[{"name":"get_a","description":"old","annotations":{"readOnlyHint":true,"x":1},"inputSchema":{}},{"name":"get_secret"},{"inputSchema":{},"name":"set_b"},{"name":"get_c"},{"name":"gone"}],"nextCursor":"n","_meta":{"k":1}}`,
		"prompts/list":             `{"prompts":[{"name":"p1"},{"name":"p2"}]}`,
		"resources/list":           `{"resources":[{"uri":"a:1","name":"x"},{"uri":"b:1","name":"y"}]}`,
		"resources/templates/list": `{"resourceTemplates":[{"uriTemplate":"a:{x}","name":"x"},{"uriTemplate":"b:{x}","name":"y"}]}`,
	})
	o := ServerOptions{Adapter: f, ServerSettings: ServerSettings{Lists: filter.Lists{
		Tools: filter.Rules{Allow: []string{"get_*", "set_b"}, Deny: []string{"*secret*"}, Rename: map[string]string{"get_a": "fetch", "set_b": "get_c"},
			Override: map[string]filter.Override{"get_a": {Title: ptr("T"), Description: ptr(`new "d"`), Annotations: map[string]json.RawMessage{"x": json.RawMessage("null"), "destructiveHint": json.RawMessage("false")}}}},
		Prompts:   filter.Rules{Deny: []string{"p2"}, Rename: map[string]string{"p1": "q1"}},
		Resources: filter.Rules{Allow: []string{"a:*"}, Rename: map[string]string{"a:1": "first"}},
	}}}
	run(t, o, func(t *testing.T, g *gateway) {
		s, st := begin(t, g, "")
		want := `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"title":"T","name":"fetch","description":"new \"d\"","annotations":{"readOnlyHint":true,"destructiveHint":false},"inputSchema":{}},{"inputSchema":{},"name":"get_c"}],"nextCursor":"n","_meta":{"k":1}}}`
		if got := do(t, s, "1", "tools/list", `{}`); got != want {
			t.Errorf("tools:\n got %s\nwant %s", got, want)
		}
		same(t, "prompts", names(t, do(t, s, "1", "prompts/list", `{}`)), []string{"q1"})
		if got := do(t, s, "1", "resources/list", `{}`); !strings.Contains(got, `"resources":[{"uri":"a:1","name":"first"}]`) {
			t.Errorf("resources: %s", got)
		}
		same(t, "templates", names(t, do(t, s, "1", "resources/templates/list", `{}`)), []string{"a:{x}"})
		for _, test := range []struct{ method, params, want string }{
			{"tools/call", `{"name":"fetch"}`, `{"name":"get_a"}`},
			{"tools/call", `{"name":"get_c","arguments":{"x":1.0}}`, `{"name":"set_b","arguments":{"x":1.0}}`},
			{"tools/call", `{"name":"get_new"}`, `{"name":"get_new"}`},
			{"tools/call", `{"name":"get_a"}`, "Unknown tool: get_a"},
			{"tools/call", `{"name":"get_secret"}`, "Unknown tool: get_secret"},
			{"tools/call", `{"name":"set_b"}`, "Unknown tool: set_b"},
			{"tools/call", `{"name":"gone"}`, "Unknown tool: gone"},
			{"tools/call", `{"name":"get_c","Name":"get_secret"}`, "in case only"},
			{"prompts/get", `{"name":"q1"}`, `{"name":"p1"}`},
			{"prompts/get", `{"name":"p1"}`, "Unknown prompt: p1"},
			{"prompts/get", `{"name":"p2"}`, "Unknown prompt: p2"},
			{"resources/read", `{"uri":"a:9"}`, `{"uri":"a:9"}`},
			{"resources/read", `{"uri":"b:1"}`, `"code":-32002`},
			{"resources/read", `{"uri":"a:1","URI":"b:1"}`, "in case only"},
			{"resources/read", `{"uri":"a:/x/../1"}`, `{"uri":"a:/x/../1"}`},
			{"resources/subscribe", `{"uri":"b:1"}`, `"code":-32002`},
			{"completion/complete", `{"ref":{"type":"ref/prompt","name":"p2","uri":"a:{x}"}}`, "either name, for a prompt, or uri"},
			{"completion/complete", `{"ref":{"type":"ref/resource","uri":"b:{x}","uri":"a:{x}"}}`, `{"ref":{"type":"ref/resource","uri":"a:{x}"}}`},
			{"completion/complete", `{"ref":{"type":"ref/resource","uri":"a:{x}","URI":"b:{x}"}}`, `{"ref":{"type":"ref/resource","uri":"a:{x}"}}`},
			{"completion/complete", `{"ref":{"type":"ref/prompt","name":"q1"}}`, `{"ref":{"name":"p1","type":"ref/prompt"}}`},
			{"completion/complete", `{"ref":{"type":"ref/prompt","name":"q1","name":"p2"}}`, "Unknown prompt: p2"},
			{"completion/complete", `{"ref":{"type":"ref/prompt","name":"q1"},"ref":{"name":"p2"}}`, "Unknown prompt: p2"},
			{"completion/complete", `{"ref":{"type":"ref/resource","uri":"b:{x}"}}`, `"code":-32002`},
			{"completion/complete", `{"ref":{"type":"ref/prompt","Name":"p2","uri":"a:{x}"}}`, `{"ref":{"type":"ref/prompt","uri":"a:{x}"}}`},
			{"completion/complete", `{"ref":{"type":"ref/resource","uri":"b:{x}","uri":"a:{x}"}}`, `{"ref":{"type":"ref/resource","uri":"a:{x}"}}`},
			{"completion/complete", `{"ref":{"type":"ref/prompt","name":"p2"},"Ref":{"uri":"a:{x}"}}`, "Unknown prompt: p2"},
			{"completion/complete", `{"Ref":{"type":"ref/prompt","name":"p2"},"ref":{"name":"q1"}}`, `{"ref":{"name":"p1"}}`},
			{"completion/complete", `{"ref":{"type":"ref/resource","uri":"a:{x}"}}`, `"result"`},
		} {
			got := do(t, s, "2", test.method, test.params)
			if strings.HasPrefix(test.want, "{") {
				if p := gjson.Get(got, "result.params").Raw; p != test.want {
					t.Errorf("%s %s: the server got %s: %s", test.method, test.params, p, got)
				}
			} else if !strings.Contains(got, test.want) {
				t.Errorf("%s %s: %s, want %s", test.method, test.params, got, test.want)
			}
		}
		f.wire(1).say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"b:1"}}`)
		f.wire(1).say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:1"}}`)
		if got := st.take(); len(got) != 1 || !strings.Contains(got[0], "a:1") {
			t.Errorf("the client was told %q", got)
		}
	})
	// In front of several servers the prefix comes before the name that the filter gives.
	all(t, []stock{{name: "one", prefix: "one__", f: f, o: o}, {name: "two", prefix: "two__", f: shop("two", nil)}}, func(t *testing.T, g *gateway) {
		s, _, _ := enter(t, g)
		same(t, "tools", names(t, do(t, s, "1", "tools/list", `{}`)), []string{"one__fetch", "one__get_c"})
		if got := do(t, s, "1", "tools/call", `{"name":"one__fetch"}`); gjson.Get(got, "result.params.name").Str != "get_a" {
			t.Error(got)
		}
		if got := do(t, s, "1", "tools/call", `{"name":"one__get_secret"}`); !strings.Contains(got, "Unknown tool: one__get_secret") {
			t.Error(got)
		}
	})
}
