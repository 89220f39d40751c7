package docs

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

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// What docs/dev/protocol.md has: rows of requirements, sections, and rows of the
// tables of sections; and docs/dev/internals.md: rows of requirements, each with what
// shows that it holds.
var (
	internalsRow   = regexp.MustCompile(`(?m)^\| ([SIO]-\d{3}) \| [^|]+ \| ([^|]+) \|$`)
	interopRow     = regexp.MustCompile(`(?m)^\| [^|]+ \| [^|]+ \| ([^|]+) \|$`)
	testName       = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)\\w+)`")
	testFunction   = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	requirementRow = regexp.MustCompile(`(?m)^\| (R-\d{3}) \| (?:must|should) \| [^|]+ \| [^|]+ \|$`)
	section        = regexp.MustCompile(`(?m)^#+ ([A-F](?:\d+(?:\.\d+)*)?)\.? `)
	sectionRow     = regexp.MustCompile(`(?m)^\| ([A-F]\d+(?:\.\d+)+) \| `)
)

// What files cite. Each of them is tried only where its first letters are: the
// test reads every file, and an expression is slow on text without a match.
var (
	requirement = regexp.MustCompile(`\b([RSIO])-(\d+)(?:[\s/]+to[\s/]+[RSIO]-(\d+))?\b`)
	numbered    = regexp.MustCompile(`^[A-F]\d{1,2}(?:\.\d{1,2})*\b`)
	ofDocument  = regexp.MustCompile(`\bprotocol\.md((?:[\s/,;]+[A-QS-Z](?:\d[\d.]*)?\b)*)`) // R begins a requirement
	gone        = regexp.MustCompile(`\bfield-notes\b|\bthe design\b|\b(?:design|style|house)\.md\b|\bT-[A-Z]{2,}(?:-\d+)?\b`)
)

// Pages that are cited.
const (
	ofProtocol  = "docs/dev/protocol.md"
	ofInternals = "docs/dev/internals.md"
	ofInterop   = "docs/interop.md"
)

// pageOf returns the page that has what is cited.
func pageOf(id string) string {
	switch {
	case strings.HasPrefix(id, "S-"), strings.HasPrefix(id, "I-"), strings.HasPrefix(id, "O-"):
		return ofInternals
	}
	return ofProtocol
}

// entries returns what the pages have that can be cited. What they have twice is a
// fault.
func entries(protocol, internals string) (known map[string]bool, faults []string) {
	known = map[string]bool{}
	note := func(page string, rows ...*regexp.Regexp) {
		for _, r := range rows {
			for _, m := range r.FindAllStringSubmatch(page, -1) {
				if known[m[1]] {
					faults = append(faults, pageOf(m[1])+" has "+m[1]+" twice")
				}
				known[m[1]] = true
			}
		}
	}
	note(protocol, requirementRow, section, sectionRow)
	note(internals, internalsRow)
	return known, faults
}

// shown returns which tests the rows of docs/dev/internals.md name that are not there.
func shown(internals string, tests map[string]bool) (faults []string) {
	for _, row := range internalsRow.FindAllStringSubmatch(internals, -1) {
		for _, m := range testName.FindAllStringSubmatch(row[2], -1) {
			if !tests[m[1]] {
				faults = append(faults, pageOf(row[1])+": there is no "+m[1]+", which "+row[1]+" names")
			}
		}
	}
	return faults
}

// unshown returns what is wrong with the last column of docs/interop.md: each row names
// tests, which are there.
func unshown(interop string, tests map[string]bool) (faults []string) {
	for _, row := range interopRow.FindAllStringSubmatch(interop, -1) {
		if row[1] == "shown by" || row[1] == "---" {
			continue
		}
		named := testName.FindAllStringSubmatch(row[1], -1)
		if len(named) == 0 {
			faults = append(faults, ofInterop+": no test is named in "+row[0])
		}
		for _, m := range named {
			if !tests[m[1]] {
				faults = append(faults, ofInterop+": there is no "+m[1])
			}
		}
	}
	return faults
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
			fault(at, pageOf(id)+" has no "+id+": correct the citation, or add the row")
		}
	}
	for _, m := range matches(requirement, text, "R-", "S-", "I-", "O-") {
		letter := text[m[2]:m[3]]
		cite(m[0], letter+"-"+text[m[4]:m[5]])
		if m[6] < 0 {
			continue
		}
		first, _ := strconv.Atoi(text[m[4]:m[5]])
		last, _ := strconv.Atoi(text[m[6]:m[7]])
		if last <= first || last-first > 100 {
			fault(m[0], text[m[0]:m[1]]+" is no range")
			continue
		}
		for n := first + 1; n <= last; n++ {
			cite(m[0], fmt.Sprintf("%s-%03d", letter, n))
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

// TestCitations looks up each citation of comments and tests: it is in docs/dev/protocol.md or docs/dev/internals.md, and no
// requirement is there that nobody cites, or whose tests are gone.
func TestCitations(t *testing.T) {
	scaletest.Unraced(t)
	page, err := os.ReadFile(filepath.Join(root, ofProtocol))
	if err != nil {
		t.Fatal(err)
	}
	internals, err := os.ReadFile(filepath.Join(root, ofInternals))
	if err != nil {
		t.Fatal(err)
	}
	interop, err := os.ReadFile(filepath.Join(root, ofInterop))
	if err != nil {
		t.Fatal(err)
	}
	known, faults := entries(string(page), string(internals))
	cited, tests := map[string]bool{}, map[string]bool{}
	files := 0
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch base := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && name != root && (strings.HasPrefix(base, ".") || base == "node_modules"):
			return fs.SkipDir
		case !d.Type().IsRegular() || !slices.Contains([]string{".go", ".txtar"}, filepath.Ext(name)):
			return nil
		}
		rel := strings.TrimPrefix(filepath.ToSlash(name), root+"/")
		if rel == "docs/citations_test.go" { // it has citations that are wrong
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		files++
		text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
		faults = append(faults, citations(rel, string(text), known, cited)...)
		if strings.HasSuffix(rel, "_test.go") {
			for _, m := range testFunction.FindAllSubmatch(text, -1) {
				tests[string(m[1])] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for id := range known {
		if strings.Contains(id, "-") && !cited[id] {
			faults = append(faults, pageOf(id)+": nobody cites "+id+": remove the row")
		}
	}
	faults = append(faults, shown(string(internals), tests)...)
	faults = append(faults, unshown(string(interop), tests)...)
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
	const rows = "| S-010 | one owner | `TestA` |\n| S-011 | fenced | `TestA` and `TestB` |\n| S-010 | again | it is so |\n| S-012 | x |\n"
	known, faults := entries("# P\n## A. Old\n### A7. HTTP\n#### D1.4 Questions\n| D1.4.6 | retries |\n## F. Limits\n"+
		"| R-001 | must | x | all |\n| R-002 | should | x | bridge |\n| R-004 | must | x | all |\n"+
		"| R-005 | maybe | x | all |\n| R-006 | must | x |  \n| R-001 | must | again | all |\n", rows)
	if want := []string{"docs/dev/protocol.md has R-001 twice", "docs/dev/internals.md has S-010 twice"}; !slices.Equal(faults, want) {
		t.Errorf("entries: faults %q, want %q", faults, want)
	}
	if got, want := shown(rows, map[string]bool{"TestA": true}), []string{"docs/dev/internals.md: there is no TestB, which S-011 names"}; !slices.Equal(got, want) {
		t.Errorf("shown = %q, want %q", got, want)
	}
	odd := "| a server | the bridge | shown by |\n| --- | --- | --- |\n| a | b | `TestA`, `TestB` |\n| c | d | it is so |\n"
	if got, want := unshown(odd, map[string]bool{"TestA": true}), []string{"docs/interop.md: there is no TestB", "docs/interop.md: no test is named in | c | d | it is so |"}; !slices.Equal(got, want) {
		t.Errorf("unshown = %q, want %q", got, want)
	}
	const no = ": correct the citation, or add the row"
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"known", "// R-001, R-002: x (protocol.md A7, D1.4.6, F).\n// y (D1.4)\n", nil},
		{"requirement", "\n// R-003: x\n", []string{"f:2: docs/dev/protocol.md has no R-003" + no}},
		{"requirement of a row that has no level", "// R-005\n", []string{"f:1: docs/dev/protocol.md has no R-005" + no}},
		{"requirement of a row that has no source", "// R-006\n", []string{"f:1: docs/dev/protocol.md has no R-006" + no}},
		{"requirement with a digit too few", "// R-01\n", []string{"f:1: docs/dev/protocol.md has no R-01" + no}},
		{"of several instances", "// (S-010, S-011)\n", nil},
		{"of identity, without a row", "// (I-010)\n", []string{"f:1: docs/dev/internals.md has no I-010" + no}},
		{"of operators, without a row", "// (O-010)\n", []string{"f:1: docs/dev/internals.md has no O-010" + no}},
		{"of several instances, without a row", "// (S-010, S-012)\n", []string{"f:1: docs/dev/internals.md has no S-012" + no}},
		{"range", "// R-001 to R-002\n", nil},
		{"range of several instances", "// S-010 to S-012\n", []string{"f:1: docs/dev/internals.md has no S-012" + no}},
		{"range with a gap, over two lines", "// R-001 to\n// R-004\n", []string{"f:1: docs/dev/protocol.md has no R-003" + no}},
		{"range backwards", "// R-002 to R-001\n", []string{"f:1: R-002 to R-001 is no range"}},
		{"section", "x\n// y (protocol.md A8)\n", []string{"f:2: docs/dev/protocol.md has no A8" + no}},
		{"section on the next line", "// y (protocol.md\n// A8).\n", []string{"f:2: docs/dev/protocol.md has no A8" + no}},
		{"section that is a letter", "// y (protocol.md D1.4, C)\n", []string{"f:1: docs/dev/protocol.md has no C" + no}},
		{"section of no part", "// y (protocol.md G1, Z)\n", []string{"f:1: docs/dev/protocol.md has no G1" + no, "f:1: docs/dev/protocol.md has no Z" + no}},
		{"no section", "// see protocol.md\nvar x int\n", []string{"f:1: protocol.md is cited without a section"}},
		{"row", "// y (D1.4.7; D1.4)\n", []string{"f:1: docs/dev/protocol.md has no D1.4.7" + no}},
		{"at the beginning of a file", "D1.5: x\n", []string{"f:1: docs/dev/protocol.md has no D1.5" + no}},
		{"at the end of a file", "// A8", []string{"f:1: docs/dev/protocol.md has no A8" + no}},
		{"in a test's name", "{\"C2.2 modern\", 1}", []string{"f:1: docs/dev/protocol.md has no C2.2" + no}},
		{"one line after the other", "// E2\n// E3\n", []string{"f:1: docs/dev/protocol.md has no E2" + no, "f:2: docs/dev/protocol.md has no E3" + no}},
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
