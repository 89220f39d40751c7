package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// parse checks the types of files without imports.
func parse(t *testing.T, fset *token.FileSet, texts ...string) ([]*ast.File, *types.Info) {
	t.Helper()
	var files []*ast.File
	for _, text := range texts {
		f, err := parser.ParseFile(fset, "", text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		files = append(files, f)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	if _, err := (&types.Config{}).Check("p", fset, files, info); err != nil {
		t.Fatalf("%v:\n%s", err, strings.Join(texts, "\n"))
	}
	return files, info
}

func TestRewrite(t *testing.T) {
	for _, c := range []struct {
		name, in, want string
		mutants        []string
	}{
		{
			name:    "operands of a condition",
			in:      `func f(a, b bool, s []int) int { if a && (b || s == nil) { return 1 }; return 0 }`,
			want:    `func f(a, b bool, s []int) int { if (mutated(7) != (a)) && ((mutated(8) != (b)) || (mutated(9) != (s == nil))) { return 1 }; return 0 }`,
			mutants: []string{"negated 0 a", "negated 0 b", "negated 0 s == nil"},
		},
		{
			name:    "operands of a result",
			in:      `func f(a, b, c bool) bool { return a && b && c }`,
			want:    `func f(a, b, c bool) bool { return (mutated(7) != (a)) && (mutated(8) != (b)) && (mutated(9) != (c)) }`,
			mutants: []string{"negated 0 a", "negated 0 b", "negated 0 c"},
		},
		{
			name:    "constants and other types are no conditions",
			in:      `type yes bool; const on = true; func f(y yes) yes { if on { return y == true }; return y }`,
			mutants: nil,
		},
		{
			name: "bounds that are computed without a call",
			in:   `func g() int { return 1 }; func f(n int, s []int) { for n < len(s) { n++ }; if n >= g() { n++ } }`,
			want: `func g() int { return 1 }; func f(n int, s []int) { for mutated(8) != (n < len(s) || mutated(7) && n == len(s)) { n++ }; if mutated(9) != (n >= g()) { n++ } }`,
			mutants: []string{
				"bound 0 n < len(s)",
				"negated 0 n < len(s)",
				"negated 0 n >= g()",
			},
		},
		{
			name:    "closed bound",
			in:      `func f(a, b int) bool { return a <= b }`,
			want:    `func f(a, b int) bool { return (mutated(8) != (a <= b && !(mutated(7) && a == b))) }`,
			mutants: []string{"bound 0 a <= b", "negated 0 a <= b"},
		},
		{
			name:    "dropped calls, but for locks and panics",
			in:      `type m struct{}; func (m) Lock() {}; func g() {}; func f(x m) int { x.Lock(); defer g(); g(); g(); panic(1) }`,
			want:    `type m struct{}; func (m) Lock() {}; func g() {}; func f(x m) int { x.Lock(); if !mutated(7) { defer g() }; if !mutated(8) { g() }; if !mutated(9) { g() }; panic(1) }`,
			mutants: []string{"dropped 0 defer g()", "dropped 0 g()", "dropped 1 g()"},
		},
		{
			name:    "swapped cases",
			in:      `func f(n int) int { switch n { case 1: return 10; case 2: return 20; default: return 30 } }`,
			want:    `func f(n int) int { switch n { case 1: if mutated(7) { return 20 } else { return 10 }; case 2: if mutated(8) { return 30 } else { if mutated(7) { return 10 } else { return 20 } }; default: if mutated(8) { return 20 } else { return 30 } } }`,
			mutants: []string{"swapped 0 case 1: case 2:", "swapped 0 case 2: default:"},
		},
		{
			name:    "cases that cannot be swapped",
			in:      `func f(v any, n int, c chan int) { switch v := v.(type) { case int: _ = v + 1; case string: _ = v + "" }; switch n { case 1: fallthrough; case 2: n++ }; select { case n := <-c: _ = n; case c <- 1: n++ } }`,
			mutants: nil,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			fset := token.NewFileSet()
			text := "package p; " + c.in
			files, info := parse(t, fset, text)
			got, found, err := rewrite(source{pkg: "p", name: "p.go", text: []byte(text), fset: fset, file: files[0], info: info}, 7)
			if err != nil {
				t.Fatal(err)
			}
			var mutants []string
			for _, m := range found {
				mutants = append(mutants, strings.Join(strings.Fields(m.String())[3:], " "))
			}
			if !slices.Equal(mutants, c.mutants) {
				t.Errorf("mutants are %q, want %q", mutants, c.mutants)
			}
			if c.want == "" {
				return
			}
			if got, want := tokens(string(got)), tokens("package p; "+c.want); got != want {
				t.Errorf("rewrite gives\n%s\nwant\n%s", got, want)
			}
			parse(t, token.NewFileSet(), string(got), "package p; func mutated(int) bool { return false }")
		})
	}
}

// tokens returns a text without what gofmt changes.
func tokens(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(strings.ReplaceAll(text, ";", " ")), ""), "\t", "")
}

func TestList(t *testing.T) {
	m := mutant{Package: "bridge/conn", File: "conn.go", Function: "(*Conn).Call", Kind: negated, Text: `a == "b c"`}
	again := m
	again.Ordinal = 1
	want := list{m: {"bridge/gateway", "TestCall"}, again: {}}
	name := filepath.Join(t.TempDir(), "list.txt")
	if l, err := readList(name); err != nil || len(l) > 0 {
		t.Errorf("a list that is not there is %v, %v, want an empty one", l, err)
	}
	if err := want.write(name); err != nil {
		t.Fatal(err)
	}
	got, err := readList(name)
	if err != nil || len(got) != 2 || got[m] != want[m] || got[again] != want[again] {
		t.Errorf("the list that was read is %v, %v, want %v", got, err, want)
	}
	if err := os.WriteFile(name, []byte("conn.go\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := readList(name); err == nil {
		t.Errorf("a line without columns is read as %v", l)
	}
}

func TestFailed(t *testing.T) {
	for out, want := range map[string]string{
		"=== RUN   TestA\n=== RUN   TestB\n--- PASS: TestA (0.00s)\n--- FAIL: TestB (0.00s)\n":                        "TestB",
		"=== RUN   TestA\npanic: test timed out after 10s\n\trunning tests:\n\t\tTestA (10s)\n":                       "TestA",
		"=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\n=== RUN   TestB/one\nfatal error: all goroutines": "TestB",
		"signal: killed": "?",
	} {
		if got := failed([]byte(out)); got != want {
			t.Errorf("failed(%q) = %s, want %s", out, got, want)
		}
	}
}
