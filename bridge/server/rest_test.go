package server

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/bridge/filter"
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

// A resource that clients do not see is not read for them either, where a file
// of a call is to be one. What a caller may use goes by the names that clients
// see, also of operations that are found and called by tools. What the server hides is not found by these either.
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
  /some: { delete: { operationId: deleteSome, responses: { "200": { description: OK } } } }
  /all: { delete: { operationId: deleteAll, responses: { "200": { description: OK } } } }
`), 0o600); err != nil {
		t.Fatal(err)
	}
	c := config.Default()
	s := config.DefaultServer("files", config.ShareAll)
	s.Rest = &rest.Config{OpenAPI: path, BaseURL: api.URL, Mode: rest.ModeSearch, Tools: []rest.Tool{{Key: "open", As: rest.AsResource}, {Key: "hidden", As: rest.AsResource}}}
	s.Resources = filter.Rules{Deny: []string{"rest://files/hidden/*"}}
	s.Tools = filter.Rules{Deny: []string{"deleteSome"}, Rename: map[string]string{"deleteAll": "wipe", "put": "store"}}
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
		{aliceKey, "deleteSome", `{}`, "There is no tool", ""},
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

// withHeader adds a header to each request.
type withHeader struct{ name, value string }

func (w withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(w.name, w.value)
	return http.DefaultTransport.RoundTrip(r)
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
