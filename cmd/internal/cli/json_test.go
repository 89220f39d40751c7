package cli

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
)

// Scripts that start the bridge get one line with addresses that work.
func TestStartJSON(t *testing.T) {
	for _, test := range []struct {
		args    []string
		servers []string
	}{
		{[]string{"run", "--port", "0", "--name", "ours", "--json", "--", "cat"}, []string{"ours"}},
		{[]string{"serve", file(t, "bridge.yaml", good), "--json"}, []string{"one", "two"}},
	} {
		ctx, stop := context.WithCancel(t.Context())
		k := start(ctx, t, test.args...)
		line, _ := k.out.ReadBytes('\n')
		var said struct {
			Listen  string
			All     *struct{ MCP, SSE string }
			Servers []struct{ Name, MCP, SSE string }
		}
		if err := json.Unmarshal(line, &said); err != nil {
			t.Fatalf("%q: %q: %v", test.args, line, err)
		}
		var names []string
		for _, s := range said.Servers {
			names = append(names, s.Name)
			resp, err := http.Get(strings.TrimSuffix(s.SSE, "/sse") + "/mcp")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode == http.StatusNotFound || !strings.HasPrefix(s.MCP, "http://"+said.Listen) {
				t.Errorf("%q: nothing is at %s", test.args, s.MCP)
			}
		}
		if !slices.Equal(names, test.servers) || (said.All != nil) != (len(names) > 1) {
			t.Errorf("%q: %s", test.args, line)
		}
		stop()
		if rest, _ := io.ReadAll(k.out); len(rest) > 0 || <-k.ended != 0 {
			t.Errorf("%q: more on stdout: %q", test.args, rest)
		}
	}
}

func TestCheckJSON(t *testing.T) {
	type document struct {
		Good   bool
		Faults []struct {
			Line    int
			Message string
		}
		Warnings []string
		Servers  map[string][]string
	}
	check := func(text string, want int) (doc document) {
		code, stdout, stderr := in(t, "check", "--json", file(t, "bridge.yaml", text))
		if err := json.Unmarshal([]byte(stdout), &doc); err != nil || code != want || stderr != "" {
			t.Fatalf("exit code %d, stdout %q, stderr %q: %v", code, stdout, stderr, err)
		}
		return doc
	}
	if doc := check(good, 0); !doc.Good || len(doc.Servers) != 2 || doc.Servers["one"][0] != "stdio" || len(doc.Warnings) == 0 {
		t.Errorf("a good file: %+v", doc)
	}
	if doc := check(strings.Replace(good, "127.0.0.1", "0.0.0.0", 1), exit.Usage); doc.Good || len(doc.Faults) != 1 || !strings.Contains(doc.Faults[0].Message, "--insecure") {
		t.Errorf("a file that is not served: %+v", doc)
	}
	if doc := check("servers:\n  one: { stdio: { commnad: cat } }\n", exit.Usage); doc.Good || len(doc.Faults) != 1 || doc.Faults[0].Line != 2 || !strings.Contains(doc.Faults[0].Message, "commnad") {
		t.Errorf("a bad file: %+v", doc)
	}
	if doc := check("servers:\n  one:\n    rest: { openapi: gone.json }\n", exit.Usage); doc.Good || len(doc.Faults) != 1 || doc.Faults[0].Line != 3 || len(doc.Warnings) != 0 {
		t.Errorf("a document that is not there: %+v, want a fault and no warning", doc)
	}
}

// Without a target, tools lists those of all servers, and says which does not work.
func TestToolsOfAll(t *testing.T) {
	r := newRemote(t, 0)
	path := file(t, "bridge.yaml", "servers:\n  a: { http: { url: \""+r.URL+"/mcp\" } }\n  b: { http: { url: \""+r.URL+"/mcp\" } }\n  dead: { stdio: { command: sh, args: [-c, \"echo set FOO >&2; exit 3\"] } }\n")
	code, stdout, stderr := in(t, "tools", "-c", path)
	if code != 0 || !strings.Contains(stdout, "a__echo") || !strings.Contains(stdout, "b__echo") || !strings.Contains(stderr, "warning: server dead: ") || !strings.Contains(stderr, "set FOO") {
		t.Errorf("exit code %d, stdout\n%s\nstderr\n%s", code, stdout, stderr)
	}
}

// Shells complete what a flag can be, and the servers of the file.
func TestCompletion(t *testing.T) {
	path := file(t, "bridge.yaml", good)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "--share", ""}, "session\nprincipal\ncall\nall\n"},
		{[]string{"--log-format", ""}, "auto\ntext\njson\n"},
		{[]string{"call", "-c", path, ""}, "one\ntwo\n"},
		{[]string{"connect", "-c", path, "t"}, "one\ntwo\n"},
	} {
		if code, stdout, _ := in(t, append([]string{"__complete"}, test.args...)...); code != 0 || !strings.HasPrefix(stdout, test.want) {
			t.Errorf("%q: exit code %d, %q, want %q", test.args, code, stdout, test.want)
		}
	}
}
