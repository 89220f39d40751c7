package openapi

import (
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/tree"
	"github.com/mcp-bridge/bridge/internal/address"
)

// maxChain bounds a chain of references.
const maxChain = 100

// deref follows the references at n to their target. It returns nil, after a warning, if they lead to
// nothing.
func (l *loader) deref(n *tree.Node) *tree.Node {
	first := n
	for range maxChain {
		ref := l.refOf(n)
		if ref == nil {
			return n
		}
		next := l.follow(ref)
		if next == nil {
			return nil
		}
		n = next
	}
	l.warn(first, "$ref %q refers to itself", tree.Short(first.Str("$ref")))
	return nil
}

// refOf returns the reference at n: its $ref, or a $dynamicRef that can mean only one schema. It
// returns nil if there is none.
func (l *loader) refOf(n *tree.Node) *tree.Node {
	if ref := n.Get("$ref"); ref.Is(tree.Text) {
		return ref
	}
	ref := n.Get("$dynamicRef")
	if !ref.Is(tree.Text) {
		return nil
	}
	if _, name, _ := strings.Cut(ref.Text, "#"); l.files[ref.File].table().dynamic[name] > 1 {
		l.warn(ref, "$dynamicRef %q can mean several schemas: every value is allowed", tree.Short(ref.Text))
		return nil
	}
	return ref
}

// failure says why a reference cannot be resolved.
type failure struct {
	why  string
	told int // the round of the last warning; 0 before any
}

// follow resolves one reference, or returns nil after a warning.
func (l *loader) follow(ref *tree.Node) *tree.Node {
	key := target{file: ref.File, ref: ref.Text}
	if f := l.files[ref.File]; f.ids {
		key.in = f.table().within[ref]
	}
	n, ok := l.targets[key]
	if !ok {
		var problem string
		if n, problem = l.locate(key); n == nil {
			l.problems[key] = &failure{why: problem}
		}
		l.targets[key] = n
	}
	if n == nil {
		// One warning is enough: in Load, or else in each call of Tools.
		if f := l.problems[key]; f.told == 0 || f.told > 1 && f.told != l.round {
			f.told = l.round
			l.warn(ref, "$ref %q: %s", tree.Short(ref.Text), f.why)
		}
	} else if _, known := l.labels[n]; !known {
		l.labels[n] = label(ref.Text)
	}
	return n
}

// label returns a name for the definition that a reference names, from the reference's last part.
func label(ref string) string {
	ref = ref[strings.LastIndexAny(ref, "/#")+1:]
	for _, ext := range []string{".json", ".yaml", ".yml"} {
		ref = strings.TrimSuffix(ref, ext)
	}
	if i := strings.LastIndexByte(ref, '.'); i >= 0 && i < len(ref)-1 {
		ref = ref[i+1:] // io.k8s.api.core.v1.Pod
	}
	if ref = cut64(plainName(ref, true)); strings.Trim(ref, "_") == "" {
		return "Schema"
	}
	return ref
}

func (l *loader) locate(at target) (n *tree.Node, problem string) {
	name, fragment, _ := strings.Cut(at.ref, "#")
	f := l.files[at.file]
	if in := at.in; in != nil && name == "" { // first within the $id; many documents mean the root of the file
		if n, problem = l.fragment(f, in.root, fragment); n != nil {
			return n, problem
		}
	}
	if name != "" {
		known := f.table().found[name]
		if in := at.in; in != nil && f.table().found[in.resolve(name)] != nil {
			known = f.table().found[in.resolve(name)]
		}
		if known != nil { // the schema with that $id
			return l.fragment(l.files[known.File], known, fragment)
		}
		if n := l.byName(f, at.ref); n != nil {
			return n, ""
		}
		if f, problem = l.fileOf(f, name); problem != "" {
			return nil, problem
		}
	}
	return l.fragment(f, f.root, fragment)
}

// fragment returns what a fragment, a JSON pointer or the name of an anchor, means below n.
func (l *loader) fragment(f *file, n *tree.Node, fragment string) (*tree.Node, string) {
	if s, err := url.PathUnescape(fragment); err == nil {
		fragment = s
	}
	if fragment == "" {
		return n, "leads to nothing"
	}
	rest, isPointer := strings.CutPrefix(fragment, "/")
	if !isPointer {
		names := f.table()
		if own := names.ids[n]; own != nil && names.found[own.base+"#"+fragment] != nil {
			return names.found[own.base+"#"+fragment], ""
		}
		if at := names.found["#"+fragment]; at != nil {
			return at, ""
		}
		if !strings.Contains(fragment, "/") {
			return nil, "there is no such anchor"
		}
		rest = fragment // some omit the slash
	}
	for part := range strings.SplitSeq(rest, "/") {
		part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
		if n = l.pointerStep(n, part); n == nil {
			return nil, "there is nothing at " + strconv.Quote(tree.Short(part))
		}
	}
	return n, ""
}

// pointerStep follows one part of a pointer. If n is a reference, the part applies to its target.
func (l *loader) pointerStep(n *tree.Node, part string) *tree.Node {
	if n.Is(tree.Array) {
		if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(n.Members()) {
			return &n.Members()[i].Node
		}
		return nil
	}
	if next := n.Get(part); next != nil || n.Get("$ref") == nil || l.nested > maxChain {
		return next
	}
	l.nested++
	defer func() { l.nested-- }()
	return l.deref(n).Get(part)
}

// byName returns the definition of that name, for old documents with references such as $ref: Pet.
func (l *loader) byName(f *file, name string) *tree.Node {
	if strings.ContainsAny(name, "./:#") {
		return nil
	}
	if n := f.root.Get("definitions").Get(name); n != nil {
		return n
	}
	return f.root.Get("components").Get("schemas").Get(name)
}

// fileOf returns the file that a reference in f names, and reads it if necessary.
func (l *loader) fileOf(f *file, name string) (*file, string) {
	where, problem := join(f.location, name)
	if problem != "" {
		return nil, problem
	}
	if i, ok := l.byLoc[where]; ok {
		if l.files[i].root == nil {
			return nil, "the file cannot be used"
		}
		return l.files[i], ""
	}
	if l.exceeded != nil {
		return nil, l.exceeded.Error()
	}
	if len(l.files) >= l.src.MaxFiles {
		return nil, l.tooMany().Error()
	}
	data, err := l.read(where, false)
	if err == nil {
		l.left -= int64(len(data))
		var other *file
		if other, err = l.parse(where, data); err == nil {
			return other, ""
		}
	} else if l.ctx != nil {
		l.byLoc[where] = uint16(len(l.files))
		l.files = append(l.files, &file{location: where})
	}
	return nil, err.Error()
}

// join resolves a path or URL against the location base.
func join(base, name string) (where, problem string) {
	switch {
	case address.IsHTTP(name):
		return name, ""
	case base == "":
		return "", "a document without a place of its own cannot refer to files"
	case address.IsHTTP(base):
		b, err := url.Parse(base)
		if err != nil {
			return "", "the document's own URL cannot be read"
		}
		u, err := b.Parse(name)
		if err != nil || !address.IsHTTP(u.String()) {
			return "", "leads nowhere from a URL"
		}
		return u.String(), ""
	}
	if u, err := url.Parse(name); err == nil && len(u.Scheme) > 1 {
		if u.Scheme != "file" {
			return "", "only http, https and files can be read"
		}
		name = u.Path
	} else if s, err := url.PathUnescape(name); err == nil {
		name = s
	}
	name = filepath.FromSlash(name)
	if filepath.IsAbs(name) {
		return filepath.Clean(name), ""
	}
	return filepath.Join(filepath.Dir(base), name), ""
}

// nameTable has the anchors and the $ids of the schemas in a file.
type nameTable struct {
	found   map[string]*tree.Node    // by $anchor or $dynamicAnchor, as "#name" and as "ID#name", and by $id
	ids     map[*tree.Node]*resource // schemas with an $id
	within  map[*tree.Node]*resource // by reference: the schema with an $id around it
	dynamic map[string]int           // by $dynamicAnchor: the number of its schemas
}

// resource is a schema with an $id, against which references in the schema are resolved.
type resource struct {
	root *tree.Node
	base string // the $id, resolved
}

// resolve resolves a reference or an $id against that of the resource; r may be nil.
func (r *resource) resolve(name string) string {
	if r == nil {
		return name
	}
	if u, err := url.Parse(r.base); err == nil {
		if to, err := u.Parse(name); err == nil {
			return to.String()
		}
	}
	return name
}

func (f *file) table() *nameTable {
	if f.names == nil {
		f.names = &nameTable{map[string]*tree.Node{}, map[*tree.Node]*resource{}, map[*tree.Node]*resource{}, map[string]int{}}
		left := 1 << 22
		f.names.gather(f.root, nil, map[*tree.Kids]bool{}, &left)
	}
	return f.names
}

// enters reports whether a walk must go below n. It reports false for nodes that the walk has seen,
// since YAML aliases share nodes, and after left steps.
func enters(n *tree.Node, seen map[*tree.Kids]bool, left *int) bool {
	if n == nil || n.Kids == nil || seen[n.Kids] || *left <= 0 {
		return false
	}
	*left--
	if len(seen) < 1<<16 {
		seen[n.Kids] = true
	}
	return true
}

func (t *nameTable) gather(n *tree.Node, in *resource, seen map[*tree.Kids]bool, left *int) {
	if !enters(n, seen, left) {
		return
	}
	if id := n.Get("$id"); id.Is(tree.Text) {
		in = &resource{n, strings.TrimSuffix(in.resolve(id.Text), "#")}
		t.found[id.Text], t.found[in.base], t.ids[n] = n, n, in
	}
	for i := range n.Members() {
		m := &n.Members()[i]
		if n.Kind == tree.Object && m.Node.Kind == tree.Text {
			switch m.Name {
			case "$anchor", "$dynamicAnchor":
				t.found["#"+m.Node.Text] = n
				if in != nil {
					t.found[in.base+"#"+m.Node.Text] = n
				}
				if m.Name == "$dynamicAnchor" {
					t.dynamic[m.Node.Text]++
				}
			case "$ref", "$dynamicRef":
				if in != nil {
					t.within[&m.Node] = in
				}
			}
		}
		t.gather(&m.Node, in, seen, left)
	}
}

// fetch reads the files that references in a tree name. names says that the names of n's members are
// no keywords.
func (l *loader) fetch(n *tree.Node, names bool, seen map[*tree.Kids]bool, left *int) {
	if !enters(n, seen, left) {
		return
	}
	for i := range n.Members() {
		m := &n.Members()[i]
		switch {
		case n.Kind == tree.Object && m.LeadsOut(): // even if names is set: a schema is never a text
			l.follow(&m.Node)
		case n.Kind == tree.Object && !names && notFollowed(m.Name):
		default:
			l.fetch(&m.Node, !names && named(m.Name), seen, left)
		}
	}
}

// named reports whether the members of a member with that name have names that are no keywords.
func named(name string) bool {
	switch name {
	case "properties", "patternProperties", "definitions", "$defs", "dependentSchemas", "paths", "responses", "schemas",
		"parameters", "headers", "requestBodies", "pathItems", "content", "encoding", "mediaTypes":
		return true
	}
	return false
}

// notFollowed reports whether a member with that name has no references to follow.
func notFollowed(name string) bool {
	switch name {
	case "example", "examples", "default", "enum", "const", "links", "callbacks", "webhooks":
		return true
	}
	return strings.HasPrefix(name, "x-")
}
