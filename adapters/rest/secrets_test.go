package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
)

// No result and no dry run shows secrets in the requests of a catalogue.
func TestPublishedSecrets(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s, %s, %s, %s", r.Header.Get("X-Engine-Key"), r.Header.Get("Authorization"), r.Header.Get("Idempotency-Key"), r.URL.RawQuery)
	}))
	t.Cleanup(api.Close)
	a := adapter(t, Config{BaseURL: api.URL, Catalog: Catalog{File: file(t, `[{"name":"t","request":"POST /x?api_key=the-secret-of-the-query&sort=keys",`+
		`"headers":{"X-Engine-Key":"the-secret-{id}-and-more-of-it","Authorization":"Bearer {id}","Idempotency-Key":"order-{id}"},"inputSchema":{"properties":{"id":{"type":"string"}}}}]`)}}, Options{})
	up := connect(t, a, nil)
	if text, isError := call(t, up, "t", `{"id":"7"}`); isError || text != "***7***, Bearer 7, order-7, api_key=***&sort=keys" {
		t.Errorf("result = %s", text)
	}
	plan, err := a.Plan(t.Context(), "t", []byte(`{"id":"7"}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"POST " + api.URL + "/x?api_key=***&sort=keys\n", "X-Engine-Key: ***\n", "Authorization: ***\n", "Idempotency-Key: order-7\n"} {
		if !strings.Contains(plan, line) {
			t.Errorf("dry run without %q:\n%s", line, plan)
		}
	}
}

// A secret in the query of a request is masked in lists, and in what search finds.
func TestSecretsOfRequests(t *testing.T) {
	api := newAPI(t)
	c := Config{BaseURL: api.URL, Tools: []toolset.Entry{
		{Key: "own", Request: "GET /own?api_key=own-secret&sort=name"},
		{Key: "thing", Request: "GET /thing?api%5Fkey=own-secret", As: toolset.AsResource},
	}, Catalog: Catalog{File: file(t, `[{"name":"published","request":"GET /published?token=its-secret"}]`)}}
	report, err := c.Inspect(t.Context(), "pets", quiet(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	told := fmt.Sprint(report.Explain("c.yaml", func(string) bool { return true }, func(s string) string { return s }))
	for _, mode := range []string{ModeTools, ModeSearch} {
		c.Mode = mode
		up := connect(t, adapter(t, c, Options{}), nil)
		told += ask(t, up, "tools/list", "{}").Raw + ask(t, up, "resources/list", "{}").Raw
	}
	if strings.Contains(told, "-secret") || !strings.Contains(told, "GET /own?api_key=***&sort=name") || !strings.Contains(told, "GET /published?token=***") || !strings.Contains(told, "GET /thing?api%5Fkey=***") {
		t.Error(told)
	}
}

// A dry run masks secrets of any length: short ones are not searched in texts.
func TestShortSecrets(t *testing.T) {
	a := adapter(t, Config{
		OpenAPI: "testdata/pets.yaml", BaseURL: "https://pets.example.com",
		Tools: []toolset.Entry{
			{Key: "listPets", Query: json.RawMessage(`{"api_key":"abc","sig":["a1","b2"]}`)},
			{Key: "own", Request: "GET /own?x=1&api%5Fkey=abc&page_token={page}", Args: args(t, "page string")},
		},
	}, Options{})
	for _, test := range []struct{ tool, args, want string }{
		{"listPets", `{}`, "/pets?api_key=***&sig=***&sig=***\n"},
		{"own", `{"page":"7"}`, "/own?x=1&api%5Fkey=***&page_token=7\n"},
	} {
		plan, err := a.Plan(t.Context(), test.tool, []byte(test.args))
		if err != nil || !strings.Contains(plan, test.want) {
			t.Errorf("%s: %v\n%s\nwant %s", test.tool, err, plan, test.want)
		}
	}
}

// A credential reaches the operations of a document without security, and parameters of its place and
// name; one that no operation gets is a warning.
func TestCredentialsOfSilentDocuments(t *testing.T) {
	const keys = "openapi: 3.1.0\ncomponents: { securitySchemes: { app: { type: apiKey, in: query, name: key }, b: { type: http, scheme: bearer } } }\npaths:\n  /cards: { get: { operationId: cards, parameters: [{ name: key, in: query, required: true, schema: { type: string } }]"
	for _, test := range []struct {
		name, end string
		auth      Auth
		schema    string // has an argument key
		want      string // the request, or the error
		warning   string
	}{
		{"bearer", " } }", Auth{Default: &wire.Credential{Bearer: "the-token"}}, `"key"`, "GET /cards?key=k Authorization=Bearer the-token", ""},
		{"filled", ", security: [{ b: [] }] } }", Auth{Schemes: map[string]wire.Credential{"app": {Key: "key-12345"}, "b": {Bearer: "the-token"}}}, "", "GET /cards?key=key-12345 Authorization=Bearer the-token", ""},
		{"nobody", ", security: [{ b: [] }] } }", Auth{}, `"key"`, "GET /cards?key=k", "1 of 1 operations need credentials"},
		{"the only key", ", security: [{ app: [] }] } }", Auth{Default: &wire.Credential{Key: "key-12345"}}, "", "GET /cards?key=key-12345", ""},
		{"its own", ", security: [{ app: [] }] } }", Auth{Default: &wire.Credential{Bearer: "the-token"}}, "", "GET /cards Authorization=Bearer the-token", ""},
		{"unknown", " } }", Auth{Schemes: map[string]wire.Credential{"apps": {Key: "key-12345"}}}, "", "did you mean app?", ""},
		{"idle", ", security: [{ app: [] }] } }", Auth{Schemes: map[string]wire.Credential{"app": {Key: "key-12345"}, "b": {Bearer: "the-token"}}}, "", "GET /cards?key=key-12345", "auth: b: no operation gets the credential"},
	} {
		t.Run(test.name, func(t *testing.T) {
			api := newAPI(t)
			c := Config{OpenAPI: file(t, keys+test.end+"\n"), BaseURL: api.URL, Auth: test.auth}
			report, err := c.Inspect(t.Context(), "a", Options{})
			if err != nil {
				if !strings.Contains(err.Error(), test.want) {
					t.Errorf("Inspect = %v, want %s", err, test.want)
				}
				return
			}
			up := connect(t, adapter(t, c, Options{}), nil)
			args := "{}"
			if schema := ask(t, up, "tools/list", "{}").Get("tools.0.inputSchema.properties").Raw; strings.Contains(schema, `"key"`) != (test.schema != "") {
				t.Errorf("arguments %s", schema)
			} else if test.schema != "" {
				args = `{"key":"k"}`
			}
			if text, isError := call(t, up, "cards", args); isError || api.last(t) != test.want {
				t.Errorf("request %s\nwant    %s\n%s", api.last(t), test.want, text)
			}
			if len(report.Warnings) > 0 != (test.warning != "") || test.warning != "" && !strings.Contains(report.Warnings[0].String(), test.warning) {
				t.Errorf("warnings %q", report.Warnings)
			}
		})
	}
}
