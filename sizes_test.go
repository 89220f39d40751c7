package bridge_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// A package is read whole or not at all. So it has a bound: of the core's 2,500
// lines and 12 files, of others 4,500 and 24. Tests do not count.
func bound(pkg string) (lines, files int) {
	if pkg == "." || strings.HasPrefix(pkg, "internal/") && !strings.HasPrefix(pkg, "internal/adapters/") {
		return 2500, 12
	}
	return 4500, 24
}

// eachFile gives f each file of Go of the product, but for tests.
func eachFile(t *testing.T, f func(name string, text []byte)) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch base := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "node_modules" || base == "integration"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		f(name, text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSizes holds packages to their bounds.
func TestSizes(t *testing.T) {
	type size struct{ lines, files int }
	sizes := map[string]size{}
	eachFile(t, func(name string, text []byte) {
		pkg := path.Dir(filepath.ToSlash(name))
		s := sizes[pkg]
		sizes[pkg] = size{s.lines + bytes.Count(text, []byte("\n")), s.files + 1}
	})
	if len(sizes) < 30 {
		t.Errorf("looked at %d packages: too few, the test looks in the wrong place", len(sizes))
	}
	for pkg, s := range sizes {
		if lines, files := bound(pkg); s.lines > lines || s.files > files {
			t.Errorf("%s has %d lines in %d files, more than %d or %d: cut it where it falls apart", pkg, s.lines, s.files, lines, files)
		}
	}
}

// most is how many fields a struct may have. One that has more says why in its
// comment, which begins that sentence with "It has many fields".
const most = 15

// TestStructs holds structs to that.
func TestStructs(t *testing.T) {
	seen := 0
	eachFile(t, func(name string, text []byte) {
		n, faults := large(name, string(text))
		seen += n
		for _, fault := range faults {
			t.Error(fault)
		}
	})
	if seen < 300 {
		t.Errorf("looked at %d structs: too few, the test looks in the wrong place", seen)
	}
}

// large returns how many structs a file has, and which of them are too large.
func large(name, text string) (structs int, faults []string) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.ParseComments)
	if err != nil {
		return 0, []string{err.Error()}
	}
	for _, d := range file.Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range group.Specs {
			named, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}
			body, ok := named.Type.(*ast.StructType)
			if !ok {
				continue
			}
			structs++
			n := 0
			for _, field := range body.Fields.List {
				n += max(1, len(field.Names))
			}
			doc := named.Doc.Text() + group.Doc.Text()
			if n > most && !strings.Contains(strings.ReplaceAll(doc, "\n", " "), "It has many fields: ") {
				faults = append(faults, fmt.Sprintf("%s: %s has %d fields, more than %d, and its comment does not say why", files.Position(named.Pos()), named.Name, n, most))
			}
		}
	}
	return structs, faults
}

// The test does see a large struct.
func TestStructsWrong(t *testing.T) {
	fields := "a, b, c, d, e, f, g, h, i, j, k, l, m, n, o"
	for text, wrong := range map[string]bool{
		"type x struct { " + fields + " int }":                                               false,
		"type x struct { " + fields + ", p int }":                                            true,
		"type x struct { " + fields + " int; error }":                                        true,
		"// x is.\n//\n// It has many fields: why.\ntype x struct { " + fields + ", p int }": false,
	} {
		if _, faults := large("x.go", "package x\n\n"+text); len(faults) > 0 != wrong {
			t.Errorf("%s: %q", text, faults)
		}
	}
}
