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
	gin    = "github.com/gin-gonic/gin"
)

// layers are the packages from the outside to the inside: a package may import
// those of later layers, and of its own layer only what is in the same unit.
var layers = []struct {
	name string
	has  func(pkg string) bool
}{
	{"bridge/server/ginmount", under("bridge/server/ginmount")}, // above all others: gin is for programs that ask for it
	{"cmd/bridge", func(pkg string) bool { return pkg == "cmd/bridge" }},
	{"cmd/internal/inspect", func(pkg string) bool { return pkg == "cmd/internal/inspect" }},
	{"cmd/internal/inspect/arguments", under("cmd/internal/inspect")},
	{"cmd/internal/flags", under("cmd/internal/flags")},
	{"cmd/internal/{exit,memory,orphans,terminal}", under("cmd/internal/exit", "cmd/internal/memory", "cmd/internal/orphans", "cmd/internal/terminal")},
	{"server", func(pkg string) bool { return pkg == "server" }},
	{"cmd/internal/imports", under("cmd/internal/imports")},
	{"internal/{accesslog,admin,metrics}", under("bridge/server/internal/accesslog", "bridge/server/internal/admin", "bridge/server/internal/metrics")},
	{"internal/{reload,scopes}", under("config/reload", "bridge/server/internal/access")},
	{"config", func(pkg string) bool { return pkg == "config" }},
	{"internal/{home,worker}", under("bridge/server/internal/placement", "bridge/server/internal/placement")},
	{"bridge/server/internal/placement", under("bridge/server/internal/placement")},
	{"internal/adapters/* and inprocess", func(pkg string) bool {
		return under("internal/adapters", "inprocess")(pkg) && !helper(pkg) && pkg != "bridge/conn"
	}},
	{"helpers of adapters", helper},
	{"bridge/conn", under("bridge/conn")},
	{"bridge/gateway", under("bridge/gateway")},
	{"bridge/internal/aggregate, bridge/internal/lane/share and internal/{guard,list,translate}/*", func(pkg string) bool {
		return strings.HasPrefix(pkg, "bridge/guard/") || strings.HasPrefix(pkg, "internal/list/") && pkg != "bridge/internal/subscribe" || under("bridge/internal/aggregate", "bridge/internal/lane/share", "internal/translate")(pkg)
	}},
	{"bridge/internal/lane", func(pkg string) bool { return pkg == "bridge/internal/lane" }},
	{"internal/observe/*", under("internal/observe")},
	{"bridge/conn", under("bridge/conn")},
	{"bridge/internal/subscribe", under("bridge/internal/subscribe")},
	{"internal/list", under("internal/list")},
	{"bridge", func(pkg string) bool { return pkg == "." || pkg == "bridge/bridgetest" }},
	{"internal/cluster", under("internal/cluster")},
	{"internal/oauth", under("internal/oauth")},
	{"internal/{auth,era,session,replay,seal,validate}", under("internal/auth", "bridge/guard", "bridge/era", "bridge/session", "bridge/replay", "internal/seal", "internal/validate")},
	{"jsonrpc", under("jsonrpc")},
	{"internal/rawjson", under("internal/rawjson")},
	{"internal/openapitest", under("internal/openapitest")},
	{"internal/{address,backlog,glob,job,openfiles,pause,ring,similar,sparse,still,strict,systemd,toolchain,visible} and docs", under("internal/address", "bridge/server", "internal/glob", "internal/process", "bridge/server", "internal/backoff", "internal/logs", "internal/programtest", "internal/scaletest", "internal/similar", "internal/logs", "internal/deadline", "cmd/internal/systemd", "internal/toolchain", "internal/sanitize", "internal/strict", "docs")},
}

var helper = under("internal/httpio", "internal/httpio", "adapters/remote", "bridge/gateway", "internal/httpio")

func under(dirs ...string) func(string) bool {
	return func(pkg string) bool {
		return slices.ContainsFunc(dirs, func(d string) bool { return pkg == d || strings.HasPrefix(pkg, d+"/") })
	}
}

func layer(pkg string) int {
	for i, l := range layers {
		if l.has(pkg) {
			return i
		}
	}
	return -1
}

// folder returns an imported package's folder below the module's root, which is
// ".", and whether it is the module's.
func folder(imported string) (string, bool) {
	if imported == module {
		return ".", true
	}
	return strings.CutPrefix(imported, module+"/")
}

// unit returns the folder that a package is a part of: what it may import
// freely within its own layer.
func unit(pkg string) string {
	parts, n := strings.Split(pkg, "/"), 2
	if under("internal/adapters", "bridge/guard", "internal/list", "internal/observe", "internal/translate")(pkg) {
		n = 3
	}
	return strings.Join(parts[:min(len(parts), n)], "/")
}

// wrong returns what is wrong with an import by a file of pkg, a path below
// the module, or nothing.
func wrong(pkg, imported string, test bool) string {
	if imported == sdk || strings.HasPrefix(imported, sdk+"/") {
		if test || under("examples", "integration", "inprocess", "cmd/internal/inspect")(pkg) {
			return ""
		}
		return "only tests, examples, inprocess and cmd/internal/inspect import the SDK"
	}
	if imported == gin && pkg != "bridge/server/ginmount" {
		return "only bridge/server/ginmount imports gin: other programs do without"
	}
	to, ours := folder(imported)
	if !test && under("examples")(pkg) && under("internal")(to) {
		return "examples use what every program can use: public packages"
	}
	from, into := layer(pkg), layer(to)
	switch {
	case !ours || from < 0:
		return "" // examples and integration tests may use everything
	case into < 0:
		return "nothing of the product imports " + unit(to)
	case test && from > 0:
		return "" // a test may look at what is above
	case from > into:
		return "imports point from " + layers[into].name + " to " + layers[from].name
	case !test && strings.HasSuffix(to, "test") && !strings.HasSuffix(pkg, "test"):
		return "only tests import " + to
	case from == into && unit(pkg) != unit(to) && !(pkg == "bridge/internal/translate/stateless" && to == "bridge/internal/translate/lower"): // which holds its translators
		return "packages of " + layers[from].name + " do not import each other"
	}
	return ""
}

// Imports point one way: see layers.
func TestImports(t *testing.T) {
	root := "."
	files, edges := 0, 0
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base := d.Name(); d.IsDir() && name != root && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" || base == "vendor") {
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
		for _, spec := range f.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if strings.HasPrefix(imported, module) {
				edges++
			}
			if what := wrong(pkg, imported, strings.HasSuffix(name, "_test.go")); what != "" {
				t.Errorf("%s imports %s: %s", filepath.ToSlash(rel), imported, what)
			}
			if path.Base(name) == "example_test.go" && strings.HasPrefix(imported, module+"/internal/") {
				t.Errorf("%s imports %s: examples use what every program can use: public packages", filepath.ToSlash(rel), imported)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 30 || edges < 30 {
		t.Errorf("looked at %d files with %d imports of our own: too few, the test looks in the wrong place", files, edges)
	}
}
