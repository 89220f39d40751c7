package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/arguments"
	"github.com/mcp-bridge/bridge/internal/files"
	"github.com/mcp-bridge/bridge/internal/rawjson"
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
	Args        map[string]Argument        `yaml:"args"`
	Results     Results                    `yaml:"results"`
}

// argumentKeys is the form of an Argument in a file.
type argumentKeys struct {
	Value       strict.JSON `yaml:"value"`
	ValueFile   string      `yaml:"value_file"`
	Default     strict.JSON `yaml:"default"`
	As          string      `yaml:"as"`
	Description string      `yaml:"description"`
	Hide        bool        `yaml:"hide"`
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
	into.Annotations, into.Args, into.MaxResult = keys.Annotations, keys.Args, int64(keys.Results.Max)
	return true
}

// argumentChange reads the changes to an argument of a tool, which may be the word off. References to the caller stay.
func (d *decoder) argumentChange(s *strict.Slot, n *yaml.Node, into *Argument) bool {
	if into.Off = strict.IsOff(n); into.Off {
		return true
	}
	d.Later = func(reference string) bool { return len(arguments.References([]byte("${"+reference+"}"))) > 0 }
	defer func() { d.Later = nil }()
	var keys argumentKeys
	sec, ok := d.whole(s, n, &keys)
	if !ok {
		return false
	}
	*into = Argument{
		Off:     keys.Hide,
		Value:   json.RawMessage(keys.Value),
		Default: json.RawMessage(keys.Default),
		As:      keys.As,
		About:   keys.Description,
		File:    keys.ValueFile,
	}
	switch {
	case len(sec.Marks) == 0:
		d.Fault(s.Line, "%s%s changes nothing: set value, default, as, description or hide", s.Section.Where, s.Label)
		return false
	case into.File != "" && into.Value != nil:
		d.Fault(s.Line, "%svalue_file cannot be used with value: keep one", sec.Where)
		return false
	case into.File == "":
		return true
	}
	text := []byte("${caller.file}") // no caller has it, so nothing is sent until Load reads the file
	if d.dir != "" {
		var err error
		into.File = d.absolute(into.File)
		if text, err = readFile(into.File); err != nil {
			d.unusable(sec, "value_file", files.Reason(err))
			return false
		}
	}
	into.Value = json.RawMessage(rawjson.Quote(strings.TrimRight(string(text), "\r\n")))
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

func isPattern(name string) bool { return strings.ContainsAny(name, "*?") }

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

// references calls f with each reference to the caller in the values of arguments, and with its key.
func (s *Server) references(f func(key, reference string)) {
	for _, name := range slices.Sorted(maps.Keys(s.Tools.Override)) {
		args := s.Tools.Override[name].Args
		for _, arg := range slices.Sorted(maps.Keys(args)) {
			for _, reference := range arguments.References(args[arg].Value) {
				f("tools: override: "+name+": args: "+arg, reference)
			}
		}
	}
}

// Claims returns the claims of the caller's token that the server, or an argument of its tools, gets.
func (s *Server) Claims() []string {
	all := slices.Collect(maps.Values(s.Identity))
	s.references(func(_, reference string) {
		if name, ok := strings.CutPrefix(reference, arguments.Claim); ok {
			all = append(all, name)
		}
	})
	return all
}

// checkReferences adds the broken rules of references to the caller in the values of arguments.
func (c *Config) checkReferences(all *breaches, s *Server) {
	s.references(func(key, reference string) {
		claim, isClaim := strings.CutPrefix(reference, arguments.Claim)
		header, isHeader := strings.CutPrefix(reference, arguments.Header)
		switch {
		case isHeader && !slices.ContainsFunc(s.Forward, func(f bridge.Forward) bool { return strings.EqualFold(f.From, header) }):
			all.add(key, "needs the header %q in forward: the bridge reads no other header of clients", strict.Clip(header))
		case isClaim && len(c.OAuth) == 0:
			all.add(key, "is about tokens and needs oauth, the list of their issuers")
		case reference == arguments.Caller && len(c.Access) == 0:
			all.add(key, "needs access: without it, callers have no names")
		case !isHeader && (!isClaim || claim == "") && reference != arguments.Caller && reference != "caller.file":
			all.add(key, "has ${%s}, which is no reference: write ${caller.name}, ${caller.claims.NAME} or ${header.NAME}", strict.Clip(reference))
		}
	})
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
