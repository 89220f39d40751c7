package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// binary is the compiled tests of a package.
type binary struct {
	pkg   string // such as bridge/gateway
	dir   string // the folder of the package, in which its tests run
	path  string
	tests []*test // in the order of the source, without those that fail without a mutant
}

// test is one function of a binary.
type test struct {
	name    string
	took    time.Duration // alone, without a mutant
	reached map[int]bool  // the ids of mutants
}

// patience is how long tests may take on a mutant: a mutant may make them wait for ever.
func patience(tests []*test) time.Duration {
	sum := 4 * time.Second
	for _, t := range tests {
		sum += 5 * t.took
	}
	return sum
}

// names returns the names of the tests of a binary, without examples, benchmarks and fuzz targets.
func (b *binary) names(ctx context.Context) ([]string, error) {
	cmd := exec.CommandContext(ctx, b.path, "-test.list", "^Test")
	cmd.Dir = b.dir
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w", b.pkg, err)
	}
	return strings.Fields(string(out)), nil
}

// trace runs one test without a mutant, and returns which mutants are on its way. It returns nil if the test fails.
func (b *binary) trace(ctx context.Context, name, file string) *test {
	begin := time.Now()
	if _, err := b.run(ctx, []string{name}, 5*time.Minute, "MUTANT_TRACE="+file); err != nil {
		return nil
	}
	t := &test{name: name, took: time.Since(begin), reached: map[int]bool{}}
	data, _ := os.ReadFile(file) // none if the test reaches no mutant
	for _, line := range strings.Fields(string(data)) {
		if id, err := strconv.Atoi(line); err == nil {
			t.reached[id] = true
		}
	}
	return t
}

// kills runs the tests of a binary that reach a mutant, the quickest first, and returns the name of the first that
// fails.
func (b *binary) kills(ctx context.Context, id int) (name string, killed bool) {
	var tests []*test
	for _, t := range b.tests {
		if t.reached[id] {
			tests = append(tests, t)
		}
	}
	slices.SortStableFunc(tests, func(a, b *test) int { return cmp.Compare(a.took, b.took) })
	// Most mutants are killed by a quick test: the slow half runs for the others.
	for _, some := range [][]*test{tests[:len(tests)/2], tests[len(tests)/2:]} {
		if name, killed = b.killedBy(ctx, some, id); killed {
			return name, true
		}
	}
	return "", false
}

// killedBy runs some tests on a mutant.
func (b *binary) killedBy(ctx context.Context, tests []*test, id int) (name string, killed bool) {
	if len(tests) == 0 {
		return "", false
	}
	var names []string
	for _, t := range tests {
		names = append(names, t.name)
	}
	out, err := b.run(ctx, names, patience(tests), "MUTANT="+strconv.Itoa(id))
	if err == nil || ctx.Err() != nil {
		return "", false
	}
	return failed(out), true
}

// run runs tests of a binary. Tests that a mutant makes take memory without end are stopped at 8 GB.
func (b *binary) run(ctx context.Context, names []string, limit time.Duration, env string) ([]byte, error) {
	ctx, stop := context.WithTimeout(ctx, limit+10*time.Second) // if the time-out of the tests is not enough
	defer stop()
	args := []string{"-c", `ulimit -v 8000000; exec "$@"`, "sh", b.path, "-test.short", "-test.failfast", "-test.v",
		"-test.timeout", limit.String(), "-test.run", "^(" + strings.Join(names, "|") + ")$"}
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), env)
	cmd.WaitDelay = time.Second // a child of a test may hold the output
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	return out.Bytes(), err
}

var (
	failure = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)
	running = regexp.MustCompile(`(?m)^\trunning tests:\n\t\t(\w+)`)
	started = regexp.MustCompile(`(?m)^=== RUN +(\w+)$`)
)

// failed returns the name of the test that failed: that which says so, which ran at the time-out, or which
// began last before the process ended.
func failed(out []byte) string {
	for _, r := range []*regexp.Regexp{failure, running} {
		if m := r.FindSubmatch(out); m != nil {
			return string(m[1])
		}
	}
	if all := started.FindAllSubmatch(out, -1); all != nil {
		return string(all[len(all)-1][1])
	}
	return "?"
}

// newBinary finds the tests of a package among the compiled ones.
func newBinary(root, folder, pkg string) *binary {
	return &binary{pkg: pkg, dir: filepath.Join(root, pkg), path: filepath.Join(folder, strings.ReplaceAll(pkg, "/", "_")+".test")}
}
