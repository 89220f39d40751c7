package bridge_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module = "github.com/mcp-bridge/bridge"
	sdk    = "github.com/modelcontextprotocol/go-sdk"
	root   = ".." // of the module, as seen from this folder
)

// layer is a part of the order of imports.
type layer struct {
	name string
	in   []string // the folders whose packages are in it; a folder has those below it
	free bool     // its packages may import each other; Go refuses circles
}

// layers are the product's packages, the outermost first: a package imports packages of
// later layers, and of its own folder in its own layer. A package that no layer names is in
// that of the next folder above it: a new guard would be in "internal".
var layers = []layer{
	{"cmd", []string{"cmd"}, true},
	{"bridge/server", []string{"bridge/server"}, true},
	{"config", []string{"config"}, true},
	{"adapters", []string{"adapters/adaptertest", "adapters/inprocess", "adapters/rest", "adapters/sse", "adapters/stdio", "adapters/streamable"}, false},
	{"adapters/remote", []string{"adapters/remote"}, false},
	{"bridge/gateway", []string{"bridge/gateway"}, false},
	{"bridge/internal/translate/stateless", []string{"bridge/internal/translate/stateless"}, false},
	{"wrappers", []string{
		"bridge/filter",
		"bridge/guard/approve",
		"bridge/guard/breaker",
		"bridge/guard/cache",
		"bridge/guard/drain",
		"bridge/guard/limits",
		"bridge/guard/results",
		"bridge/guard/retry",
		"bridge/internal/aggregate",
		"bridge/internal/lane/share",
		"bridge/internal/metatools",
		"bridge/internal/tools",
		"bridge/internal/translate/lift",
		"bridge/internal/translate/lower",
	}, false},
	{"bridge/internal/lane", []string{"bridge/internal/lane"}, false},
	{"bridge/internal/observe", []string{"bridge/internal/observe"}, true},
	{"bridge/conn", []string{"bridge/conn", "internal/dialogue", "internal/wiretest"}, true},
	{"bridge/internal/{listing,subscribe}", []string{"bridge/internal/listing", "bridge/internal/subscribe"}, false},
	{"bridge", []string{"bridge"}, true},
	{"internal", []string{"bridge/era", "bridge/guard", "docs", "internal"}, true},
	{"bridge/{jsonrpc,replay,session}", []string{"bridge/jsonrpc", "bridge/replay", "bridge/session"}, false},
	{"internal/rawjson", []string{"internal/rawjson"}, false},
}

// place returns the layer of a package, by the longest of the folders that have it, and
// that folder. Packages of examples, of integration tests and of deploy have none.
func place(pkg string) (at int, folder string) {
	at = -1
	for i, l := range layers {
		for _, d := range l.in {
			if (pkg == d || strings.HasPrefix(pkg, d+"/")) && len(d) > len(folder) {
				at, folder = i, d
			}
		}
	}
	return at, folder
}

// forbidden returns what is wrong with an import by a package, a path below the module,
// or "".
func forbidden(pkg, imported string) string {
	if imported == sdk || strings.HasPrefix(imported, sdk+"/") {
		for _, d := range []string{"examples", "integration", "adapters/inprocess", "cmd/internal/demo", "cmd/internal/inspect"} {
			if pkg == d || strings.HasPrefix(pkg, d+"/") {
				return ""
			}
		}
		return "only adapters/inprocess, cmd/internal/demo, cmd/internal/inspect, examples and tests import the SDK"
	}
	to, ours := strings.CutPrefix(imported, module+"/")
	from, folder := place(pkg)
	into, other := place(to)
	switch {
	case !ours:
		return ""
	case strings.HasPrefix(pkg, "examples/") && strings.Contains("/"+to+"/", "/internal/"):
		return "examples import public packages only"
	case from < 0: // examples, tests and deploy import all
		return ""
	case into < 0:
		return "nothing of the product imports " + to
	case strings.HasSuffix(to, "test") && !strings.HasSuffix(pkg, "test"):
		return "only tests import " + to
	case from > into:
		return "imports point from " + layers[into].name + " to " + layers[from].name
	case from == into && folder != other && !layers[from].free:
		return folder + " and " + other + " do not import each other"
	}
	return ""
}

// TestImports holds imports to one direction: that of layers. Tests may import all but
// what Go refuses.
func TestImports(t *testing.T) {
	files, edges, packages := 0, 0, map[string]bool{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base := d.Name(); d.IsDir() && name != root && (strings.HasPrefix(base, ".") || slices.Contains([]string{"testdata", "node_modules"}, base)) {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		files++
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		pkg := path.Dir(filepath.ToSlash(rel))
		packages[pkg] = true
		for _, spec := range f.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if strings.HasPrefix(imported, module+"/") {
				edges++
			}
			switch what := forbidden(pkg, imported); {
			case path.Base(name) == "example_test.go" && strings.Contains(imported, module) && strings.Contains(imported, "/internal/"):
				t.Errorf("%s imports %s: examples import public packages only", filepath.ToSlash(rel), imported)
			case what != "" && !strings.HasSuffix(name, "_test.go"):
				t.Errorf("%s imports %s: %s", filepath.ToSlash(rel), imported, what)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range packages {
		_, folder := place(pkg)
		parent := path.Dir(pkg)
		if (parent == "bridge/guard" || parent == "bridge/internal" || parent == "adapters") && folder != pkg {
			t.Errorf("%s is in no layer: name it in layers", pkg)
		}
	}
	if files < 500 || edges < 1000 {
		t.Errorf("looked at %d files with %d imports of our own: too few, the test looks in the wrong place", files, edges)
	}
}

// TestForbidden holds the rule itself to what it is for.
func TestForbidden(t *testing.T) {
	for _, tc := range []struct {
		pkg, imported string
		ok            bool
	}{
		{"bridge/server", module + "/config", true},
		{"config", module + "/bridge/server", false},
		{"adapters/stdio", module + "/adapters/sse", false},
		{"adapters/rest/internal/wire", module + "/adapters/rest/internal/sign", true},
		{"bridge/internal/translate/stateless", module + "/bridge/internal/translate/lower", true},
		{"bridge/internal/translate/lower", module + "/bridge/internal/translate/stateless", false},
		{"bridge/jsonrpc", module + "/bridge", false},
		{"bridge/gateway", module + "/bridge/bridgetest", false},
		{"bridge", module + "/examples/everything", false},
		{"bridge/server", sdk + "/mcp", false},
		{"adapters/inprocess", sdk + "/mcp", true},
		{"examples/adapter", module + "/bridge/internal/lane", false},
		{"bridge", "fmt", true},
	} {
		if what := forbidden(tc.pkg, tc.imported); (what == "") != tc.ok {
			t.Errorf("%s imports %s: %q, want allowed: %t", tc.pkg, tc.imported, what, tc.ok)
		}
	}
}
