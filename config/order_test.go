package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// nothing is an importer whose packages have no names. What they declare is of no interest here.
type nothing struct{}

func (nothing) Import(name string) (*types.Package, error) {
	p := types.NewPackage(name, path.Base(name))
	p.MarkComplete()
	return p, nil
}

// Each file uses only files that doc.go names before it, and doc.go names all files.
func TestOrder(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	rank := map[string]int{"doc.go": 0}
	for _, row := range regexp.MustCompile(`(?m)^//\t([a-z_., ]+\.go)`).FindAllStringSubmatch(string(doc), -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			rank[name] = len(rank)
		}
	}
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	set, files := token.NewFileSet(), []*ast.File(nil)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if _, ok := rank[name]; !ok {
			t.Errorf("doc.go does not say when to read %s", name)
		}
		f, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	if len(files) != len(rank) {
		t.Errorf("doc.go names %d files, there are %d", len(rank), len(files))
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	checker := types.Config{Importer: nothing{}, Error: func(error) {}} // names of other packages are unknown
	pkg, _ := checker.Check("config", set, files, &info)
	references := 0
	for id, o := range info.Uses {
		from, to := set.Position(id.Pos()).Filename, set.Position(o.Pos()).Filename
		_, method := o.(*types.Func)
		if o.Pkg() != pkg || from == to || !method && o.Parent() != pkg.Scope() {
			continue
		}
		if references++; rank[to] > rank[from] {
			t.Errorf("%s: %s is in %s, which doc.go names later", set.Position(id.Pos()), id.Name, to)
		}
	}
	if references < 500 {
		t.Errorf("only %d references between files: the test looks in the wrong place", references)
	}
}
