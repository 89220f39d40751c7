package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/similar"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// filterKeys is the form of a filter.Rules in a file, and overrideKeys that of a filter.Override.
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

// filter reads the rules for a server's tools, prompts or resources.
func (d *decoder) filter(s *strict.Slot, n *yaml.Node, into *filter.Rules) bool {
	var keys filterKeys
	_, ok := d.Inner(s, n, &keys)
	*into = filter.Rules(keys)
	return ok
}

// override reads the changes of one tool, prompt or resource.
func (d *decoder) override(s *strict.Slot, n *yaml.Node, into *filter.Override) bool {
	var keys overrideKeys
	sec, ok := d.Inner(s, n, &keys)
	if !ok {
		return false
	}
	if _, set := sec.Marks["title"]; set { // an empty title replaces the server's, but a missing one does not
		into.Title = &keys.Title
	}
	if _, set := sec.Marks["description"]; set {
		into.Description = &keys.Description
	}
	into.Annotations = keys.Annotations
	return true
}

// checkFilter adds the broken rules of a filter. what is tools, prompts or resources.
func checkFilter(all *breaches, what string, r filter.Rules) {
	add := func(key, rule string, args ...any) { all.add(what+": "+key, rule, args...) }
	for _, list := range []struct {
		key      string
		patterns []string
	}{{"allow", r.Allow}, {"deny", r.Deny}} {
		for i, pattern := range list.patterns {
			if pattern == "" {
				add(fmt.Sprintf("%s: item %d", list.key, i+1), "is empty: write a name, or a pattern such as get_*")
			}
		}
	}
	if r.InlineRefs && what != "tools" {
		add("inline_refs", "is for tools: only they have schemas")
	}
	useless := func(name string) string {
		switch {
		case slices.Contains(r.Deny, name):
			return "has no effect: deny hides it"
		case what != "resources" && strings.ContainsAny(name, "*?"):
			return "must be a name: patterns are for allow and deny"
		}
		return ""
	}
	from := map[string]string{} // original names by new names
	for _, name := range slices.Sorted(maps.Keys(r.Rename)) {
		to := r.Rename[name]
		other, taken := from[to]
		switch {
		case to == "":
			add("rename: "+name, "must not become empty: to hide it, use deny")
		case what == "tools" && !isPlain(to, 64):
			add("rename: "+name, "must become 1 to 64 letters, digits, '_', '.' and '-': clients refuse other names of tools")
		case taken && what != "resources": // for resources, names are only for display
			add("rename: "+name, "becomes the same as %q: choose another name", strict.Clip(other))
		case useless(name) != "":
			add("rename: "+name, "%s", useless(name))
		}
		from[to] = name
	}
	for _, name := range slices.Sorted(maps.Keys(r.Override)) {
		if rule := useless(name); rule != "" {
			add("override: "+name, "%s", rule)
		}
		for _, key := range slices.Sorted(maps.Keys(r.Override[name].Annotations)) {
			if rule := annotationRule(key, r.Override[name].Annotations[key]); what == "tools" && rule != "" {
				add("override: "+name+": annotations: "+key, "%s", rule)
			}
		}
	}
}

// hints are the boolean annotations of tools. Clients refuse a list in which one of them has another type.
var hints = []string{"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}

// annotationRule returns the rule that an annotation breaks, or "". Annotations with other names may have any value.
func annotationRule(key string, value json.RawMessage) string {
	if slices.Contains(hints, key) && !slices.Contains([]string{"true", "false", "null"}, string(value)) {
		return "must be true, false or null"
	}
	if i := slices.IndexFunc(hints, func(h string) bool { return h != key && similar.Fold(h) == similar.Fold(key) }); i >= 0 {
		return "must be written " + hints[i] + ": clients know no other"
	}
	return ""
}

// isPlain reports whether s has at most most bytes, and only characters that every client accepts in the name of a
// tool.
func isPlain(s string, most int) bool { return len(s) <= most && address.IsPlain(s) }
