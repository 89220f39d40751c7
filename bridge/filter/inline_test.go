package filter

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestInlined(t *testing.T) {
	for _, test := range []struct{ name, in, want string }{ // no want: the same
		{"nothing to do", `{"type":"object","$defs":{"a":{}}}`, ""},
		{"a definition", `{"properties":{"x":{"$ref":"#/$defs/a"},"y":{"$ref":"#/definitions/b~1c"}},"$defs":{"a":{"type":"string"}},"definitions":{"b/c":{"type":"null"}}}`,
			`{"properties":{"x":{"type":"string"},"y":{"type":"null"}}}`},
		{"members beside it count", `{"properties":{"x":{"$ref":"#/$defs/a","description":"mine"}},"$defs":{"a":{"type":"string","description":"its"}}}`,
			`{"properties":{"x":{"type":"string","description":"mine"}}}`},
		{"a definition in a definition", `{"anyOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"items":{"$ref":"#/$defs/b"}},"b":{"type":"number"}}}`,
			`{"anyOf":[{"items":{"type":"number"}}]}`},
		{"recursive: the inner one stays, and its definition", `{"properties":{"x":{"$ref":"#/$defs/a"}},"$defs":{"a":{"items":{"$ref":"#/$defs/a"}}}}`,
			`{"properties":{"x":{"items":{"$ref":"#/$defs/a"}}},"$defs":{"a":{"items":{"$ref":"#/$defs/a"}}}}`},
		{"to itself", `{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/a"}}}`, ""},
		{"to the whole", `{"properties":{"x":{"$ref":"#"}}}`, `{"properties":{"x":{"properties":{"x":{"$ref":"#"}}}}}`},
		{"elsewhere", `{"properties":{"x":{"$ref":"https://a.example/s"},"y":{"$ref":"#/$defs/none"},"z":{"$ref":"#name"}}}`, ""},
		{"data, and properties of that name", `{"default":{"$ref":"#/$defs/a"},"properties":{"$ref":{"type":"string"},"default":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"string"}}}`,
			`{"default":{"$ref":"#/$defs/a"},"properties":{"$ref":{"type":"string"},"default":{"type":"string"}}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := test.want
			if want == "" {
				want = test.in
			}
			if got := string(inlined(t.Context(), []byte(test.in))); got != want {
				t.Errorf("inlined(%s)\n= %s, want\n  %s", test.in, got, want)
			}
		})
	}
}

// A schema whose references multiply stays as it is.
func TestInlinedTooLarge(t *testing.T) {
	var defs []string
	for i := range 40 {
		defs = append(defs, fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, i+1, i+1))
	}
	schema := `{"$ref":"#/$defs/d0","$defs":{` + strings.Join(defs, ",") + `,"d40":{"type":"string"}}}`
	if got := string(inlined(t.Context(), []byte(schema))); got != schema {
		t.Errorf("inlined has %d bytes", len(got))
	}
}

// The rule inlines both schemas of a tool, and needs no other rule.
func TestInlineRefs(t *testing.T) {
	const item = `{"name":"a","inputSchema":{"properties":{"x":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"string"}}},"outputSchema":{"$ref":"#/$defs/o","$defs":{"o":{"type":"object"}}},"_meta":{"$ref":"#/x"}}`
	const want = `{"name":"a","inputSchema":{"properties":{"x":{"type":"string"}}},"outputSchema":{"type":"object"},"_meta":{"$ref":"#/x"}}`
	if got := string(compile(Rules{InlineRefs: true}, false).describe(t.Context(), []byte(item), "a")); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The work for a schema grows with its size: objects are read once for all references, whether they name something
// or not, and members beside a reference are written once.
func TestInlinedWork(t *testing.T) {
	var properties, beside []string
	for i := range 20_000 {
		properties = append(properties, fmt.Sprintf(`"p%d":{"$ref":"#/$defs/nope%d"}`, i, i))
		beside = append(beside, fmt.Sprintf(`"m%d":%d`, i, i))
	}
	schema := []byte(`{"properties":{` + strings.Join(properties, ",") + `},"$defs":{"a":{}}}`)
	n := &inliner{ctx: t.Context(), root: schema, objects: map[*byte]map[string]json.RawMessage{}}
	if out := n.schema(schema, 0); string(out) != string(schema) || !n.left {
		t.Error("references that name nothing were replaced")
	}
	if len(n.objects) != 2 || n.refs != 20_000 {
		t.Errorf("%d objects read for %d references, want 2 for 20000", len(n.objects), n.refs)
	}
	members := strings.Join(beside, ",")
	got := inlined(t.Context(), []byte(`{"items":{"$ref":"#/$defs/a",`+members+`},"$defs":{"a":{"type":"string"}}}`))
	if want := `{"items":{"type":"string",` + members + `}}`; string(got) != want {
		t.Errorf("inlined has %d bytes, want %d", len(got), len(want))
	}
}

// A schema stays as it is if it has more than maxReferences references, or if its client has left.
func TestInlinedStops(t *testing.T) {
	many := `{"anyOf":[` + strings.Repeat(`{"$ref":"#/$defs/nope"},`, maxReferences) + `{"$ref":"#/$defs/a"}],"$defs":{"a":{}}}`
	if got := string(inlined(t.Context(), []byte(many))); got != many {
		t.Errorf("inlined has %d of %d bytes", len(got), len(many))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	one := []byte(`{"items":{"$ref":"#/$defs/a"},"$defs":{"a":{}}}`)
	i := &inliner{ctx: ctx, root: one}
	if out := i.schema(one, 0); string(out) != string(one) || i.refs != 0 {
		t.Errorf("after the call: %s, %d references", out, i.refs)
	}
	if got := string(inlined(ctx, one)); got != string(one) {
		t.Errorf("after the call: %s", got)
	}
}
