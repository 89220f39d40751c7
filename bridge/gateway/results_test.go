package gateway

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/guard/results"
)

// Long results are cut and read on, by sessions and stateless clients, at each address and through call_tool. One kind of
// client does not read what the other got (C-040).
func TestResults(t *testing.T) {
	long := `{"tools":[{"name":"log","inputSchema":{"type":"object"}}]}`
	one := shop("one", map[string]string{"tools/list": long, "tools/call": `{"content":[{"type":"text","text":"` + strings.Repeat(`line\n`, 1000) + `"}]}`})
	two := shop("two", map[string]string{"tools/list": long})
	all(t, []stock{{name: "one", prefix: "one__", f: one, o: ServerOptions{ServerSettings: ServerSettings{Results: results.Options{Max: 1024}}}}, {name: "two", prefix: "two__", f: two}}, func(t *testing.T, g *gateway) {
		if err := g.Apply(Change{Names: []string{"one", "two"}, Settings: &Settings{Common: Common{SessionIdle: 1e15, SessionLeft: 1e15, ListWait: 1e15}, Groups: []Group{{Name: "dev", Servers: []string{"one"}}, {Name: "other", Servers: []string{"two"}}}}}); err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			server string
			mode   ToolsMode
			call   string
			listed string
		}{
			{"one", "", `{"name":"log"}`, "log read_result"},
			{"", "", `{"name":"one__log"}`, "one__log two__log read_result"},
			{"dev", "", `{"name":"one__log"}`, "one__log read_result"},
			{"", ToolsSearch, `{"name":"call_tool","arguments":{"name":"one__log"}}`, "search_tools read_tool call_tool read_result"},
			{"other", "", "", "two__log"},
			{"two", "", "", "log"},
		} {
			s := sessionAt(t, g, tc.server, "", tc.mode)
			for i, got := range through(t, g, s, tc.mode, "tools/list", `{}`) {
				if list := strings.Join(names(t, got), " "); list != tc.listed {
					t.Errorf("%d: %q, tools=%s: the list is %s, want %s", i, tc.server, tc.mode, list, tc.listed)
				}
			}
			if tc.call == "" {
				continue
			}
			both := through(t, g, s, tc.mode, "tools/call", tc.call)
			for i, got := range both {
				content := gjson.Get(got, "result.content")
				link := content.Get("2.uri").Str
				id := link[strings.LastIndexByte(link, '/')+1:]
				if len(content.Get("0.text").Str) > 1024 || id == "" {
					t.Fatalf("%d: %q: the result is %s", i, tc.server, got)
				}
				read := through(t, g, s, tc.mode, "tools/call", `{"name":"read_result","arguments":{"id":"`+id+`","from":999,"lines":2}}`)
				if !strings.Contains(read[i], `(lines 999 to 1000 of 1001)`) || !strings.Contains(read[1-i], "does not have this result") {
					t.Errorf("%d: %q: read on: %s, and the other client: %s", i, tc.server, read[i], read[1-i])
				}
				if tc.mode == ToolsSearch { // models call it like the others
					read = through(t, g, s, tc.mode, "tools/call", `{"name":"read_tool","arguments":{"name":"read_result","arguments":{"id":"`+id+`","from":999,"lines":2}}}`)
					if !strings.Contains(read[i], `(lines 999 to 1000 of 1001)`) {
						t.Errorf("through read_tool: %s", read[i])
					}
				}
				read = through(t, g, s, tc.mode, "resources/read", `{"uri":"`+link+`"}`)
				if len(gjson.Get(read[i], "result.contents.0.text").Str) != 5000 || !strings.Contains(read[1-i], `"error"`) {
					t.Errorf("%d: %q: the resource is %.200s, for the other client %.200s", i, tc.server, read[i], read[1-i])
				}
			}
		}
	})
}
