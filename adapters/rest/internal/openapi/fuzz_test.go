package openapi

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// FuzzLoad: loading any document ends soon, and its tools are usable.
func FuzzLoad(f *testing.F) {
	for _, name := range []string{"swagger-2.0.yaml", "openapi-3.0.json", "openapi-3.1.yaml", "openapi-3.2.yaml", "styles-3.0.yaml"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, s := range hostile() {
		if len(s) < 1<<13 && !scaletest.Raced { // TestHostile loads them
			f.Add([]byte(s))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		doc, err := Load(t.Context(), Source{Data: data})
		if err != nil {
			return
		}
		o := Options{FlattenBody: len(data)%2 == 0, StrictOutput: len(data)%3 == 0}
		tools, _ := Tools(doc, o)
		if len(tools) > 20 {
			tools = tools[:20]
		}
		checkTools(t, tools, o)
	})
}

// much returns whole only in "make soak", and there without the race detector.
func much(part, whole int) int { return scaletest.Alone(part, scaletest.Of(part, whole)) }

// hostile are documents that try to be expensive.
func hostile() map[string]string {
	head := "openapi: 3.1.0\npaths:\n  /a:\n    post:\n      requestBody: {content: {application/json: {schema: {$ref: '#/components/schemas/A'}}}}\n"
	out := map[string]string{}
	// These aliases double at every level.
	var b strings.Builder
	b.WriteString("openapi: 3.1.0\nx-0: &x0 {type: object, properties: {a: {type: string}}}\n")
	for i := range 60 {
		a, c := itoa(i), itoa(i+1)
		b.WriteString("x-" + c + ": &x" + c + " {type: object, properties: {a: *x" + a + ", b: *x" + a + ", c: *x" + a + "}}\n")
	}
	out["aliases"] = b.String() + "paths: {/a: {post: {requestBody: {content: {application/json: {schema: *x60}}}}}}\n"
	// So do these references.
	b.Reset()
	b.WriteString(head + "components:\n  schemas:\n    A: {$ref: '#/components/schemas/A0'}\n")
	for i := range 200 {
		r := "{$ref: '#/components/schemas/A" + itoa(i+1) + "'}"
		b.WriteString("    A" + itoa(i) + ": {allOf: [" + r + "," + r + "], anyOf: [" + r + "," + r + "], properties: {a: " + r + "}}\n")
	}
	out["references"] = b.String()
	out["merge bomb"] = "openapi: 3.1.0\nx-a: &a {" + strings.Repeat("k: 1, ", 10) + "z: {}}\nx-b:\n" +
		strings.Repeat("  - {<<: [*a, *a, *a, *a, *a, *a, *a, *a]}\n", 2000) + "paths: {/a: {get: {}}}\n"
	b.Reset()
	b.WriteString("openapi: 3.1.0\nx-a: &a {")
	for i := range 1000 {
		b.WriteString("k" + itoa(i) + ": 1, ")
	}
	out["merge bomb that is refused"] = b.String() + "z: {}}\nx-l: &l [" + strings.Repeat("*a, ", 1100) + "]\nx-b:\n" +
		strings.Repeat("  - {<<: *l}\n", 2000) + "paths: {/a: {get: {}}}\n"
	out["alias in itself"] = "openapi: 3.1.0\npaths: {/a: {post: {requestBody: {content: {application/json: {schema: &s {properties: {a: *s}}}}}}}}\n"
	out["deep json"] = `{"openapi":"3.1.0","paths":{"/a":{"get":{}}},"x":` + strings.Repeat("[", 200000) + strings.Repeat("]", 200000) + `}`
	out["deep yaml"] = "openapi: 3.1.0\npaths: {/a: {get: {}}}\nx: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + "\n"
	out["deep schema"] = `{"openapi":"3.1.0","paths":{"/a":{"post":{"requestBody":{"content":{"application/json":{"schema":` +
		strings.Repeat(`{"properties":{"a":`, 90) + "{}" + strings.Repeat("}}", 90) + `}}}}}}}`
	b.Reset()
	b.WriteString(`{"openapi":"3.1.0","paths":{`)
	for i := range much(100, 3000) {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString(`"/p` + itoa(i) + `":{"post":{"parameters":[`)
		for j := range 20 {
			b.WriteString(`{"$ref":"#/components/parameters/missing` + itoa(i*20+j) + `"},`)
		}
		b.WriteString(`{"$ref":"#/components/parameters/p"}]}}`)
	}
	b.WriteString(`,"/ok":{"get":{}}},"components":{"parameters":{"p":{"$ref":"#/components/parameters/p"}}}}`)
	out["many broken references"] = b.String()
	b.Reset()
	wide := much(200, 2000)
	b.WriteString(head + "components: {schemas: {A: {oneOf: [")
	for i := range wide {
		b.WriteString("{$ref: '#/components/schemas/B" + itoa(i) + "'},")
	}
	b.WriteString("{}]}, ")
	for i := range wide {
		b.WriteString("B" + itoa(i) + ": {allOf: [{$ref: '#/components/schemas/A'}], properties: {x: {type: string}}}, ")
	}
	out["wide loop"] = b.String() + "Z: {}}}\n"
	b.Reset()
	many := much(3000, 100_000)
	b.WriteString(`{"openapi":"3.1.0","paths":{"/ok":{"get":{}},"/a":{"get":{"parameters":[{"name":"p","in":"query"}`)
	for i := range many {
		b.WriteString(`,{"name":"p` + itoa(i) + `","in":"query"}`)
	}
	out["many parameters"] = b.String() + `]}},"/` + strings.Repeat("{a}", many) + `":{"get":{}}}}`
	properties := much(1000, 100_000) // the compiler of schemas that checks them takes the square of it
	b.Reset()
	b.WriteString(`{"openapi":"3.1.0","paths":{"/a":{"post":{"requestBody":{"content":{"multipart/form-data":{"schema":{"properties":{"p":{}`)
	for i := range properties {
		b.WriteString(`,"p` + itoa(i) + `":{"type":"string"}`)
	}
	b.WriteString(`},"required":["p"`)
	for i := range properties {
		b.WriteString(`,"q` + itoa(i) + `"`)
	}
	text := b.String()
	b.Reset()
	b.WriteString(`{"openapi":"3.1.0","components":{"pathItems":{"p":{"get":{},"put":{},"post":{},"delete":{},"options":{},"head":{},"patch":{},"trace":{},"parameters":[`)
	for i := range 100 {
		b.WriteString(`{"name":"p` + itoa(i) + `","in":"query"},`)
	}
	b.WriteString(`{"name":"p","in":"query"}]}}},"paths":{"/":{}`)
	for i := range much(100, 10_000) {
		b.WriteString(`,"/` + itoa(i) + `":{"$ref":"#/components/pathItems/p"}`)
	}
	out["many times one path"] = b.String() + "}}"
	b.Reset()
	for i := range much(1000, 100_000) {
		b.WriteString(",q" + itoa(i))
	}
	out["many names in a path"] = `{"openapi":"3.1.0","paths":{"/ok":{"get":{}},"/a{?q` + b.String() + `}":{"get":{}}}}`
	out["many properties"] = text + `]}}}}}}}}`
	out["numbers"] = head + "components: {schemas: {A: {multipleOf: 1e999999999, minimum: 1e-99999999, maxLength: 1e400, enum: [1e999999999, 0x10, .5, 1_000, .inf, .nan]}}}\n"
	return out
}

func itoa(i int) string { return strconv.Itoa(i) }

func TestHostile(t *testing.T) {
	scaletest.Unraced(t)
	for name, text := range hostile() {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			doc, err := Load(t.Context(), Source{Data: []byte(text)})
			if err != nil {
				t.Fatalf("%v", err)
			}
			tools, _ := Tools(doc, Options{})
			if len(tools) == 0 {
				t.Fatal("no tool is left")
			}
			made := time.Since(start)
			checkTools(t, tools[:min(len(tools), 20)], Options{})
			if len(doc.Warnings) > maxWarnings+1 {
				t.Errorf("%d warnings", len(doc.Warnings))
			}
			t.Log(made, len(doc.Warnings))
		})
	}
}
