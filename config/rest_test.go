package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
)

// The order of type and other keys of an argument does not matter.
func TestRestArgOrder(t *testing.T) {
	for _, test := range []struct{ arg, want string }{
		{`{ type: integer, minimum: 1, maximum: 9 }`, `{"type":"integer","minimum":1,"maximum":9}`},
		{`{ minimum: 1, type: integer, maximum: 9 }`, `{"minimum":1,"type":"integer","maximum":9}`},
		{`{ maxItems: 3, type: "[string]" }`, `{"maxItems":3,"type":"array","items":{"type":"string"}}`},
		{`{ minimum: 1, type: any }`, `{"minimum":1}`},
		{`{ type: any }`, `{}`},
	} {
		c := parsed(t, "servers:\n  x:\n    rest:\n      base_url: http://localhost\n      tools:\n        t: { request: GET /, args: { n: "+test.arg+" } }\n", none)
		if got := string(c.Servers[0].Rest.Tools[0].Args[0].Schema); got != test.want {
			t.Errorf("%s: schema = %s, want %s", test.arg, got, test.want)
		}
	}
}

// Values from the environment in headers and queries of an API are its secrets; those in addresses
// are not.
func TestRestSecrets(t *testing.T) {
	env := func(name string) (string, bool) { return "value-of-" + name, true }
	c, err := Parse("bridge.yaml", []byte(`servers:
  one:
    rest:
      base_url: "https://${HOST}/v1?code=${CODE}"
      headers: { X-A: "Bearer ${A}", X-B: plain, X-C: "${C:-none}" }
      tools:
        t: { request: "GET /x?k=${K}", headers: { X-D: "${D}" }, about: "${ABOUT}" }
  two:
    rest:
      openapi: https://api.example.com/openapi.json
      base_url: "https://${HOST}"
      tools: { op: { query: { q: ["${Q}"] }, body: { b: "${BODY}" }, args: { r: { value: "${R}" } } } }
      args: { s: { value: { in: "${S}" } } }
      rules: [{ match: { tag: a }, args: { t: { value: "${T}" } } }]
`), env)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"CODE A C K D", "Q R S T"} {
		got := strings.ReplaceAll(strings.Join(c.Servers[i].Rest.Secrets, " "), "value-of-", "")
		if got != want {
			t.Errorf("secrets of %s: %s, want %s", c.Servers[i].Name, got, want)
		}
	}
}

// The program of a hook counts from the folder of the file, unless it is in PATH.
func TestHookPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bridge.yaml")
	for command, want := range map[string]string{"./sign.py": filepath.Join(filepath.Dir(path), "sign.py"), "python3": "python3", "/bin/sign": "/bin/sign"} {
		text := `servers: { a: { rest: { base_url: "https://api.example.com", auth: { hook: { command: [` + command + `, ./x] } }, tools: { t: { request: GET / } } } } }`
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c := loaded(t, path, nil)
		if got := c.Servers[0].Rest.Auth.Default.Hook.Command; got[0] != want || got[1] != "./x" {
			t.Errorf("%s: %q, want %s", command, got, want)
		}
	}
}

// A program gets the faults that the tags of its settings say, each once.
func TestValidateRest(t *testing.T) {
	s := DefaultServer("api", "")
	s.Rest = &rest.Config{
		BaseURL:  "https://api.example.com",
		OpenAPI:  "openapi.yaml",
		Headers:  map[string]string{"X Y": "a"},
		Mode:     "all",
		Limits:   rest.Limits{Answer: 10, Concurrent: -1, Rate: limits.Rate{Burst: -1}},
		Attempts: 11,
		Refresh:  time.Millisecond,
		Catalog:  rest.Catalog{Retry: true, Headers: map[string]string{"": "a"}},
		Tools:    []rest.Tool{{Key: "a", Attempts: 11, As: "x", Limits: rest.ToolLimits{Answer: 10}}},
		Rules:    []rest.Rule{{Match: rest.Match{Tag: []string{"a"}}, Entry: rest.Tool{Timeout: -1}}},
	}
	c := Default()
	c.Servers = []Server{s}
	want := `catalog: headers: a key is not the name of a header: write NAME: value
catalog: headers are of no use without url
catalog: retry is of no use without file, url or webhook
headers: a key is not the name of a header: write NAME: value
mode is "all": must be auto, tools or search
limits: answer is 10B: must be at least 1KiB
limits: concurrent is -1: must be at least 1
attempts is 11: must be 1 to 10
refresh is 1ms: must be at least 1s
rules: item 1: timeout is -1ns: must not be negative
limits: rate must not be negative
tools: a: retry is 11: must be 1 to 10
tools: a: as is "x": must be tool or resource
tools: a: limits: answer is 10B: must be at least 1KiB`
	if got := strings.ReplaceAll(fmt.Sprint(c.Validate()), `server "api": rest: `, ""); got != want {
		t.Errorf("Validate() =\n%s\nwant\n%s", got, want)
	}
}
