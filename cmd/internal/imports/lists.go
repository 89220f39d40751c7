package imports

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/config/foreign"
	"github.com/mcp-bridge/bridge/internal/similar"
)

// rule is a list of allowed or denied servers in a file.
type rule struct {
	said  string // the key and its file, for notes
	allow bool
	names []string // as in the new file
	odd   bool     // the list has items that are not names
	own   bool     // the list applies only to the servers in a project's .mcp.json
}

// readRules reads the lists of a file, and Claude Code's lists for projects. Each list may name servers of all files.
func (i *Import) readRules(from string, root object) {
	projects := orEmpty(root["projects"])
	here, _ := os.Getwd()
	i.readLists(from, true, root)
	for _, path := range slices.Sorted(maps.Keys(projects)) {
		i.readLists(from, path == here, orEmpty(projects[path]))
	}
	gemini := orEmpty(root["mcp"])
	for _, key := range []string{"allowed", "excluded"} {
		if _, ok := gemini[key].([]any); ok {
			i.readRule("mcp: "+key+" in "+from, key == "allowed", gemini[key])
		}
	}
}

// readLists reads the lists of a file, or of a project in the file. here means that they apply to the working
// directory. The list of approved servers applies to one project, and is empty until the project's user has approved a
// server.
func (i *Import) readLists(from string, here bool, scope object) {
	for _, key := range slices.Sorted(maps.Keys(scope)) {
		said := key + " in " + from
		switch approved := similar.Fold(key) == "enabledmcpjsonservers"; {
		case !foreign.ListsServers(key):
		case !approved:
			i.readRule(said, strings.HasPrefix(similar.Fold(key), "allow"), scope[key])
		case here && !empty(scope[key]) && scope["enableAllProjectMcpServers"] != true:
			i.readRule(said, true, scope[key])
			i.rules[len(i.rules)-1].own = true
		}
	}
}

func (i *Import) readRule(said string, allow bool, v any) {
	if empty(v) && !(allow && v != nil) { // an empty list of allowed servers allows no server
		return
	}
	list, ok := v.([]any)
	r := rule{
		said:  said,
		allow: allow,
		odd:   !ok,
	}
	for _, item := range list {
		name := text(item)
		if name == "" { // an item of Claude Code's managed settings
			name = text(orEmpty(item)["serverName"])
		}
		r.names = append(r.names, config.NameOf(name))
		r.odd = r.odd || name == ""
	}
	i.rules = append(i.rules, r)
}

// keep switches off the servers that a list of any file excludes. A malformed list excludes all servers.
func (i *Import) keep() {
	for count := range i.servers {
		s := &i.servers[count]
		for _, r := range i.rules {
			if r.own && filepath.Base(s.from) != ".mcp.json" {
				continue
			}
			if note := "switched off by " + r.said; (r.odd || slices.Contains(r.names, s.name) != r.allow) && !slices.Contains(s.notes, note) {
				s.off, s.notes = true, append(s.notes, note)
			}
		}
	}
}

// unused reads opencode's tools: { "SERVER_*": false }.
func (s *server) unused(from, key string, tools object) {
	for _, pattern := range slices.Sorted(maps.Keys(tools)) {
		if tools[pattern] != false {
			continue
		}
		if all, _ := path.Match(pattern, key+"_"); all {
			s.off, s.notes = true, append(s.notes, fmt.Sprintf("switched off by tools: %q in %s", pattern, from))
		} else if name, ok := strings.CutPrefix(pattern, key+"_"); ok {
			s.deny = append(s.deny, name)
		}
	}
}
