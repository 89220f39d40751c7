package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Files of desktop clients are accepted as they are: {"mcpServers": {NAME:
// {"command": …}}}, and the form of VS Code, which has "servers" instead and a
// "type" in each. They are made by and for other programs, so what means nothing
// to us is a warning there and not a fault, unless it looks like a slip.

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
			d.mistyped(at, e.value, `a mapping such as { "command": "npx" }`)
			continue
		}
		keys, why := d.desktopKeys(sec, keys)
		if why != "" {
			d.warn(e.line, "%snot served: %s", sec.where, why)
			continue
		}
		s := DefaultServer(d.mapName(e, taken), "")
		d.adapter(sec, keys, reflect.ValueOf(&s.Stdio).Elem())
		c.Servers = append(c.Servers, s)
	}
	if len(c.Servers) == 0 && len(d.faults) == faults {
		d.fault(found.line, "%s has no server that can be served", found.key)
		d.faults = append(d.faults, d.warnings[before:]...) // which say why
	}
}

// desktopKeys returns the keys that make up our stdio settings, or why the server
// is not served at all.
func (d *decoder) desktopKeys(sec *section, keys []entry) (stdio []entry, why string) {
	for _, e := range keys {
		shown := d.shown(e.value)
		switch e.key {
		case "url", "httpUrl", "serverUrl":
			return nil, "remote servers are not supported by this version"
		case "type", "transport":
			if shown != `"stdio"` {
				return nil, "its " + e.key + " is " + shown + ", and only stdio is supported by this version"
			}
			continue
		case "disabled", "enabled":
			if shown == "true" && e.key == "disabled" || shown == "false" && e.key == "enabled" {
				return nil, e.key + " is " + shown
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
		}
		if slices.Contains(keysOf(reflect.TypeFor[Server]()), e.key) {
			d.fault(e.line, "%s%s can only be set in bridge's own form: servers: { NAME: { stdio: {…}, %s: … } }", sec.where, e.key, e.key)
			continue
		}
		if _, null := d.resolve(e.value).(*ast.NullNode); null {
			continue // programs write null for what is not set
		}
		stdio = append(stdio, e)
	}
	return stdio, ""
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
