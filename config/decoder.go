package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/internal/strict"
)

// A decoder turns one file into a Config. It embeds the strict decoder, and adds the rules of our settings.
type decoder struct {
	*strict.Decoder
	dir       string             // folder of the file; "" if the decoder may read no other files
	sent      []sent             // values from the environment that servers of the kind rest send in headers, queries or arguments
	documents map[*string][]byte // inline documents, by the field that otherwise holds the document's address
	sections  []*strict.Section  // sections of the servers, in the order of Config.Servers
	off       []string           // names of servers with enabled: false
	proxy     *strict.Entry      // key mcpProxy of a file of TBXark's mcp-proxy, or nil
	tokens    []int              // lines of the tokens in such a file, in the order of their rules in Config.Access
	programs  map[string]error   // result of executable, by path
	argument  string             // the last argument that noteSecret saw, if the next text follows it
	spares    bool               // a variable that is not set costs only its server
	secret    *strict.Slot       // the first secret that is written in the file; nil without one
}

func newDecoder(file, dir string, env func(string) (string, bool)) *decoder {
	if env == nil {
		env = os.LookupEnv
	}
	d := &decoder{dir: dir, programs: map[string]error{}}
	d.Decoder = strict.New(file, "mcp-bridge", env, d)
	return d
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

// unusable adds a fault for a key that names a file which cannot be used.
func (d *decoder) unusable(sec *strict.Section, key string, why any) {
	m := sec.Marks[key]
	d.Fault(m.Line, "%s%s is %s: %v", sec.Where, key, m.Shown, why)
	d.Faults[len(d.Faults)-1].Unset = true
}

func (d *decoder) absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(d.dir, path)
}

// whole is Inner, but also reports false if one of the keys has a fault.
func (d *decoder) whole(s *strict.Slot, n *yaml.Node, into any) (*strict.Section, bool) {
	before := len(d.Faults)
	sec, ok := d.Inner(s, n, into)
	return sec, ok && len(d.Faults) == before
}

func isOn(t strict.Text) bool {
	return t.Value == "on" || t.Kind == strict.Bool && strings.EqualFold(t.Value, "true")
}

func isOff(t strict.Text) bool {
	return t.Value == "off" || t.Kind == strict.Bool && strings.EqualFold(t.Value, "false")
}

// words reads a Words.
func (d *decoder) words(s *strict.Slot, n *yaml.Node, into *Words) bool {
	if strict.Kind(n) == strict.List {
		return d.Value(s, n, reflect.ValueOf((*[]string)(into)).Elem())
	}
	var one string
	s.Loose = true
	ok := d.Value(s, n, reflect.ValueOf(&one).Elem())
	*into = Words{one}
	return ok
}

// sent is a value from the environment, with the section whose requests contain it.
type sent struct{ where, value string }
