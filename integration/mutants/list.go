package main

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// mutant is a change of the program that a test should notice. It is found again by all of its fields: none of them is
// a number of a line.
type mutant struct {
	Package  string
	File     string
	Function string
	Kind     string
	Ordinal  int // among mutants with the same text
	Text     string
}

func (m mutant) String() string {
	return strings.Join([]string{m.Package, m.File, m.Function, m.Kind, strconv.Itoa(m.Ordinal), m.Text}, "\t")
}

// killer is the test that failed on a mutant. The zero killer says that none did.
type killer struct{ Package, Test string }

func (k killer) String() string {
	if k == (killer{}) {
		return "survives"
	}
	return k.Package + " " + k.Test
}

// list has the outcome of each mutant.
type list map[mutant]killer

// readList reads a list. A file that is not there is an empty list.
func readList(name string) (list, error) {
	l := list{}
	data, err := os.ReadFile(name)
	if os.IsNotExist(err) {
		return l, nil
	}
	if err != nil {
		return nil, err
	}
	for s := bufio.NewScanner(strings.NewReader(string(data))); s.Scan(); {
		f := strings.Split(s.Text(), "\t")
		if strings.HasPrefix(s.Text(), "#") {
			continue
		}
		if len(f) != 7 {
			return nil, fmt.Errorf("%s: not a mutant: %s", name, s.Text())
		}
		ordinal, err := strconv.Atoi(f[4])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		var k killer
		if f[6] != k.String() {
			k.Package, k.Test, _ = strings.Cut(f[6], " ")
		}
		l[mutant{f[0], f[1], f[2], f[3], ordinal, f[5]}] = k
	}
	return l, nil
}

// write writes the list in a fixed order, with the numbers of each package at its top.
func (l list) write(name string) error {
	var lines []string
	for m, k := range l {
		lines = append(lines, m.String()+"\t"+k.String())
	}
	slices.Sort(lines)
	return os.WriteFile(name, []byte(l.summary()+strings.Join(lines, "\n")+"\n"), 0o644)
}

// summary counts the mutants of each package.
func (l list) summary() string {
	all, killed, packages := map[string]int{}, map[string]int{}, []string{}
	for m, k := range l {
		for _, of := range []string{m.Package, "all"} {
			if all[of]++; all[of] == 1 && of != "all" {
				packages = append(packages, of)
			}
			if k != (killer{}) {
				killed[of]++
			}
		}
	}
	slices.SortFunc(packages, cmp.Compare[string])
	var b strings.Builder
	for _, p := range append(packages, "all") {
		fmt.Fprintf(&b, "# %-36s %5d mutants %5d killed %5d survive\n", p, all[p], killed[p], all[p]-killed[p])
	}
	return b.String()
}
