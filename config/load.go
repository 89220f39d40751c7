package config

import (
	"cmp"
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/internal/strict"
)

// Load reads the file at path, and checks the files that it names: environment files, working directories, commands.
// Relative paths in it start from its own folder. env looks up variables; nil means the environment of this process.
// The error is a Faults, unless the file could not be read.
//
// A server whose settings need a variable that is not set, or a file that cannot be used, costs no other server: see
// Server.Unusable. Without any other server, the variable or the file is a fault.
func Load(path string, env func(string) (string, bool)) (*Config, error) {
	d, data, err := open(path, env)
	if err != nil {
		return nil, err
	}
	d.spares = true
	return whole(d.parse(data))
}

// whole drops the configuration of a faulty file.
func whole(c *Config, err error) (*Config, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}

// LoadSound is Load for callers that report on a faulty file. A variable or a file that is missing is always a fault. If the error
// is a Faults, LoadSound also returns a configuration, which has only the servers without faults.
func LoadSound(path string, env func(string) (string, bool)) (*Config, error) {
	d, data, err := open(path, env)
	if err != nil {
		return nil, err
	}
	return d.parse(data)
}

// open reads the file at path, and returns a decoder and the content.
func open(path string, env func(string) (string, bool)) (d *decoder, data []byte, err error) {
	folder, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, nil, fmt.Errorf("config: %w", err)
	}
	data, err = readFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	return newDecoder(path, folder, env), data, nil
}

// Parse reads a configuration from data. name is the name of the file in messages. Parse reads no other file, so paths
// stay as they are, and environment files are not read.
func Parse(name string, data []byte, env func(string) (string, bool)) (*Config, error) {
	return whole(newDecoder(name, "", env).parse(data))
}

// parse reads a configuration. If it has faults, parse returns them with the configuration, which then has only the
// servers without faults.
func (d *decoder) parse(data []byte) (*Config, error) {
	c := new(Config)
	if !d.foreignText(data) {
		if root, ok := d.Tree(data); ok {
			c = d.config(root)
		}
	}
	c.name = d.File
	if len(d.Secrets) > 0 {
		c.secrets = d.Secrets
	}
	if d.spares {
		d.spare(c)
	}
	faulty := len(d.Faults) > 0
	if faulty {
		c.Servers = d.sound(c.Servers)
	} else if d.dir != "" {
		d.checkReadable(d.File)
		c.digestFiles()
	}
	for _, f := range d.Warnings.Sorted() {
		c.Warnings = append(c.Warnings, f.String())
	}
	if faulty {
		return c, d.Faults.Sorted()
	}
	return c, nil
}

// sound returns the servers without faults.
func (d *decoder) sound(all []Server) []Server {
	var sound []Server
	for i, sec := range d.sections {
		if len(d.of(sec)) == 0 {
			sound = append(sound, all[i])
		}
	}
	return sound
}

// of returns the faults of a server.
func (d *decoder) of(sec *strict.Section) (all Faults) {
	about := strings.TrimSuffix(sec.Where, ": ")
	for _, f := range d.Faults {
		if strings.HasPrefix(f.Message, about) {
			all = append(all, f)
		}
	}
	return all
}

// spare turns faults into warnings, and makes their servers unusable, if the only faults are variables and files that
// some of the servers need.
func (d *decoder) spare(c *Config) {
	why, ofServers := map[int]string{}, map[Fault]bool{}
	for i, sec := range d.sections {
		for _, f := range d.of(sec) {
			why[i] = cmp.Or(why[i], strings.TrimPrefix(f.Message, sec.Where))
			ofServers[f] = true
		}
	}
	costsMore := func(f Fault) bool { return !f.Unset || !ofServers[f] }
	if slices.ContainsFunc(d.Faults, costsMore) || len(why) == len(c.Servers) {
		return
	}
	for i, text := range why {
		c.Servers[i].Unusable = text
	}
	for _, f := range d.Faults {
		d.Warn(f.Line, "%s; until then, the server is out of service", f.Message)
	}
	d.Faults = nil
}

// config turns the root of the document into a configuration.
func (d *decoder) config(root *yaml.Node) *Config {
	c := Default()
	const example = "for example\n" +
		"    servers:\n" +
		"      files:\n" +
		"        stdio: { command: npx, args: [\"-y\", \"@modelcontextprotocol/server-filesystem\", \".\"] }"
	top := &strict.Section{Line: 1, Marks: map[string]strict.Mark{}}
	var list []strict.Entry
	if root != nil && strict.Kind(root) != strict.Null {
		var ok bool
		if list, ok = d.Entries("", root); !ok {
			d.Fault(root.Line, "the file is %s: expected keys and values, %s", strict.Shown(root), example)
			return &c
		}
	}
	if line, hint := d.foreignFile(list); hint != "" {
		d.Fault(line, "%s", hint)
		return &c
	}
	list, desktop := d.desktop(list)
	list = d.flagKeys(list)
	d.Fields(top, list, reflect.ValueOf(&c).Elem())
	if desktop != nil {
		d.desktopServers(*desktop, &c)
	}
	for i, line := range d.tokens { // addToken appended their rules last
		top.Marks[fmt.Sprintf("access: item %d", len(c.Access)-len(d.tokens)+i+1)] = strict.Mark{Line: line}
	}
	c.off = d.off
	for _, b := range c.breaches() {
		d.breach(top, b)
	}
	d.checkIncomplete(top, &c)
	d.prefixes(&c)
	d.warnPatterns(&c)
	if _, set := top.Marks["servers"]; !set && desktop == nil {
		d.Fault(top.Line, "there are no servers: name at least one, %s", example)
	} else if set && !top.Marks["servers"].Bad && len(c.Servers) == 0 {
		d.Fault(top.Marks["servers"].Line, "servers is empty: name at least one, %s", example)
	}
	c.origins = map[string]map[string]Origin{"": originsOf(top)}
	for i, sec := range d.sections {
		c.origins[c.Servers[i].Name] = originsOf(sec)
	}
	if c.Open() && !top.Marks["listen"].Bad {
		d.Warn(top.Marks["listen"].Line, "listens beyond loopback without access rules: anyone who reaches it could use every server, so it is not served without --insecure: add access:, or listen on 127.0.0.1")
	}
	return &c
}

// prefixes sets the prefixes that depend on the separator, and checks the rules about a server that depend on other
// parts of the file.
func (d *decoder) prefixes(c *Config) {
	for i, sec := range d.sections {
		if _, set := sec.Marks["prefix"]; !set {
			c.Servers[i].Prefix = c.Servers[i].Name + c.Separator
		}
	}
	owners := map[string]string{}
	for i, sec := range d.sections {
		for _, b := range c.checkAmong(&c.Servers[i], owners) {
			d.breach(sec, b)
		}
	}
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

// LoadAddress reads only where the bridge of the file at path listens: Listen, ConsoleListen, BasePath and the
// certificate of TLS. The other keys may need secrets that only the bridge has, so it ignores them. For env and the
// error see Load.
func LoadAddress(path string, env func(string) (string, bool)) (*Config, error) {
	d, data, err := open(path, env)
	if err != nil {
		return nil, err
	}
	c := Default()
	only := func(where string, list []strict.Entry, v any, keys ...string) {
		list = slices.DeleteFunc(list, func(e strict.Entry) bool { return !slices.Contains(keys, e.Key) })
		d.Fields(&strict.Section{Where: where}, list, reflect.ValueOf(v).Elem())
	}
	if root, ok := d.Tree(data); ok && root != nil {
		list, _ := d.Entries("", root)
		for _, e := range list {
			if e.Key == "tls" {
				own, _ := d.Entries("tls: ", e.Value)
				only("tls: ", own, &c.TLS, "cert_file")
			}
		}
		only("", list, &c, "listen", "console_listen", "base_path")
	}
	if len(d.Faults) > 0 {
		return nil, d.Faults.Sorted()
	}
	if c.TLS.CertFile != "" {
		c.TLS.CertFile = d.absolute(c.TLS.CertFile)
	}
	return &c, nil
}
