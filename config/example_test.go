package config_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/config"
)

// A configuration made in code: a child process, a remote server, and an HTTP API.
func ExampleDefaultServer() {
	files := config.DefaultServer("files", config.ShareSession)
	files.Stdio = &config.Stdio{Command: "npx", Args: []string{"-y", "@modelcontextprotocol/server-filesystem", "."}}
	hint := "Lists a folder. Ask for one folder at a time."
	files.Tools = config.Rules{Deny: []string{"write_*"}, Override: map[string]config.Override{"list_directory": {Description: &hint}}}

	search := config.DefaultServer("search", config.SharePrincipal)
	search.HTTP = &config.Remote{URL: "https://mcp.example.com/mcp"}
	search.Forward = []bridge.Forward{{From: "X-Tenant", To: "X-Tenant"}}
	search.Limits = config.Limits{Calls: 20, Rate: config.Rate{PerSecond: 5, Burst: 10}}
	search.Retry = config.Retry{Tools: true}
	search.Cache = config.Cache{Lists: time.Hour}

	petstore := config.DefaultServer("petstore", config.ShareAll)
	petstore.Rest = &config.Rest{
		OpenAPI: "https://petstore.example.com/openapi.json",
		Auth:    config.RestAuth{Default: &config.RestCredential{Bearer: "top-secret"}},
	}

	c := config.Default()
	c.Servers = []config.Server{files, search, petstore}
	c.Access = []config.Access{{Name: "ada", Token: "a-long-random-key-of-ada", Servers: []string{"files", "search"}}}
	c.PerPrincipal = config.PerPrincipal{Sessions: 50}
	if err := c.Validate(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(c.Servers), "servers")
	// Output: 3 servers
}

// A file's text with one server, whose key comes from a variable.
func ExampleParse() {
	text := `
servers:
  search:
    http: { url: "https://tools.example.com/mcp", headers: { Authorization: "Bearer ${SEARCH_TOKEN}" } }
`
	variables := map[string]string{"SEARCH_TOKEN": "s3cret"}
	c, err := config.Parse("bridge.yaml", []byte(text), func(name string) (string, bool) {
		value, ok := variables[name]
		return value, ok
	})
	if err != nil {
		log.Fatal(err)
	}
	s := c.Servers[0]
	fmt.Println(c.Listen, s.Name, s.HTTP.URL, s.HTTP.Headers["Authorization"])
	// Output: 127.0.0.1:8808 search https://tools.example.com/mcp Bearer s3cret
}

// All faults of a file come at once, each with its line.
func ExampleParse_faults() {
	text := `
listen: 127.0.0.1:8808
servers:
  search:
    http: { url: "https://tools.example.com/mcp" }
    share: everybody
    timeout: soon
`
	_, err := config.Parse("bridge.yaml", []byte(text), os.LookupEnv)
	var faults config.Faults
	if errors.As(err, &faults) {
		for _, fault := range faults {
			fmt.Println(fault)
		}
	}
	// Output:
	// bridge.yaml:6: server "search": share is "everybody": must be session, principal, call or all
	// bridge.yaml:7: server "search": timeout is "soon": expected a duration such as 90s, 5m or 1h30m
}
