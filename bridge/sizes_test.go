package bridge_test

import (
	"bytes"
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
	if b, ok := tooLarge[pkg]; ok {
		return b[0], b[1]
	}
	if pkg == "bridge" || strings.HasPrefix(pkg, "bridge/") {
		return 2500, 12
	}
	return 4500, 24
}

// tooLarge are the packages that are above their bound, with what they may have
// until they are cut. A number is only ever lowered, and an entry that is not
// needed any more goes.
var tooLarge = map[string][2]int{
	"bridge/gateway": {2551, 15},
}

// TestSizes holds packages to their bounds.
func TestSizes(t *testing.T) {
	type size struct{ lines, files int }
	sizes := map[string]size{}
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		switch base := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && name != ".." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "node_modules" || base == "integration"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel("..", name)
		if err != nil {
			return err
		}
		pkg := path.Dir(filepath.ToSlash(rel))
		s := sizes[pkg]
		sizes[pkg] = size{s.lines + bytes.Count(text, []byte("\n")), s.files + 1}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(sizes) < 30 {
		t.Errorf("looked at %d packages: too few, the test looks in the wrong place", len(sizes))
	}
	for pkg, s := range sizes {
		if lines, files := bound(pkg); s.lines > lines || s.files > files {
			t.Errorf("%s has %d lines in %d files, more than %d or %d: cut it where it falls apart", pkg, s.lines, s.files, lines, files)
		}
	}
	for pkg, b := range tooLarge {
		delete(tooLarge, pkg)
		if lines, files := bound(pkg); sizes[pkg].lines <= lines && sizes[pkg].files <= files {
			t.Errorf("%s keeps to its bound: it needs no exception", pkg)
		}
		tooLarge[pkg] = b
	}
}
