package config

import (
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/config/foreign"
	"github.com/mcp-bridge/bridge/internal/setting"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// The bridge accepts files of desktop clients without changes: {"mcpServers": {NAME: {"command": …}}} or {NAME: {"url":
// …}}, and the form of VS Code, with "servers" and a "type" in each server. Other programs write these files, so an
// unknown key is a warning and not a fault, unless its name resembles one of our keys or may be a restriction.

// desktop looks for the servers of a desktop client's file. It returns the other keys, and the entry with the servers.
// For a file in our own form, the entry is nil.
func (d *decoder) desktop(list []strict.Entry) ([]strict.Entry, *strict.Entry) {
	has := func(name string) int {
		return slices.IndexFunc(list, func(e strict.Entry) bool { return e.Key == name })
	}
	i := has("mcpServers")
	if i < 0 {
		i = has("servers")
		if i < 0 || !d.isDesktop(list[i].Value) {
			return list, nil
		}
	} else if j := has("servers"); j >= 0 {
		d.Fault(list[j].Line, "servers and mcpServers (line %d) cannot both be in a file: keep one", list[i].Line)
		list[j] = list[i] // both are deleted below
	}
	d.Foreign = true
	found := list[i]
	return slices.DeleteFunc(slices.Clone(list), func(e strict.Entry) bool { return e == found || d.restricts("", e) }), &found
}

// isDesktop reports whether every server under "servers" has the key "type", which VS Code requires, and no server has
// a key of our own form.
func (d *decoder) isDesktop(n *yaml.Node) bool {
	quiet := d.Quiet() // d.config reads the keys again, and reports their faults
	list, ok := quiet.Entries("", n)
	if !ok || len(list) == 0 {
		return false
	}
	for _, e := range list {
		keys, _ := quiet.Entries("", e.Value)
		typed := slices.ContainsFunc(keys, func(e strict.Entry) bool { return e.Key == "type" })
		ours := slices.ContainsFunc(keys, func(e strict.Entry) bool { return slices.Contains(setting.Keys(reflect.TypeFor[Server]()), e.Key) })
		if !typed || ours {
			return false
		}
	}
	return true
}

// desktopServers reads the servers in the file of a desktop client.
func (d *decoder) desktopServers(found strict.Entry, c *Config) {
	list, ok := d.Entries(found.Key+": ", found.Value)
	if !ok {
		d.Mistyped(&strict.Slot{
			Section: &strict.Section{},
			Label:   found.Key,
			Line:    found.Line,
		}, found.Value, "a mapping of names to servers")
		return
	}
	before, faults := len(d.Warnings), len(d.Faults)
	defer d.warnClosed(found, c)
	taken, tokens := map[string]strict.Entry{}, d.proxyTokens()
	for _, e := range list {
		sec, keys, ok := d.serverKeys(e, `a mapping such as { "command": "npx" } or { "url": "https://…" }`)
		if !ok {
			continue
		}
		kind, keys, why := d.desktopKeys(sec, keys)
		if why != "" {
			d.Warn(e.Line, "%snot served: %s", sec.Where, why)
			continue
		}
		s := DefaultServer(d.mapName(e, taken), "")
		keys = d.restrictions(sec, keys, &s, c, tokens)
		sec.Marks = map[string]strict.Mark{}
		inner := &strict.Section{Where: sec.Where, Line: e.Line}
		f := setting.ByKey(reflect.TypeFor[Server](), kind)
		settings := reflect.ValueOf(&s).Elem().FieldByIndex(f.Index)
		settings.Set(reflect.New(f.Type.Elem()))
		keepOwn(keys)
		d.Struct(inner, keys, settings.Interface())
		sec.Adopt(kind, inner)
		d.finish(sec, &s)
		c.Servers = append(c.Servers, s)
		d.sections = append(d.sections, sec)
	}
	if len(c.Servers) == 0 && len(d.Faults) == faults {
		d.Fault(found.Line, "%s has no server that can be served", found.Key)
		d.Faults = append(d.Faults, d.Warnings[before:]...) // the warnings give the reasons
	}
}

// keepOwn keeps references in the arguments of a program to variables that the server's own env sets. Clients pass
// arguments as they are, and programs such as mcp-remote replace the references.
func keepOwn(keys []strict.Entry) {
	values := func(key string) []*yaml.Node {
		i := slices.IndexFunc(keys, func(e strict.Entry) bool { return e.Key == key })
		if i < 0 || !isCollection(keys[i].Value) {
			return nil
		}
		return strict.Resolve(keys[i].Value).Content
	}
	var own []string
	for i, name := range values("env") {
		if i%2 == 0 {
			kept := "$${" + name.Value + "}"
			own = append(own, kept, kept, kept[1:], kept)
		}
	}
	keep := strings.NewReplacer(own...)
	for _, argument := range values("args") {
		argument.Value = keep.Replace(argument.Value)
	}
}

// desktopKeys returns the kind of a server, and the keys of that kind's settings. If the bridge does not serve the
// server, desktopKeys returns the reason.
func (d *decoder) desktopKeys(sec *strict.Section, keys []strict.Entry) (kind string, own []strict.Entry, why string) {
	if kind, why = d.desktopKind(keys); why != "" {
		return kind, nil, why
	}
	for _, e := range keys {
		shown := strict.Shown(e.Value)
		ours, known := foreign.KeyOf(e.Key)
		written := isCollection(e.Value) && (ours == "args" || ours == "env" || ours == "headers")
		if strict.Kind(e.Value) == strict.Null || written && isEmpty(e.Value) {
			continue // some programs write null or an empty list for a key that is not set
		}
		switch {
		case ours == "type":
			continue
		case ours == "":
			d.Warn(e.Line, "%s%s is ignored: it means nothing to mcp-bridge", sec.Where, e.Key)
			continue
		case ours == "allow", ours == "deny", !known:
		case slices.ContainsFunc(own, func(e strict.Entry) bool { return e.Key == ours }):
			d.Fault(e.Line, "%s%s says the same as another key: keep one of %s", sec.Where, e.Key, strings.Join(foreign.Aliases[ours], ", "))
			continue
		default:
			e.Key = ours
		}
		switch e.Key {
		case "disabled", "enabled":
			if shown == "true" && e.Key == "disabled" || shown == "false" && e.Key == "enabled" {
				return kind, nil, e.Key + " is " + shown
			}
			if shown != "true" && shown != "false" {
				d.Fault(e.Line, "%s%s is %s: expected true or false", sec.Where, e.Key, shown)
			}
			continue
		case "timeout":
			// Some clients count in seconds, others in milliseconds.
			d.Warn(e.Line, "%stimeout is ignored, because clients disagree about its unit: to set one, write the server in bridge's own form", sec.Where)
			continue
		case "options":
			inner, _ := d.Quiet().Entries("", e.Value)
			if slices.ContainsFunc(inner, func(e strict.Entry) bool { return e.Key == "disabled" && strict.Shown(e.Value) == "true" }) {
				return kind, nil, "options: disabled is true"
			}
		}
		if e.Key == "tools" && strict.Kind(e.Value) == strict.List { // names of tools, or "*"
			own = append(own, e)
			continue
		}
		if slices.Contains(setting.Keys(reflect.TypeFor[Server]()), e.Key) {
			d.Fault(e.Line, "%s%s can only be set in bridge's own form: servers: { NAME: { %s: {…}, %s: … } }", sec.Where, e.Key, kind, e.Key)
			continue
		}
		own = append(own, e)
	}
	return kind, own, ""
}

// desktopKind returns the kind of a desktop client's server. Its type decides; without a type, its other keys decide.
func (d *decoder) desktopKind(keys []strict.Entry) (kind, why string) {
	var address, command *strict.Entry
	for _, e := range keys {
		if isEmpty(e.Value) {
			continue
		}
		switch ours, _ := foreign.KeyOf(e.Key); ours {
		case "type":
			if kind = foreign.TransportOf(strict.Resolve(e.Value).Value); kind == "" {
				return "", "its " + e.Key + " is " + strict.Shown(e.Value) + ": expected stdio, http or sse"
			}
			return kind, ""
		case "url":
			address = &e
		case "command":
			command = &e
		}
	}
	switch {
	case address == nil:
		return "stdio", ""
	case command != nil:
		return "", "it has both a command and a " + address.Key + ": keep one, or say which by a type"
	}
	if address.Key != "httpUrl" && strict.Kind(address.Value) == strict.String && EndsInSSE(strict.Resolve(address.Value).Value) {
		return "sse", ""
	}
	return "http", ""
}

// mapName turns a client's name for a server into a name that follows our rule: "My Server" becomes my-server. It warns
// about a changed name, because the name is in the URL.
func (d *decoder) mapName(e strict.Entry, taken map[string]strict.Entry) string {
	name := NameOf(e.Key)
	other, ok := taken[name]
	taken[name] = e
	switch err := checkName(name); {
	case err != nil:
		d.Fault(e.Line, "server %q: %v", strict.Clip(e.Key), err)
	case ok:
		d.Fault(e.Line, "server %q: its name becomes %q, as does that of %q on line %d: rename one", strict.Clip(e.Key), name, strict.Clip(other.Key), other.Line)
	case name != e.Key:
		d.Warn(e.Line, "server %q is served under the name %q", strict.Clip(e.Key), name)
	}
	return name
}

// NameOf turns a text into the name of a server: "My Server" becomes my-server. If the text has neither letters nor
// digits, the result is not a valid name.
func NameOf(key string) string {
	name := strings.TrimLeft(strings.Map(func(r rune) rune {
		switch {
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		}
		return '-'
	}, key), "-")
	if isReserved(name) {
		name += "-server"
	}
	return name
}
