package programtest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// A program of the folder that BRIDGE_TEST_PROGRAMS names is used as it is. One that is not there is built.
func TestBuild(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("BRIDGE_TEST_PROGRAMS", folder)
	there := filepath.Join(folder, "race", "bridge")
	write(t, there, "a program", 0o700)
	if got := Build(t, "./cmd/bridge", true); got != there {
		t.Errorf("Build = %s, want %s", got, there)
	}
	root, target := t.TempDir(), filepath.Join(t.TempDir(), "plain", "hello")
	write(t, filepath.Join(root, "go.mod"), "module hello\n", 0o600)
	source := filepath.Join(root, "hello", "main.go")
	write(t, source, "package main\n\nfunc main() { println(\"one\") }\n", 0o600)
	if err := build(root, target, "./hello", false); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(target).CombinedOutput(); err != nil || string(out) != "one\n" {
		t.Errorf("the program says %q, %v", out, err)
	}
	write(t, source, "package main\n\nfunc main() { no }\n", 0o600)
	if err := build(root, target, "./hello", false); err == nil || !strings.Contains(err.Error(), "undefined: no") {
		t.Errorf("build = %v for a fault in the source", err)
	}
}

// Concurrent callers may need packages while a folder is half installed: one installs, and nobody gets the folder
// before it is complete.
func TestPackages(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("stands in for npm with a script")
	}
	dir, bin := t.TempDir(), t.TempDir()
	write(t, filepath.Join(bin, "npm"), `#!/bin/sh
echo "$@" >> installed
mkdir -p node_modules
echo half > node_modules/a
echo whole > node_modules/a
echo '{}' > node_modules/.package-lock.json
`, 0o700)
	npm := filepath.Join(bin, "npm")
	if _, err := packages(npm, dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("packages = %v without package-lock.json", err)
	}
	locked := filepath.Join(dir, "package-lock.json")
	write(t, locked, "{}", 0o600)
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(locked, long, long); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "node_modules", "a"), "half\n", 0o600)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			modules, err := packages(npm, dir)
			if err != nil {
				t.Error(err)
				return
			}
			if text, err := os.ReadFile(filepath.Join(modules, "a")); string(text) != "whole\n" {
				t.Errorf("a package has %q, %v", text, err)
			}
		})
	}
	all.Wait()
	installed := func(want int) {
		t.Helper()
		if log, err := os.ReadFile(filepath.Join(dir, "installed")); strings.Count(string(log), "\n") != want {
			t.Errorf("installed %q, %v, want %d times", log, err, want)
		}
	}
	installed(1)
	later := time.Now().Add(time.Hour) // other packages are needed now
	if err := os.Chtimes(locked, later, later); err != nil {
		t.Fatal(err)
	}
	if _, err := packages(npm, dir); err != nil {
		t.Error(err)
	}
	installed(2)
}

// Each package with tests that are skipped in short mode, and not by "make integration" too, is among those of "make
// integration".
func TestStarts(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(makefile), "\nSTARTS ")
	line, _, _ = strings.Cut(line, "\n")
	starts := strings.Fields(line)[1:]
	asks := regexp.MustCompile(`\b(programtest\.(Build|Need|Packages)|redistest\.Start|scaletest\.Integration)\(`)
	found := 0
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		switch name := filepath.Base(path); {
		case err != nil:
			return err
		case d.IsDir() && (name == "node_modules" || name == "programtest" || path == filepath.Join(root, "deploy", "check")):
			return filepath.SkipDir
		case !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		tests := strings.Count(string(text), "\nfunc Test")                                              // benchmarks are run by hand
		if err != nil || !asks.Match(text) || tests == strings.Count(string(text), "scaletest.Large(") { // only "make soak" runs them
			return err
		}
		found++
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		folder = "./" + filepath.ToSlash(folder)
		if !slices.ContainsFunc(starts, func(s string) bool {
			below, all := strings.CutSuffix(s, "/...")
			return folder == s || all && (folder == below || strings.HasPrefix(folder, below+"/"))
		}) {
			t.Errorf("%s starts programs: add its package to STARTS in Makefile", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 20 {
		t.Errorf("%d files start programs: the test looks for the wrong thing", found)
	}
}
