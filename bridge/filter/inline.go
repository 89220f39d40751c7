package filter

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

const (
	// maxInlined bounds a schema without references, in bytes: references to references multiply.
	maxInlined = 256 << 10
	// maxReferences bounds the references of a schema, also those that name nothing.
	maxReferences = 64 << 10
	// maxNested bounds the nesting of a schema that is walked, and the length of a reference, in names.
	maxNested = 100
)

// inliner replaces the references within one schema by what they name.
type inliner struct {
	ctx     context.Context // ends when nobody wants the schema
	root    []byte
	objects map[*byte]map[string]json.RawMessage // members of objects that a reference leads through, by their first byte
	open    []string                             // the references that are being replaced
	left    bool                                 // a reference stays: it is recursive, names nothing, or leads out of the schema
	size    int                                  // bytes that were inlined
	refs    int                                  // references so far
}

// inlined returns a schema with each local $ref replaced by its definition, and without unused definitions. A schema
// stays as it is if it would become too large, or if ctx has ended.
func inlined(ctx context.Context, schema []byte) []byte {
	if !bytes.Contains(schema, []byte(`"$ref"`)) {
		return schema
	}
	i := &inliner{
		ctx:     ctx,
		root:    schema,
		objects: map[*byte]map[string]json.RawMessage{},
	}
	out := i.schema(schema, 0)
	switch {
	case i.stopped():
		return schema
	case !i.left:
		out = rawjson.Delete(out, "$defs", "definitions")
	}
	return out
}

// stopped reports whether the schema stays as it is.
func (i *inliner) stopped() bool {
	return i.size > maxInlined || i.refs > maxReferences || i.ctx.Err() != nil
}

// schema returns a schema, or an array of schemas, without references.
func (i *inliner) schema(value []byte, depth int) []byte {
	if depth > maxNested || i.stopped() {
		i.left = true
		return value
	}
	if rawjson.IsArray(value) {
		return rawjson.EditItems(value, func(item []byte) []byte { return i.schema(item, depth+1) })
	}
	if !rawjson.IsObject(value) {
		return value
	}
	if ref, ok := rawjson.Text(rawjson.Get(value, "$ref")); ok {
		return i.replaced(value, ref, depth)
	}
	return rawjson.Edit(value, func(name, member []byte) []byte {
		switch string(name) {
		case "default", "const", "enum", "examples", "example":
			return member // data
		case "$defs", "definitions":
			return member // only what names them counts
		case "properties", "patternProperties", "dependentSchemas":
			return rawjson.Edit(member, func(_, property []byte) []byte { return i.schema(property, depth+1) })
		}
		return i.schema(member, depth+1)
	})
}

// replaced returns the schema that a reference names, with the members that stand beside the reference.
func (i *inliner) replaced(value []byte, ref string, depth int) []byte {
	i.refs++
	target := i.target(ref)
	for _, other := range i.open {
		if other == ref {
			target = nil // recursive
		}
	}
	if !rawjson.IsObject(target) {
		i.left = true
		return value
	}
	i.size += len(target)
	i.open = append(i.open, ref)
	out := i.schema(target, depth+1)
	i.open = i.open[:len(i.open)-1]
	if _, still := rawjson.Text(rawjson.Get(out, "$ref")); still {
		return value // a chain that ends in no definition
	}
	beside := i.schema(rawjson.Delete(value, "$ref"), depth+1)
	return rawjson.Merge(out, beside)
}

// unescape replaces the escapes of a JSON pointer.
var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// target returns the part of the schema that a JSON pointer names, or nil.
func (i *inliner) target(ref string) []byte {
	at, pointer := i.root, strings.TrimPrefix(ref, "#")
	if pointer == ref || pointer != "" && pointer[0] != '/' {
		return nil
	}
	names := strings.Split(pointer, "/")[1:]
	if len(names) > maxNested {
		return nil
	}
	for _, name := range names {
		at = i.member(at, unescape.Replace(name))
	}
	return at
}

// member is rawjson.Get for objects of root, each of which it reads once: a schema may have as many references as
// definitions.
func (i *inliner) member(object []byte, name string) []byte {
	if !rawjson.IsObject(object) {
		return nil
	}
	members, read := i.objects[&object[0]]
	if !read {
		members = rawjson.Members(object)
		i.objects[&object[0]] = members
	}
	return members[name]
}
