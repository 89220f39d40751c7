package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/config"
)

const wordsAPI = `openapi: 3.1.0
info: { title: Words, version: "1" }
paths:
  /words/{word}:
    get:
      operationId: %s
      parameters: [{ name: word, in: path, required: true, schema: { type: string } }]
      responses: { "200": { description: OK, content: { application/json: { schema: { type: array, items: { type: string } } } } } }
`

// An HTTP API is a server like any other, for clients of each revision, on each
// transport, and learns what its allow-list forwards. When its document changes,
// clients are told, unless no connection outlives a call.
func TestREST(t *testing.T) {
	for _, share := range []string{config.ShareSession, config.SharePrincipal, config.ShareCall, config.ShareAll} {
		t.Run(share, func(t *testing.T) {
			t.Parallel()
			testREST(t, share)
		})
	}
}

func testREST(t *testing.T, share string) {
	tenant := make(chan string, 10)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tenant <- r.Header.Get("X-Org")
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `["%s"]`, strings.TrimPrefix(r.URL.Path, "/words/"))
	}))
	defer api.Close()
	path := filepath.Join(t.TempDir(), "words.yaml")
	write := func(operation string) {
		if err := os.WriteFile(path, fmt.Appendf(nil, wordsAPI, operation), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("getWord")
	c := config.Default()
	s := config.DefaultServer("words", gateway.Share(share))
	s.Rest = &rest.Config{OpenAPI: path, BaseURL: api.URL, Refresh: time.Second}
	want := ""
	if share != config.ShareAll {
		s.Forward, want = []bridge.Forward{{From: "X-Tenant", To: "X-Org"}}, "acme"
	}
	c.Servers = []config.Server{s}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	own := build(&c, slog.New(slog.DiscardHandler), (*server).reach)
	defer own.Close(context.Background())
	site := httptest.NewServer(own.Handler())
	defer site.Close()

	header := &http.Client{Transport: withHeader{"X-Tenant", "acme"}}
	type client struct {
		*mcp.ClientSession
		changed chan struct{}
	}
	var clients []client
	for _, revision := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"} {
		var transport mcp.Transport = &mcp.StreamableClientTransport{Endpoint: site.URL + "/words/mcp", HTTPClient: header}
		if revision == "2024-11-05" {
			transport = &mcp.SSEClientTransport{Endpoint: site.URL + "/words/sse", HTTPClient: header}
		}
		changed := make(chan struct{}, 1)
		session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
			ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
		}).Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: revision})
		if err != nil {
			t.Fatalf("%s: %v", revision, err)
		}
		defer session.Close()
		if got := session.InitializeResult().ProtocolVersion; got != revision {
			t.Errorf("%s: the session has %s", revision, got)
		}
		tools, err := session.ListTools(t.Context(), nil)
		if err != nil || len(tools.Tools) != 1 || tools.Tools[0].Name != "getWord" {
			t.Fatalf("%s: tools = %v, %v", revision, tools, err)
		}
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "getWord", Arguments: map[string]any{"word": "hello"}})
		if err != nil || result.IsError || len(result.Content) == 0 || result.Content[0].(*mcp.TextContent).Text != `["hello"]` {
			t.Fatalf("%s: getWord = %v, %v", revision, result, err)
		}
		if got := <-tenant; got != want {
			t.Errorf("%s: the API got the tenant %q", revision, got)
		}
		clients = append(clients, client{session, changed})
	}
	if share == config.ShareCall {
		return
	}
	write("readWord")
	for _, one := range clients {
		<-one.changed // it is told that the list has changed
		tools, err := one.ListTools(t.Context(), nil)
		if err != nil || len(tools.Tools) != 1 || tools.Tools[0].Name != "readWord" {
			t.Errorf("tools = %v, %v", tools, err)
		}
	}
}

// What a server's filter hides cannot be found or called through the tools of
// large APIs either.
func TestRESTFilter(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) }))
	defer api.Close()
	path := filepath.Join(t.TempDir(), "api.yaml")
	text := "openapi: 3.1.0\npaths: { /a: { get: { operationId: getThing }, delete: { operationId: deleteThing }, post: { operationId: postThing } } }\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, rules := range []filter.Rules{{Deny: []string{"delete*", "post*"}}, {Allow: []string{"get*"}}} {
		c := config.Default()
		s := config.DefaultServer("things", config.ShareSession)
		s.Rest, s.Tools = &rest.Config{OpenAPI: path, BaseURL: api.URL, Mode: rest.ModeSearch}, rules
		c.Servers = []config.Server{s}
		own := build(&c, slog.New(slog.DiscardHandler), (*server).reach)
		defer own.Close(context.Background())
		site := httptest.NewServer(own.Handler())
		defer site.Close()
		session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: site.URL + "/things/mcp"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		for _, test := range []struct {
			tool string
			args map[string]any
			want string
		}{
			{"search_tools", map[string]any{}, "The servers and their numbers of tools:\nthings: 1"},
			{"search_tools", map[string]any{"names": []string{"deleteThing"}}, `There is no tool "deleteThing". There is getThing. Find tools with search_tools.`},
			{"call_tool", map[string]any{"name": "deleteThing"}, "Unknown tool: deleteThing\n" + `There is no tool "deleteThing". There is getThing. Find tools with search_tools.`},
			{"call_tool", map[string]any{"name": "getThing"}, "/a"},
		} {
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: test.tool, Arguments: test.args})
			if err != nil {
				t.Fatalf("%v: %s: %v", rules, test.tool, err)
			}
			if got := result.Content[0].(*mcp.TextContent).Text; got != test.want {
				t.Errorf("%v: %s %v = %q, want %q", rules, test.tool, test.args, got, test.want)
			}
		}
	}
}

// withHeader adds a header to each request.
type withHeader struct{ name, value string }

func (w withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(w.name, w.value)
	return http.DefaultTransport.RoundTrip(r)
}

// A resource that clients do not see is not read for them either, where a file
// of a call is to be one. What a caller may use goes by the names that clients
// see, also of operations that are found and called by tools.
func TestRESTHidden(t *testing.T) {
	got := make(chan string, 100)
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Method + " " + r.URL.Path }))
	defer api.Close()
	path := filepath.Join(t.TempDir(), "files.yaml")
	if err := os.WriteFile(path, []byte(`openapi: 3.1.0
info: { title: Files, version: "1" }
paths:
  /open/{id}: { get: { operationId: open, parameters: [{ name: id, in: path, required: true, schema: { type: string } }], responses: { "200": { description: OK } } } }
  /hidden/{id}: { get: { operationId: hidden, parameters: [{ name: id, in: path, required: true, schema: { type: string } }], responses: { "200": { description: OK } } } }
  /put: { put: { operationId: put, requestBody: { content: { application/octet-stream: {} } }, responses: { "200": { description: OK } } } }
  /all: { delete: { operationId: deleteAll, responses: { "200": { description: OK } } } }
`), 0o600); err != nil {
		t.Fatal(err)
	}
	c := config.Default()
	s := config.DefaultServer("files", config.ShareAll)
	s.Rest = &rest.Config{OpenAPI: path, BaseURL: api.URL, Mode: rest.ModeSearch, Tools: []rest.Tool{{Key: "open", As: rest.AsResource}, {Key: "hidden", As: rest.AsResource}}}
	s.Resources = filter.Rules{Deny: []string{"rest://files/hidden/*"}}
	s.Tools = filter.Rules{Rename: map[string]string{"deleteAll": "wipe", "put": "store"}}
	c.Servers = []config.Server{s}
	c.Access = []config.Access{{Name: "alice", Token: aliceKey}, {Name: "bob", Token: bobKey, Tools: config.Choice{Allow: []string{"store"}}}}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	own := build(&c, slog.New(slog.DiscardHandler), (*server).reach)
	defer own.Close(context.Background())
	for _, test := range []struct{ key, id, arguments, want, asked string }{
		{aliceKey, "store", `{"body":"rest://files/open/1"}`, "", "GET /open/1, PUT /put"},
		{aliceKey, "store", `{"body":"rest://files/hidden/1"}`, "there is no such resource", ""},
		{aliceKey, "store", `{"body":"rest://files/%68idden/1"}`, "there is no such resource", ""},
		{aliceKey, "wipe", `{}`, "", "DELETE /all"},
		{bobKey, "store", `{"body":"x"}`, "", "PUT /put"},
		{bobKey, "wipe", `{}`, "There is no tool", ""},
	} {
		body, header := modernCall("tools/call", `"name":"call_tool","arguments":{"name":"`+test.id+`","arguments":`+test.arguments+`},`)
		q := from(peer, loopback, "POST", "/mcp", append(append(header, "Mcp-Name", "call_tool", "Accept", "*/*"), as(test.key)...)...)
		q.Body, q.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		w := httptest.NewRecorder()
		own.http.Handler.ServeHTTP(w, q)
		var asked []string
		for len(got) > 0 {
			asked = append(asked, <-got)
		}
		if text := w.Body.String(); w.Code != 200 || !strings.Contains(text, test.want) || strings.Contains(text, `"isError":true`) != (test.want != "") || strings.Join(asked, ", ") != test.asked {
			t.Errorf("%s %s: %d %s, the API was asked %q, want %q and %q", test.id, test.arguments, w.Code, text, asked, test.want, test.asked)
		}
	}
}

// What bounds calls to other servers bounds those to an API.
func TestRestOptions(t *testing.T) {
	s := config.DefaultServer("words", config.ShareSession)
	s.Timeout, s.MaxTimeout = 3*time.Second, 7*time.Second
	s.Breaker = breaker.Options{Failures: 7}
	if o := RestOptions(&s, 1<<20, nil); o.Timeout != s.Timeout || o.MaxTimeout != s.MaxTimeout || o.MaxMessage != 1<<20 || o.Breaker != s.Breaker {
		t.Errorf("RestOptions = %+v", o)
	}
}
