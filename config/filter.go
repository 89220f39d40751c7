package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// filterKeys is the form of filter.Rules in a file, and overrideKeys that of filter.Override.
type filterKeys struct {
	Allow      []string                   `yaml:"allow,some"`
	Deny       []string                   `yaml:"deny"`
	Rename     map[string]string          `yaml:"rename"`
	Override   map[string]filter.Override `yaml:"override"`
	InlineRefs bool                       `yaml:"inline_refs"`
}

type overrideKeys struct {
	Title       string                     `yaml:"title"`
	Description string                     `yaml:"description"`
	Annotations map[string]json.RawMessage `yaml:"annotations"`
}

// filter reads the filter of a server's tools, prompts or resources.
func (d *decoder) filter(x *strict.Slot, n *yaml.Node, into *filter.Rules) bool {
	var keys filterKeys
	_, ok := d.Inner(x, n, &keys)
	*into = filter.Rules(keys)
	return ok
}

// override reads the changes of the description of one of them.
func (d *decoder) override(x *strict.Slot, n *yaml.Node, into *filter.Override) bool {
	var keys overrideKeys
	sec, ok := d.Inner(x, n, &keys)
	if !ok {
		return false
	}
	if _, set := sec.Marks["title"]; set { // an empty title replaces, an absent one does not
		into.Title = &keys.Title
	}
	if _, set := sec.Marks["description"]; set {
		into.Description = &keys.Description
	}
	into.Annotations = keys.Annotations
	return true
}

// checkFilter adds the broken rules of a filter; the argument what is tools, prompts or resources.
func checkFilter(all *breaches, what string, f filter.Rules) {
	add := func(key, rule string, args ...any) { all.add(what+": "+key, rule, args...) }
	for _, list := range []struct {
		key      string
		patterns []string
	}{{"allow", f.Allow}, {"deny", f.Deny}} {
		for i, pattern := range list.patterns {
			if pattern == "" {
				add(fmt.Sprintf("%s: item %d", list.key, i+1), "is empty: write a name, or a pattern such as get_*")
			}
		}
	}
	if f.InlineRefs && what != "tools" {
		add("inline_refs", "is for tools: only they have schemas")
	}
	hidden := func(name string) bool { return slices.Contains(f.Deny, name) }
	from := map[string]string{} // old names by new ones
	for _, name := range slices.Sorted(maps.Keys(f.Rename)) {
		to := f.Rename[name]
		other, taken := from[to]
		switch {
		case hidden(name):
			add("rename: "+name, "has no effect: deny hides it")
		case to == "":
			add("rename: "+name, "must not become empty: to hide it, use deny")
		case what == "tools" && !isPlain(to, 64):
			add("rename: "+name, "must become 1 to 64 letters, digits, '_', '.' and '-': clients refuse other names of tools")
		case taken && what != "resources": // the names of resources are only for display
			add("rename: "+name, "becomes the same as %q: choose another name", strict.Clip(other))
		}
		from[to] = name
	}
	for _, name := range slices.Sorted(maps.Keys(f.Override)) {
		if hidden(name) {
			add("override: "+name, "has no effect: deny hides it")
		}
	}
}

// isPlain reports whether s has at most that many bytes, and only characters that every client
// accepts in the names of tools.
func isPlain(s string, most int) bool { return len(s) <= most && address.IsPlain(s) }
