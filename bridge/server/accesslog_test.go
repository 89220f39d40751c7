package server

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/mcp-bridge/bridge/config"
)

// logged reads the lines of an access log, each of which must be JSON.
func logged(t *testing.T, path string) (all []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil || !strings.HasSuffix(line, "\n") {
			t.Fatalf("line %q: %v", line, err)
		}
		all = append(all, m)
	}
	return all
}

// There is a line for each call, which says whose it was and what became of it, and not what was in it.
func TestAccessLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "calls.jsonl")
	run(t, func(c *config.Config) { c.AccessLog.To, c.Traces = path, sdktrace.NewTracerProvider() }, []string{"one", "two"}, func(t *testing.T, r *rig) {
		id := r.begin("/mcp")
		r.Do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"one__echo","arguments":{"said":"something private"}}}`, "Mcp-Session-Id", id).Wait()
		r.Do("POST", "/mcp", call("2", "nobody\\n\u202e"), "Mcp-Session-Id", id).Wait()
		r.Do("POST", "/two/mcp", callStateless("3", "tools/list", ""), "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list").Wait()
		r.s.Close(context.Background())
		got := logged(t, path)
		if len(got) != 4 {
			t.Fatalf("%d lines, want 4: %v", len(got), got)
		}
		for i, want := range []map[string]any{
			{"server": "", "method": "initialize", "client": "c 1", "era": "legacy", "outcome": "ok", "msg": "call", "level": "INFO"},
			{"server": "one", "method": "tools/call", "name": "one__echo", "client": "c 1", "era": "legacy", "server_era": "legacy", "outcome": "ok", "session": got[0]["session"]},
			{"server": "", "name": "nobody\\n\u202e", "outcome": "error", "code": -32602.0},
			{"server": "two", "method": "tools/list", "client": nil, "era": "modern", "outcome": "ok", "session": nil, "params": nil, "result": nil},
		} {
			for name, value := range want {
				if got[i][name] != value {
					t.Errorf("line %d: %s = %v, want %v", i, name, got[i][name], value)
				}
			}
			if trace, _ := got[i]["trace_id"].(string); len(trace) != 32 || got[i]["client_address"] != "127.0.0.1" {
				t.Errorf("line %d does not say from where it is: %v", i, got[i])
			}
			if _, err := time.Parse(time.RFC3339, got[i]["time"].(string)); err != nil || got[i]["duration_ms"] == nil || got[i]["bytes_in"].(float64) <= 0 {
				t.Errorf("line %d: %v", i, got[i])
			}
		}
		text, _ := os.ReadFile(path)
		for _, secret := range []string{id, "something private", "\u202e"} { // the last one stands escaped
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%q is in the log", secret)
			}
		}
		if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("the file is %v, %v; want that only its owner may read it", info.Mode(), err)
		}
	})
}

// What cannot be opened is said before anything is served.
func TestAccessLogFault(t *testing.T) {
	r := newRig(t, func(c *config.Config) {
		c.Listen = "127.0.0.1:0"
		c.AccessLog.To = filepath.Join(t.TempDir(), "no", "such", "folder")
	}, "one")
	if _, err := r.s.Listen(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "access_log: to is ") {
		t.Errorf("Listen = %v", err)
	}
}

// A client that holds up the end of the bridge, or whoever is in a hurry, does not cost the lines that wait to be written.
func TestAccessLogHastyEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "calls.jsonl")
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		r := newRigLog(t, slog.New(slog.NewTextHandler(&said, nil)), func(c *config.Config) { c.AccessLog.To = path }, "one")
		r.begin("/mcp")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r.s.Close(ctx)
		if strings.Contains(said.String(), "the access log does not accept lines") {
			t.Error("the access log is still being written")
		}
		if got := logged(t, path); len(got) != 1 {
			t.Errorf("%d lines, want 1", len(got))
		}
	})
}

// A call through call_tool or read_tool is, in the log and in the counts, a call of the tool that it names; a search is
// one of search_tools. That holds for sessions and stateless clients, at every address.
func TestAccessLogSearch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "calls.jsonl")
	change := func(c *config.Config) {
		c.AccessLog.To, c.ToolsMode = path, config.ToolsSearch
		c.Groups = map[string]config.Group{"dev": {Servers: []string{"one", "two"}, Listing: config.Listing{ToolsMode: config.ToolsSearch}}}
		c.Servers[0].ToolsMode = config.ToolsSearch
	}
	run(t, change, []string{"one", "two"}, func(t *testing.T, r *rig) {
		r.f.Tools = `{"name":"echo","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`
		r.Do("GET", "/ui/api/v1/calls", "").Wait() // calls are kept from the first look on
		var want []map[string]any
		for address, tool := range map[string]string{"/mcp": "one__echo", "/dev/mcp": "one__echo", "/one/mcp": "echo"} {
			id, server := r.begin(address), "one"
			if address != "/one/mcp" {
				server = "" // a search is for all servers of the address
			}
			want = append(want, map[string]any{"method": "initialize"})
			for _, one := range []struct{ called, arguments, name string }{
				{"search_tools", `{"query":"echo"}`, "search_tools"},
				{"call_tool", `{"name":"` + tool + `","arguments":{}}`, tool},
				{"read_tool", `{"name":"` + tool + `","arguments":{}}`, tool},
			} {
				params := `"name":"` + one.called + `","arguments":` + one.arguments
				r.Do("POST", address, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{`+params+`}}`, "Mcp-Session-Id", id).Wait()
				r.Do("POST", address, callStateless("2", "tools/call", params), "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", one.called).Wait()
				of := server
				if one.name == tool {
					of = "one"
				}
				for _, era := range []string{"legacy", "modern"} {
					want = append(want, map[string]any{"method": "tools/call", "name": one.name, "server": of, "outcome": "ok", "era": era})
				}
			}
		}
		counts := r.Do("GET", "/metrics", "").Wait().Body()
		calls := r.Do("GET", "/ui/api/v1/calls", "").Wait().Body()
		r.s.Close(context.Background())
		got := logged(t, path)
		if len(got) != len(want) {
			t.Fatalf("%d lines, want %d: %v", len(got), len(want), got)
		}
		for i := range want {
			for name, value := range want[i] {
				if got[i][name] != value {
					t.Errorf("line %d: %s = %v, want %v: %v", i, name, got[i][name], value, got[i])
				}
			}
		}
		for name, text := range map[string]string{"the metrics": counts, "the calls of the console": calls} {
			if strings.Contains(text, "call_tool") || strings.Contains(text, "read_tool") || !strings.Contains(text, "echo") {
				t.Errorf("%s: %s", name, text)
			}
		}
		if !strings.Contains(counts, `mcp_bridge_tool_calls_total{outcome="ok",server="one",tool="echo"} 12`) || !strings.Contains(calls, `"search_tools"`) {
			t.Errorf("the metrics are %s, the calls of the console %s", counts, calls)
		}
	})
}
