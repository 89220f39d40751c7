package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/guard/approve"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/guard/results"
	"github.com/mcp-bridge/bridge/internal/script"
)

// lines runs scripts whose lines are calls: a name and arguments. The value of a script are the results.
type lines struct{}

func (lines) Run(ctx context.Context, _, code string, to script.Caller) (script.Result, error) {
	var all []string
	for line := range strings.Lines(code) {
		name, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		value, err := to.Call(ctx, name, []byte(args))
		if err != nil {
			value = []byte(fmt.Sprintf("%q", "Error: "+err.Error()))
		}
		all = append(all, string(value))
	}
	return script.Result{Value: []byte("[" + strings.Join(all, ",") + "]"), Log: "done\n"}, nil
}

// A script calls tools through everything that calls of its client pass: rights, names, arguments, approvals and the
// rules for meta tools. It serves sessions and stateless clients, at each address (C-020, C-022).
func TestCode(t *testing.T) {
	long := strings.Repeat("x", 3000)
	list := `{"tools":[{"name":"look","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},{"name":"drop","inputSchema":{"type":"object"}},` +
		`{"name":"button","inputSchema":{"type":"object"},"_meta":{"ui":{"visibility":["app"]}}}]}`
	texts := map[string]string{"tools/list": list, "tools/call": `{"content":[{"type":"text","text":"` + long + `"}]}`}
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(Options{
			Servers: []ServerOptions{
				{Name: "one", Adapter: shop("one", map[string]string{"tools/list": list}), ServerSettings: ServerSettings{
					Prefix:  "one__",
					Lists:   filter.Lists{Tools: filter.Rules{Rename: map[string]string{"look": "see"}}},
					Approve: []approve.Rule{{Tools: []string{"drop"}, Ask: []string{approve.AskClient}}},
				}},
				{Name: "two", Adapter: modernShop("two", map[string]string{"tools/list": `{"resultType":"complete",` + list[1:len(list)-1] + `,"ttlMs":0,"cacheScope":"private"}`}), ServerSettings: ServerSettings{Prefix: "two__"}},
				{Name: "text", Adapter: shop("text", texts), ServerSettings: ServerSettings{Prefix: "text__", Results: results.Options{Max: 1024}}},
				{Name: "secret", Adapter: shop("secret", map[string]string{"tools/list": list}), ServerSettings: ServerSettings{Prefix: "secret__"}},
			},
			Grants: map[string]filter.Grant{"p": {Servers: []string{"one", "two", "text"}}, "q": {}},
			Log:    slog.New(slog.DiscardHandler),
		})
		defer g.Close(context.Background())
		g.scripts = lines{}
		for _, tc := range []struct {
			at, line string
			want     string // a part of the value
		}{
			{"", `one__see {}`, `"by":"one"`},
			{"", `two__drop {}`, `"by":"two"`},
			{"one", `see {"a":1}`, `"arguments":{"a":1}`},
			{"", `text__look {}`, long}, // whole, though longer than clients get
			{"", `one__look {}`, `Unknown tool`},
			{"", `secret__look {}`, `Unknown tool`},
			{"", `search_tools {}`, `scripts cannot call search_tools`},
			{"", `call_tool {"name":"one__see"}`, `scripts cannot call call_tool`},
			{"", `run_code {"code":"one__see {}"}`, `scripts cannot call run_code`},
			{"", `read_result {}`, `scripts cannot call read_result`},
			{"one", `button {}`, `not for models`},
		} {
			s := sessionAt(t, g, tc.at, "p", ToolsCode)
			for i, got := range through(t, g, s, ToolsCode, "tools/call", fmt.Sprintf(`{"name":"run_code","arguments":{"code":%q}}`, tc.line)) {
				if value := gjson.Get(got, "result.content.0.text").Str; !strings.Contains(value, tc.want) || gjson.Get(got, "result.content.1.text").Str != "Log:\ndone\n" {
					t.Errorf("%d: %q: %s: %s, want %s", i, tc.at, tc.line, got, tc.want)
				}
			}
		}

		// A person is asked in the middle of a script. A client that cannot be asked there gets an error in the script.
		s := sessionAt(t, g, "one", "p", ToolsCode)
		const dropping = `"name":"run_code","arguments":{"code":"drop {}"}`
		for answer, want := range map[string]string{"Yes, this once": `by`, "No": "did not allow it"} {
			if question, got := asking(t, s, ToolsCode, dropping, chosen(answer)); !strings.Contains(question, `Tool: \"drop\"`) || !strings.Contains(got, want) {
				t.Errorf("%s: %s, after the question %s", answer, got, question)
			}
		}
		v := visitor{server: "one", principal: "p", mode: ToolsCode}
		if got := v.call(t, g, "tools/call", dropping); !strings.Contains(got, "nobody can be asked") {
			t.Errorf("a stateless client: %s", got)
		}

		// The list has two tools, and search answers with signatures.
		for i, got := range through(t, g, sessionAt(t, g, "", "p", ToolsCode), ToolsCode, "tools/list", `{}`) {
			if all := strings.Join(names(t, got), " "); all != "search_tools run_code read_result" {
				t.Errorf("%d: the list is %s", i, all)
			}
		}
		for i, got := range through(t, g, sessionAt(t, g, "two", "p", ToolsCode), ToolsCode, "tools/call", `{"name":"search_tools","arguments":{"names":["drop"]}}`) {
			if text := gjson.Get(got, "result.content.0.text").Str; text != "tools.drop(args: { [name: string]: unknown }): Promise<unknown>" {
				t.Errorf("%d: search: %s", i, got)
			}
		}

		// For scopes, a script stands for a call of any tool.
		m := g.Resolve("one", "p", ToolsCode, bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_code","arguments":{"code":"see {}"}}}`))
		if m.Method != "tools/call" || m.Name() != "" {
			t.Errorf("a script stands for %s %q", m.Method, m.Name())
		}
		// Without scripts, the mode is that of search.
		g.scripts = nil
		for i, got := range through(t, g, sessionAt(t, g, "", "p", ToolsCode), ToolsCode, "tools/list", `{}`) {
			if all := strings.Join(names(t, got), " "); all != "search_tools read_tool call_tool read_result" {
				t.Errorf("%d: without a program, the list is %s", i, all)
			}
		}
	})
}

// The limits of a principal count each call of a script: a script is no way around them.
func TestCodeQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(Options{
			Servers: []ServerOptions{{Name: "one", Adapter: modernShop("one", map[string]string{"tools/list": `{"resultType":"complete",` + lookAndDrop[1:len(lookAndDrop)-1] + `,"ttlMs":0,"cacheScope":"private"}`})}},
			Grants:  grants("p"),
			Common:  Common{PerPrincipal: limits.PerPrincipal{Rate: limits.Rate{PerSecond: 1, Burst: 3}}},
			Log:     slog.New(slog.DiscardHandler),
		})
		defer g.Close(context.Background())
		g.scripts = lines{}
		v := visitor{server: "one", principal: "p", mode: ToolsCode}
		got := v.call(t, g, "tools/call", `"name":"run_code","arguments":{"code":"look {}\nlook {}\nlook {}"}`)
		value := gjson.Get(got, "result.content.0.text").Str
		if strings.Count(value, `"by":"one"`) != 2 || strings.Count(value, "per_principal: rate") != 1 {
			t.Errorf("two calls beside the script: %s", got)
		}
		if !g.quota.Idle() {
			t.Error("a call of the script still counts")
		}
	})
}
