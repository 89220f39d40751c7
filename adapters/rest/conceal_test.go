package rest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
)

// Values from the environment in headers and queries are masked everywhere, whatever their names.
// Plain text there is not.
func TestConceal(t *testing.T) {
	t.Parallel()
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		all, _ := json.Marshal(map[string]any{"headers": r.Header, "query": r.URL.RawQuery, "body": string(body)})
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(all)
	}))
	t.Cleanup(echo.Close)
	const doc = `openapi: 3.0.0
paths:
  /a: { get: { operationId: a, parameters: [{ name: token, in: header, required: true, schema: { type: string } }, { name: api_key, in: query, schema: { type: string } }, { name: team, in: query, schema: { type: string } }, { name: tenant, in: query, schema: { type: string } }, { name: zone, in: header, schema: { type: string } }, { name: site, in: cookie, schema: { type: string } }] } }
`
	c := Config{
		OpenAPI: file(t, doc), BaseURL: echo.URL,
		Headers: map[string]string{"X-Static": "from-environment-1", "X-Short": "pin7", "X-Plain": "plain-text-header"},
		Secrets: []string{"from-environment-1", "pin7", "from-environment-2", "from-environment-3", "from-environment-4", "from-environment-5", "zon7", "sit7"},
		Args: []toolset.Arg{{Name: "token", Value: []byte(`"value-of-token-1"`)}, {Name: "api_key", Value: []byte(`"value-of-key-1"`)}, {Name: "team", Value: []byte(`"blue-team"`)},
			{Name: "tenant", Value: []byte(`"from-environment-5"`)}, {Name: "zone", Value: []byte(`"zon7"`)}, {Name: "site", Value: []byte(`"sit7"`)}},
		Tools: []toolset.Entry{
			{Key: "a", Headers: map[string]string{"X-Entry": "v=from-environment-2"}, Query: []byte(`{"x":"from-environment-3","y":"plain"}`)},
			{Key: "own", Request: "GET /own?code=from-environment-4&z=1"},
		},
	}
	a := adapter(t, c, Options{})
	up := connect(t, a, nil)
	secrets := []string{"from-environment", "pin7", "zon7", "sit7", "value-of-"}
	for _, name := range []string{"a", "own"} {
		plan, err := a.Plan(t.Context(), name, []byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range secrets {
			if strings.Contains(plan, secret) {
				t.Errorf("the plan of %s shows %s:\n%s", name, secret, plan)
			}
		}
		if !strings.Contains(plan, "X-Plain: plain-text-header") || name == "a" && (!strings.Contains(plan, "team=blue-team") || !strings.Contains(plan, "y=plain")) {
			t.Errorf("the plan of %s does not show what is no secret:\n%s", name, plan)
		}
		text, wrong := call(t, up, name, "{}")
		for _, secret := range []string{"from-environment", "value-of-"} {
			if wrong || strings.Contains(text, secret) {
				t.Errorf("the result of %s shows %s: %s", name, secret, text)
			}
		}
		if !strings.Contains(text, "plain-text-header") {
			t.Errorf("the result of %s: %s", name, text)
		}
	}
	if list := ask(t, up, "tools/list", "{}").Raw; strings.Contains(list, "from-environment") || gjson.Get(list, "tools.1.description").String() != "GET /own?code=***&z=1" {
		t.Errorf("the list: %s", list)
	}
}
