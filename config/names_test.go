package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/rest"
)

// aliases returns the types that a file gives another name, by that name.
func aliases(t *testing.T, path string) map[string]string {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{}
	for _, i := range file.Imports {
		path, _ := strconv.Unquote(i.Path.Value)
		paths[path[strings.LastIndexByte(path, '/')+1:]] = path
	}
	named := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.TypeSpec); ok && s.Assign.IsValid() {
			of := s.Type.(*ast.SelectorExpr)
			named[s.Name.Name] = paths[of.X.(*ast.Ident).Name] + "." + of.Sel.Name
		}
		return true
	})
	return named
}

// A program can name each type of a configuration, although many are of internal packages.
func TestNames(t *testing.T) {
	named := map[string]bool{}
	ofRest := aliases(t, filepath.Join("..", "adapters", "rest", "names.go"))
	for _, name := range aliases(t, "names.go") {
		if part, ok := strings.CutPrefix(name, reflect.TypeFor[rest.Config]().PkgPath()+"."); ok && ofRest[part] != "" {
			name = ofRest[part]
		}
		named[name] = true
	}
	seen := map[reflect.Type]bool{}
	var walk func(at string, of reflect.Type)
	walk = func(at string, of reflect.Type) {
		if seen[of] {
			return
		}
		seen[of] = true
		name := of.PkgPath() + "." + of.Name()
		if strings.Contains(of.PkgPath(), "mcp-bridge") && strings.Contains(of.PkgPath(), "/internal/") && !named[name] {
			t.Errorf("%s is a %s: it has no name in names.go", at, name)
		}
		delete(named, name)
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array:
			walk(at, of.Elem())
		case reflect.Map:
			walk(at, of.Key())
			walk(at, of.Elem())
		case reflect.Struct:
			for f := range of.Fields() {
				if f.IsExported() && strings.Contains(of.PkgPath(), "mcp-bridge") {
					walk(at+"."+f.Name, f.Type)
				}
			}
		}
	}
	walk("Config", reflect.TypeFor[Config]())
	for name := range named {
		t.Errorf("%s is in names.go, and in no setting", name)
	}
}
