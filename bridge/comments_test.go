package bridge_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestComments checks that each exported name of the public packages has a comment. So must each exported field
// of their structs, and of other structs that they alias. One comment may cover several fields, which it names.
func TestComments(t *testing.T) {
	checked, set := 0, token.NewFileSet()
	structure := func(name string, s *ast.StructType) {
		var shared string // the last comment, which may be about the fields below it
		for _, f := range s.Fields.List {
			if f.Doc != nil {
				shared = f.Doc.Text()
			}
			for _, field := range f.Names {
				if !field.IsExported() {
					continue
				}
				checked++
				named, _ := regexp.MatchString(`\b`+field.Name+`\b`, shared)
				if f.Doc == nil && f.Comment == nil && !named {
					t.Errorf("%s: %s.%s has no comment: say what it means, its unit, and its default", set.Position(field.Pos()), name, field.Name)
				}
			}
		}
	}
	parsed := map[string][]*ast.File{} // a struct of some packages has many aliases
	parse := func(dir string) []*ast.File {
		if all, ok := parsed[dir]; ok {
			return all
		}
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no Go files (error %v)", dir, err)
		}
		var all []*ast.File
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(set, file, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, f)
		}
		parsed[dir] = all
		return all
	}
	// elsewhere checks the struct that an alias stands for.
	elsewhere := func(f *ast.File, alias *ast.SelectorExpr) {
		name := alias.X.(*ast.Ident).Name
		for _, i := range f.Imports {
			path, _ := strconv.Unquote(i.Path.Value)
			dir, ours := strings.CutPrefix(path, module+"/")
			if !ours || i.Name == nil && filepath.Base(path) != name || i.Name != nil && i.Name.Name != name {
				continue
			}
			for _, f := range parse(filepath.FromSlash(dir)) {
				ast.Inspect(f, func(n ast.Node) bool {
					if s, ok := n.(*ast.TypeSpec); ok && s.Name.Name == alias.Sel.Name {
						if s, ok := s.Type.(*ast.StructType); ok {
							structure(name+"."+alias.Sel.Name, s)
						}
					}
					return true
				})
			}
		}
	}
	for _, dir := range []string{"bridge", "bridge/conn", "bridge/filter", "bridge/gateway", "bridge/jsonrpc", "bridge/replay", "bridge/server", "bridge/session", "config", "adapters/adaptertest", "adapters/inprocess", "adapters/remote", "adapters/rest", "adapters/sse", "adapters/stdio", "adapters/streamable"} {
		for _, f := range parse(filepath.FromSlash(dir)) {
			for _, d := range f.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					own := d.Recv == nil
					if !own {
						of := d.Recv.List[0].Type
						if p, ok := of.(*ast.StarExpr); ok {
							of = p.X
						}
						id, ok := of.(*ast.Ident)
						own = ok && id.IsExported()
					}
					if !own || !d.Name.IsExported() {
						continue
					}
					if checked++; d.Doc == nil {
						t.Errorf("%s: %s has no comment", set.Position(d.Pos()), d.Name.Name)
					}
				case *ast.GenDecl:
					for _, spec := range d.Specs {
						switch s := spec.(type) {
						case *ast.TypeSpec:
							if !s.Name.IsExported() {
								continue
							}
							if checked++; d.Doc == nil && s.Doc == nil && s.Comment == nil {
								t.Errorf("%s: %s has no comment", set.Position(s.Pos()), s.Name.Name)
							}
							switch as := s.Type.(type) {
							case *ast.StructType:
								structure(s.Name.Name, as)
							case *ast.SelectorExpr:
								elsewhere(f, as)
							}
						case *ast.ValueSpec:
							for _, name := range s.Names {
								if !name.IsExported() {
									continue
								}
								if checked++; d.Doc == nil && s.Doc == nil && s.Comment == nil {
									t.Errorf("%s: %s has no comment", set.Position(s.Pos()), name.Name)
								}
							}
						}
					}
				}
			}
		}
	}
	if checked < 300 {
		t.Errorf("only %d names and fields: the test looks in the wrong place", checked)
	}
}
