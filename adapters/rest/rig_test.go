package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/calls"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/document"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/tools"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// api is a stub of the API that records its requests.
type api struct {
	*httptest.Server
	slow chan struct{} // GET /slow answers when it is closed

	mu  sync.Mutex // guards got
	got []string   // method, target, headers of interest and body
}

func newAPI(t *testing.T) *api {
	a := &api{slow: make(chan struct{})}
	a.Server = httptest.NewServer(http.HandlerFunc(a.serve))
	t.Cleanup(a.Server.Close)
	return a
}

func (a *api) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	line := r.Method + " " + r.URL.RequestURI()
	for _, name := range []string{"X-Api-Key", "X-Tenant", "X-Trace", "Authorization", "Token", "Xero-Tenant-Id"} {
		if v := r.Header.Get(name); v != "" {
			line += " " + name + "=" + v
		}
	}
	if len(body) > 0 {
		line += " " + string(body)
	}
	a.mu.Lock()
	a.got = append(a.got, line)
	a.mu.Unlock()
	switch r.URL.Path {
	case "/slow":
		select {
		case <-a.slow:
			fmt.Fprint(w, "at last")
		case <-r.Context().Done():
		}
	case "/events":
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: one\n\ndata: two\n\n")
	case "/pets/404":
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"title":"No such pet"}`)
	default:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"method":%q,"items":[{"id":12345678901234567890,"name":"Rex"}]}`, r.Method)
	}
}

// last returns the newest request.
func (a *api) last(t *testing.T) string {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.got) == 0 {
		t.Fatal("the API was asked nothing")
	}
	return a.got[len(a.got)-1]
}

func (a *api) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.got)
}

// pets is a configuration of the stub with its document.
func (a *api) pets() Config {
	return Config{OpenAPI: "testdata/pets.yaml", BaseURL: a.URL, Auth: Auth{Default: &wire.Credential{Key: "top-secret-key"}}}
}

func quiet(o Options) Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Timeout == 0 {
		o.Timeout = time.Hour
	}
	return o
}

func adapter(t *testing.T, c Config, o Options) *Adapter {
	t.Helper()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	a, err := New("pets", c, quiet(o))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

// connect connects a client, which ignores everything if rest is nil. from are the headers of its first request.
func connect(t *testing.T, a *Adapter, rest bridge.Client, from ...http.Header) bridge.Upstream {
	t.Helper()
	caller := &bridge.Caller{Revision: calls.Revision}
	if len(from) > 0 {
		caller.Header = from[0]
	}
	if rest == nil {
		rest = bridge.Nobody{}
	}
	up, err := a.Open(t.Context(), caller, rest)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { up.Close(context.Background()) })
	return up
}

// ask makes a request and returns its result.
func ask(t *testing.T, up bridge.Upstream, method, params string) gjson.Result {
	t.Helper()
	m := raw(t, up, method, params)
	if m.Error != nil {
		t.Fatalf("%s %s: %s", method, params, m.Error)
	}
	if strings.ContainsAny(string(m.Result), "\r\n") || !gjson.ValidBytes(m.Result) {
		t.Fatalf("%s: the result is not JSON on one line: %s", method, m.Result)
	}
	return gjson.ParseBytes(m.Result)
}

func raw(t *testing.T, up bridge.Upstream, method, params string) *jsonrpc.Message {
	t.Helper()
	m := adaptertest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)
	got, err := up.Call(t.Context(), &bridge.Request{Message: m})
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	return got
}

// call calls a tool and returns the text of its result.
func call(t *testing.T, up bridge.Upstream, tool, args string) (text string, isError bool) {
	t.Helper()
	name, _ := json.Marshal(tool)
	r := ask(t, up, "tools/call", `{"name":`+string(name)+`,"arguments":`+args+`}`)
	return r.Get("content.0.text").String(), r.Get("isError").Bool()
}

func names(t *testing.T, up bridge.Upstream) string {
	t.Helper()
	var all []string
	for _, one := range ask(t, up, "tools/list", "{}").Get("tools.#.name").Array() {
		all = append(all, one.String())
	}
	return strings.Join(all, " ")
}

// file writes a text to a file.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "api.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// times counts a text in a log.
func times(log *adaptertest.Log, text string) int { return strings.Count(log.String(), text) }

// eventually waits for a condition.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for !so() {
		t.Logf("waiting for %s", what)
		time.Sleep(5 * time.Millisecond)
	}
}

// madeOf returns the tools of a configuration whose texts are files.
func madeOf(t *testing.T, c Config, o Options) *tools.Made {
	t.Helper()
	o = quiet(o)
	s, err := c.settings("api", &o)
	if err != nil {
		t.Fatal(err)
	}
	one, err := document.Offline(c.documents(o.Log)).Read(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.Make(one.Document, one.Catalog)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// toolsOf returns the tools and the resources of a report.
func toolsOf(r *Report) []*toolset.Tool {
	all := slices.Clone(r.made.Tools)
	for _, one := range r.made.Resources {
		all = append(all, one.Tool)
	}
	return all
}
