// Package foreign knows the files of other programs: where they have their servers, and what the keys
// of a server mean. The bridge serves some of these files as they are, and 'mcp-bridge import' converts all.
package foreign

import (
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/internal/similar"
)

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

// KeyOf returns our name of a key of another program's file, and whether it is a known one.
func KeyOf(key string) (ours string, known bool) {
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

// MayRestrict reports whether a key of another program's file may be a restriction or a
// credential, by its name. An unknown one must not be ignored. An empty value restricts nothing,
// unless it is a list of what is allowed.
func MayRestrict(key string, empty, list bool) bool {
	name := similar.Fold(key)
	if empty && !(list && NothingAllowed(key)) {
		return false
	}
	if strings.HasPrefix(name, "author") && !strings.HasPrefix(name, "authori") { // authorName is no credential, authorization is one
		return false
	}
	return containsAny(name, "allow", "deny", "denied", "block", "disable", "enable", "exclude", "include", "restrict", "filter", "whitelist", "blacklist", "auth", "token", "permission", "sandbox", "only", "limit", "available", "expose", "hidden", "approv")
}

// NothingAllowed reports whether an empty list under that key may allow nothing.
func NothingAllowed(key string) bool {
	return containsAny(similar.Fold(key), "allow", "enable", "include", "white")
}

// ListsServers reports whether a key of another program's file lists the servers that may be
// used, or not.
func ListsServers(key string) bool {
	return slices.Contains([]string{
		"allowmcpservers", "allowedmcpservers", "enabledmcpjsonservers",
		"excludemcpservers", "deniedmcpservers", "disabledmcpservers", "disabledmcpjsonservers",
	}, similar.Fold(key))
}

func containsAny(name string, words ...string) bool {
	return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(name, word) })
}
