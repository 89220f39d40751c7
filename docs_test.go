package bridge_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// What docs/protocol.md has: rows of requirements, sections, and rows of the
// tables of sections.
var (
	requirementRow = regexp.MustCompile(`(?m)^\| (R-\d{3}) \| (?:must|should) \| [^|]+ \| [^|]+ \|$`)
	section        = regexp.MustCompile(`(?m)^#+ ([A-F](?:\d+(?:\.\d+)*)?)\.? `)
	sectionRow     = regexp.MustCompile(`(?m)^\| ([A-F]\d+(?:\.\d+)+) \| `)
)

// What files cite. Each of them is tried only where its first letters are: the
// test reads every file, and an expression is slow on text without a match.
var (
	requirement = regexp.MustCompile(`\bR-(\d+)(?:[\s/]+to[\s/]+R-(\d+))?\b`)
	numbered    = regexp.MustCompile(`^[A-F]\d{1,2}(?:\.\d{1,2})*\b`)
	ofDocument  = regexp.MustCompile(`\bprotocol\.md((?:[\s/,;]+[A-QS-Z](?:\d[\d.]*)?\b)*)`) // R begins a requirement
	gone        = regexp.MustCompile(`\bfield-notes\b|\bthe design\b|\b(?:design|style|house)\.md\b|\bT-[A-Z]{2,}(?:-\d+)?\b`)
)

// entries returns what page has that can be cited. What it has twice is a fault.
func entries(page string) (known map[string]bool, faults []string) {
	known = map[string]bool{}
	for _, r := range []*regexp.Regexp{requirementRow, section, sectionRow} {
		for _, m := range r.FindAllStringSubmatch(page, -1) {
			if known[m[1]] {
				faults = append(faults, "docs/protocol.md has "+m[1]+" twice")
			}
			known[m[1]] = true
		}
	}
	return known, faults
}

// matches finds r in text, if text has one of parts. What r finds has one.
func matches(r *regexp.Regexp, text string, parts ...string) [][]int {
	if !slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) }) {
		return nil
	}
	return r.FindAllStringSubmatchIndex(text, -1)
}

// citations returns what is wrong with the citations of a file, and marks in
// cited those that are right.
func citations(name, text string, known, cited map[string]bool) (faults []string) {
	fault := func(at int, what string) {
		faults = append(faults, fmt.Sprintf("%s:%d: %s", name, 1+strings.Count(text[:at], "\n"), what))
	}
	cite := func(at int, id string) {
		if cited[id] = known[id]; !known[id] {
			fault(at, "docs/protocol.md has no "+id+": correct the citation, or add the row")
		}
	}
	for _, m := range matches(requirement, text, "R-") {
		cite(m[0], "R-"+text[m[2]:m[3]])
		if m[4] < 0 {
			continue
		}
		first, _ := strconv.Atoi(text[m[2]:m[3]])
		last, _ := strconv.Atoi(text[m[4]:m[5]])
		if last <= first || last-first > 100 {
			fault(m[0], text[m[0]:m[1]]+" is no range")
			continue
		}
		for n := first + 1; n <= last; n++ {
			cite(m[0], fmt.Sprintf("R-%03d", n))
		}
	}
	for i := range len(text) - 1 {
		if text[i] < 'A' || text[i] > 'F' || text[i+1] < '0' || text[i+1] > '9' || i > 0 && strings.IndexByte(" \t\r\n\f(\"", text[i-1]) < 0 {
			continue
		}
		if id := numbered.FindString(text[i:]); id != "" && (i+len(id) == len(text) || strings.IndexByte(" \t\r\n,.:;)\"", text[i+len(id)]) >= 0) {
			cite(i, id)
		}
	}
	for _, m := range matches(ofDocument, text, "protocol.md") {
		ids := strings.FieldsFunc(text[m[2]:m[3]], func(c rune) bool { return strings.ContainsRune(" \t\r\n/,;", c) })
		if len(ids) == 0 {
			fault(m[0], "protocol.md is cited without a section")
		}
		for _, id := range ids {
			if len(id) == 1 || id[0] > 'F' { // the others are found above
				cite(m[0], id)
			}
		}
	}
	for _, m := range matches(gone, text, "field-notes", "the design", "design.md", "style.md", "house.md", "T-") {
		fault(m[0], "there is no "+text[m[0]:m[1]]+" for a reader to look at: say the reason itself")
	}
	return faults
}

// What comments and tests cite is in docs/protocol.md, and no requirement is
// there that nobody cites.
func TestCitations(t *testing.T) {
	page, err := os.ReadFile("docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	known, faults := entries(string(page))
	cited := map[string]bool{}
	files := 0
	err = filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch base := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(base, ".") || base == "node_modules"):
			return fs.SkipDir
		case !d.Type().IsRegular() || !slices.Contains([]string{".go", ".txtar"}, filepath.Ext(name)):
			return nil
		}
		rel := filepath.ToSlash(name)
		if rel == "docs_test.go" { // it has citations that are wrong
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		files++
		text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
		faults = append(faults, citations(rel, string(text), known, cited)...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for id := range known {
		if strings.HasPrefix(id, "R-") && !cited[id] {
			faults = append(faults, "docs/protocol.md: nobody cites "+id+": remove the row")
		}
	}
	slices.Sort(faults)
	for _, f := range faults {
		t.Error(f)
	}
	if files < 100 || len(cited) < 100 {
		t.Errorf("looked at %d files with %d things cited: too few, the test looks in the wrong place", files, len(cited))
	}
}

// The test does see a wrong citation.
func TestCitationsWrong(t *testing.T) {
	known, faults := entries("# P\n## A. Old\n### A7. HTTP\n#### D1.4 Questions\n| D1.4.6 | retries |\n## F. Limits\n" +
		"| R-001 | must | x | all |\n| R-002 | should | x | bridge |\n| R-004 | must | x | all |\n" +
		"| R-005 | maybe | x | all |\n| R-006 | must | x |  \n| R-001 | must | again | all |\n")
	if want := []string{"docs/protocol.md has R-001 twice"}; !slices.Equal(faults, want) {
		t.Errorf("entries: faults %q, want %q", faults, want)
	}
	const no = ": correct the citation, or add the row"
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"known", "// R-001, R-002: x (protocol.md A7, D1.4.6, F).\n// y (D1.4)\n", nil},
		{"requirement", "\n// R-003: x\n", []string{"f:2: docs/protocol.md has no R-003" + no}},
		{"requirement of a row that has no level", "// R-005\n", []string{"f:1: docs/protocol.md has no R-005" + no}},
		{"requirement of a row that has no source", "// R-006\n", []string{"f:1: docs/protocol.md has no R-006" + no}},
		{"requirement with a digit too few", "// R-01\n", []string{"f:1: docs/protocol.md has no R-01" + no}},
		{"range", "// R-001 to R-002\n", nil},
		{"range with a gap, over two lines", "// R-001 to\n// R-004\n", []string{"f:1: docs/protocol.md has no R-003" + no}},
		{"range backwards", "// R-002 to R-001\n", []string{"f:1: R-002 to R-001 is no range"}},
		{"section", "x\n// y (protocol.md A8)\n", []string{"f:2: docs/protocol.md has no A8" + no}},
		{"section on the next line", "// y (protocol.md\n// A8).\n", []string{"f:2: docs/protocol.md has no A8" + no}},
		{"section that is a letter", "// y (protocol.md D1.4, C)\n", []string{"f:1: docs/protocol.md has no C" + no}},
		{"section of no part", "// y (protocol.md G1, Z)\n", []string{"f:1: docs/protocol.md has no G1" + no, "f:1: docs/protocol.md has no Z" + no}},
		{"no section", "// see protocol.md\nvar x int\n", []string{"f:1: protocol.md is cited without a section"}},
		{"row", "// y (D1.4.7; D1.4)\n", []string{"f:1: docs/protocol.md has no D1.4.7" + no}},
		{"at the beginning of a file", "D1.5: x\n", []string{"f:1: docs/protocol.md has no D1.5" + no}},
		{"at the end of a file", "// A8", []string{"f:1: docs/protocol.md has no A8" + no}},
		{"in a test's name", "{\"C2.2 modern\", 1}", []string{"f:1: docs/protocol.md has no C2.2" + no}},
		{"one line after the other", "// E2\n// E3\n", []string{"f:1: docs/protocol.md has no E2" + no, "f:2: docs/protocol.md has no E3" + no}},
		{"escapes and names", "%C3%A9 #/components/A0' xA1 A1b A1=2 SHA256 R-001x", nil},
		{"notes", "// y (field-notes C)\n", []string{"f:1: there is no field-notes for a reader to look at: say the reason itself"}},
		{"design", "// y of the design, design.md, style.md, house.md\n", []string{
			"f:1: there is no the design for a reader to look at: say the reason itself",
			"f:1: there is no design.md for a reader to look at: say the reason itself",
			"f:1: there is no style.md for a reader to look at: say the reason itself",
			"f:1: there is no house.md for a reader to look at: say the reason itself"}},
		{"plan", "// T-SESS, T-RST-2: x\n", []string{
			"f:1: there is no T-SESS for a reader to look at: say the reason itself",
			"f:1: there is no T-RST-2 for a reader to look at: say the reason itself"}},
		{"no plan", "Content-Type T-shirt greenhouse.md the designer CONTENT-TYPE", nil},
	} {
		if got := citations("f", tc.text, known, map[string]bool{}); !slices.Equal(got, tc.want) {
			t.Errorf("%s: citations(%q) = %q, want %q", tc.name, tc.text, got, tc.want)
		}
	}
}
