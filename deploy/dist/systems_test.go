package main

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/internal/programtest"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// TestSystems type-checks every package and its tests for the other systems of a release. It reads source only, which
// is much faster than a build.
func TestSystems(t *testing.T) {
	scaletest.Large(t)
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
			// Dependencies come before what imports them.
			list := exec.Command("go", "list", "-deps", "-test", "-json=ImportPath,Dir,GoFiles,ImportMap,Module", "./...")
			list.Dir, list.Env, list.Stderr = root, append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0"), os.Stderr
			out, err := list.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := list.Start(); err != nil {
				t.Fatal(err)
			}
			known, ours := imported{"unsafe": types.Unsafe}, 0
			for all := json.NewDecoder(out); ; {
				var l listed
				if err := all.Decode(&l); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				if l.ImportPath == "unsafe" || strings.HasSuffix(l.ImportPath, ".test") { // a test's generated main
					continue
				}
				mine := l.Module != nil && l.Module.Main
				if mine {
					ours++
				}
				if err := known.check(&l, mine); err != nil && mine {
					t.Error(err)
				}
			}
			if err := list.Wait(); err != nil {
				t.Error(err)
			}
			if ours < 100 {
				t.Errorf("%d packages: too few, the test looks in the wrong place", ours)
			}
		})
	}
}

// listed is a package, or its variant for a test.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	Module          *struct{ Main bool }
}

// imported has the packages so far.
type imported map[string]*types.Package

// importing finds what one of them imports.
type importing func(path string) (*types.Package, error)

func (i importing) Import(path string) (*types.Package, error) { return i(path) }

// check checks the types of a package, and adds it. The bodies of functions are checked if it is the module's own.
func (i imported) check(l *listed, mine bool) error {
	var all []error
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range l.GoFiles {
		f, err := parser.ParseFile(set, filepath.Join(l.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	c := types.Config{
		IgnoreFuncBodies: !mine,
		Error:            func(err error) { all = append(all, err) },
		Importer: importing(func(path string) (*types.Package, error) {
			if to, ok := l.ImportMap[path]; ok {
				path = to
			}
			if found := i[path]; found != nil {
				return found, nil
			}
			return nil, errors.New("not listed: " + path)
		}),
	}
	i[l.ImportPath], _ = c.Check(strings.Fields(l.ImportPath)[0], set, files, nil)
	return errors.Join(all...)
}
