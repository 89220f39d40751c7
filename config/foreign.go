package config

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/config/foreign"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// codexTable matches the head of a server in a TOML file of Codex. In YAML it can only be in an indented text.
var codexTable = regexp.MustCompile(`(?m)^\[mcp_servers\.`)

// foreignText adds a fault, and reports true, if the file is neither YAML nor JSON but a file of Codex.
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

// foreignFile returns a hint about a file that has the keys of another program, and no servers that we read. For other
// files the hint is empty.
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
	for _, p := range foreign.Places {
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

// under returns the value of a key of the mapping n, or nil.
func (d *decoder) under(n *yaml.Node, key string) *yaml.Node {
	list, _ := d.Quiet().Entries("", n)
	if i := slices.IndexFunc(list, func(e strict.Entry) bool { return e.Key == key }); i >= 0 {
		return list[i].Value
	}
	return nil
}

// typed reports whether a server in the mapping servers has one of the types.
func (d *decoder) typed(servers *yaml.Node, types ...string) bool {
	list, _ := d.Quiet().Entries("", servers)
	return slices.ContainsFunc(list, func(e strict.Entry) bool {
		kind := d.under(e.Value, "type")
		return kind != nil && strict.Kind(kind) == strict.String && slices.Contains(types, strict.Resolve(kind).Value)
	})
}

func isCollection(n *yaml.Node) bool {
	return strict.Kind(n) == strict.List || strict.Kind(n) == strict.Map
}

// isEmpty reports whether a value is null, false or empty.
func isEmpty(n *yaml.Node) bool {
	switch strict.Kind(n) {
	case strict.Null:
		return true
	case strict.Bool:
		return !strict.IsTrue(n)
	case strict.String:
		return strict.Resolve(n).Value == ""
	case strict.List, strict.Map:
		return len(strict.Resolve(n).Content) == 0
	}
	return false
}
