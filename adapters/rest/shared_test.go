package rest

import (
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
)

// Parameters that the configuration fills are no arguments, and one entry applies to all
// operations.
func TestSharedArguments(t *testing.T) {
	t.Parallel()
	const (
		slack = `swagger: "2.0"
securityDefinitions: { slackAuth: { type: oauth2, flow: accessCode, authorizationUrl: https://x, tokenUrl: https://x, scopes: {} } }
security: [{ slackAuth: [] }]
paths:
  /a:
    post: { operationId: a, parameters: [{ name: token, in: header, required: true, type: string }, { name: q, in: query, type: string }] }
  /b:
    get: { operationId: b, parameters: [{ name: token, in: query, required: true, type: string }] }
`
		xero = `openapi: 3.0.0
components:
  parameters: { requiredHeader: { in: header, name: xero-tenant-id, required: true, description: The tenant, schema: { type: string } } }
paths:
  /a: { parameters: [{ $ref: "#/components/parameters/requiredHeader" }], get: { operationId: a }, post: { operationId: b, parameters: [{ name: page, in: query, schema: { type: integer } }] } }
`
		github = `openapi: 3.0.0
paths:
  /repos/{owner}/{repo}:
    parameters: [{ name: owner, in: path, required: true, schema: { type: string } }, { name: repo, in: path, required: true, schema: { type: string } }]
    get: { operationId: a }
    patch: { operationId: b, requestBody: { content: { application/json: { schema: { type: object, properties: { owner: { type: string }, name: { type: string } } } } } } }
`
		keyed = `openapi: 3.0.0
components: { securitySchemes: { bearer: { type: http, scheme: bearer } } }
security: [{ bearer: [] }]
paths:
  /a: { get: { operationId: a, parameters: [{ name: x-api-key, in: header, required: true, schema: { type: string } }, { name: X-Api-Key, in: query, schema: { type: string } }] } }
  /b: { get: { operationId: b, security: [], parameters: [{ name: x-api-key, in: header, required: true, schema: { type: string } }] } }
`
	)
	value := func(text string) []byte { return []byte(text) }
	for _, test := range []struct {
		name, doc string
		c         Config
		a, b      string // the arguments, those that are required with !
		args      string // of a call of a
		sent      string // by it
	}{
		{"untouched", slack, Config{}, "token! q", "token!", `{"token":"t"}`, "POST /a token=t"},
		{"headers", slack, Config{Headers: map[string]string{"Token": "xoxb"}}, "q", "token!", `{"q":"x"}`, "POST /a?q=x token=xoxb"},
		{"headers, in another spelling", strings.ReplaceAll(xero, "xero-tenant-id", "x_tenant"), Config{Headers: map[string]string{"X-Tenant": "t-1"}}, "", "page", `{}`, "GET /a X-Tenant=t-1"},
		{"off", slack, Config{Args: []toolset.Arg{{Name: "token", Off: true}}, Auth: Auth{Default: &wire.Credential{Bearer: "xoxb"}}}, "q", "", `{}`, "POST /a Authorization=Bearer xoxb"},
		{"value", slack, Config{Args: []toolset.Arg{{Name: "token", Value: value(`"xoxb"`)}}}, "q", "", `{}`, "POST /a token=xoxb"},
		{"an entry wins", slack, Config{Args: []toolset.Arg{{Name: "token", Value: value(`"xoxb"`)}}, Tools: []toolset.Entry{{Key: "a", Args: []toolset.Arg{{Name: "token", About: "Yours"}}}}},
			"token! q", "", `{"token":"mine"}`, "POST /a token=mine"},
		{"headers above args", slack, Config{Headers: map[string]string{"token": "xoxb"}, Args: []toolset.Arg{{Name: "token", Value: value(`"other"`)}}}, "q", "", `{}`, "POST /a token=xoxb"},
		{"beside an entry", slack, Config{Args: []toolset.Arg{{Name: "token", Value: value(`"xoxb"`)}}, Tools: []toolset.Entry{{Key: "a", Args: []toolset.Arg{{Name: "q", As: "query"}}}}},
			"query", "", `{"query":"x"}`, "POST /a?q=x token=xoxb"},
		{"a tenant", xero, Config{Args: []toolset.Arg{{Name: "Xero-Tenant-Id", Value: value(`"t-1"`)}}}, "", "page", `{}`, "GET /a xero-tenant-id=t-1"},
		{"a tenant as header", xero, Config{Headers: map[string]string{"xero-tenant-id": "t-1"}}, "", "page", `{}`, "GET /a xero-tenant-id=t-1"},
		{"a tenant by another name", xero, Config{Args: []toolset.Arg{{Name: "xero-tenant-id", As: "tenant", Default: value(`"t-0"`)}}}, "tenant", "tenant page", `{"tenant":"t-2"}`, "GET /a xero-tenant-id=t-2"},
		{"a tenant that clients may leave out", xero, Config{Args: []toolset.Arg{{Name: "xero-tenant-id", As: "tenant", Default: value(`"t-0"`)}}}, "tenant", "tenant page", `{}`, "GET /a xero-tenant-id=t-0"},
		{"an owner", github, Config{Args: []toolset.Arg{{Name: "owner", Value: value(`"acme"`)}}}, "repo!", "repo! body", `{"repo":"r"}`, "GET /repos/acme/r"},
		{"an owner, and bodies that have one", github, Config{FlattenBody: true, Args: []toolset.Arg{{Name: "repo", Value: value(`"r"`)}}}, "owner!", "owner! body", `{"owner":"o"}`, "GET /repos/o/r"},
		{"auth", keyed, Config{Auth: Auth{Default: &wire.Credential{Key: "secret-1", Header: "X-API-Key"}}}, "X-Api-Key", "x-api-key!", `{}`, "GET /a x-api-key=secret-1"},
		{"auth elsewhere", keyed, Config{Auth: Auth{Default: &wire.Credential{Key: "secret-1", Header: "Other"}}}, "x-api-key! X-Api-Key", "x-api-key!", `{"x-api-key":"mine"}`, "GET /a x-api-key=mine"},
	} {
		t.Run(test.name, func(t *testing.T) {
			api := newAPI(t)
			c := test.c
			c.OpenAPI, c.BaseURL = file(t, test.doc), api.URL
			c.Mode = ModeTools
			a := adapter(t, c, Options{})
			up := connect(t, a, nil)
			list := ask(t, up, "tools/list", "{}").Get("tools").Array()
			for i, want := range []string{test.a, test.b} {
				schema := list[i].Get("inputSchema")
				var got []string
				schema.Get("properties").ForEach(func(k, _ gjson.Result) bool {
					name := k.String()
					if slices.ContainsFunc(schema.Get("required").Array(), func(one gjson.Result) bool { return one.String() == name }) {
						name += "!"
					}
					got = append(got, name)
					return true
				})
				if strings.Join(got, " ") != want {
					t.Errorf("%s has the arguments %v, want %s", list[i].Get("name"), got, want)
				}
			}
			if text, wrong := call(t, up, "a", test.args); wrong {
				t.Fatal(text)
			}
			if got := api.last(t); !strings.EqualFold(got, test.sent) {
				t.Errorf("sent %s, want %s", got, test.sent)
			}
		})
	}
}
