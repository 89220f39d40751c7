package openapi

import (
	"fmt"
	"slices"
	"strings"
)

// Match chooses operations. An operation matches if it fits one item of each list that is not empty.
type Match struct {
	Tag    []string `yaml:"tag"`    // * stands for any text
	Path   []string `yaml:"path"`   // * stands for a part of a path, ** for several parts
	Method []string `yaml:"method"` // in upper or lower case
	// Name is the operationId, or the name made of method and path; * stands for any text.
	Name []string `yaml:"name"`
}

func (m *Match) Matches(op *Operation) bool {
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

// name returns the operationId, or a name made of method and path.
func (o *Operation) name() string {
	if o.ID == "" {
		return fromPath(o)
	}
	return o.ID
}

// Fault returns a fault that can be found without a document, or "".
func (m *Match) Fault() string {
	for _, s := range m.Path {
		if !strings.HasPrefix(s, "/") && !strings.HasPrefix(s, "*") {
			return fmt.Sprintf("path %q must begin with a slash, such as /pets/**", s)
		}
	}
	for _, s := range m.Method {
		if !slices.Contains(methods, strings.ToLower(s)) {
			return fmt.Sprintf("method %q is not an HTTP method: write GET, POST and the like", s)
		}
	}
	if len(m.Tag)+len(m.Path)+len(m.Method)+len(m.Name) == 0 {
		return "match needs tag, path, method or name; settings for all operations go beside rules"
	}
	return ""
}

// Known returns the tags and the names of operations, for hints about a Match that matches nothing.
func (d *Document) Known() (tags, names []string) {
	for _, op := range d.Operations {
		tags, names = append(tags, op.Tags...), append(names, op.name())
	}
	return tags, names
}
