package config

import (
	"strings"
	"testing"
)

// Programs replace references to variables of their own env in their arguments, so these stay.
func TestOwnReferences(t *testing.T) {
	c, err := Parse("claude.json", []byte(`{"mcpServers": {"rem": {"command": "npx", "args": ["mcp-remote", "https://tools.example.com/mcp", "--header", "Authorization:${AUTH}", "$${AUTH}", "${HERE}"], "env": {"AUTH": "Bearer ${HERE}"}}}}`),
		func(name string) (string, bool) { return "set", name == "HERE" })
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(c.Servers[0].Stdio.Args[3:], " "); got != "Authorization:${AUTH} ${AUTH} set" || c.Servers[0].Stdio.Env["AUTH"] != "Bearer set" {
		t.Errorf("the arguments are %q, and env is %v", got, c.Servers[0].Stdio.Env)
	}
}

// A variable that is not set costs its own server only, if nothing else needs it and another server is left.
func TestUnusable(t *testing.T) {
	for _, test := range []struct {
		name, file string
		unusable   string // the reason, of the server two
		fault      string // of the whole file
	}{
		{"one of two", `
servers:
  one: { stdio: { command: echo } }
  two: { http: { url: "https://tools.example.com/mcp", headers: { Authorization: "Bearer ${LACKING_TOKEN}", X: "${LACKING}" } } }
groups: { g: { servers: [two] } }
access: [{ name: a, token: "0123456789abcdef0123456789abcdef", servers: [g, two] }]
`, "http: headers: Authorization: the variable LACKING_TOKEN is not set: set it in the environment of mcp-bridge", ""},
		{"the whole of a server", `
servers:
  one: { stdio: { command: echo } }
  two: { http: "${LACKING}" }
`, "http: url: the variable LACKING is not set: set it in the environment of mcp-bridge, or write ${LACKING:-default}", ""},
		{"a filter", `
servers:
  one: { stdio: { command: echo } }
  two: { stdio: { command: echo }, tools: { deny: ["${LACKING}"] } }
`, "tools: deny: item 1: the variable LACKING is not set: set it in the environment of mcp-bridge, or write ${LACKING:-default}", ""},
		{"a file", `
servers:
  one: { stdio: { command: echo } }
  two: { stdio: { command: echo, env_file: none.env } }
`, `stdio: env_file is "none.env": does not exist`, ""},
		{"an access rule of the server", `{ "mcpProxy": { "baseURL": "https://a.example.com", "addr": ":9090", "name": "a", "version": "1" }, "mcpServers": {
  "one": { "command": "echo" },
  "two": { "command": "echo", "options": { "authTokens": ["0123456789abcdef0123456789abcdef", "${LACKING}"] } }
} }`, "", "authTokens: item 2"},
		{"all servers", `
servers:
  two: { http: "${LACKING}" }
`, "", `server "two": http: url: the variable LACKING`},
		{"another setting", `
servers:
  one: { stdio: { command: echo } }
  two: { http: "${LACKING}" }
access: [{ name: a, token: "${KEY}" }]
`, "", "KEY is not set"},
		{"another setting, and names of servers that are the same in messages", `
servers:
  one: { stdio: { command: echo } }
  aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1: { http: "${LACKING}" }
  aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa2: { http: "${LACKING}" }
acces: []
`, "", "acces"},
		{"another fault", `
servers:
  one: { stdio: { command: echo }, odd: 1 }
  two: { http: "${LACKING}" }
`, "", "odd"},
		{"another fault of the server", `
servers:
  one: { stdio: { command: echo } }
  two: { http: "${LACKING}", timeout: soon }
`, "", "soon"},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := write(t, t.TempDir(), "bridge.yaml", test.file, 0o600)
			none := func(string) (string, bool) { return "", false }
			if _, err := LoadSound(file, none); err == nil || !strings.Contains(err.Error(), test.unusable) {
				t.Errorf("LoadSound: %v, want %q", err, test.unusable)
			}
			c, err := Load(file, none)
			if test.fault != "" {
				if err == nil || !strings.Contains(err.Error(), test.fault) || !strings.Contains(err.Error(), "LACKING") {
					t.Errorf("%v, want %q and the variable", err, test.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.Servers[0].Unusable != "" || c.Servers[1].Unusable != test.unusable {
				t.Errorf("the servers are unusable because of %q and %q, want %q", c.Servers[0].Unusable, c.Servers[1].Unusable, test.unusable)
			}
			if all := strings.Join(c.Warnings, "\n"); !strings.Contains(all, test.unusable+"; until then, the server is out of service") {
				t.Errorf("the warnings are %s", all)
			}
			if err := c.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}
