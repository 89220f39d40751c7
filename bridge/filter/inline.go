package filter

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

const (
	// maxInlined bounds the bytes that replaced references add to a schema. References to references multiply.
	maxInlined = 256 << 10
	// maxReferences bounds the references in a schema, including references to nothing.
	maxReferences = 64 << 10
	// maxNested bounds the nesting of a schema, and the names in a reference.
	maxNested = 100
)

// inliner replaces the local references in one schema by the definitions that they name.
type inliner struct {
	ctx     context.Context // ends when no caller waits for the schema
	root    []byte
	objects map[*byte]map[string]json.RawMessage // members of the objects in root that references lead through, by the object's first byte
	open    []string                             // references that schema is replacing, the outermost first
	left    bool                                 // a reference stays: it is recursive, names nothing, or leads out of root
	size    int                                  // bytes of the definitions so far
	refs    int                                  // references so far
}

// inlined returns a schema with each local $ref replaced by its definition, and without unused definitions. If the
// schema would become too large, or ctx has ended, inlined returns the schema unchanged.
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

// stopped reports whether a limit was exceeded or ctx has ended, so that the schema stays as it is.
func (i *inliner) stopped() bool {
	return i.size > maxInlined || i.refs > maxReferences || i.ctx.Err() != nil
}

// schema returns a schema, or an array of schemas, with the references in it replaced.
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
			return member // data, not a schema
		case "$defs", "definitions":
			return member // a definition is copied to where it is named
		case "properties", "patternProperties", "dependentSchemas":
			return rawjson.Edit(member, func(_, property []byte) []byte { return i.schema(property, depth+1) })
		}
		return i.schema(member, depth+1)
	})
}

// replaced returns the definition that ref names, merged with the other members of value.
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
		return value // the definitions lead to a reference that cannot be replaced
	}
	beside := i.schema(rawjson.Delete(value, "$ref"), depth+1)
	return rawjson.Merge(out, beside)
}

// unescape decodes the escapes of a JSON pointer.
var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// target returns the part of root that the JSON pointer ref names, or nil.
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

// member is rawjson.Get for objects of root. It decodes each object only once, because a schema may have as many
// references as definitions.
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
