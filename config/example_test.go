package config_test

import (
	"fmt"
	"log"
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
