package bridge_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the parts of docs/dev/architecture.md that are made of the code")

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
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	packages := map[string]*listed{}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var l listed
		if err := d.Decode(&l); err != nil {
			t.Fatal(err)
		}
		at := strings.TrimPrefix(l.ImportPath, module+"/")
		if in, _ := place(at); in >= 0 && !strings.HasSuffix(at, "test") {
			packages[at] = &l
		}
	}
	return packages
}

// box returns the folder that stands for a package in the picture.
func box(at string) string {
	parts, n := strings.Split(at, "/"), 2
	switch {
	case parts[0] == "cmd" || parts[0] == "config":
		n = 1
	case strings.HasPrefix(at, "bridge/internal/"):
		n = 3
	}
	return strings.Join(parts[:min(n, len(parts))], "/")
}

// boxes returns the folders of the picture with their layers. Folders that nearly all
// others import are left out.
func boxes(packages map[string]*listed) map[string]int {
	innermost, _ := place("bridge")
	all := map[string]int{}
	for at := range packages {
		in, _ := place(at)
		if was, ok := all[box(at)]; in <= innermost && (!ok || in < was) {
			all[box(at)] = in
		}
	}
	return all
}

// edges returns the boxes that each box imports, but for those that it reaches by way of
// another one.
func edges(packages map[string]*listed) map[string][]string {
	drawn, direct := boxes(packages), map[string]map[string]bool{}
	for at, l := range packages {
		from := box(at)
		if direct[from] == nil {
			direct[from] = map[string]bool{}
		}
		for _, imported := range l.Imports {
			to := strings.TrimPrefix(imported, module+"/")
			if _, ours := drawn[box(to)]; ours && packages[to] != nil && box(to) != from {
				direct[from][box(to)] = true
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
		if _, ok := drawn[from]; !ok {
			continue
		}
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

// picture draws the boxes and their imports. Boxes of one layer stand together.
func picture(packages map[string]*listed) string {
	id := strings.NewReplacer("/", "_", "-", "_").Replace
	name := func(box string) string { return strings.Replace(box, "internal/", "", 1) }
	drawn := boxes(packages)
	var b strings.Builder
	b.WriteString("```mermaid\nflowchart TD\n")
	for i, l := range layers {
		var here []string
		for _, r := range slices.Sorted(maps.Keys(drawn)) {
			if drawn[r] == i {
				here = append(here, r)
			}
		}
		if len(here) == 1 {
			fmt.Fprintf(&b, "  %s[%q]\n", id(here[0]), name(here[0]))
			continue
		}
		if len(here) > 1 {
			fmt.Fprintf(&b, "  subgraph layer%d[%q]\n", i, l.name)
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
		fmt.Fprintf(&b, "| [`%s`](../../%s) | %s |\n", at, at, strings.ReplaceAll(words[len(words)-1], "|", `\|`))
	}
	return b.String()
}

// named matches what pages for contributors name of the repository.
var named = regexp.MustCompile("`((?:internal|bridge|adapters|cmd|config|docs|examples|integration)(?:/[\\w.-]+)+)`")

// TestPaths checks that paths in the pages for contributors exist.
func TestPaths(t *testing.T) {
	for _, name := range []string{"docs/dev/architecture.md", "CONTRIBUTING.md"} {
		page, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		all := named.FindAllSubmatch(page, -1)
		if len(all) < 5 {
			t.Errorf("%s names %d paths: too few, the test looks for the wrong thing", name, len(all))
		}
		for _, m := range all {
			if _, err := os.Stat(filepath.Join(root, string(m[1]))); err != nil && !strings.Contains(string(m[1]), "NAME") {
				t.Errorf("%s names %s, which is not there", name, m[1])
			}
		}
	}
}

// TestArchitecture holds docs/dev/architecture.md to the code: its picture and its
// table of packages are made of it. Run "go test ./bridge -run TestArchitecture
// -update" when it fails.
func TestArchitecture(t *testing.T) {
	const name = "docs/dev/architecture.md"
	page, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	packages := product(t)
	if n := len(boxes(packages)); n > 25 {
		t.Errorf("the picture has %d boxes: more than a reader takes in", n)
	}
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
			t.Errorf("%s: its %s is not what the code is: run go test ./bridge -run TestArchitecture -update", name, part)
		}
		text = before + begin + made + end + after
	}
	if *update {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
