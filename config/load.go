package config

import (
	"cmp"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/internal/files"
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

// readFile returns the content of a file. A file that is too large is cut one byte beyond strict.MaxFile, so that the
// decoder rejects it.
func readFile(path string) ([]byte, error) { return files.Read(path, strict.MaxFile+1) }

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

// breach adds a fault for a broken rule, in the line of one of its keys. It adds none if a value of the rule is faulty.
func (d *decoder) breach(sec *strict.Section, b breach) {
	m, set := sec.At(b.key)
	other, otherSet := sec.Marks[b.other]
	switch {
	case m.Bad || other.Bad: // the value is a default in place of a faulty one
		return
	case !set && otherSet:
		m = other
	}
	d.Fault(m.Line, "%s%s %s", sec.Where, b.key, b.rule)
}

func (d *decoder) servers(s *strict.Slot, n *yaml.Node, into *[]Server) bool {
	if strict.Kind(n) == strict.Null {
		return true // the same as an empty mapping, which has a better message
	}
	list, ok := d.Entries("servers: ", n)
	if !ok {
		return d.Mistyped(s, n, "a mapping of names to servers")
	}
	for _, e := range list {
		if err := checkName(e.Key); err != nil {
			hint := ""
			if better := NameOf(e.Key); checkName(better) == nil {
				hint = fmt.Sprintf(": write %q", better)
			}
			d.Fault(e.Line, "server %q: %v%s", strict.Clip(e.Key), err, hint)
		}
		sec, keys, ok := d.serverKeys(e, "a mapping such as { stdio: { command: npx } }")
		if !ok {
			continue
		}
		keys, on := d.enabled(sec, e.Key, keys)
		if !on {
			continue
		}
		*into = append(*into, d.server(sec, e.Key, keys))
		d.sections = append(d.sections, sec)
	}
	if len(*into) == 0 && len(d.off) == len(list) && len(list) > 0 {
		d.Fault(s.Line, "no server is served: each has enabled: false")
	}
	return len(*into) > 0 || len(list) == 0
}

// serverKeys returns the keys of a server. If it is not a mapping, serverKeys adds a fault with the expected form.
func (d *decoder) serverKeys(e strict.Entry, expected string) (sec *strict.Section, keys []strict.Entry, ok bool) {
	about := fmt.Sprintf("server %q", strict.Clip(e.Key))
	sec = &strict.Section{Where: about + ": ", Line: e.Line}
	if keys, ok = d.Entries(sec.Where, e.Value); !ok {
		d.Mistyped(&strict.Slot{
			Section: &strict.Section{},
			Label:   about,
			Line:    e.Line,
		}, e.Value, expected)
	}
	return sec, keys, ok
}

// enabled returns the keys of a server without the key enabled, and whether the server is switched on.
func (d *decoder) enabled(sec *strict.Section, name string, keys []strict.Entry) (rest []strict.Entry, on bool) {
	i := slices.IndexFunc(keys, func(e strict.Entry) bool { return e.Key == "enabled" })
	if i < 0 {
		return keys, true
	}
	e, on := keys[i], true
	if d.Value(&strict.Slot{
		Section: sec,
		Label:   e.Key,
		Line:    e.Line,
	}, e.Value, reflect.ValueOf(&on).Elem()); !on {
		d.Warn(e.Line, "%snot served: enabled is false", sec.Where)
		d.off = append(d.off, name)
		return nil, false
	}
	return slices.Delete(slices.Clone(keys), i, i+1), true
}

// server reads the keys of a server, and adds the faults.
func (d *decoder) server(sec *strict.Section, name string, keys []strict.Entry) Server {
	s := DefaultServer(name, "")
	d.Fields(sec, keys, reflect.ValueOf(&s).Elem())
	if _, set := sec.Marks["idle_stop"]; !set {
		s.IdleStop = DefaultServer(name, s.Share).IdleStop
	}
	set := s.kinds()
	if len(set) > 1 {
		d.Fault(sec.Line, "%sis of more than one kind (%s): keep one", sec.Where, strings.Join(set, ", "))
		return s // other rules depend on the kind
	}
	tried := slices.ContainsFunc(kindKeys(), func(name string) bool { _, ok := sec.Marks[name]; return ok })
	switch {
	case len(set) == 1:
		d.finish(sec, &s)
	case !tried && !sec.Marks[""].Bad:
		d.Fault(sec.Line, "%snothing says how to reach it: add stdio: { command: …, args: […] } or http: { url: … }", sec.Where)
	}
	return s
}

// finish sets the names of forwarded headers, and checks the rules about several keys of a server.
func (d *decoder) finish(sec *strict.Section, s *Server) {
	s.nameForwards()
	for _, b := range s.breaches() {
		d.breach(sec, b)
	}
	for _, b := range s.remarks() {
		m, _ := sec.At(b.key)
		d.Warn(m.Line, "%s%s %s", sec.Where, b.key, b.rule)
	}
}

// Redact returns text, with references such as ${NAME} in place of values from the environment.
func (c *Config) Redact(text string) string { return strict.Redact(text, c.secrets) }
