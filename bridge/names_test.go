package bridge_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// properNames are the words with a capital letter that comments use within a sentence, and that no Go code defines: products,
// protocols, headers, media types, units, and names in other languages' code.
var properNames = words(`
	APIs Accept Angeles Authorization Basic Bearer Binary CallToolResult Cancellation Cat Claude Cline Cloud Cluster Code Codex ConfigMap
	Connect Content Continue Core Crush Cursor Debian Demo Discovery Dog ElicitResult English Entra ETag ETags
	ExportMetricsServiceRequest ExportTraceServiceRequest Fedora GETs Gemini GiB Go Goose Homebrew IDs IPv4 IPv6 Initialization
	IPAddress JSONPath Java JavaScript JetBrains KiB Lifecycle Linux MiB Microsoft Negotiate Node OAuth OpenAPI OpenID OpenTelemetry
	Overlays POSTs Pet Pod Prometheus PyPI Python Recovery Redelivery Redis ResourceContents Results Resumability Resumption Routing Rust SDKs
	Schema Schemas Scoop Sending Sentinels Signature Streamable Subscriptions Swagger TBXark TypeScript Tokens ToolAnnotations Traceparent Tracestate Type URIs URLElicitationRequiredError
	URLs Unix Valkey Vary Version Versioning Web Windows Windsurf Yarn
`)

var (
	// capital finds a name with a capital letter, and what stands right before it.
	capital = regexp.MustCompile(`(?:([A-Za-z_]\w*)\.)?\b([A-Z]\w*[a-z]\w*)\b`)
	// opens is what stands before the first word of a sentence, a list item or a quotation.
	opens = regexp.MustCompile("(?:^|[.:;!?*|/`\"'“-]|\\n[ \\t]*\\n)[\\s(\\[“\"]*$")
)

func words(text string) map[string]bool {
	all := map[string]bool{}
	for _, w := range strings.Fields(text) {
		all[w] = true
	}
	return all
}

// TestNames checks that comments name what is there. A word with a capital letter within a sentence is an identifier of
// the package or of a package that it imports, or a proper name.
func TestNames(t *testing.T) {
	set := token.NewFileSet()
	files, names := map[string][]*ast.File{}, map[string]map[string]bool{} // by folder
	byName := map[string]map[string]bool{}                                 // the names of packages of that name, those of others included
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if b := d.Name(); name != root && (strings.HasPrefix(b, ".") || b == "node_modules" || b == "testdata" || b == "shared") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		f, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder := filepath.ToSlash(filepath.Dir(name))
		if names[folder] == nil {
			names[folder] = map[string]bool{}
		}
		if byName[f.Name.Name] == nil {
			byName[f.Name.Name] = map[string]bool{}
		}
		files[folder] = append(files[folder], f)
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				names[folder][n.Name], byName[f.Name.Name][n.Name] = true, true
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && ast.IsExported(n.Sel.Name) {
					if byName[x.Name] == nil {
						byName[x.Name] = map[string]bool{}
					}
					byName[x.Name][n.Sel.Name] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for folder, all := range files {
		known := []map[string]bool{properNames, names[folder]}
		for _, f := range all {
			for _, i := range f.Imports {
				p, _ := strconv.Unquote(i.Path.Value)
				if in, ours := strings.CutPrefix(p, module+"/"); ours {
					known = append(known, names[path.Join(root, in)])
				}
			}
		}
		for _, f := range all {
			if strings.HasSuffix(set.Position(f.Pos()).Filename, "_test.go") {
				continue
			}
			for _, g := range f.Comments {
				text := g.Text()
				for _, m := range capital.FindAllStringSubmatchIndex(text, -1) {
					word := text[m[4]:m[5]]
					in := known
					if m[2] >= 0 {
						in = append(in[:len(in):len(in)], byName[text[m[2]:m[3]]])
					} else if opens.MatchString(text[:m[0]]) || strings.HasPrefix(text[m[1]:], "-") {
						continue
					}
					checked++
					if !has(in, word) {
						t.Errorf("%s: there is no %s: name what is there, or add a proper name to properNames", set.Position(g.Pos()), word)
					}
				}
			}
		}
	}
	if checked < 1000 {
		t.Errorf("only %d names: the test looks in the wrong place", checked)
	}
}

func has(all []map[string]bool, word string) bool {
	for _, of := range all {
		if of[word] || of[strings.TrimSuffix(word, "s")] {
			return true
		}
	}
	return false
}
