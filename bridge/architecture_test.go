package bridge_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the parts of docs/architecture.md that are made of the code")

// listed is what go list says of a package.
type listed struct {
	ImportPath, Doc string
	Imports         []string
}

// product returns the packages of the product, by their folders, as go list has
// them on every system: those that only tests use are left out.
func product(t *testing.T) map[string]*listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Doc,Imports", "./...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	packages := map[string]*listed{}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p listed
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		at, _ := folder(p.ImportPath)
		if layer(at) >= 0 && !strings.HasSuffix(at, "test") {
			packages[at] = &p
		}
	}
	return packages
}

// room returns what stands for a package in the picture: a transport, or the
// adapter for HTTP APIs, is one room, whatever packages it has.
func room(at string) string {
	parts := strings.Split(at, "/")
	if len(parts) > 3 && parts[1] == "adapters" {
		return strings.Join(parts[:3], "/")
	}
	return at
}

// leaf reports whether a room is one that nearly all others import.
func leaf(room string) bool { return layer(room) > layer(".") }

// edges returns what each room imports. What it reaches by way of another room is
// left out, and so are leaves, so that the picture can be read.
func edges(packages map[string]*listed) map[string][]string {
	direct := map[string]map[string]bool{}
	for at, p := range packages {
		from := room(at)
		if direct[from] == nil {
			direct[from] = map[string]bool{}
		}
		for _, imported := range p.Imports {
			to, ours := folder(imported)
			if ours && packages[to] != nil && room(to) != from && !leaf(room(to)) {
				direct[from][room(to)] = true
			}
		}
	}
	var reaches func(from, to string) bool
	reaches = func(from, to string) bool {
		for next := range direct[from] {
			if next == to || reaches(next, to) {
				return true
			}
		}
		return false
	}
	short := map[string][]string{}
	for from, all := range direct {
		for to := range all {
			byWay := false
			for other := range all {
				byWay = byWay || other != to && reaches(other, to)
			}
			if !byWay {
				short[from] = append(short[from], to)
			}
		}
		slices.Sort(short[from])
	}
	return short
}

// picture draws the rooms and their imports, a box for each layer of the order of
// imports.
func picture(packages map[string]*listed) string {
	rooms := map[string]bool{}
	for at := range packages {
		rooms[room(at)] = true
	}
	id := func(room string) string {
		return strings.NewReplacer(".", "root", "/", "_", "-", "_").Replace(room)
	}
	name := func(room string) string { // short, so that the picture can be read
		return strings.Replace(strings.ReplaceAll(room, "internal/", ""), ".", "bridge", 1)
	}
	var b strings.Builder
	b.WriteString("```mermaid\nflowchart TD\n")
	for i, l := range layers {
		var here []string
		for _, r := range slices.Sorted(maps.Keys(rooms)) {
			if layer(r) == i {
				here = append(here, r)
			}
		}
		switch len(here) {
		case 0:
		case 1:
			fmt.Fprintf(&b, "  %s[%q]\n", id(here[0]), name(here[0]))
		default:
			fmt.Fprintf(&b, "  subgraph layer%d[%q]\n", i, strings.ReplaceAll(l.name, "internal/", ""))
			for _, r := range here {
				fmt.Fprintf(&b, "    %s[%q]\n", id(r), name(r))
			}
			b.WriteString("  end\n")
		}
	}
	arrows := edges(packages)
	for _, from := range slices.Sorted(maps.Keys(arrows)) {
		for _, to := range arrows[from] {
			fmt.Fprintf(&b, "  %s --> %s\n", id(from), id(to))
		}
	}
	b.WriteString("```\n")
	return b.String()
}

// table has a row for each package: the first sentence of its documentation.
func table(t *testing.T, packages map[string]*listed) string {
	var b strings.Builder
	b.WriteString("| package | what it is |\n| --- | --- |\n")
	for _, at := range slices.Sorted(maps.Keys(packages)) {
		text := packages[at].Doc
		if text == "" {
			t.Errorf("%s has no documentation: say in its doc.go what it is for", at)
			continue
		}
		words := strings.SplitN(text, " ", 3) // Package NAME does
		fmt.Fprintf(&b, "| [`%s`](../%s) | %s |\n", strings.Replace(at, ".", "bridge", 1), at, strings.ReplaceAll(words[len(words)-1], "|", `\|`))
	}
	return b.String()
}

// named matches what pages for contributors name of the repository.
var named = regexp.MustCompile("`((?:internal|jsonrpc|server|inprocess|cmd|config|docs|examples|integration)(?:/[\\w.-]+)+)`")

// What pages for contributors name is there.
func TestPaths(t *testing.T) {
	for _, name := range []string{"docs/architecture.md", "CONTRIBUTING.md"} {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all := named.FindAllSubmatch(page, -1)
		if len(all) < 5 {
			t.Errorf("%s names %d paths: too few, the test looks for the wrong thing", name, len(all))
		}
		for _, m := range all {
			if _, err := os.Stat(string(m[1])); err != nil && !strings.Contains(string(m[1]), "NAME") {
				t.Errorf("%s names %s, which is not there", name, m[1])
			}
		}
	}
}

// TestArchitecture holds docs/architecture.md to the code: its picture and its
// table of packages are made of it. Run "go test . -run TestArchitecture
// -update" when it fails.
func TestArchitecture(t *testing.T) {
	const name = "docs/architecture.md"
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	packages := product(t)
	if len(packages) < 40 {
		t.Fatalf("go list has %d packages: too few, the test looks in the wrong place", len(packages))
	}
	text := string(page)
	for part, made := range map[string]string{"picture": picture(packages), "packages": table(t, packages)} {
		begin, end := "<!-- "+part+": made of the code -->\n", "<!-- end of "+part+" -->"
		before, rest, ok := strings.Cut(text, begin)
		was, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Fatalf("%s has no %q and %q", name, begin, end)
		}
		if was != made && !*update {
			t.Errorf("%s: its %s is not what the code is: run go test . -run TestArchitecture -update", name, part)
		}
		text = before + begin + made + end + after
	}
	if *update {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
