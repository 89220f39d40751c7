package imports

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// docked is a server of a catalog, with keys in the form of other files. Docker's MCP gateway lists servers in
// catalogs: images and remote servers. The import starts a container with the gateway's command.
type docked struct {
	keys  object
	notes []string
	needs []need
	login bool   // the server requires OAuth
	why   string // why the server cannot be imported
}

// catalog returns the servers of a catalog, or no servers for another file.
func catalog(root object) object {
	found := object{}
	for name, v := range orEmpty(root["registry"]) {
		o := orEmpty(v)
		if o["image"] != nil || o["remote"] != nil || o["sseEndpoint"] != nil || o["type"] == "poci" {
			found[name] = dock(o)
		}
	}
	return found
}

// described lists keys of a server that do not affect its operation.
var described = []string{
	"name", "type", "description", "title", "icon", "readme", "toolsUrl", "source", "upstream", "dateAdded", "ref", "tools", "prompts", "resources",
	"metadata", "longLived", "config",
}

func dock(o object) docked {
	d := docked{keys: object{}}
	for key, v := range o { // unknown keys are handled as in other files
		if !slices.Contains(described, key) && !slices.Contains([]string{"image", "remote", "sseEndpoint", "oauth", "secrets", "env", "command", "volumes", "user", "disableNetwork", "allowHosts", "extraHosts", "policy"}, key) {
			d.keys[key] = v
		}
	}
	if !empty(o["policy"]) {
		d.why = "policy may keep it from being used"
	}
	for _, key := range []string{"secrets", "env", "command", "volumes", "extraHosts"} {
		if _, ok := o[key].([]any); o[key] != nil && !ok {
			d.why = key + " is no list"
		}
	}
	d.login = !empty(o["oauth"])
	env := object{}
	var args []any
	for _, v := range items(o["secrets"]) {
		name := d.variable("secrets: env", orEmpty(v)["env"])
		d.need(name, "the secret "+text(orEmpty(v)["name"])+" of Docker")
		env[name] = "${" + name + "}"
		args = append(args, "-e", name)
	}
	remote := orEmpty(o["remote"])
	switch kind := text(o["type"]); {
	case kind == "poci":
		d.why = "its type is poci: its tools are programs, which do not speak MCP"
	case !slices.Contains([]string{"", "server", "remote"}, kind):
		d.why = "its type is " + kind
	case text(remote["url"]) != "":
		d.keys["url"], d.keys["type"] = d.filled(text(remote["url"])), remote["transport_type"]
		headers := object{}
		for _, name := range slices.Sorted(maps.Keys(orEmpty(remote["headers"]))) {
			headers[name] = d.filled(text(orEmpty(remote["headers"])[name]))
		}
		d.keys["headers"] = headers
	case text(o["sseEndpoint"]) != "":
		d.keys["url"], d.keys["type"] = d.filled(text(o["sseEndpoint"])), "sse"
	case text(o["image"]) == "":
		d.why = "it has neither an image nor a remote url"
	default:
		d.run(o, args, env)
	}
	return d
}

// run writes the command that starts a container.
func (d *docked) run(o object, args []any, env object) {
	if d.login {
		d.login = false
		d.notes = append(d.notes, "oauth is not taken over: give it a token of your own")
	}
	args = append([]any{"run", "-i", "--rm", "--init", "--security-opt", "no-new-privileges"}, args...)
	switch off, ok := o["disableNetwork"].(bool); {
	case o["disableNetwork"] != nil && !ok:
		d.why = "disableNetwork is neither true nor false"
	case off:
		args = append(args, "--network", "none")
	}
	for _, v := range items(o["env"]) {
		name := d.variable("env: name", orEmpty(v)["name"])
		if value := d.filled(text(orEmpty(v)["value"])); value != "" {
			env[name] = value
			args = append(args, "-e", name)
		}
	}
	for _, option := range []struct{ flag, key string }{{"-v", "volumes"}, {"-u", "user"}, {"--add-host", "extraHosts"}} {
		for _, value := range texts(o[option.key]) {
			if value = d.filled(value); value != "" {
				args = append(args, option.flag, d.word(option.key, value))
			}
		}
	}
	if !empty(o["allowHosts"]) {
		d.notes = append(d.notes, "allowHosts is not taken over: Docker's gateway heeds it with --block-network only")
	}
	args = append(args, d.word("image", text(o["image"])))
	for _, word := range texts(o["command"]) {
		args = append(args, d.filled(word))
	}
	d.keys["command"], d.keys["args"], d.keys["env"] = "docker", args, env
}

func items(v any) []any { all, _ := v.([]any); return all }

// word returns the value of a docker flag. The value must not look like a flag.
func (d *docked) word(key, value string) string {
	if strings.HasPrefix(value, "-") {
		d.why = fmt.Sprintf("%s is %q, which docker would take for a flag", key, value)
	}
	return value
}

// variable returns the name of an environment variable.
func (d *docked) variable(key string, v any) string {
	name := text(v)
	if !plainName.MatchString(name) {
		d.why = fmt.Sprintf("%s is %q, which is no name of a variable", key, name)
	}
	return name
}

func (d *docked) need(name, what string) {
	if !slices.ContainsFunc(d.needs, func(n need) bool { return n.name == name }) {
		d.needs = append(d.needs, need{name, what})
	}
}

var (
	blank    = regexp.MustCompile(`\{\{\s*([\w.-]+)\s*((?:\|[^{}|]*)*)\}\}`)
	expanded = regexp.MustCompile(`\$([A-Za-z_]\w*)`)
)

// filled replaces the gateway's placeholders by references to variables.
func (d *docked) filled(s string) string {
	s = expanded.ReplaceAllString(s, "$${$1}")
	s = blank.ReplaceAllStringFunc(s, func(whole string) string {
		m := blank.FindStringSubmatch(whole)
		name := variable(m[1])
		value := "${" + name + "}"
		for _, filter := range strings.Split(m[2], "|")[1:] {
			switch strings.TrimSpace(filter) {
			case "into", "or:[]", "volume-target":
			case "volume":
				value += ":" + value + ":ro"
				d.notes = append(d.notes, "it may only read what is in "+name+", as with Docker's gateway: remove :ro to let it write")
			default:
				d.why = "only Docker's gateway can fill in " + whole
			}
		}
		if m[2] == "" {
			d.need(name, "what Docker's gateway would fill in for "+m[1])
		} else {
			d.need(name, "what Docker's gateway would fill in for "+m[1]+": one path")
		}
		return value
	})
	if strings.Contains(s, "{{") {
		d.why = "only Docker's gateway can fill in " + s
	}
	return s
}
