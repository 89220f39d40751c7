package config

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/internal/strict"
)

// Words of other programs' files, of which the bridge serves some as they are. 'mcp-bridge import'
// reads all of them.

// A Place is where a program's file has its servers.
type Place struct {
	Path    []string // of keys, from the top of the file to the servers
	Program string   // empty: the bridge serves such a file
}

// Places lists the places of servers that 'mcp-bridge import' looks at.
var Places = []Place{
	{[]string{"mcpServers"}, ""}, // Claude, Cursor, Windsurf, Gemini, Cline, mcpo, TBXark and others
	{[]string{"servers"}, ""},    // VS Code, JetBrains
	{[]string{"mcp", "servers"}, "VS Code"},
	{[]string{"context_servers"}, "Zed"},
	{[]string{"extensions"}, "Goose"},
	{[]string{"mcp_servers"}, "Codex"},
	{[]string{"mcp"}, "Crush"},
	{[]string{"registry"}, "Docker's MCP gateway"},
}

// Aliases lists the names that keys of a server have in other programs' files.
var Aliases = map[string][]string{
	"command":  {"command", "cmd"},
	"url":      {"url", "httpUrl", "serverUrl", "uri"},
	"args":     {"args"},
	"env":      {"env", "environment", "envs"},
	"env_file": {"env_file", "envFile"},
	"cwd":      {"cwd"},
	"headers":  {"headers", "http_headers"},
	"type":     {"type", "transport", "transportType"},
	"allow":    {"tools", "includeTools", "enabledTools", "enabled_tools", "allowedTools", "available_tools"},
	"deny":     {"disabledTools", "disabled_tools", "excludeTools"},
	// What has no meaning here.
	"": {"autoApprove", "alwaysAllow", "description", "icon", "name", "trust", "version", "gallery", "dev"},
}

// aliasOf returns our name of a key of another program's file, and whether it is a known one.
func aliasOf(key string) (ours string, known bool) {
	for ours, all := range Aliases {
		if slices.Contains(all, key) {
			return ours, true
		}
	}
	return key, false
}

// TransportOf returns the kind of server that a type in another program's file means: stdio, http or
// sse. It returns "" for an unknown one. Programs write them with and without - and _, and in capitals.
func TransportOf(word string) string {
	switch strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(word)) {
	case "stdio", "local":
		return "stdio"
	case "http", "streamablehttp", "httpstream", "remote":
		return "http"
	case "sse":
		return "sse"
	}
	return ""
}

// codexTable matches the head of a server in the TOML file of Codex. In YAML, it stands only in a text, which is indented.
var codexTable = regexp.MustCompile(`(?m)^\[mcp_servers\.`)

// foreignText reports a file that is not even of our syntax.
func (d *decoder) foreignText(data []byte) bool {
	at := codexTable.FindIndex(data)
	if at != nil {
		d.Fault(1+bytes.Count(data[:at[0]], []byte("\n")), "%s", d.importHint("Codex"))
	}
	return at != nil
}

func (d *decoder) importHint(program string) string {
	return fmt.Sprintf("this looks like a file of %s: mcp-bridge import %s makes a configuration of it", program, d.File)
}

// foreignFile returns a hint for a file that has the keys of another program and no servers of ours.
// For all other files it returns nothing.
func (d *decoder) foreignFile(list []strict.Entry) (line int, hint string) {
	at := func(key string) *strict.Entry {
		if i := slices.IndexFunc(list, func(e strict.Entry) bool { return e.Key == key }); i >= 0 {
			return &list[i]
		}
		return nil
	}
	for _, key := range []string{"openapi", "swagger"} {
		if e := at(key); e != nil {
			return e.Line, fmt.Sprintf("this is an OpenAPI document: serve it with 'mcp-bridge run %s'", d.File)
		}
	}
	if e := at("mcpServers"); e != nil && strict.Kind(e.Value) == strict.List {
		return e.Line, d.importHint("Continue")
	}
	if e := at("mcpServers"); at("servers") != nil || e != nil && (at("projects") == nil || !isEmpty(e.Value)) {
		return 0, ""
	}
	if e := at("binds"); e != nil {
		return e.Line, "this looks like a file of agentgateway, which mcp-bridge does not read: name its servers under servers"
	}
	for _, p := range Places {
		e := at(p.Path[0])
		if e == nil || p.Program == "" {
			continue
		}
		servers := e.Value
		if len(p.Path) > 1 {
			if servers = d.under(servers, p.Path[1]); servers == nil {
				continue
			}
		}
		if p.Path[0] == "mcp" && d.typed(servers, "local", "remote") {
			return e.Line, d.importHint("opencode")
		}
		return e.Line, d.importHint(p.Program)
	}
	if e := at("projects"); e != nil && strict.Kind(e.Value) == strict.Map {
		return e.Line, d.importHint("Claude Code")
	}
	return 0, ""
}

// under returns the value of a key, or nil.
func (d *decoder) under(n *yaml.Node, key string) *yaml.Node {
	list, _ := d.Quiet().Entries("", n)
	if i := slices.IndexFunc(list, func(e strict.Entry) bool { return e.Key == key }); i >= 0 {
		return list[i].Value
	}
	return nil
}

// typed reports whether one of the servers has one of the types.
func (d *decoder) typed(servers *yaml.Node, types ...string) bool {
	list, _ := d.Quiet().Entries("", servers)
	return slices.ContainsFunc(list, func(e strict.Entry) bool {
		kind := d.under(e.Value, "type")
		return kind != nil && strict.Kind(kind) == strict.String && slices.Contains(types, strict.Resolve(kind).Value)
	})
}
