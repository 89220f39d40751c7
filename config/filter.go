package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/internal/arguments"
	"github.com/mcp-bridge/bridge/internal/similar"
	"github.com/mcp-bridge/bridge/internal/strict"
)

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
	useless := func(name string, mayBePattern bool) string {
		switch {
		case slices.Contains(r.Deny, name):
			return "has no effect: deny hides it"
		case what != "resources" && isPattern(name) && !mayBePattern:
			return "must be a name: patterns are for allow, deny, and for args and results alone"
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
		case useless(name, false) != "":
			add("rename: "+name, "%s", useless(name, false))
		}
		from[to] = name
	}
	for _, name := range slices.Sorted(maps.Keys(r.Override)) {
		if rule := useless(name, onlyArgs(r.Override[name])); rule != "" {
			add("override: "+name, "%s", rule)
		}
		if len(r.Override[name].Args) > 0 && what != "tools" {
			add("override: "+name+": args", "is for tools: only they have arguments to set")
		}
		if r.Override[name].MaxResult > 0 && what != "tools" {
			add("override: "+name+": results", "is for tools: only they have results of that kind")
		}
		checkArguments(r.Override[name].Args, func(arg, rule string) { add("override: "+name+": args: "+arg, "%s", rule) })
		for _, key := range slices.Sorted(maps.Keys(r.Override[name].Annotations)) {
			if rule := annotationRule(key, r.Override[name].Annotations[key]); what == "tools" && rule != "" {
				add("override: "+name+": annotations: "+key, "%s", rule)
			}
		}
	}
}

// onlyArgs reports whether an override changes only arguments and bounds of results, which may have a pattern.
func onlyArgs(o filter.Override) bool {
	return (len(o.Args) > 0 || o.MaxResult > 0) && o.Title == nil && o.Description == nil && len(o.Annotations) == 0
}

// checkArguments calls add with the broken rules of changes to arguments.
func checkArguments(args map[string]Argument, add func(arg, rule string)) {
	names := slices.Sorted(maps.Keys(args))
	var before arguments.Changes
	for _, name := range names {
		one := args[name]
		one.Name = name
		if rule := cmp.Or(one.Check(), before.Clash(&one, names)); rule != "" {
			add(name, rule)
		} else if len(arguments.References(one.Default)) > 0 {
			add(name, "has a default that refers to the caller: everybody sees it")
		}
		before = append(before, one)
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
