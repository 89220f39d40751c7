package config

import (
	"regexp"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/internal/strict"
)

// Origin is the place of a key in the file.
type Origin struct {
	// Line is the line of the key, from 1.
	Line int
	// Variables are the names of the environment variables in the text of the key's value.
	Variables []string
}

// Origin returns where the file has a key, such as limits.calls, of the server of that name. An empty name means the
// file's own keys. ok is false if the file does not have the key.
func (c *Config) Origin(server, key string) (at Origin, ok bool) {
	at, ok = c.origins[server][key]
	return at, ok
}

var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)`)

// originsOf returns the origins of the keys of a section, and of the sections in it.
func originsOf(sec *strict.Section) map[string]Origin {
	all := map[string]Origin{}
	for key, m := range sec.Marks {
		key, rest, item := strings.Cut(key, ": item ")
		if key == "" || m.Line == 0 || strings.Contains(rest, ": ") {
			continue
		}
		key = strings.ReplaceAll(key, ": ", ".")
		at := all[key] // the items of a list add their variables to its key
		if !item {
			at.Line = m.Line
		}
		for _, found := range variable.FindAllStringSubmatch(m.Shown, -1) {
			if !slices.Contains(at.Variables, found[1]) {
				at.Variables = append(at.Variables, found[1])
			}
		}
		all[key] = at
	}
	return all
}
