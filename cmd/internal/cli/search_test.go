package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
)

// The flags for documents mean what the keys of a file do, and --all lists what only a search
// finds.
func TestToolsOfDocument(t *testing.T) {
	path := pets(t, "https://pets.example.com/v1", "      mode: search\n")
	document := filepath.Join(filepath.Dir(path), "pets.yaml")
	text := "openapi: 3.1.0\nservers: [{ url: https://pets.example.com/v1 }]\ncomponents: { securitySchemes: { key: { type: apiKey, in: query, name: token } } }\npaths: { /pets: { get: { operationId: getPet, responses: {} }, post: { operationId: addPet, responses: {} } } }\n"
	write(t, document, text)
	for _, test := range []struct {
		name       string
		args       []string
		want, lack string
	}{
		{"search", []string{document, "--mode", "search"}, "read_tool", "getPet"},
		{"search and all", []string{document, "--mode", "search", "--all"}, "addPet", "read_tool"},
		{"a file and all", []string{"pets", "-c", path, "--all"}, "addPet", "read_tool"},
		{"read-only", []string{document, "--read-only"}, "getPet", "addPet"},
		{"expose", []string{document, "--expose", "all", "--expose", "not getPet"}, "addPet", "getPet"},
	} {
		if code, stdout, stderr := in(t, append([]string{"tools"}, test.args...)...); code != 0 || !strings.Contains(stdout, test.want) || strings.Contains(stdout, test.lack) {
			t.Errorf("%s: exit code %d, stdout\n%s\nstderr\n%s\nwant %s, not %s", test.name, code, stdout, stderr, test.want, test.lack)
		}
	}
}

// In mode search operations are called by their names, though no list has them.
func TestCallSearched(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"asked":%q}`, r.URL.String())
	}))
	defer api.Close()
	path := pets(t, api.URL, "      mode: search\n")
	says(t, 0, "2 tools, found by search (mode: search; ", "*", "check", "-c", path)
	says(t, 0, "/pets/7?fields=a&fields=b", "*", "call", "-c", path, "pets", "getPet", "id=7", "fields=a", "fields=b")
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"unknown", []string{"getPets"}, `There is no tool "getPets". There is getPet, broken.`},
		{"wrong arguments", []string{"getPet", "id=x"}, "id"},
	} {
		code, stdout, stderr := in(t, append([]string{"call", "-c", path, "pets"}, test.args...)...)
		if code != exit.Usage || !strings.Contains(stderr, test.want) || strings.Contains(stdout, "asked") {
			t.Errorf("%s: exit code %d, stdout\n%s\nstderr\n%s\nwant %s", test.name, code, stdout, stderr, test.want)
		}
	}
}

// Below the tools of all servers of a file stands how much the lists take: of each server, and of the address in each
// mode.
func TestToolsWeights(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		write(t, path, text)
		return path
	}
	for _, name := range []string{"pet", "toy"} {
		write(name+".yaml", "openapi: 3.1.0\nservers: [{ url: https://pets.example.com/v1 }]\npaths: { /x: { get: { operationId: "+name+"_get, responses: {} }, post: { operationId: "+name+"_add, responses: {} } } }\n")
	}
	servers := "servers:\n  pets: { rest: { openapi: ./pet.yaml } }\n  toys: { rest: { openapi: ./toy.yaml }, prefix: \"\" }\n"
	for _, test := range []struct {
		name, file string
		rows       []string // beginnings of the rows, with single spaces
		listed     string
	}{
		{"all", servers, []string{"pets 2 ", "toys 2 ", "/mcp 4 ", "/mcp?tools=all 4 ", "/mcp?tools=search 3 "}, "pets__pet_get"},
		{"search", "tools_mode: search\nalways: [toy_get]\n" + servers, []string{"pets 2 ", "toys 2 ", "/mcp?tools=all 4 ", "/mcp?tools=search 4 "}, "search_tools"},
		{"one server", strings.SplitAfter(servers, "\n")[0] + strings.SplitAfter(servers, "\n")[1], []string{"pets 2 ", "/mcp 2 ", "/mcp?tools=all 2 ", "/mcp?tools=search 3 "}, "pet_get"},
	} {
		path := write("bridge.yaml", test.file)
		code, stdout, stderr := in(t, "tools", "-c", path)
		var rows []string
		for line := range strings.Lines(stderr) {
			if cells := strings.Fields(line); len(cells) == 4 {
				rows = append(rows, strings.Join(cells, " "))
			}
		}
		if code != 0 || !strings.Contains(stdout, test.listed) || len(rows) != len(test.rows) {
			t.Errorf("%s: exit code %d, stdout\n%s\nstderr\n%s", test.name, code, stdout, stderr)
			continue
		}
		for i, row := range rows {
			var tools, bytes, tokens int
			if _, err := fmt.Sscanf(row[strings.Index(row, " "):], "%d %d %d", &tools, &bytes, &tokens); !strings.HasPrefix(row, test.rows[i]) || err != nil || bytes < 50*tools || tokens != bytes/4 {
				t.Errorf("%s: row %q, want %q", test.name, row, test.rows[i])
			}
		}
		if code, stdout, stderr := in(t, "tools", "--json-output", "-c", path); code != 0 || !strings.HasPrefix(stdout, `{"tools":[`) || stderr != "" {
			t.Errorf("%s: with --json-output: exit code %d, stdout\n%s\nstderr\n%s", test.name, code, stdout, stderr)
		}
	}
}
