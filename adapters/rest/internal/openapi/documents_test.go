package openapi

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/internal/openapitest"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// facts summarizes a document.
type facts struct {
	operations, arguments, required, bodies, files, outputs, wrapped, schemes, warnings int
}

func (f facts) String() string {
	return fmt.Sprintf("{%d, %d, %d, %d, %d, %d, %d, %d, %d}", f.operations, f.arguments, f.required, f.bodies, f.files,
		f.outputs, f.wrapped, f.schemes, f.warnings)
}

func TestDocuments(t *testing.T) {
	documents(t, func(_ testing.TB, name string) string { return filepath.Join("testdata", filepath.FromSlash(name)) }, map[string]facts{
		"swagger-2.0.yaml":    {7, 14, 8, 3, 1, 3, 1, 2, 0},
		"openapi-3.0.json":    {6, 10, 5, 3, 0, 3, 1, 3, 0},
		"openapi-3.1.yaml":    {6, 9, 6, 2, 1, 3, 1, 1, 0},
		"openapi-3.2.yaml":    {3, 3, 1, 1, 0, 1, 0, 0, 0},
		"styles-3.0.yaml":     {17, 41, 18, 0, 0, 0, 0, 0, 0},
		"parts/api/main.yaml": {3, 4, 2, 1, 0, 2, 1, 0, 2},
	})
}

// TestDocuments checks documents of other projects.
func TestRealDocuments(t *testing.T) {
	documents(t, openapitest.Shared, map[string]facts{
		"kubernetes-batch-2.0.json":               {29, 226, 50, 14, 0, 29, 0, 1, 0},
		"museum-3.1.yaml":                         {8, 14, 7, 3, 0, 6, 2, 1, 0},
		"parameters-style-3.0.json":               {25, 59, 21, 6, 0, 0, 0, 0, 0},
		"petstore-2.0.json":                       {20, 23, 20, 9, 1, 9, 3, 2, 0},
		"petstore-3.0.yaml":                       {19, 24, 11, 7, 1, 14, 3, 2, 0},
		"petstore-3.1.json":                       {20, 23, 20, 9, 1, 9, 3, 2, 0},
		"petstore-separate-2.0/spec/swagger.json": {4, 5, 3, 1, 0, 3, 1, 0, 1},
		"prometheus-3.2.yaml":                     {50, 109, 26, 10, 0, 40, 0, 0, 0},
		"resend-3.1.yaml":                         {104, 194, 75, 33, 1, 104, 0, 1, 0},
		"tictactoe-3.1.yaml":                      {3, 6, 5, 1, 0, 3, 1, 5, 0},
		"uspto-3.0.yaml":                          {3, 5, 4, 1, 0, 3, 2, 0, 0},
	})
}

// documents checks the tools of documents, at the paths that path returns.
func documents(t *testing.T, path func(t testing.TB, name string) string, all map[string]facts) {
	for name, want := range all {
		t.Run(name, func(t *testing.T) {
			if (name == "kubernetes-batch-2.0.json" || name == "resend-3.1.yaml") && !scaletest.Whole { // the large ones
				scaletest.Unraced(t)
			}
			doc, err := Load(t.Context(), Source{Location: path(t, name)})
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range []Options{{FlattenBody: true, StrictOutput: true}, {Budget: -1}, {Prefix: "some_long_prefix_for_all_of_them_"}} {
				tools, _ := Tools(doc, o)
				checkTools(t, tools, o)
			}
			tools, more := Tools(doc, Options{})
			checkTools(t, tools, Options{})
			got := facts{operations: len(doc.Operations), schemes: len(doc.Schemes), warnings: len(doc.Warnings) + len(more)}
			if len(tools) != len(doc.Operations) {
				t.Errorf("%d tools of %d operations", len(tools), len(doc.Operations))
			}
			for _, tool := range tools {
				if tool.Size > defaultBudget {
					t.Errorf("%s takes %d bytes", tool.Name, tool.Size)
				}
				got.arguments += len(tool.Arguments)
				for _, a := range tool.Arguments {
					if a.Required {
						got.required++
					}
				}
				if tool.Body != nil {
					got.bodies++
					if tool.Body.File || slices.ContainsFunc(tool.Body.Fields, func(f *Field) bool { return f.File }) {
						got.files++
					}
				}
				if tool.OutputSchema != nil {
					got.outputs++
				}
				if tool.Wrapped {
					got.wrapped++
				}
			}
			if got != want {
				t.Errorf("facts %v, want %v: %v %v", got, want, doc.Warnings, more)
			}
		})
	}
}

// The tools keep the document's order, every time.
func TestOrderIsKept(t *testing.T) {
	path := filepath.Join("testdata", "openapi-3.1.yaml")
	var all []string
	for range 3 {
		doc, err := Load(t.Context(), Source{Location: path})
		if err != nil {
			t.Fatal(err)
		}
		tools, _ := Tools(doc, Options{})
		var b strings.Builder
		for _, tool := range tools {
			fmt.Fprintln(&b, tool.Name, tool.Description, string(tool.InputSchema), string(tool.OutputSchema), tool.Operation.Line)
		}
		all = append(all, b.String())
	}
	if all[0] != all[1] || all[1] != all[2] {
		t.Error("the tools differ from load to load")
	}
	doc, _ := Load(t.Context(), Source{Location: path})
	if !slices.IsSortedFunc(doc.Operations, func(o, b *Operation) int { return o.Line - b.Line }) {
		t.Error("the operations are not in the order of the document")
	}
}

// TestFolder checks all documents of a folder that cannot be in the repository:
// OPENAPI_DOCUMENTS=DIR go test -v -run TestFolder.
func TestFolder(t *testing.T) {
	dir := os.Getenv("OPENAPI_DOCUMENTS")
	if dir == "" {
		t.Skip("OPENAPI_DOCUMENTS names no folder")
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.[jy]*"))
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			start := time.Now()
			doc, err := Load(t.Context(), Source{Location: path})
			if err != nil {
				t.Fatal(err)
			}
			loaded := time.Since(start)
			tools, more := Tools(doc, Options{})
			took := time.Since(start) - loaded
			checkTools(t, tools, Options{})
			var in, out, args, stubbed int
			for _, tool := range tools {
				in, out, args = in+len(tool.InputSchema), out+len(tool.OutputSchema), args+len(tool.Arguments)
				if tool.Stubbed {
					stubbed++
				}
			}
			t.Logf("%s: %d operations in %v, %d tools in %v: %d arguments, %d KB in, %d KB out, %d stubbed; %d warnings %v", doc.Format,
				len(doc.Operations), loaded, len(tools), took, args, in>>10, out>>10, stubbed, len(doc.Warnings)+len(more), append(doc.Warnings, more...))
		})
	}
}
