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
)

// layers are the packages from the outside to the inside: a package may import
// those of later layers, and of its own layer only what is in the same unit.
var layers = []struct {
	name string
	has  func(pkg string) bool
}{
	{"cmd/bridge", func(pkg string) bool { return pkg == "cmd/bridge" }},
	{"cmd/bridge/inspect", func(pkg string) bool { return pkg == "cmd/bridge/inspect" }},
	{"cmd/bridge/inspect/arguments", under("cmd/bridge/inspect")},
	{"cmd/bridge/flags", under("cmd/bridge/flags")},
	{"cmd/bridge/{exit,terminal}", under("cmd/bridge/exit", "cmd/bridge/terminal")},
	{"bridge/server", func(pkg string) bool { return pkg == "bridge/server" }},
	{"bridge/server/{accesslog,metrics}", under("bridge/server")},
	{"config", func(pkg string) bool { return pkg == "config" }},
	{"adapters/*", func(pkg string) bool { return under("adapters")(pkg) && !helper(pkg) }},
	{"helpers of adapters", helper},
	{"bridge/gateway", under("bridge/gateway")},
	{"bridge/aggregate, bridge/lane/share and bridge/{guard,list,translate}/*", func(pkg string) bool {
		return strings.HasPrefix(pkg, "bridge/guard/") || strings.HasPrefix(pkg, "bridge/list/") || under("bridge/aggregate", "bridge/lane/share", "bridge/translate")(pkg)
	}},
	{"bridge/lane", func(pkg string) bool { return pkg == "bridge/lane" }},
	{"bridge/observe/*", under("bridge/observe")},
	{"bridge/conn", under("bridge/conn")},
	{"bridge/list", under("bridge/list")},
	{"bridge", func(pkg string) bool { return pkg == "bridge" || pkg == "bridge/bridgetest" }},
	{"bridge/{auth,era,glob,session,replay,seal,validate}", under("bridge/auth", "bridge/glob", "bridge/guard", "bridge/era", "bridge/session", "bridge/replay", "bridge/seal", "bridge/validate")},
	{"bridge/jsonrpc", under("bridge/jsonrpc")},
	{"bridge/{pause,similar,visible} and config/strict", under("bridge/pause", "bridge/similar", "bridge/visible", "config/strict")},
}

var helper = under("adapters/eventstream", "adapters/httpbody", "adapters/httpclient", "adapters/downstream", "adapters/media", "adapters/upstream")

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

// unit returns the folder that a package is a part of: what it may import
// freely within its own layer.
func unit(pkg string) string {
	parts, n := strings.Split(pkg, "/"), 2
	if under("bridge/guard", "bridge/list", "bridge/observe", "bridge/translate")(pkg) {
		n = 3
	}
	return strings.Join(parts[:min(len(parts), n)], "/")
}

// wrong returns what is wrong with an import by a file of pkg, a path below
// the module, or nothing.
func wrong(pkg, imported string, test bool) string {
	if imported == sdk || strings.HasPrefix(imported, sdk+"/") {
		if test || under("examples", "integration", "adapters/inprocess", "cmd/bridge/inspect")(pkg) {
			return ""
		}
		return "only tests, examples, adapters/inprocess and cmd/bridge/inspect import the SDK"
	}
	to, ours := strings.CutPrefix(imported, module+"/")
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
	case from == into && unit(pkg) != unit(to) && !(pkg == "bridge/translate/stateless" && to == "bridge/translate/lower"): // which holds its translators
		return "packages of " + layers[from].name + " do not import each other"
	}
	return ""
}

// Imports point one way: see layers.
func TestImports(t *testing.T) {
	root := ".."
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
		{"cmd/bridge", module + "/bridge/server", false, true},
		{"cmd/bridge", module + "/bridge/jsonrpc", false, true},
		{"cmd/bridge", module + "/cmd/bridge/inspect", false, true},
		{"cmd/bridge/inspect", module + "/cmd/bridge", false, false},
		{"cmd/bridge/inspect", module + "/cmd/bridge/inspect/arguments", false, true},
		{"cmd/bridge/inspect/arguments", module + "/cmd/bridge/inspect", false, false},
		{"cmd/bridge/inspect", module + "/cmd/bridge/flags", false, true},
		{"cmd/bridge/flags", module + "/cmd/bridge/inspect", false, false},
		{"cmd/bridge/flags", module + "/cmd/bridge/exit", false, true},
		{"cmd/bridge/exit", module + "/cmd/bridge/flags", false, false},
		{"cmd/bridge", module + "/cmd/bridge/terminal/terminaltest", false, false},
		{"bridge/server", module + "/cmd/bridge/exit", false, false},
		{"bridge/server", module + "/config", false, true},
		{"bridge/server", module + "/cmd/bridge", false, false},
		{"bridge/server", module + "/bridge/server/metrics", false, true},
		{"bridge/server/metrics", module + "/bridge/server", false, false},
		{"bridge/server/accesslog", module + "/bridge/server", false, false},
		{"config", module + "/adapters/stdio", false, true},
		{"config", module + "/config/strict", false, true},
		{"config/strict", module + "/config", false, false},
		{"config/strict", module + "/bridge/similar", false, false},
		{"config", module + "/bridge/server", false, false},
		{"adapters/stdio", module + "/bridge", false, true},
		{"adapters/stdio", module + "/config", false, false},
		{"adapters/stdio", module + "/adapters/sse", false, false},
		{"adapters/stdio/internal/x", module + "/adapters/stdio", false, true},
		{"adapters/sse", module + "/adapters/eventstream", false, true},
		{"adapters/eventstream", module + "/adapters/sse", false, false},
		{"adapters/eventstream", module + "/adapters/httpbody", false, false},
		{"adapters/sse", module + "/adapters/upstream", false, true},
		{"adapters/upstream", module + "/adapters/sse", false, false},
		{"adapters/downstream", module + "/adapters/upstream", false, false},
		{"adapters/rest/wire", module + "/adapters/media", false, true},
		{"adapters/httpbody", module + "/adapters/media", false, false},
		{"adapters/upstream", module + "/adapters/httpclient", false, false},
		{"bridge", module + "/adapters/stdio", false, false},
		{"bridge", module + "/bridge/server", false, false},
		{"bridge", module + "/bridge/era", false, true},
		{"bridge", module + "/bridge/gateway", false, false},
		{"bridge", module + "/bridge/conn", false, false},
		{"bridge/conn", module + "/bridge", false, true},
		{"bridge/conn", module + "/bridge/gateway", false, false},
		{"bridge/gateway", module + "/bridge/conn", false, true},
		{"bridge/gateway", module + "/config", false, false},
		{"bridge/gateway", module + "/bridge/bridgetest", true, true},
		{"bridge/gateway", module + "/bridge/bridgetest", false, false},
		{"adapters/stdio", module + "/bridge/gateway", false, true},
		{"bridge/gateway", module + "/bridge/guard/limits", false, true},
		{"bridge/guard/limits", module + "/bridge/gateway", false, false},
		{"bridge/guard/limits", module + "/bridge/guard/retry", false, false},
		{"adapters/rest/wire", module + "/bridge/guard/breaker", false, true},
		{"bridge/guard/breaker", module + "/bridge/gateway", false, false},
		{"bridge/gateway", module + "/bridge/lane", false, true},
		{"bridge/lane", module + "/bridge/gateway", false, false},
		{"bridge/lane", module + "/bridge/lane/share", false, false},
		{"bridge/lane/share", module + "/bridge/lane", false, true},
		{"bridge/lane/share", module + "/bridge/guard/limits", false, false},
		{"bridge/lane", module + "/bridge/guard/breaker", false, false},
		{"bridge/lane", module + "/bridge/observe/tracing", false, true},
		{"bridge/observe/tracing", module + "/bridge/lane", false, false},
		{"bridge/guard/breaker", module + "/bridge/guard/limits", false, false},
		{"bridge/guard/limits", module + "/bridge/guard", false, true},
		{"bridge/gateway", module + "/bridge/list", false, true},
		{"bridge/gateway", module + "/bridge/aggregate", false, true},
		{"bridge/aggregate", module + "/bridge/gateway", false, false},
		{"bridge/aggregate", module + "/bridge/translate/lift", false, false},
		{"bridge/aggregate", module + "/bridge/list/filter", false, false},
		{"bridge/gateway", module + "/bridge/translate/lift", false, true},
		{"bridge/translate/lift", module + "/bridge/list", false, true},
		{"bridge/translate/lift", module + "/bridge/gateway", false, false},
		{"bridge/translate/lift", module + "/bridge/translate/lower", false, false},
		{"bridge/gateway", module + "/bridge/translate/lower", false, true},
		{"bridge/translate/lower", module + "/bridge/list", false, true},
		{"bridge/gateway", module + "/bridge/translate/stateless", false, true},
		{"bridge/translate/stateless", module + "/bridge/translate/lower", false, true},
		{"bridge/translate/stateless", module + "/bridge/translate/lift", false, false},
		{"bridge/translate/stateless", module + "/bridge/guard/limits", false, false},
		{"bridge/translate/stateless", module + "/bridge/gateway", false, false},
		{"bridge/translate/lower", module + "/bridge/translate/stateless", false, false},
		{"bridge/translate/lower", module + "/bridge/gateway", false, false},
		{"bridge/translate/lower", module + "/bridge/guard/limits", false, false},
		{"bridge/translate/lift", module + "/bridge/guard/limits", false, false},
		{"bridge/gateway", module + "/bridge/observe/report", false, true},
		{"bridge/observe/report", module + "/bridge/observe/tracing", false, false},
		{"bridge/observe/report", module + "/bridge/gateway", false, false},
		{"bridge/observe/health", module + "/bridge/lane", false, false},
		{"bridge/list", module + "/bridge/conn", false, false},
		{"bridge/list", module + "/bridge/list/filter", false, false},
		{"bridge/list/filter", module + "/bridge/list", false, true},
		{"bridge/list/filter", module + "/bridge/guard/limits", false, false},
		{"bridge/guard/limits", module + "/bridge/list/filter", false, false},
		{"bridge/list/filter", module + "/bridge/gateway", false, false},
		{"bridge/gateway", module + "/bridge/list/filter", false, true},
		{"config", module + "/bridge/list/filter", false, true},
		{"bridge/gateway", module + "/bridge/guard/cache", false, true},
		{"bridge/guard/cache", module + "/bridge/lane", false, true},
		{"bridge/guard/cache", module + "/bridge/guard/retry", false, false},
		{"bridge/guard/cache", module + "/bridge/list/tools", false, false},
		{"bridge/lane", module + "/bridge/guard/cache", false, false},
		{"bridge/list/tools", module + "/bridge/list/filter", false, false},
		{"bridge/list/tools", module + "/bridge/validate", false, true},
		{"bridge/guard/retry", module + "/bridge/list/tools", false, false},
		{"bridge/era", module + "/bridge", false, false},
		{"bridge/era", module + "/bridge/replay", false, false},
		{"bridge/session/sessiontest", module + "/bridge/session", false, true},
		{"bridge/replay", module + "/bridge/jsonrpc", false, true},
		{"bridge/jsonrpc", module + "/bridge/era", false, false},
		{"cmd/bridge", module + "/bridge/visible", false, true},
		{"bridge/visible", module + "/bridge/jsonrpc", false, false},
		{"bridge/guard/retry", module + "/bridge/pause", false, true},
		{"bridge/pause", module + "/bridge/jsonrpc", false, false},
		{"bridge/validate", module + "/bridge/similar", false, true},
		{"bridge/similar", module + "/bridge/validate", false, false},
		{"bridge", module + "/examples/everything", false, false},
		{"adapters/stdio", module + "/config", true, true},
		{"examples/everything", module + "/bridge", false, true},
		{"bridge", sdk + "/mcp", false, false},
		{"bridge/server", sdk, false, false},
		{"bridge", sdk + "/mcp", true, true},
		{"adapters/inprocess", sdk + "/mcp", false, true},
		{"examples/everything", sdk + "/mcp", false, true},
		{"cmd/bridge", sdk + "/mcp", false, false},
		{"cmd/bridge/inspect", sdk + "/mcp", false, true}, // its commands are a client
		{"bridge", sdk + "-other", false, true},
		{"bridge", "fmt", false, true},
	} {
		if what := wrong(tc.pkg, tc.imported, tc.test); (what == "") != tc.ok {
			t.Errorf("%s imports %s (test: %t): %q, want allowed: %t", tc.pkg, tc.imported, tc.test, what, tc.ok)
		}
	}
}
