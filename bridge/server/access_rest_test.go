package server

import (
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

// pets is a bridge of an API whose operations are found and called by tools. made returns the method of the request
// that the API got since the last look.
func pets(t *testing.T, change func(*config.Config)) (r *rig, made func() string) {
	t.Helper()
	got := make(chan string, 100)
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Method }))
	t.Cleanup(api.Close)
	path := filepath.Join(t.TempDir(), "pets.yaml")
	if err := os.WriteFile(path, []byte(petsAPI), 0o600); err != nil {
		t.Fatal(err)
	}
	r = reached(t, func(c *config.Config) {
		c.Servers = []config.Server{config.DefaultServer("pets", "")}
		c.Servers[0].Rest = &rest.Config{OpenAPI: path, BaseURL: api.URL, Mode: rest.ModeSearch}
		change(c)
	})
	return r, func() string {
		select {
		case method := <-got:
			return method
		default:
			return ""
		}
	}
}

// Where an API's operations are found and called by tools, what a principal may
// not use is neither found, described nor called, whoever shares the connection
// and in both eras.
func TestAccessSearch(t *testing.T) {
	for _, share := range []gateway.Share{config.ShareSession, config.SharePrincipal, config.ShareCall, config.ShareAll} {
		r, made := pets(t, func(c *config.Config) {
			c.Servers[0].Share = share
			c.Access = []config.Access{
				{Name: "alice", Token: aliceKey},
				{Name: "bob", Token: bobKey, Tools: config.Choice{Allow: []string{"list*"}}},
			}
		})
		for _, key := range []string{aliceKey, bobKey} {
			session := r.ask("POST", "/mcp", initialize, as(key)...).Header().Get("Mcp-Session-Id")
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
					want, calls = tc.some, strings.TrimPrefix(tc.calls, "DELETE")
				}
				params := `"name":"` + tc.tool + `","arguments":` + tc.arguments
				body, header := modernCall("tools/call", params+",")
				for era, ask := range map[string]func() *httptest.ResponseRecorder{
					"legacy": func() *httptest.ResponseRecorder {
						return r.ask("POST", "/mcp", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{`+params+`}}`, append(as(key), "Mcp-Session-Id", session, "Accept", "*/*")...)
					},
					"modern": func() *httptest.ResponseRecorder {
						return r.ask("POST", "/mcp", body, append(append(header, "Mcp-Name", tc.tool, "Accept", "*/*"), as(key)...)...)
					},
				} {
					text := ask().Body.String()
					own := strings.NewReplacer(`tool \"deletePets\"`, "", "Unknown tool: deletePets", "").Replace(text) // what bob has written himself
					if !strings.Contains(text, want) || key == bobKey && strings.Contains(own, "elete") {
						t.Errorf("share %s, %s, %s: %s %s = %s, want %q", share, key, era, tc.tool, tc.arguments, text, want)
					}
					if got := made(); got != calls {
						t.Errorf("share %s, %s, %s: %s %s: the API got %q, want %q", share, key, era, tc.tool, tc.arguments, got, calls)
					}
				}
			}
		}
	}
}

// An operation whose name was given to another one is hidden, and not called by
// search mode either: rules for the name are about the other one.
func TestAccessSearchReplaced(t *testing.T) {
	r, made := pets(t, func(c *config.Config) {
		c.Servers[0].Tools.Rename = map[string]string{"listPets": "deletePets"}
		c.Access = []config.Access{{Name: "bob", Token: bobKey, Tools: config.Choice{Allow: []string{"deletePets"}}}}
	})
	for _, tc := range []struct{ tool, arguments, calls string }{
		{"deletePets", `{}`, "GET"},
		{"call_tool", `{"name":"listPets"}`, ""},
		{"call_tool", `{"name":"deletePets"}`, "GET"},
		{"search_tools", `{}`, ""},
	} {
		body, header := modernCall("tools/call", `"name":"`+tc.tool+`","arguments":`+tc.arguments+",")
		w := r.ask("POST", "/mcp", body, append(append(header, "Mcp-Name", tc.tool, "Accept", "*/*"), as(bobKey)...)...)
		if got := made(); got != tc.calls || strings.Contains(w.Body.String(), "DELETE") {
			t.Errorf("%s %s: the API got %q, want %q: %s", tc.tool, tc.arguments, got, tc.calls, w.Body)
		}
	}
}
