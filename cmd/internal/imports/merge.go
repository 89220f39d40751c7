package imports

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// into is the configuration to which the servers are added.
type into struct {
	text   []byte
	at     int      // the place for the servers: after the line of the key servers
	indent string   // indentation of the names of servers
	names  []string // names of the configuration's servers
}

// Into sets the configuration to which YAML adds the servers. The rest of its text does not change. Callers must call
// it before Add: servers whose names are in use are omitted, and variables of the configuration keep their meaning. The
// error is the reason why no servers can be added.
func (i *Import) Into(file string, text []byte) error {
	root, err := strict.Parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if _, err := config.Parse(file, text, environment); err != nil {
		return fmt.Errorf("correct its faults first:\n%w", err)
	}
	if !inLines(root) {
		return fmt.Errorf("%s: servers can be added only to a file in the bridge's own form, with servers: on a line of its own", file)
	}
	for count := 0; count < len(root.Content); count += 2 {
		key, table := root.Content[count], root.Content[count+1]
		if key.Value != "servers" || !inLines(table) || len(table.Content) == 0 {
			continue
		}
		to := &into{text: text, indent: strings.Repeat(" ", table.Content[0].Column-1)}
		for range key.Line {
			n := bytes.IndexByte(text[to.at:], '\n')
			if n < 0 {
				break
			}
			to.at += n + 1
		}
		for one := 0; one < len(table.Content); one += 2 {
			to.names = append(to.names, config.NameOf(table.Content[one].Value))
		}
		i.into = to
		return nil
	}
	return fmt.Errorf("%s: no servers can be added: its key servers must be a block with one server per line", file)
}

// inLines reports whether n is a mapping with each key on its own line.
func inLines(n *yaml.Node) bool {
	return n != nil && n.Kind == yaml.MappingNode && n.Anchor == "" && n.Style&(yaml.FlowStyle|yaml.TaggedStyle) == 0
}

// environment returns a value for every variable, because the check does not depend on the values.
func environment(name string) (string, bool) {
	if value, ok := os.LookupEnv(name); ok {
		return value, true
	}
	return "the-value-of-" + name, true
}

// refers reports whether the file names a variable.
func (i *into) refers(variable string) bool {
	return i != nil && regexp.MustCompile(`\$\{`+regexp.QuoteMeta(variable)+`(:-|\})`).Match(i.text)
}

// has reports whether the file has a server of that name.
func (i *into) has(name string) bool { return i != nil && slices.Contains(i.names, name) }

// with returns the file with the servers. It expects servers to be indented by two spaces.
func (i *into) with(servers []byte) []byte {
	var b bytes.Buffer
	b.Write(i.text[:i.at])
	for line := range bytes.Lines(servers) {
		b.WriteString(i.indent)
		b.Write(bytes.TrimPrefix(line, []byte("  ")))
	}
	b.Write(i.text[i.at:])
	return b.Bytes()
}

// Fault returns the reason why the servers are not a valid configuration, or why they cannot be added to the given
// configuration, or nil.
func (i *Import) Fault() error {
	if i.into == nil {
		if !slices.ContainsFunc(i.servers, func(s server) bool { return !s.off }) {
			return errors.New("all of them are disabled there, and a configuration needs at least one server: enable a server, and import again")
		}
		return nil
	}
	if len(i.tokens) > 0 {
		return errors.New("they have keys for their callers (access), which would hold for all servers of the file: import them into a file of their own")
	}
	_, err := config.Parse("the new file", i.YAML(), environment)
	return err
}

// Env returns a shell file with the variables to set, and with the values of secrets. A variable without a value in the
// imported file is empty.
func (i *Import) Env() []byte {
	var b bytes.Buffer
	for _, name := range i.Variables() {
		for _, s := range i.needed() {
			for _, n := range s.needs {
				if n.name == name {
					fmt.Fprintf(&b, "# %s: %s\n", s.name, comment(n.what))
				}
			}
		}
		value := i.values[name]
		if !unquoted.MatchString(value) {
			value = "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
		}
		fmt.Fprintf(&b, "%s=%s\n", name, value)
	}
	return b.Bytes()
}

var unquoted = regexp.MustCompile(`^[\w./:@%+,=-]*$`)
