package openapi

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// largest is the usual number of things in large.
const largest = 1450

// large makes a document like those of large providers: long descriptions, and shared and recursive
// schemas. With 1,450 things it has about 13 MB and 2,900 operations.
func large(things int) []byte {
	text := strings.Repeat("The quick brown fox reads the documentation of an endpoint twice. ", 4)
	var b strings.Builder
	b.WriteString("{\n  \"openapi\": \"3.0.3\",\n  \"info\": {\"title\": \"Large\", \"version\": \"1\"},\n  \"paths\": {")
	for i := range things {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, "\n    \"/v1/accounts/{account}/things%d/{id}\": {\n", i)
		for j, method := range []string{"get", "post"} {
			if j > 0 {
				b.WriteString(",\n")
			}
			fmt.Fprintf(&b, "      %q: {\n        \"operationId\": \"thing%d_%s\",\n        \"summary\": \"Works on thing %d\",\n        \"description\": %q,\n        \"tags\": [\"t%d\"],\n        \"parameters\": [\n", method, i, method, i, text, i%40)
			fmt.Fprintf(&b, "          {\"name\": \"account\", \"in\": \"path\", \"required\": true, \"schema\": {\"type\": \"string\", \"minLength\": 34}},\n          {\"name\": \"id\", \"in\": \"path\", \"required\": true, \"schema\": {\"type\": \"string\"}}")
			for k := range 6 {
				fmt.Fprintf(&b, ",\n          {\n            \"name\": \"option%d\",\n            \"in\": \"query\",\n            \"description\": %q,\n            \"schema\": {\"type\": \"string\", \"enum\": [\"red\", \"green\", \"blue\"]}\n          }", k, text[:120])
			}
			b.WriteString("\n        ],\n")
			if method == "post" {
				fmt.Fprintf(&b, "        \"requestBody\": {\"required\": true, \"content\": {\"application/json\": {\"schema\": {\"$ref\": \"#/components/schemas/Thing%d\"}}}},\n", i)
			}
			fmt.Fprintf(&b, "        \"responses\": {\"200\": {\"description\": \"A thing\", \"content\": {\"application/json\": {\"schema\": {\"$ref\": \"#/components/schemas/Thing%d\"}}}}}\n      }", i)
		}
		b.WriteString("\n    }")
	}
	b.WriteString("\n  },\n  \"components\": {\"schemas\": {")
	for i := range things {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, "\n    \"Thing%d\": {\n      \"type\": \"object\",\n      \"required\": [\"name\"],\n      \"properties\": {\n        \"name\": {\"type\": \"string\"},\n        \"parent\": {\"$ref\": \"#/components/schemas/Thing%d\"},\n        \"children\": {\"type\": \"array\", \"items\": {\"$ref\": \"#/components/schemas/Thing%d\"}}", i, (i+1)%things, i)
		for k := range 10 {
			fmt.Fprintf(&b, ",\n        \"field%d\": {\n          \"type\": \"string\",\n          \"nullable\": true,\n          \"description\": %q\n        }", k, text[:200])
		}
		b.WriteString("\n      }\n    }")
	}
	b.WriteString("\n  }}\n}\n")
	return []byte(b.String())
}

// tangled makes a document whose entities all refer to each other; with 100 of them it has about
// 600 KB. Most operations exceed a tool's budget, member names must be changed, and many operations
// have the same answers.
func tangled(entities int) []byte {
	const each = 6
	ref := func(i int) string {
		return fmt.Sprintf(`{"$ref": "#/components/schemas/org.example.entity%d"}`, i%entities)
	}
	var b strings.Builder
	b.WriteString(`{"openapi": "3.0.4", "info": {"title": "Tangled", "version": "1"}, "paths": {`)
	for i := range entities * each / 2 {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, `"/entities%d/{id}": {"parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}],`, i)
		answer := `"responses": {"2XX": {"description": "An entity", "content": {"application/json": {"schema": ` + ref(i) + `}}}}}`
		fmt.Fprintf(&b, `"get": {"operationId": "entities%d.Get", "parameters": [`, i)
		for k, name := range []string{"$select", "$expand", "$orderby"} {
			if k > 0 {
				b.WriteString(",")
			}
			fmt.Fprintf(&b, `{"name": %q, "in": "query", "explode": false, "schema": {"type": "array", "items": {"type": "string", "enum": ["a%d", "b", "c"]}}}`, name, i)
		}
		fmt.Fprintf(&b, `], %s, "patch": {"operationId": "entities%d.Update", "requestBody": {"content": {"application/json": {"schema": %s}}}, %s}`, answer, i, ref(i*7), answer)
	}
	b.WriteString(`}, "components": {"schemas": {`)
	for i := range entities {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, `"org.example.entity%d": {"allOf": [%s, {"title": "entity%d", "type": "object", "properties": {"@odata.type": {"type": "string"}`, i, `{"$ref": "#/components/schemas/org.example.base"}`, i)
		for k := range 6 {
			fmt.Fprintf(&b, `, "property%d": {"type": "string", "description": "The property of the entity with the number %d.", "format": "date-time", "nullable": true}`, k, k)
		}
		for k := range 8 {
			fmt.Fprintf(&b, `, "relation%d": {"anyOf": [%s, {"type": "object", "nullable": true}]}, "many%d": {"type": "array", "items": %s}`, k, ref(i*3+k+1), k, ref(i+k*31+1))
		}
		b.WriteString(`}}]}`)
	}
	b.WriteString(`, "org.example.base": {"type": "object", "required": ["@odata.type"], "properties": {"id": {"type": "string"}, "@odata.type": {"type": "string"}}}}}}`)
	return []byte(b.String())
}

// TestSharedAnswers: operations with the same answer share one schema.
func TestSharedAnswers(t *testing.T) {
	entities := much(30, 100)
	doc, err := Load(t.Context(), Source{Location: "tangled.json", Data: tangled(entities)})
	if err != nil {
		t.Fatal(err)
	}
	tools, _ := Tools(doc, Options{})
	seen := map[*byte]int{}
	for _, tool := range tools {
		if tool.Operation.Method != "GET" { // the others have less room for it
			continue
		}
		if len(tool.OutputSchema) < 1000 {
			t.Fatalf("%s: the output schema is %s", tool.Name, tool.OutputSchema)
		}
		seen[&tool.OutputSchema[0]]++
	}
	if len(seen) != entities {
		t.Errorf("%d operations with %d answers have %d output schemas in memory, want %[2]d", 3*entities, entities, len(seen))
	}
}

// TestLargeMemory bounds the memory of a large document in use: its text, its tree and its tools.
func TestLargeMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 100 MB")
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	things := much(145, largest)
	src := large(things)
	doc, err := Load(t.Context(), Source{Location: "large.json", Data: src})
	if err != nil {
		t.Fatal(err)
	}
	tools, _ := Tools(doc, Options{})
	took := heap() - before
	t.Logf("%d bytes of text, %d operations: %d MB", len(src), len(doc.Operations), took>>20)
	if len(src) < 12<<20/largest*things || len(tools) != 2*things {
		t.Errorf("%d bytes, %d tools", len(src), len(tools))
	}
	if int(took) > 110<<20/largest*things {
		t.Errorf("takes %d MB", took>>20)
	}
	runtime.KeepAlive(doc)
	runtime.KeepAlive(src)
}
