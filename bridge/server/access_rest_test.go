package server

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/config"
)

const petsAPI = `openapi: 3.1.0
info: { title: Pets, version: "1" }
paths:
  /pets:
    get: { operationId: listPets, tags: [open], responses: { "200": { description: OK } } }
    delete: { operationId: deletePets, tags: [vets], responses: { "200": { description: OK } } }
`

// Where an API's operations are found and called by tools, what a principal may
// not use is neither found, described nor called, whoever shares the connection
// and in both eras.
func TestAccessSearch(t *testing.T) {
	got := make(chan string, 100)
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Method }))
	defer api.Close()
	path := filepath.Join(t.TempDir(), "pets.yaml")
	if err := os.WriteFile(path, []byte(petsAPI), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, share := range []gateway.Share{config.ShareSession, config.SharePrincipal, config.ShareCall, config.ShareAll} {
		c := config.Default()
		pets := config.DefaultServer("pets", share)
		pets.Rest = &rest.Config{OpenAPI: path, BaseURL: api.URL, Mode: rest.ModeSearch}
		c.Servers = []config.Server{pets}
		c.Access = []config.Access{
			{Name: "alice", Token: aliceKey},
			{Name: "bob", Token: bobKey, Tools: config.Choice{Allow: []string{"list*"}}},
		}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		s := build(&c, slog.New(slog.DiscardHandler), (*server).reach)
		defer s.Close(t.Context())
		do := func(body string, header ...string) *httptest.ResponseRecorder {
			q := from(peer, loopback, "POST", "/mcp", header...)
			q.Body, q.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
			w := httptest.NewRecorder()
			s.http.Handler.ServeHTTP(w, q)
			return w
		}
		for _, key := range []string{aliceKey, bobKey} {
			w := do(initialize, as(key)...)
			session := w.Header().Get("Mcp-Session-Id")
			for _, tc := range []struct {
				tool, arguments string
				all, some       string // parts of what alice and bob are told
				calls           string // what the API gets of alice
			}{
				{"search_tools", `{}`, "pets: 2", "pets: 1", ""},
				{"search_tools", `{"query":"delete"}`, `\"deletePets\",\"call_with\":\"call_tool\"`, "No tool fits", ""},
				{"search_tools", `{"server":"pets"}`, "deletePets", "listPets", ""},
				{"search_tools", `{"names":["deletePets"]}`, "DELETE /pets", "There is no tool", ""},
				{"call_tool", `{"name":"deletePets"}`, "", "There is no tool", "DELETE"},
				{"call_tool", `{"name":"listPets"}`, "", "", "GET"},
				{"read_tool", `{"name":"listPets"}`, "", "", "GET"},
				{"read_tool", `{"name":"deletePets"}`, "call it with call_tool", "There is no tool", ""},
				{"deletePets", `{}`, "", "Unknown tool: deletePets", "DELETE"},
			} {
				want, calls := tc.all, tc.calls
				if key == bobKey {
					want = tc.some
					if calls == "DELETE" {
						calls = ""
					}
				}
				params := `"name":"` + tc.tool + `","arguments":` + tc.arguments
				body, header := modernCall("tools/call", params+",")
				for era, answer := range map[string]*httptest.ResponseRecorder{
					"legacy": do(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{`+params+`}}`, append(as(key), "Mcp-Session-Id", session, "Accept", "*/*")...),
					"modern": do(body, append(append(header, "Mcp-Name", tc.tool, "Accept", "*/*"), as(key)...)...),
				} {
					text := answer.Body.String()
					if !strings.Contains(text, want) || key == bobKey && strings.Contains(strings.ReplaceAll(strings.ReplaceAll(text, `tool \"deletePets\"`, ""), "Unknown tool: deletePets", ""), "elete") {
						t.Errorf("share %s, %s, %s: %s %s = %d %s, want %q", share, key, era, tc.tool, tc.arguments, answer.Code, text, want)
					}
					made := ""
					select {
					case made = <-got:
					default:
					}
					if made != calls {
						t.Errorf("share %s, %s, %s: %s %s: the API got %q, want %q", share, key, era, tc.tool, tc.arguments, made, calls)
					}
				}
			}
		}
	}
}

// An operation whose name was given to another one is hidden, and not called by
// search mode either: rules for the name are about the other one.
func TestAccessSearchReplaced(t *testing.T) {
	got := make(chan string, 100)
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Method }))
	defer api.Close()
	path := filepath.Join(t.TempDir(), "pets.yaml")
	if err := os.WriteFile(path, []byte(petsAPI), 0o600); err != nil {
		t.Fatal(err)
	}
	c := config.Default()
	pets := config.DefaultServer("pets", "")
	pets.Rest = &rest.Config{OpenAPI: path, BaseURL: api.URL, Mode: rest.ModeSearch}
	pets.Tools.Rename = map[string]string{"listPets": "deletePets"}
	c.Servers = []config.Server{pets}
	c.Access = []config.Access{{Name: "bob", Token: bobKey, Tools: config.Choice{Allow: []string{"deletePets"}}}}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	s := build(&c, slog.New(slog.DiscardHandler), (*server).reach)
	defer s.Close(t.Context())
	for _, tc := range []struct{ tool, arguments, calls string }{
		{"deletePets", `{}`, "GET"},
		{"call_tool", `{"name":"listPets"}`, ""},
		{"call_tool", `{"name":"deletePets"}`, "GET"},
		{"search_tools", `{}`, ""},
	} {
		body, header := modernCall("tools/call", `"name":"`+tc.tool+`","arguments":`+tc.arguments+",")
		q := from(peer, loopback, "POST", "/mcp", append(append(header, "Mcp-Name", tc.tool, "Accept", "*/*"), as(bobKey)...)...)
		q.Body, q.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		w := httptest.NewRecorder()
		s.http.Handler.ServeHTTP(w, q)
		made := ""
		select {
		case made = <-got:
		default:
		}
		if made != tc.calls || strings.Contains(w.Body.String(), "DELETE") {
			t.Errorf("%s %s: the API got %q, want %q: %s", tc.tool, tc.arguments, made, tc.calls, w.Body)
		}
	}
}
