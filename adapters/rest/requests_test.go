package rest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/tools"
	"github.com/mcp-bridge/bridge/internal/find"
	"github.com/mcp-bridge/bridge/internal/openapitest"
	"github.com/mcp-bridge/bridge/internal/programtest"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// offered is a tool of one of many servers.
type offered struct {
	server, name, operation string
	entry                   []byte
}

// stdioServers are the packages of testdata/servers, with the name of the server and its arguments. The servers list
// their tools without an account.
var stdioServers = []struct{ name, pkg, argument string }{
	{"airtable", "airtable-mcp-server", ""},
	{"asana", "@roychri/mcp-server-asana", ""},
	{"chart", "@antv/mcp-server-chart", ""},
	{"chrome", "chrome-devtools-mcp", ""},
	{"discourse", "@discourse/mcp", ""},
	{"dokploy", "@ahdev/dokploy-mcp", ""},
	{"filesystem", "@modelcontextprotocol/server-filesystem", "."},
	{"github", "@modelcontextprotocol/server-github", ""},
	{"gitlab", "@zereight/mcp-gitlab", ""},
	{"jira", "mcp-jira-cloud", ""},
	{"lunchmoney", "@akutishevsky/lunchmoney-mcp", ""},
	{"maps", "@modelcontextprotocol/server-google-maps", ""},
	{"memory", "@modelcontextprotocol/server-memory", ""},
	{"metabase", "@easecloudio/mcp-metabase-server", ""},
	{"notion", "@notionhq/notion-mcp-server", ""},
	{"paperless", "@baruchiro/paperless-mcp", ""},
	{"playwright", "@playwright/mcp", ""},
	{"slack", "@modelcontextprotocol/server-slack", ""},
	{"trello", "@delorenj/mcp-server-trello", ""},
}

// placeholders are the variables without which a server does not start. No server connects to anything before a call.
var placeholders = []string{
	"AIRTABLE_API_KEY=x", "ASANA_ACCESS_TOKEN=x", "DOKPLOY_API_KEY=x", "DOKPLOY_URL=http://127.0.0.1:9/api",
	"GITHUB_PERSONAL_ACCESS_TOKEN=x", "GITLAB_PERSONAL_ACCESS_TOKEN=x", "GOOGLE_MAPS_API_KEY=x",
	"LUNCHMONEY_API_KEY=x", "LUNCHMONEY_API_TOKEN=x", "METABASE_API_KEY=x", "METABASE_URL=http://127.0.0.1:9",
	"NOTION_TOKEN=x", "PAPERLESS_API_KEY=x", "PAPERLESS_URL=http://127.0.0.1:9", "SLACK_BOT_TOKEN=x", "SLACK_TEAM_ID=x",
	"TRELLO_API_KEY=x", "TRELLO_TOKEN=x",
}

// listOf returns the tools of a server that the package pkg in modules holds.
func listOf(t *testing.T, modules, pkg, argument string) (all []gjson.Result) {
	text, err := os.ReadFile(filepath.Join(modules, pkg, "package.json"))
	if err != nil {
		t.Fatal(err)
	}
	program := ""
	gjson.GetBytes(text, "bin").ForEach(func(_, file gjson.Result) bool {
		program = file.Str
		return false
	})
	args := []string{filepath.Join(modules, pkg, program)}
	if argument != "" {
		args = append(args, argument)
	}
	cmd := exec.CommandContext(t.Context(), programtest.Need(t, "node"), args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(placeholders, "PATH="+os.Getenv("PATH"), "HOME="+cmd.Dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	}()
	lines := bufio.NewReader(out)
	ask := func(method string, params any) gjson.Result {
		message, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": method, "method": method, "params": params})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Write(append(message, '\n')); err != nil {
			t.Fatalf("%s: %v", pkg, err)
		}
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				t.Fatalf("%s: %s: %v", pkg, method, err)
			}
			if gjson.GetBytes(line, "id").Str == method {
				return gjson.GetBytes(line, "result")
			}
		}
	}
	ask("initialize", map[string]any{
		"protocolVersion": "2025-06-18",
		"capabilities":    map[string]any{},
		"clientInfo":      map[string]any{"name": "test", "version": "1"},
	})
	if _, err := in.Write([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n")); err != nil {
		t.Fatalf("%s: %v", pkg, err)
	}
	params := map[string]any{}
	for {
		page := ask("tools/list", params)
		all = append(all, page.Get("tools").Array()...)
		next := page.Get("nextCursor").Str
		if next == "" {
			return all
		}
		params["cursor"] = next
	}
}

// offeredTools returns the tools of all servers.
func offeredTools(t *testing.T) (all []offered) {
	for _, api := range []struct{ name, document string }{
		{"batch", "kubernetes-batch-2.0.json"},
		{"kubernetes", "kubernetes-core-3.0.json"},
		{"museum", "museum-3.1.yaml"},
		{"openai", "openai-3.1.yaml"},
		{"petstore", "petstore-3.0.yaml"},
		{"prometheus", "prometheus-3.2.yaml"},
		{"resend", "resend-3.1.yaml"},
		{"twilio", "twilio-api-3.0.json"},
		{"xero", "xero-accounting-3.0.yaml"},
	} {
		c := Config{OpenAPI: openapitest.Shared(t, api.document)}
		for _, tool := range madeOf(t, c, Options{}).Tools {
			all = append(all, offered{api.name, tool.Name, tool.Operation.ID, tools.AppendEntry(nil, tool)})
		}
	}
	modules := programtest.Packages(t, "adapters/rest/testdata/servers")
	for _, s := range stdioServers {
		tools := listOf(t, modules, s.pkg, s.argument)
		if len(tools) == 0 {
			t.Errorf("%s has no tools", s.pkg)
		}
		for _, tool := range tools {
			all = append(all, offered{s.name, tool.Get("name").Str, "", bytes.Clone([]byte(tool.Raw))})
		}
	}
	return all
}

// TestRequests: everyday requests find their tool among those of many servers, and clearly better than plain BM25 over
// the same texts.
func TestRequests(t *testing.T) {
	scaletest.Large(t)
	scaletest.Unraced(t)
	tools := offeredTools(t)
	var all []find.Tool
	texts := make([]string, len(tools))
	for i, o := range tools {
		all = append(all, find.Read(o.entry, o.server))
		d := gjson.ParseBytes(o.entry)
		texts[i] = strings.Join([]string{o.server, o.name, d.Get("title").Str, d.Get("description").Str, strings.Join(keysOf(d.Get("inputSchema.properties")), " ")}, " ")
	}
	x, reference := find.New(all), plainTexts(texts)
	text, err := os.ReadFile("testdata/requests.txt")
	if err != nil {
		t.Fatal(err)
	}
	// The requests that chose the values of the search, and the others. The words were written by the author of all requests.
	var chosen, others, chosenPlain, othersPlain score
	n := 0
	for line := range strings.Lines(string(text)) {
		request, want, ok := strings.Cut(strings.TrimSpace(line), " = ")
		if !ok {
			continue
		}
		answers := strings.Split(want, ", ")
		is := func(i int) bool {
			o := tools[i]
			return slices.Contains(answers, o.server+"/"+o.name) || o.operation != "" && slices.Contains(answers, o.server+"/"+o.operation)
		}
		for _, answer := range answers {
			if !slices.ContainsFunc(tools, func(o offered) bool { return answer == o.server+"/"+o.name || answer == o.server+"/"+o.operation }) {
				t.Errorf("no tool is %s", answer)
			}
		}
		got, plain := &chosen, &chosenPlain
		if n%5 >= 3 {
			got, plain = &others, &othersPlain
		}
		found := x.Find(request)
		at := slices.IndexFunc(found, is)
		got.add(at, 10)
		plain.add(slices.IndexFunc(reference(request), is), 10)
		if at != 0 && got == &chosen {
			t.Logf("%s: %d, before it %s/%s", request, at, tools[found[0]].server, tools[found[0]].name)
		}
		n++
	}
	t.Logf("%d tools: of %d requests the answer is first, among five, among ten: %v and %v; by plain BM25: %v and %v",
		len(tools), n, chosen, others, chosenPlain, othersPlain)
	for i, least := range [3]int{60, 83, 88} {
		if sum := chosen[i] + others[i]; sum < least {
			t.Errorf("%d, want at least %d", sum, least)
		}
	}
}

func keysOf(object gjson.Result) (keys []string) {
	object.ForEach(func(key, _ gjson.Result) bool {
		keys = append(keys, key.Str)
		return true
	})
	return keys
}
