package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"

	"github.com/mcp-bridge/bridge/internal/programtest"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// TestSystems type-checks every package and its tests for the other systems of a release. It reads source only, which
// is much faster than a build.
func TestSystems(t *testing.T) {
	scaletest.Unraced(t)
	root, err := programtest.Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, system := range []string{"linux", "darwin", "windows"} {
		if system == runtime.GOOS {
			continue // its tests are built
		}
		t.Run(system, func(t *testing.T) {
			all, err := packages.Load(&packages.Config{
				Mode:  packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedModule,
				Dir:   root,
				Env:   append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0"),
				Tests: true,
				ParseFile: func(set *token.FileSet, name string, src []byte) (*ast.File, error) {
					f, err := parser.ParseFile(set, name, src, parser.SkipObjectResolution)
					if f != nil && !strings.HasPrefix(name, root) { // function bodies of dependencies are not checked
						for _, d := range f.Decls {
							if d, ok := d.(*ast.FuncDecl); ok {
								d.Body = nil
							}
						}
					}
					return f, err
				},
			}, "./...")
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range all {
				if strings.HasSuffix(p.PkgPath, ".test") {
					continue // a test's generated main
				}
				for _, e := range p.Errors {
					t.Error(e)
				}
			}
			if len(all) < 100 {
				t.Errorf("%d packages: too few, the test looks in the wrong place", len(all))
			}
		})
	}
}
