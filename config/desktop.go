package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Files of desktop clients are accepted as they are: {"mcpServers": {NAME:
// {"command": …}}} or {NAME: {"url": …}}, and the form of VS Code, which has
// "servers" instead and a "type" in each. They are made by and for other
// programs, so what means nothing to us is a warning there and not a fault,
// unless it looks like a slip.

// desktop finds the servers of a desktop client's file. It returns the other
// keys, and the entry that holds the servers; nil when this is a file of our own
// form.
func (d *decoder) desktop(list []entry) ([]entry, *entry) {
	has := func(name string) int {
		return slices.IndexFunc(list, func(e entry) bool { return e.key == name })
	}
	i := has("mcpServers")
	if i < 0 {
		i = has("servers")
		if i < 0 || !d.isDesktop(list[i].value) {
			return list, nil
		}
	} else if j := has("servers"); j >= 0 {
		d.fault(list[j].line, "servers and mcpServers (line %d) cannot both be in a file: keep one", list[i].line)
		list[j] = list[i] // deleted below, both of them
	}
	d.clientForm = true
	found := list[i]
	return slices.DeleteFunc(slices.Clone(list), func(e entry) bool { return e == found }), &found
}

// isDesktop reports whether every server under "servers" has the "type" that VS
// Code asks for and our form does not know, and none has a kind of ours.
func (d *decoder) isDesktop(n ast.Node) bool {
	quiet := &decoder{file: d.file, anchors: d.anchors} // d.config reads it again and reports
	list, ok := quiet.entries("", n)
	if !ok || len(list) == 0 {
		return false
	}
	for _, e := range list {
		keys, _ := quiet.entries("", e.value)
		typed := slices.ContainsFunc(keys, func(k entry) bool { return k.key == "type" })
		ours := slices.ContainsFunc(keys, func(k entry) bool { return slices.Contains(keysOf(reflect.TypeFor[Server]()), k.key) })
		if !typed || ours {
			return false
		}
	}
	return true
}

func (d *decoder) desktopServers(found entry, c *Config) {
	list, ok := d.entries(found.key+": ", found.value)
	if !ok {
		d.mistyped(&slot{sec: &section{}, label: found.key, line: found.line}, found.value, "a mapping of names to servers")
		return
	}
	before, faults := len(d.warnings), len(d.faults)
	taken := map[string]entry{}
	for _, e := range list {
		sec := &section{where: fmt.Sprintf("server %q: ", clip(e.key)), line: e.line}
		keys, ok := d.entries(sec.where, e.value)
		if !ok {
			at := &slot{sec: &section{}, label: strings.TrimSuffix(sec.where, ": "), line: e.line}
			d.mistyped(at, e.value, `a mapping such as { "command": "npx" } or { "url": "https://…" }`)
			continue
		}
		way, keys, why := d.desktopKeys(sec, keys)
		if why != "" {
			d.warn(e.line, "%snot served: %s", sec.where, why)
			continue
		}
		s := DefaultServer(d.mapName(e, taken), "")
		sec.marks = map[string]mark{}
		inner := &section{where: sec.where, line: e.line}
		d.adapter(inner, keys, fieldOf(reflect.ValueOf(&s).Elem(), way.kind))
		sec.adopt(way.kind, inner)
		if way.tools != nil {
			x := &slot{sec: sec, label: "tools: allow", line: way.tools.line}
			d.value(x, way.tools.value, reflect.ValueOf(&s.Tools.Allow).Elem())
		}
		d.finish(sec, &s)
		c.Servers = append(c.Servers, s)
		d.sections = append(d.sections, sec)
	}
	if len(c.Servers) == 0 && len(d.faults) == faults {
		d.fault(found.line, "%s has no server that can be served", found.key)
		d.faults = append(d.faults, d.warnings[before:]...) // which say why
	}
}

// A way is what the keys of a desktop client's server say beside its settings.
type way struct {
	kind  string // the key of our form that says the same
	tools *entry // the only tools that are wanted; nil means all
}

// desktopKeys returns how to reach a server and the keys that make up the
// settings of that kind, or why the server is not served at all.
func (d *decoder) desktopKeys(sec *section, keys []entry) (w way, own []entry, why string) {
	if w.kind, why = d.desktopKind(sec, keys); why != "" {
		return w, nil, why
	}
	for _, e := range keys {
		shown := d.shown(e.value)
		if _, null := d.resolve(e.value).(*ast.NullNode); null {
			continue // programs write null for what is not set
		}
		switch e.key {
		case "type", "transport":
			continue
		case "url", "httpUrl", "serverUrl":
			e.key = "url"
			if slices.ContainsFunc(own, func(o entry) bool { return o.key == "url" }) {
				d.fault(e.line, "%shas several addresses: keep one of url, httpUrl and serverUrl", sec.where)
				continue
			}
		case "disabled", "enabled":
			if shown == "true" && e.key == "disabled" || shown == "false" && e.key == "enabled" {
				return w, nil, e.key + " is " + shown
			}
			if shown != "true" && shown != "false" {
				d.fault(e.line, "%s%s is %s: expected true or false", sec.where, e.key, shown)
			}
			continue
		case "timeout":
			// Some clients count in seconds, some in milliseconds.
			d.warn(e.line, "%stimeout is ignored, because clients disagree about its unit: to set one, write the server in bridge's own form", sec.where)
			continue
		case "autoApprove", "alwaysAllow", "description", "icon", "name", "trust", "version", "gallery", "dev":
			d.warn(e.line, "%s%s is ignored: it means nothing to bridge", sec.where, e.key)
			continue
		case "envFile":
			e.key = "env_file"
		case "tools":
			if _, list := d.resolve(e.value).(*ast.SequenceNode); list { // of names, or "*"
				w.tools = &e
				continue
			}
		}
		if slices.Contains(keysOf(reflect.TypeFor[Server]()), e.key) {
			d.fault(e.line, "%s%s can only be set in bridge's own form: servers: { NAME: { %s: {…}, %s: … } }", sec.where, e.key, w.kind, e.key)
			continue
		}
		own = append(own, e)
	}
	return w, own, ""
}

// desktopKind returns the kind of a server of a desktop client's: by its type,
// or by what there is.
func (d *decoder) desktopKind(sec *section, keys []entry) (kind, why string) {
	var address, command *entry
	for _, e := range keys {
		if _, null := d.resolve(e.value).(*ast.NullNode); null {
			continue
		}
		switch e.key {
		case "type", "transport":
			switch shown := d.shown(e.value); shown {
			case `"stdio"`, `"local"`:
				return "stdio", ""
			case `"http"`, `"streamable-http"`, `"streamableHttp"`, `"streamable_http"`:
				return "http", ""
			case `"sse"`:
				return "sse", ""
			default:
				return "", "its " + e.key + " is " + shown + ": expected stdio, http or sse"
			}
		case "url", "httpUrl", "serverUrl":
			address = &e
		case "command":
			command = &e
		}
	}
	switch {
	case address == nil:
		return "stdio", ""
	case command != nil:
		return "", "it has both a command and a " + address.key + ": keep one, or say which by a type"
	}
	if text, ok := d.resolve(address.value).(*ast.StringNode); ok && address.key != "httpUrl" && EndsInSSE(text.Value) {
		return "sse", ""
	}
	return "http", ""
}

// mapName makes a name by our rule out of a client's: "My Server" becomes
// my-server. The user must know, because the name is in the URL.
func (d *decoder) mapName(e entry, taken map[string]entry) string {
	name := strings.TrimLeft(strings.Map(func(r rune) rune {
		switch {
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		}
		return '-'
	}, e.key), "-")
	if isReserved(name) {
		name += "-server"
	}
	other, ok := taken[name]
	taken[name] = e
	switch err := checkName(name); {
	case err != nil:
		d.fault(e.line, "server %q: %v", clip(e.key), err)
	case ok:
		d.fault(e.line, "server %q: its name becomes %q, as does that of %q on line %d: rename one", clip(e.key), name, clip(other.key), other.line)
	case name != e.key:
		d.warn(e.line, "server %q is served under the name %q", clip(e.key), name)
	}
	return name
}
