package server_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/cluster/redis/redistest"
)

// paged is a remote server of 2025-11-25 that has sessions, tasks, and tools on two pages.
func paged(t *testing.T) *httptest.Server {
	t.Helper()
	var mu sync.Mutex
	tasks := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	}))
	t.Cleanup(s.Close)
	return s
}

// fronts are some instances before such servers, for two callers with keys.
type fronts struct {
	t   *testing.T
	all []string
}

func keyOf(caller string) string { return "the-key-of-" + caller + "-1234567890" }

func frontsOf(t *testing.T, store *redistest.Server, n int, servers ...string) *fronts {
	f := &fronts{t: t}
	to := paged(t)
	for range n {
		c := instanceOf(t, store)
		c.Servers = nil
		for _, name := range servers {
			s := config.DefaultServer(name, "")
			s.HTTP = &remote.Config{URL: to.URL}
			c.Servers = append(c.Servers, s)
		}
		c.Access = []config.Access{{Name: "alice", Token: keyOf("alice")}, {Name: "bob", Token: keyOf("bob")}}
		c.PublicStatus = true
		at, _ := serveAs(t, c, slog.New(slog.DiscardHandler))
		f.all = append(f.all, at)
	}
	for _, at := range f.all {
		until(t, "all see each other", func() bool { return readyz(t, at).Get("members.#").Int() == int64(n) })
	}
	return f
}

// post makes a request of a caller, and returns the session that it is of and the answer.
func (f *fronts) post(caller, at, path, session, body string) (string, gjson.Result) {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), "POST", "http://"+at+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer " + keyOf(caller), "Mcp-Session-Id": session} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	if strings.Contains(body, "2026-07-28") {
		r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		r.Header.Set("Mcp-Method", gjson.Get(body, "method").Str)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if m := gjson.Parse(strings.TrimPrefix(strings.TrimSpace(line), "data: ")); m.Get("id").Exists() {
			return res.Header.Get("Mcp-Session-Id"), m
		}
	}
	return res.Header.Get("Mcp-Session-Id"), gjson.ParseBytes(text)
}

// begin begins a session.
func (f *fronts) begin(caller, at, path string) string {
	f.t.Helper()
	id, m := f.post(caller, at, path, "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
	if id == "" {
		f.t.Fatalf("initialize = %s", m.Raw)
	}
	return id
}

// A task is its caller's at any instance, in any of its sessions, and nobody else's at any
// (S-042).
func TestClusterTasks(t *testing.T) {
	t.Parallel()
	f := frontsOf(t, redistest.Start(t), 2, "jobs")
	a, b := f.all[0], f.all[1]
	ask := func(caller, at, method, params string) gjson.Result {
		t.Helper()
		_, m := f.post(caller, at, "/jobs/mcp", f.begin(caller, at, "/jobs/mcp"), fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params))
		return m
	}
	for i, caller := range []string{"alice", "bob"} {
		if m := ask(caller, a, "tools/call", `{"name":"first","arguments":{},"task":{}}`); m.Get("result.task.taskId").Str != fmt.Sprint("task-", i+1) {
			t.Fatalf("a task: %s", m.Raw)
		}
	}
	for _, at := range []string{b, a} {
		if m := ask("alice", at, "tasks/get", `{"taskId":"task-1"}`); m.Get("result.status").Str != "working" {
			t.Errorf("its own: %s", m.Raw)
		}
		if m := ask("bob", at, "tasks/get", `{"taskId":"task-1"}`); m.Get("error.code").Int() != -32602 {
			t.Errorf("another caller's: %s", m.Raw)
		}
		if m := ask("bob", at, "tasks/list", `{}`); m.Get("result.tasks.#").Int() != 1 || m.Get("result.tasks.0.taskId").Str != "task-2" {
			t.Errorf("the list: %s", m.Raw)
		}
	}
}

// The next page of a list may be asked for at any instance (S-044): of one server, and of all
// as one, by clients with and without sessions.
func TestClusterCursors(t *testing.T) {
	t.Parallel()
	f := frontsOf(t, redistest.Start(t), 3, "x", "y")
	for _, path := range []string{"/x/mcp", "/mcp"} {
		for _, meta := range []string{"", `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`} {
			session := ""
			if meta == "" {
				session = f.begin("alice", f.all[0], path)
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
				_, m := f.post("alice", f.all[page%3], path, session, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+strings.Join(params, ",")+`}}`)
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
}

// A store that takes 200 ms for each answer is no reason to turn anybody away, and no call
// waits for it (S-065).
func TestClusterSlowStore(t *testing.T) {
	t.Parallel()
	slow := valveTo(t, redistest.Start(t).Address, 200*time.Millisecond)
	store := &redistest.Server{Address: slow.address}
	var all []string
	for range 2 {
		c := instanceOf(t, store)
		c.Cluster.Lease *= 3 // a beat may take a sixth of it: 10 times as long as the store needs
		at, _ := serveAs(t, c, slog.New(slog.DiscardHandler))
		all = append(all, at)
	}
	for _, at := range all {
		until(t, "both see each other", func() bool { return readyz(t, at).Get("members.#").Int() == 2 })
	}
	res, text := asks(t, all[0], "POST", handshake)
	id := res.Header.Get("Mcp-Session-Id")
	if res.StatusCode != http.StatusOK || id == "" {
		t.Fatalf("initialize = %v %s", res.Status, text)
	}
	call := func(at string) {
		t.Helper()
		if res, text := asks(t, at, "POST", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"b__echo","arguments":{"message":"m"}}}`, "Mcp-Session-Id", id); res.StatusCode != http.StatusOK || gjson.Get(text, "result").Raw == "" {
			t.Fatalf("a call = %v %s", res.Status, text)
		}
	}
	for _, at := range all {
		call(at) // opens connections
		for range 40 {
			slow.hush() // a call that asks the store has no answer
			call(at)
			slow.speak()
		}
	}
	for beats := map[string]bool{}; len(beats) < 6; <-time.After(200 * time.Millisecond) { // the last one of each, and two more
		for _, at := range all {
			call(at)
			state := readyz(t, at)
			if state.Get("state").Str != "sure" || state.Get("store_ms").Float() < 300 {
				t.Fatalf("an instance says %s", state.Raw)
			}
			beats[at+state.Get("store_ms").Raw] = true // their durations differ by microseconds
		}
	}
}
