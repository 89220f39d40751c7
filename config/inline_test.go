package config

import (
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/rest"
)

// Warnings about an inline document have the lines of the file, and references in it stay.
func TestInlineDocument(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"block", `servers:
  pets:
    rest:
      openapi:
        openapi: 3.1.0
        info: { title: "Pets ${NOT_OURS}", version: "1" }
        # a remark
      # further out
        paths:
          /pets/{id}:
            get:
              operationId: getPet
              description: |
                Text.

                # no remark
      base_url: https://pets.example.com
`, "bridge.yaml:11"},
		{"flow", `servers:
  pets: { rest: { variables: { é: "ü" }, base_url: "https://pets.example.com", openapi: { openapi: 3.1.0,
    info: { title: "ü } ${NOT_OURS}", version: "1" }, paths: { "/pets/{id}": {
      get: { operationId: getPet } } } }, mode: tools } }
`, "bridge.yaml:4"},
		{"json", `{"servers": {"pets": {"rest": {
  "openapi": {"openapi": "3.1.0", "info": {"title": "é", "version": "1"},
	"paths": {"/pets/{id}": {"get": {"operationId": "getPet"},
	"{id} is not declared as a parameter": {}}}}, "base_url": "https://pets.example.com"}}}}
`, "bridge.yaml:3"},
		{"alias", `servers:
  pets:
    rest:
      openapi: &doc
        openapi: 3.1.0
        info: { title: Pets, version: "1" }
        paths: { "/pets/{id}": { get: { operationId: getPet } } }
      base_url: https://pets.example.com
  more:
    rest: { openapi: *doc, base_url: "https://more.example.com" }`, "bridge.yaml:7"},
	} {
		c, err := Parse("bridge.yaml", []byte(test.text), none)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		for _, s := range c.Servers {
			report, err := s.Rest.Inspect(t.Context(), s.Name, rest.Options{})
			if err != nil {
				t.Errorf("%s: %v", test.name, err)
				continue
			}
			warned := false
			for _, w := range report.Warnings {
				warned = warned || strings.HasPrefix(w.String(), test.want+": ") && strings.Contains(w.Text, "{id} is not declared as a parameter")
			}
			if report.Tools != 1 || !warned {
				t.Errorf("%s: %d tools, warnings %v, want one on %s", test.name, report.Tools, report.Warnings, test.want)
			}
		}
	}
	for _, text := range []string{"servers: { x: { rest: { openapi: {} } } }", "servers: { x: { rest: { openapi: [a] } } }"} {
		if _, err := Parse("bridge.yaml", []byte(text), none); err == nil || !strings.Contains(err.Error(), "openapi is a") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
