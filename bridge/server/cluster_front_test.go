package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// paged is a remote server of 2025-11-25 that has sessions, tasks, and tools on two pages.
func paged() http.Handler {
	var mu sync.Mutex
	tasks := 0
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(r.Body)
		m := gjson.ParseBytes(body)
		if err != nil || !m.Get("id").Exists() {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		task := func(id string) string {
			return fmt.Sprintf(`{"taskId":%q,"status":"working","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttl":60000}`, id)
		}
		result := ""
		switch m.Get("method").Str {
		case "initialize":
			w.Header().Set("Mcp-Session-Id", "of-the-server")
			result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"paged","version":"1"}}`
		case "tools/list":
			result = `{"tools":[{"name":"first","inputSchema":{"type":"object"}}],"nextCursor":"2"}`
			if m.Get("params.cursor").Str == "2" {
				result = `{"tools":[{"name":"second","inputSchema":{"type":"object"}}]}`
			}
		case "tools/call":
			mu.Lock()
			tasks++
			result = `{"task":` + task(fmt.Sprint("task-", tasks)) + `}`
			mu.Unlock()
		case "tasks/get":
			result = task(m.Get("params.taskId").Str)
		case "tasks/list":
			result = `{"tasks":[` + task("task-1") + `,` + task("task-2") + `]}`
		case "ping":
			result = "{}"
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown method"}}`, m.Get("id").Raw)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.Get("id").Raw, result)
	})
}

// fronts are instances before such servers, for two callers with keys.
type fronts struct{ *world }

func frontsOf(w *world, n int, servers ...string) fronts {
	to := wiretest.NewSite(w.t, paged())
	for range n {
		c := instanceIn()
		for _, name := range servers {
			s := config.DefaultServer(name, "")
			s.HTTP = &remote.Config{URL: "http://127.0.0.1", Dial: func(context.Context, string, string) (net.Conn, error) { return to.Dial(), nil }}
			c.Servers = append(c.Servers, s)
		}
		c.Access = []config.Access{{Name: "alice", Token: wholeKeys[0]}, {Name: "bob", Token: wholeKeys[1]}}
		w.start(c, slog.New(slog.DiscardHandler), (*server).reach)
	}
	w.joined(n)
	return fronts{w}
}

// post makes a request of a caller, and returns the session that it is of and the answer.
func (f fronts) post(who, at int, path, session, body string) (string, gjson.Result) {
	header := append(as(wholeKeys[who]), "Mcp-Session-Id", session)
	if strings.Contains(body, "2026-07-28") {
		header = append(header, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", gjson.Get(body, "method").Str)
	}
	r := f.whole[at].site.Do("POST", path, body, header...).Wait()
	for line := range strings.Lines(r.Body()) {
		if m := gjson.Parse(strings.TrimPrefix(strings.TrimSpace(line), "data: ")); m.Get("id").Exists() {
			return r.Header("Mcp-Session-Id"), m
		}
	}
	return r.Header("Mcp-Session-Id"), gjson.Parse(r.Body())
}

// begin begins a session.
func (f fronts) begin(who, at int, path string) string {
	f.t.Helper()
	id, m := f.post(who, at, path, "", initialize)
	if id == "" {
		f.t.Fatalf("initialize = %s", m.Raw)
	}
	return id
}

// A task is its caller's at any instance, in any of its sessions, and nobody else's at any
// (S-042).
func TestClusterTasks(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		f := frontsOf(w, 2, "jobs")
		ask := func(who, at int, method, params string) gjson.Result {
			t.Helper()
			_, m := f.post(who, at, "/jobs/mcp", f.begin(who, at, "/jobs/mcp"), fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params))
			return m
		}
		for who := range 2 {
			if m := ask(who, 0, "tools/call", `{"name":"first","arguments":{},"task":{}}`); m.Get("result.task.taskId").Str != fmt.Sprint("task-", who+1) {
				t.Fatalf("a task: %s", m.Raw)
			}
		}
		for _, at := range []int{1, 0} {
			if m := ask(0, at, "tasks/get", `{"taskId":"task-1"}`); m.Get("result.status").Str != "working" {
				t.Errorf("its own: %s", m.Raw)
			}
			if m := ask(1, at, "tasks/get", `{"taskId":"task-1"}`); m.Get("error.code").Int() != -32602 {
				t.Errorf("another caller's: %s", m.Raw)
			}
			if m := ask(1, at, "tasks/list", `{}`); m.Get("result.tasks.#").Int() != 1 || m.Get("result.tasks.0.taskId").Str != "task-2" {
				t.Errorf("the list: %s", m.Raw)
			}
		}
	})
}

// A client's choice of tools=search in its URL holds at any instance: its session is at one, and its requests come to
// another.
func TestClusterSearch(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		f := frontsOf(w, 2, "x", "y")
		for _, path := range []string{"/x/mcp?tools=search", "/mcp?tools=search"} {
			id := f.begin(0, 0, path)
			for _, at := range []int{0, 1} {
				if _, m := f.post(0, at, path, id, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); m.Get("result.tools.#").Int() != 3 || m.Get("result.tools.0.name").Str != "search_tools" {
					t.Errorf("%s at %d: %s", path, at, m.Raw)
				}
				if _, m := f.post(0, at, path, id, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"search_tools","arguments":{}}}`); !strings.Contains(m.Get("result.content.0.text").Str, "x: ") {
					t.Errorf("%s at %d: %s", path, at, m.Raw)
				}
			}
		}
	})
}

// The next page of a list may be asked for at any instance (S-044): of one server, and of all
// as one, by clients with and without sessions.
func TestClusterCursors(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		f := frontsOf(w, 3, "x", "y")
		for _, path := range []string{"/x/mcp", "/mcp"} {
			for _, meta := range []string{"", `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`} {
				session := ""
				if meta == "" {
					session = f.begin(0, 0, path)
				}
				var names []string
				cursor := ""
				for page := range 10 {
					params := []string{}
					if meta != "" {
						params = append(params, meta)
					}
					if cursor != "" {
						params = append(params, fmt.Sprintf(`"cursor":%q`, cursor))
					}
					_, m := f.post(0, page%3, path, session, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+strings.Join(params, ",")+`}}`)
					if !m.Get("result.tools").Exists() {
						t.Fatalf("page %d: %s", page, m.Raw)
					}
					for _, tool := range m.Get("result.tools").Array() {
						names = append(names, tool.Get("name").Str)
					}
					if cursor = m.Get("result.nextCursor").Str; cursor == "" {
						break
					}
				}
				slices.Sort(names)
				want := "first second"
				if path == "/mcp" {
					want = "x__first x__second y__first y__second"
				}
				if got := strings.Join(names, " "); got != want {
					t.Errorf("at %s, with a session: %t: %s, want %s", path, session != "", got, want)
				}
			}
		}
	})
}
