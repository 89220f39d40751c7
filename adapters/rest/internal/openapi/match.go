package openapi

import (
	"fmt"
	"slices"
	"strings"
)

// Match chooses operations. All that is set must fit, and of each list one item.
type Match struct {
	Tag    []string `yaml:"tag"`    // * stands for any text
	Path   []string `yaml:"path"`   // * stands for a part of a path, ** for any number of them
	Method []string `yaml:"method"` // in capitals or not
	// Name is the operationId, or what is made of method and path where there is
	// none; * stands for any text.
	Name []string `yaml:"name"`
}

// Fits reports whether an operation is chosen.
func (m *Match) Fits(op *Operation) bool {
	one := func(list []string, fits func(string) bool) bool {
		return len(list) == 0 || slices.ContainsFunc(list, fits)
	}
	return one(m.Tag, func(s string) bool {
		return slices.ContainsFunc(op.Tags, func(tag string) bool { return glob(s, tag, true) })
	}) &&
		one(m.Path, func(s string) bool { return glob(s, op.written, false) }) &&
		one(m.Method, func(s string) bool { return strings.EqualFold(s, op.Method) }) &&
		one(m.Name, func(s string) bool { return glob(s, op.name(), true) })
}

// name is the operation's own, or what its method and path say.
func (o *Operation) name() string {
	if o.ID == "" {
		return fromPath(o)
	}
	return o.ID
}

// Fault returns what can be seen to be wrong without a document; empty if nothing is.
func (m *Match) Fault() string {
	for _, s := range m.Path {
		if !strings.HasPrefix(s, "/") && !strings.HasPrefix(s, "*") {
			return fmt.Sprintf("path %q must begin with a slash, such as /pets/**", s)
		}
	}
	for _, s := range m.Method {
		if !slices.Contains(methods, strings.ToLower(s)) {
			return fmt.Sprintf("method %q is none: write GET, POST and the like", s)
		}
	}
	if len(m.Tag)+len(m.Path)+len(m.Method)+len(m.Name) == 0 {
		return "match needs tag, path, method or name; what holds for all operations is said beside rules"
	}
	return ""
}

// Known returns what could have been meant by a Match that fits nothing: the tags and
// the names of operations.
func (d *Document) Known() (tags, names []string) {
	for _, op := range d.Operations {
		tags, names = append(tags, op.Tags...), append(names, op.name())
	}
	return tags, names
}
