package integration

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of the documentation anew")

// Where the table stands in its page.
const tableBegin, tableEnd = "<!-- table: written by the tests -->", "<!-- end of table -->"

// refusals are the numbers of what cannot be translated, in the words of the page.
var refusals = map[string]string{
	"2": "a server asks something during a request that cannot carry questions in 2026-07-28",
	"5": "a legacy client refuses what a modern server asks for: the call ends with a result that says so",
	"6": "a server asks for something that the client's revision does not have",
	"7": "the same, for several choices in one field of a form and for sampling with tools",
	"8": "the same, for elicitation by URL",
}

// preface says what was played.
const preface = "What clients of each revision get from servers of each, by playing it: over every pair of transports that the two revisions have\n" +
	"(stdio; HTTP+SSE for legacy ones; Streamable HTTP from 2025-03-26 on), with clients and servers by the TypeScript SDK, 1.x and 2.x, and the Go SDK."

// legend explains the second table.
const legend = "*yes*: as if the client spoke to the server itself. *adapted*: in the terms of the older revision. *refused*: for the reason\n" +
	"with that number above. –: this client's revision has no such thing. In parentheses: for servers of which revisions, of those that have it."

func absolute(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// add keeps the checks in the order in which the script has them.
func (o *outcomes) add(check string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Contains(o.checks, check) {
		o.checks = append(o.checks, check)
	}
}

// table is what the cells have shown, for people: first which pair of
// revisions carries what, then which feature is carried how.
func (o *outcomes) table() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var b strings.Builder
	row := func(first string, cells ...string) {
		fmt.Fprintf(&b, "| %s | %s |\n", first, strings.Join(cells, " | "))
	}
	b.WriteString(preface + "\n\n")
	row("client \\ server", revisions...)
	row("---", slices.Repeat([]string{"---"}, len(revisions))...)
	named := map[string]bool{}
	for _, client := range revisions {
		var cells []string
		for _, server := range revisions {
			var refused []string
			for _, check := range o.checks {
				if n, ok := strings.CutPrefix(o.of[outcome{check, client, server}], "refused: "); ok && !slices.Contains(refused, n) {
					refused = append(refused, n)
					named[n] = true
				}
			}
			slices.Sort(refused)
			cell := "all"
			if len(refused) > 0 {
				cell += ", but " + strings.Join(refused, ", ")
			}
			cells = append(cells, cell)
		}
		row("**"+client+"**", cells...)
	}
	b.WriteString("\n")
	for _, n := range slices.Sorted(maps.Keys(refusals)) {
		if named[n] {
			fmt.Fprintf(&b, "- %s: %s.\n", n, refusals[n])
		}
	}
	b.WriteString("\n" + legend + "\n\n")
	var clients []string
	for _, client := range revisions {
		clients = append(clients, "client "+client)
	}
	row("feature", clients...)
	row("---", slices.Repeat([]string{"---"}, len(revisions))...)
	for _, check := range o.checks {
		var cells []string
		for _, client := range revisions {
			cells = append(cells, o.overServers(check, client))
		}
		row(check, cells...)
	}
	return b.String()
}

// overServers says in one cell what a client gets of a feature from servers of
// each revision that has it.
func (o *outcomes) overServers(check, client string) string {
	var runs []struct{ is, from, to string }
	for _, server := range revisions {
		is := o.of[outcome{check, client, server}]
		switch is {
		case "full":
			is = "yes"
		case "graded":
			is = "adapted"
		}
		if n := len(runs); n > 0 && runs[n-1].is == is {
			runs[n-1].to = server
		} else {
			runs = append(runs, struct{ is, from, to string }{is, server, server})
		}
	}
	runs = slices.DeleteFunc(runs, func(r struct{ is, from, to string }) bool { return r.is == "absent" })
	switch {
	case len(runs) == 0:
		return "–"
	case len(runs) == 1:
		return runs[0].is
	}
	var parts []string
	for _, r := range runs {
		switch {
		case r.from == r.to:
			parts = append(parts, fmt.Sprintf("%s (%s)", r.is, r.from))
		case r.to == modern:
			parts = append(parts, fmt.Sprintf("%s (from %s)", r.is, r.from))
		default:
			parts = append(parts, fmt.Sprintf("%s (to %s)", r.is, r.to))
		}
	}
	return strings.Join(parts, ", ")
}

// documented checks that a page has the table, or with -update writes it there.
func documented(t *testing.T, page, table string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(text), tableBegin)
	old, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok1 || !ok2 {
		t.Fatalf("%s does not say where the table begins and ends", page)
	}
	if strings.TrimSpace(old) == strings.TrimSpace(table) {
		return
	}
	if !*update {
		t.Errorf("%s has another table: run the test with -update, and read what has changed", page)
		return
	}
	text = []byte(before + tableBegin + "\n\n" + table + "\n" + tableEnd + after)
	if err := os.WriteFile(page, text, 0o644); err != nil {
		t.Fatal(err)
	}
}
