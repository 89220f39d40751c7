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
	{"server/ginmount", under("server/ginmount")}, // above all others: gin is for programs that ask for it
	{"cmd/bridge", func(pkg string) bool { return pkg == "cmd/bridge" }},
	{"cmd/bridge/internal/inspect", func(pkg string) bool { return pkg == "cmd/bridge/internal/inspect" }},
	{"cmd/bridge/internal/inspect/arguments", under("cmd/bridge/internal/inspect")},
	{"cmd/bridge/internal/flags", under("cmd/bridge/internal/flags")},
	{"cmd/bridge/internal/{exit,memory,orphans,terminal}", under("cmd/bridge/internal/exit", "cmd/bridge/internal/memory", "cmd/bridge/internal/orphans", "cmd/bridge/internal/terminal")},
	{"server", func(pkg string) bool { return pkg == "server" }},
	{"internal/imports", under("internal/imports")},
	{"internal/{accesslog,admin,metrics}", under("internal/accesslog", "internal/admin", "internal/metrics")},
	{"internal/{reload,scopes}", under("internal/reload", "internal/scopes")},
	{"config", func(pkg string) bool { return pkg == "config" }},
	{"internal/{home,worker}", under("internal/home", "internal/worker")},
	{"internal/inner", under("internal/inner")},
	{"internal/adapters/* and inprocess", func(pkg string) bool { return under("internal/adapters", "inprocess")(pkg) && !helper(pkg) }},
	{"helpers of adapters", helper},
	{"internal/gateway", under("internal/gateway")},
	{"internal/aggregate, internal/lane/share and internal/{guard,list,translate}/*", func(pkg string) bool {
		return strings.HasPrefix(pkg, "internal/guard/") || strings.HasPrefix(pkg, "internal/list/") || under("internal/aggregate", "internal/lane/share", "internal/translate")(pkg)
	}},
	{"internal/lane", func(pkg string) bool { return pkg == "internal/lane" }},
	{"internal/observe/*", under("internal/observe")},
	{"internal/conn", under("internal/conn")},
	{"internal/list", under("internal/list")},
	{"bridge", func(pkg string) bool { return pkg == "." || pkg == "internal/bridgetest" }},
	{"internal/cluster", under("internal/cluster")},
	{"internal/oauth", under("internal/oauth")},
	{"internal/{auth,era,session,replay,seal,validate}", under("internal/auth", "internal/guard", "internal/era", "internal/session", "internal/replay", "internal/seal", "internal/validate")},
	{"jsonrpc", under("jsonrpc")},
	{"internal/rawjson", under("internal/rawjson")},
	{"internal/{address,backlog,glob,job,openfiles,pause,ring,similar,sparse,still,strict,systemd,toolchain,visible} and docs", under("internal/address", "internal/backlog", "internal/glob", "internal/job", "internal/openfiles", "internal/pause", "internal/ring", "internal/programtest", "internal/scaletest", "internal/similar", "internal/sparse", "internal/still", "internal/systemd", "internal/toolchain", "internal/visible", "internal/strict", "docs")},
}

var helper = under("internal/adapters/eventstream", "internal/adapters/httpbody", "internal/adapters/httpclient", "internal/adapters/downstream", "internal/adapters/media", "internal/adapters/upstream")

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
	if under("internal/adapters", "internal/guard", "internal/list", "internal/observe", "internal/translate")(pkg) {
		n = 3
	}
	return strings.Join(parts[:min(len(parts), n)], "/")
}

// wrong returns what is wrong with an import by a file of pkg, a path below
// the module, or nothing.
func wrong(pkg, imported string, test bool) string {
	if imported == sdk || strings.HasPrefix(imported, sdk+"/") {
		if test || under("examples", "integration", "inprocess", "cmd/bridge/internal/inspect")(pkg) {
			return ""
		}
		return "only tests, examples, inprocess and cmd/bridge/internal/inspect import the SDK"
	}
	if imported == gin && pkg != "server/ginmount" {
		return "only server/ginmount imports gin: other programs do without"
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
	case from == into && unit(pkg) != unit(to) && !(pkg == "internal/translate/stateless" && to == "internal/translate/lower"): // which holds its translators
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

// The test does see a wrong import.
func TestImportsWrong(t *testing.T) {
	for _, tc := range []struct {
		pkg, imported string
		test, ok      bool
	}{
		{"cmd/bridge", module + "/server", false, true},
		{"cmd/bridge", module + "/jsonrpc", false, true},
		{"cmd/bridge", module + "/cmd/bridge/internal/inspect", false, true},
		{"cmd/bridge/internal/inspect", module + "/cmd/bridge", false, false},
		{"cmd/bridge/internal/inspect", module + "/cmd/bridge/internal/inspect/arguments", false, true},
		{"cmd/bridge/internal/inspect/arguments", module + "/cmd/bridge/internal/inspect", false, false},
		{"cmd/bridge/internal/inspect", module + "/cmd/bridge/internal/flags", false, true},
		{"cmd/bridge/internal/flags", module + "/cmd/bridge/internal/inspect", false, false},
		{"cmd/bridge/internal/flags", module + "/cmd/bridge/internal/exit", false, true},
		{"cmd/bridge/internal/exit", module + "/cmd/bridge/internal/flags", false, false},
		{"cmd/bridge", module + "/cmd/bridge/internal/terminal/terminaltest", false, false},
		{"server", module + "/cmd/bridge/internal/exit", false, false},
		{"server", module + "/config", false, true},
		{"server", module + "/cmd/bridge", false, false},
		{"server/ginmount", module + "/server", false, true},
		{"cmd/bridge", module + "/server/ginmount", false, false},
		{"server", module + "/server/ginmount", false, false},
		{"server", module + "/internal/metrics", false, true},
		{"internal/metrics", module + "/server", false, false},
		{"internal/accesslog", module + "/server", false, false},
		{"config", module + "/internal/adapters/stdio", false, true},
		{"config", module + "/internal/strict", false, true},
		{"internal/strict", module + "/config", false, false},
		{"internal/strict", module + "/internal/similar", false, false},
		{"config", module + "/server", false, false},
		{"internal/adapters/stdio", module, false, true},
		{"internal/adapters/stdio", module + "/config", false, false},
		{"internal/adapters/stdio", module + "/internal/adapters/sse", false, false},
		{"internal/adapters/stdio/internal/x", module + "/internal/adapters/stdio", false, true},
		{"internal/adapters/sse", module + "/internal/adapters/eventstream", false, true},
		{"internal/adapters/eventstream", module + "/internal/adapters/sse", false, false},
		{"internal/adapters/eventstream", module + "/internal/adapters/httpbody", false, false},
		{"internal/adapters/sse", module + "/internal/adapters/upstream", false, true},
		{"internal/adapters/upstream", module + "/internal/adapters/sse", false, false},
		{"internal/adapters/downstream", module + "/internal/adapters/upstream", false, false},
		{"internal/adapters/rest/wire", module + "/internal/adapters/media", false, true},
		{"internal/adapters/httpbody", module + "/internal/adapters/media", false, false},
		{"internal/adapters/upstream", module + "/internal/adapters/httpclient", false, false},
		{".", module + "/internal/adapters/stdio", false, false},
		{".", module + "/server", false, false},
		{".", module + "/internal/era", false, true},
		{".", module + "/internal/gateway", false, false},
		{".", module + "/internal/conn", false, false},
		{"internal/conn", module, false, true},
		{"internal/conn", module + "/internal/gateway", false, false},
		{"internal/gateway", module + "/internal/conn", false, true},
		{"internal/gateway", module + "/config", false, false},
		{"internal/gateway", module + "/internal/bridgetest", true, true},
		{"internal/gateway", module + "/internal/bridgetest", false, false},
		{"internal/adapters/stdio", module + "/internal/gateway", false, true},
		{"internal/gateway", module + "/internal/guard/limits", false, true},
		{"internal/guard/limits", module + "/internal/gateway", false, false},
		{"internal/guard/limits", module + "/internal/guard/retry", false, false},
		{"internal/adapters/rest/wire", module + "/internal/guard/breaker", false, true},
		{"internal/guard/breaker", module + "/internal/gateway", false, false},
		{"internal/gateway", module + "/internal/lane", false, true},
		{"internal/lane", module + "/internal/gateway", false, false},
		{"internal/lane", module + "/internal/lane/share", false, false},
		{"internal/lane/share", module + "/internal/lane", false, true},
		{"internal/lane/share", module + "/internal/guard/limits", false, false},
		{"internal/lane", module + "/internal/guard/breaker", false, false},
		{"internal/lane", module + "/internal/observe/tracing", false, true},
		{"internal/observe/tracing", module + "/internal/lane", false, false},
		{"internal/guard/breaker", module + "/internal/guard/limits", false, false},
		{"internal/guard/limits", module + "/internal/guard", false, true},
		{"internal/gateway", module + "/internal/list", false, true},
		{"internal/gateway", module + "/internal/aggregate", false, true},
		{"internal/aggregate", module + "/internal/gateway", false, false},
		{"internal/aggregate", module + "/internal/translate/lift", false, false},
		{"internal/aggregate", module + "/internal/list/filter", false, false},
		{"internal/gateway", module + "/internal/translate/lift", false, true},
		{"internal/translate/lift", module + "/internal/list", false, true},
		{"internal/translate/lift", module + "/internal/gateway", false, false},
		{"internal/translate/lift", module + "/internal/translate/lower", false, false},
		{"internal/gateway", module + "/internal/translate/lower", false, true},
		{"internal/translate/lower", module + "/internal/list", false, true},
		{"internal/gateway", module + "/internal/translate/stateless", false, true},
		{"internal/translate/stateless", module + "/internal/translate/lower", false, true},
		{"internal/translate/stateless", module + "/internal/translate/lift", false, false},
		{"internal/translate/stateless", module + "/internal/guard/limits", false, false},
		{"internal/translate/stateless", module + "/internal/gateway", false, false},
		{"internal/translate/lower", module + "/internal/translate/stateless", false, false},
		{"internal/translate/lower", module + "/internal/gateway", false, false},
		{"internal/translate/lower", module + "/internal/guard/limits", false, false},
		{"internal/translate/lift", module + "/internal/guard/limits", false, false},
		{"internal/gateway", module + "/internal/observe/report", false, true},
		{"internal/observe/report", module + "/internal/observe/tracing", false, false},
		{"internal/observe/report", module + "/internal/gateway", false, false},
		{"internal/observe/health", module + "/internal/lane", false, false},
		{"internal/list", module + "/internal/conn", false, false},
		{"internal/list", module + "/internal/list/filter", false, false},
		{"internal/list/filter", module + "/internal/list", false, true},
		{"internal/list/filter", module + "/internal/guard/limits", false, false},
		{"internal/guard/limits", module + "/internal/list/filter", false, false},
		{"internal/list/filter", module + "/internal/gateway", false, false},
		{"internal/gateway", module + "/internal/list/filter", false, true},
		{"config", module + "/internal/list/filter", false, true},
		{"internal/gateway", module + "/internal/guard/cache", false, true},
		{"internal/guard/cache", module + "/internal/lane", false, true},
		{"internal/guard/cache", module + "/internal/guard/retry", false, false},
		{"internal/guard/cache", module + "/internal/list/tools", false, false},
		{"internal/lane", module + "/internal/guard/cache", false, false},
		{"internal/list/tools", module + "/internal/list/filter", false, false},
		{"internal/list/tools", module + "/internal/validate", false, true},
		{"internal/guard/retry", module + "/internal/list/tools", false, false},
		{"internal/era", module, false, false},
		{"internal/era", module + "/internal/replay", false, false},
		{"internal/session/sessiontest", module + "/internal/session", false, true},
		{"internal/replay", module + "/jsonrpc", false, true},
		{"jsonrpc", module + "/internal/era", false, false},
		{"cmd/bridge", module + "/internal/visible", false, true},
		{"internal/visible", module + "/jsonrpc", false, false},
		{"internal/guard/retry", module + "/internal/pause", false, true},
		{"internal/pause", module + "/jsonrpc", false, false},
		{"internal/validate", module + "/internal/similar", false, true},
		{"internal/similar", module + "/internal/validate", false, false},
		{".", module + "/examples/everything", false, false},
		{"internal/adapters/stdio", module + "/config", true, true},
		{"examples/everything", module, false, true},
		{".", sdk + "/mcp", false, false},
		{"server", sdk, false, false},
		{".", sdk + "/mcp", true, true},
		{"inprocess", sdk + "/mcp", false, true},
		{"examples/everything", sdk + "/mcp", false, true},
		{"examples/everything", module + "/server", false, true},
		{"examples/everything", module + "/internal/conn", false, false},
		{"server", gin, false, false},
		{"server/ginmount", gin, false, true},
		{"cmd/bridge", sdk + "/mcp", false, false},
		{"cmd/bridge/internal/inspect", sdk + "/mcp", false, true}, // its commands are a client
		{".", sdk + "-other", false, true},
		{".", "fmt", false, true},
	} {
		if what := wrong(tc.pkg, tc.imported, tc.test); (what == "") != tc.ok {
			t.Errorf("%s imports %s (test: %t): %q, want allowed: %t", tc.pkg, tc.imported, tc.test, what, tc.ok)
		}
	}
}
