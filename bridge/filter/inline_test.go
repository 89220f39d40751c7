package filter

import (
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
			if got := string(inlined([]byte(test.in))); got != want {
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
	if got := string(inlined([]byte(schema))); got != schema {
		t.Errorf("inlined has %d bytes", len(got))
	}
}

// The rule inlines both schemas of a tool, and needs no other rule.
func TestInlineRefs(t *testing.T) {
	const item = `{"name":"a","inputSchema":{"properties":{"x":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"string"}}},"outputSchema":{"$ref":"#/$defs/o","$defs":{"o":{"type":"object"}}},"_meta":{"$ref":"#/x"}}`
	const want = `{"name":"a","inputSchema":{"properties":{"x":{"type":"string"}}},"outputSchema":{"type":"object"},"_meta":{"$ref":"#/x"}}`
	if got := string(compile(Rules{InlineRefs: true}, false).describe([]byte(item), "a")); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
