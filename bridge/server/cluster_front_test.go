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

// rememberer is a remote server that counts the calls in each of its sessions.
type rememberer struct {
	mu    sync.Mutex     // guards the rest
	calls map[string]int // by session
	ended int
}

func (m *rememberer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	q, id := gjson.ParseBytes(body), r.Header.Get("Mcp-Session-Id")
	m.mu.Lock()
	defer m.mu.Unlock()
	_, known := m.calls[id]
	result := ""
	switch {
	case r.Method == http.MethodDelete:
		m.ended++
		return
	case r.Method == http.MethodGet:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case q.Get("method").Str == "initialize":
		id = fmt.Sprint("session-", len(m.calls)+1)
		m.calls[id] = 0
		w.Header().Set("Mcp-Session-Id", id)
		result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"rememberer","version":"1"}}`
	case !known:
		w.WriteHeader(http.StatusNotFound)
		return
	case !q.Get("id").Exists():
		w.WriteHeader(http.StatusAccepted)
		return
	case q.Get("method").Str == "tools/call":
		m.calls[id]++
		result = fmt.Sprintf(`{"content":[{"type":"text","text":"%d"}]}`, m.calls[id])
	default:
		result = "{}"
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, q.Get("id").Raw, result)
}

// The owner of sessions with a remote server is killed. Another instance goes on with the server's own sessions, whose
// state is as it was (S-033), also where the end of a connection is to be the session's (S-034): that ends with 404 where
// a child process was lost. The server is told of the end once, when the client says so.
func TestClusterCarry(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		m := &rememberer{calls: map[string]int{}}
		to := wiretest.NewSite(t, m)
		for range 3 {
			c := instanceIn()
			for _, name := range []string{"remote", "strict", "child"} {
				s := config.DefaultServer(name, "")
				if s.Restart = name == "remote"; name == "child" {
					s.Stdio = &config.Stdio{Command: "in memory"}
				} else {
					s.HTTP = &remote.Config{URL: "http://127.0.0.1", Dial: func(context.Context, string, string) (net.Conn, error) { return to.Dial(), nil }}
				}
				c.Servers = append(c.Servers, s)
			}
			c.Access = []config.Access{{Name: "alice", Token: wholeKeys[0]}}
			w.start(c, slog.New(slog.DiscardHandler), func(own *server, item *config.Server) backend {
				if item.Name == "child" {
					return reaching(&wiretest.Server{})(own, item)
				}
				return own.reach(item)
			})
		}
		w.joined(3)
		f := fronts{w}
		ids := map[string]string{}
		for _, name := range []string{"remote", "strict", "child"} {
			ids[name] = f.begin(0, 0, "/"+name+"/mcp")
		}
		ask := func(at int, name string) gjson.Result {
			_, a := f.post(0, at, "/"+name+"/mcp", ids[name], call("1", "echo"))
			return a
		}
		counts := func(at int, want string) {
			t.Helper()
			for _, name := range []string{"remote", "strict"} {
				w.until(name+" counts to "+want, func() bool { return ask(at, name).Get("result.content.0.text").Str == want })
			}
		}
		counts(0, "1")
		ask(0, "child")
		w.until("the store has what is carried over", func() bool {
			carried := 0
			for _, h := range w.store.Records() {
				carried += len(h.Carry)
			}
			return carried == 2
		})
		w.kill(w.whole[0])
		counts(1, "2")
		counts(2, "3")
		w.until("the session of a child that was lost is gone", func() bool {
			return w.whole[1].site.Do("POST", "/child/mcp", call("1", "echo"), append(as(wholeKeys[0]), "Mcp-Session-Id", ids["child"])...).Wait().Status() == http.StatusNotFound
		})
		if len(m.calls) != 2 || m.ended != 0 {
			t.Errorf("the server has begun %d sessions and was told of the end of %d", len(m.calls), m.ended)
		}
		for _, name := range []string{"remote", "strict"} {
			if r := w.whole[1].site.Do("DELETE", "/"+name+"/mcp", "", append(as(wholeKeys[0]), "Mcp-Session-Id", ids[name])...).Wait(); r.Status() != http.StatusNoContent {
				t.Errorf("DELETE = %d %s", r.Status(), r.Body())
			}
		}
		w.until("the server is told of both ends", func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.ended == 2
		})
	})
}
