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

// No result and no dry run shows secrets in headers and queries of an entry or a catalogue. A dry run masks secrets of any
// length: short ones are not searched in texts.
func TestSecretsMasked(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"X-Api-Key", "X-Kind", "Authorization", "Idempotency-Key"} {
			fmt.Fprint(w, r.Header.Get(name), ", ")
		}
		fmt.Fprint(w, r.URL.RawQuery)
	}))
	t.Cleanup(api.Close)
	headers := map[string]string{"X-Api-Key": "the-secret-key", "X-Kind": "no-secret", "Idempotency-Key": "one-order"}
	const sent = "X-Api-Key: ***\nX-Kind: no-secret\n"
	for _, test := range []struct {
		c          Config
		tool, args string
		result     string   // empty for no call
		plan       []string // in the dry run
	}{
		{Config{OpenAPI: file(t, orders), Tools: []toolset.Entry{{Key: "touch", Headers: headers, Query: json.RawMessage(`{"api_key":"the-secret-of-the-query"}`)}}}, "touch", `{"shop":"a"}`,
			"***, no-secret, , one-order, api_key=***", []string{"?api_key=***", sent, "Idempotency-Key: one-order\n"}},
		{Config{Tools: []toolset.Entry{{Key: "own", Request: "POST /own", Headers: headers}}}, "own", `{}`,
			"***, no-secret, , one-order, ", []string{sent, "Idempotency-Key: one-order\n"}},
		{Config{Catalog: Catalog{File: file(t, `[{"name":"t","request":"POST /x?api_key=the-secret-of-the-query&sort=keys",`+
			`"headers":{"X-Api-Key":"the-secret-{id}-and-more-of-it","Authorization":"Bearer {id}","Idempotency-Key":"order-{id}"},"inputSchema":{"properties":{"id":{"type":"string"}}}}]`)}}, "t", `{"id":"7"}`,
			"***7***, , Bearer 7, order-7, api_key=***&sort=keys", []string{"POST " + api.URL + "/x?api_key=***&sort=keys\n", "X-Api-Key: ***\n", "Authorization: ***\n", "Idempotency-Key: order-7\n"}},
		{Config{OpenAPI: "testdata/pets.yaml", Tools: []toolset.Entry{{Key: "listPets", Query: json.RawMessage(`{"api_key":"abc","sig":["a1","b2"]}`)}}}, "listPets", `{}`,
			"", []string{"/pets?api_key=***&sig=***&sig=***\n"}},
		{Config{Tools: []toolset.Entry{{Key: "own", Request: "GET /own?x=1&api%5Fkey=abc&page_token={page}", Args: args(t, "page string")}}}, "own", `{"page":"7"}`,
			"", []string{"/own?x=1&api%5Fkey=***&page_token=7\n"}},
	} {
		test.c.BaseURL = api.URL
		a := adapter(t, test.c, Options{})
		if test.result != "" {
			if text, isError := call(t, connect(t, a, nil), test.tool, test.args); isError || text != test.result {
				t.Errorf("%s: %s, want %s", test.tool, text, test.result)
			}
		}
		plan, err := a.Plan(t.Context(), test.tool, []byte(test.args))
		if err != nil || strings.Contains(plan, "the-secret") {
			t.Errorf("dry run of %s:\n%s\n%v", test.tool, plan, err)
		}
		for _, part := range test.plan {
			if !strings.Contains(plan, part) {
				t.Errorf("dry run of %s without %q:\n%s", test.tool, part, plan)
			}
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
