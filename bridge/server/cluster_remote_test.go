package server

import (
	"context"
	"fmt"
	"io"
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

// rememberer is a remote server of 2025-11-25 with sessions, of which it counts the calls, tasks, and tools on two pages.
type rememberer struct {
	mu    sync.Mutex     // guards the rest
	calls map[string]int // by session
	tasks int
	ended int
}

func (m *rememberer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	q, id := gjson.ParseBytes(body), r.Header.Get("Mcp-Session-Id")
	task := func(id string) string {
		return fmt.Sprintf(`{"taskId":%q,"status":"working","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttl":60000}`, id)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	_, known := m.calls[id]
	result := "{}"
	switch method := q.Get("method").Str; {
	case r.Method == http.MethodDelete:
		m.ended++
		return
	case r.Method == http.MethodGet:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case method == "initialize":
		id = fmt.Sprint("session-", len(m.calls)+1)
		m.calls[id] = 0
		w.Header().Set("Mcp-Session-Id", id)
		result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"rememberer","version":"1"}}`
	case !known:
		w.WriteHeader(http.StatusNotFound)
		return
	case !q.Get("id").Exists():
		w.WriteHeader(http.StatusAccepted)
		return
	case method == "tools/list" && q.Get("params.cursor").Str == "2":
		result = `{"tools":[{"name":"second","inputSchema":{"type":"object"}}]}`
	case method == "tools/list":
		result = `{"tools":[{"name":"first","inputSchema":{"type":"object"}}],"nextCursor":"2"}`
	case method == "tools/call" && q.Get("params.task").Exists():
		m.tasks++
		result = `{"task":` + task(fmt.Sprint("task-", m.tasks)) + `}`
	case method == "tools/call":
		m.calls[id]++
		result = fmt.Sprintf(`{"content":[{"type":"text","text":"%d"}]}`, m.calls[id])
	case method == "tasks/get":
		result = task(q.Get("params.taskId").Str)
	case method == "tasks/list":
		result = `{"tasks":[` + task("task-1") + `,` + task("task-2") + `]}`
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, q.Get("id").Raw, result)
}

// remotely runs f with three instances before such servers, for two callers with keys. No connection to them outlives
// its end where restart says so.
func remotely(t *testing.T, restart map[string]bool, f func(t *testing.T, s *several, m *rememberer)) {
	t.Helper()
	severally(t, 0, plain, func(t *testing.T, s *several) {
		m := &rememberer{calls: map[string]int{}}
		to := wiretest.NewSite(t, m)
		s.conf = func(c *config.Config) {
			for name, restart := range restart {
				s := config.DefaultServer(name, "")
				s.Restart = restart
				s.HTTP = &remote.Config{URL: "http://127.0.0.1", Dial: func(context.Context, string, string) (net.Conn, error) { return to.Dial(), nil }}
				c.Servers = append(c.Servers, s)
			}
			c.Access = []config.Access{{Name: "alice", Token: wholeKeys[0]}, {Name: "bob", Token: wholeKeys[1]}}
		}
		for range 3 {
			s.add(func(s *config.Server) { s.Restart = false })
		}
		s.joined(3)
		s.by(0)
		f(t, s, m)
	})
}

// by has the next requests be those of a caller.
func (s *several) by(who int) { s.shows = "Bearer " + wholeKeys[who] }

// A task is its caller's at any instance, in any of its sessions, and nobody else's at any (S-042). A client's choice of
// tools=search in its URL holds at any instance. The next page of a list may be asked for at any (S-044): of one server,
// and of all as one, by clients with and without sessions.
func TestClusterRemote(t *testing.T) {
	t.Parallel()
	remotely(t, map[string]bool{"x": true, "y": true}, func(t *testing.T, s *several, _ *rememberer) {
		ask := func(who, at int, method, params, result, want string) {
			t.Helper()
			s.by(who)
			if _, m := s.post(s.all[at], s.begin(s.all[at]), fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)); m.Get(result).String() != want {
				t.Errorf("%s of %d at %d: %s, want %s", method, who, at, m.Raw, want)
			}
		}
		s.path = "/x/mcp"
		for who := range 2 {
			ask(who, 0, "tools/call", `{"name":"first","arguments":{},"task":{}}`, "result.task.taskId", fmt.Sprint("task-", who+1))
		}
		for at := range 2 {
			ask(0, at, "tasks/get", `{"taskId":"task-1"}`, "result.status", "working")
			ask(1, at, "tasks/get", `{"taskId":"task-1"}`, "error.code", "-32602")
			ask(1, at, "tasks/list", `{}`, "result.tasks.#.taskId", `["task-2"]`)
		}
		for _, s.path = range []string{"/x/mcp?tools=search", "/mcp?tools=search"} {
			id := s.begin(s.all[0])
			for at, w := range s.all {
				if _, m := s.post(w, id, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); m.Get("result.tools.#").Int() != 3 || m.Get("result.tools.0.name").Str != "search_tools" {
					t.Errorf("%s at %d: %s", s.path, at, m.Raw)
				}
				s.says("a search", w, id, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"search_tools","arguments":{}}}`, "x: ")
			}
		}
		for path, want := range map[string][]string{"/x/mcp": {"first", "second"}, "/mcp": {"x__first", "x__second", "y__first", "y__second"}} {
			s.path = path
			for _, session := range []string{s.begin(s.all[0]), ""} {
				var names []string
				cursor := "{}"
				for page := 0; cursor != ""; page++ {
					body := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":` + cursor + `}`
					if session == "" {
						body = stateless(1, "tools/list", strings.TrimSuffix(strings.Replace(strings.TrimPrefix(cursor, "{"), `"cursor"`, `,"cursor"`, 1), "}"))
					}
					_, m := s.post(s.all[page%3], session, body)
					if !m.Get("result.tools").Exists() {
						t.Fatalf("page %d: %s", page, m.Raw)
					}
					for _, tool := range m.Get("result.tools.#.name").Array() {
						names = append(names, tool.Str)
					}
					if cursor = m.Get("result.nextCursor").Raw; cursor != "" {
						cursor = `{"cursor":` + cursor + `}`
					}
				}
				for _, name := range want {
					if !slices.Contains(names, name) {
						t.Errorf("at %s, with the session %q: %s, want %s", path, session, names, want)
					}
				}
			}
		}
	})
}

// The owner of sessions with a remote server is killed. Another instance goes on with the server's own sessions, whose
// state is as it was (S-033), also where the end of a connection is to be the session's (S-034): that ends with 404 where
// a child process was lost. The server is told of the end once, when the client says so.
func TestClusterCarry(t *testing.T) {
	t.Parallel()
	remotely(t, map[string]bool{"remote": true, "strict": false}, func(t *testing.T, s *several, m *rememberer) {
		ids, remotes := map[string]string{}, []string{"/remote/mcp", "/strict/mcp"}
		for _, s.path = range append(remotes, "/files/mcp") {
			ids[s.path] = s.begin(s.all[0])
		}
		s.says("a call of the child", s.all[0], ids["/files/mcp"], echo(1, "hello"), "hello")
		counts := func(at int, want string) {
			t.Helper()
			for _, s.path = range remotes {
				s.until(s.path+" counts to "+want, func() bool {
					_, m := s.post(s.all[at], ids[s.path], call("1", "first"))
					return m.Get("result.content.0.text").Str == want
				})
			}
		}
		counts(0, "1")
		s.until("the store has what is carried over", func() bool {
			carried := 0
			for _, h := range s.store.Records() {
				carried += len(h.Carry)
			}
			return carried == 2
		})
		s.kill(s.all[0])
		counts(1, "2")
		counts(2, "3")
		s.path = "/files/mcp"
		s.until("the session of a child that was lost is gone", func() bool {
			r, _ := s.post(s.all[1], ids[s.path], echo(1, "hello"))
			return r.Status() == http.StatusNotFound
		})
		if len(m.calls) != 2 || m.ended != 0 {
			t.Errorf("the server has begun %d sessions and was told of the end of %d", len(m.calls), m.ended)
		}
		for _, s.path = range remotes {
			s.close(s.all[1], ids[s.path])
		}
		s.until("the server is told of both ends", func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.ended == 2
		})
	})
}
