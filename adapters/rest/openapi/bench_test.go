package openapi

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// large is a document of about 13 MB with 2,900 operations, in the way of what
// big providers publish: long descriptions, schemas that share and recur.
func large() []byte {
	text := strings.Repeat("The quick brown fox reads the documentation of an endpoint twice. ", 4)
	var b strings.Builder
	b.WriteString("{\n  \"openapi\": \"3.0.3\",\n  \"info\": {\"title\": \"Large\", \"version\": \"1\"},\n  \"paths\": {")
	for i := range 1450 {
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
	for i := range 1450 {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, "\n    \"Thing%d\": {\n      \"type\": \"object\",\n      \"required\": [\"name\"],\n      \"properties\": {\n        \"name\": {\"type\": \"string\"},\n        \"parent\": {\"$ref\": \"#/components/schemas/Thing%d\"},\n        \"children\": {\"type\": \"array\", \"items\": {\"$ref\": \"#/components/schemas/Thing%d\"}}", i, (i+1)%1450, i)
		for k := range 10 {
			fmt.Fprintf(&b, ",\n        \"field%d\": {\n          \"type\": \"string\",\n          \"nullable\": true,\n          \"description\": %q\n        }", k, text[:200])
		}
		b.WriteString("\n      }\n    }")
	}
	b.WriteString("\n  }}\n}\n")
	return []byte(b.String())
}

func BenchmarkLarge(b *testing.B) {
	src := large()
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		doc, err := Load(b.Context(), Source{Location: "large.json", Data: src})
		if err != nil {
			b.Fatal(err)
		}
		if tools, _ := Tools(doc, Options{}); len(tools) != 2900 {
			b.Fatalf("%d tools", len(tools))
		}
	}
}

// TestLargeMemory bounds what a large document takes while it is in use: its
// text, its tree and its tools.
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
	src := large()
	doc, err := Load(t.Context(), Source{Location: "large.json", Data: src})
	if err != nil {
		t.Fatal(err)
	}
	tools, _ := Tools(doc, Options{})
	took := heap() - before
	t.Logf("%d bytes of text, %d operations: %d MB", len(src), len(doc.Operations), took>>20)
	if len(src) < 12<<20 || len(tools) != 2900 {
		t.Errorf("%d bytes, %d tools", len(src), len(tools))
	}
	if took > 110<<20 {
		t.Errorf("takes %d MB", took>>20)
	}
	runtime.KeepAlive(doc)
	runtime.KeepAlive(src)
}
