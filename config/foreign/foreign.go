// Package foreign knows the files of other programs: where the servers are in them, and what the keys of a server mean.
// The bridge serves some of these files as they are, and 'mcp-bridge import' converts all of them.
package foreign

import (
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/internal/similar"
)

// A Place is where the servers are in a program's file.
type Place struct {
	Path    []string // keys from the top of the file to the servers
	Program string   // name of the program; empty if the bridge serves such a file as it is
}

// Places lists where 'mcp-bridge import' looks for servers.
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

// Aliases maps our key of a server to the names that the key has in other programs' files.
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
	// Keys without a meaning for the bridge.
	"": {"autoApprove", "alwaysAllow", "description", "icon", "name", "trust", "version", "gallery", "dev"},
}

// KeyOf returns our name of a key in another program's file, and whether the key is in Aliases. For other keys, ours is
// key itself. ours is empty for a key that has no meaning for the bridge.
func KeyOf(key string) (ours string, known bool) {
	for ours, all := range Aliases {
		if slices.Contains(all, key) {
			return ours, true
		}
	}
	return key, false
}

// TransportOf returns the kind of server that a type in another program's file means: stdio, http or sse. It returns
// "" for other types. It ignores case, - and _, which programs use differently.
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

// MayRestrict reports whether a key of another program's file may, by its name, be a restriction or a credential, which
// must not be ignored if it is unknown. empty and list describe the value. An empty value restricts nothing, unless it
// is a list of what is allowed.
func MayRestrict(key string, empty, list bool) bool {
	name := similar.Fold(key)
	if empty && !(list && NothingAllowed(key)) {
		return false
	}
	if strings.HasPrefix(name, "author") && !strings.HasPrefix(name, "authori") { // authorName is no credential, but authorization is
		return false
	}
	return containsAny(name, "allow", "deny", "denied", "block", "disable", "enable", "exclude", "include", "restrict", "filter", "whitelist", "blacklist", "auth", "token", "permission", "sandbox", "only", "limit", "available", "expose", "hidden", "approv")
}

// NothingAllowed reports whether an empty list under that key may mean that nothing is allowed.
func NothingAllowed(key string) bool {
	return containsAny(similar.Fold(key), "allow", "enable", "include", "white")
}

// ListsServers reports whether a key of another program's file lists servers that clients may use, or may not use.
func ListsServers(key string) bool {
	return slices.Contains([]string{
		"allowmcpservers", "allowedmcpservers", "enabledmcpjsonservers",
		"excludemcpservers", "deniedmcpservers", "disabledmcpservers", "disabledmcpjsonservers",
	}, similar.Fold(key))
}

func containsAny(name string, words ...string) bool {
	return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(name, word) })
}
