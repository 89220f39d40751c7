package programtest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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

// A program is built again only if its source has changed.
func TestBuild(t *testing.T) {
	root, target := t.TempDir(), filepath.Join(t.TempDir(), "plain", "hello")
	write(t, filepath.Join(root, "go.mod"), "module hello\n", 0o600)
	said := func(text string) (string, os.FileInfo) {
		t.Helper()
		write(t, filepath.Join(root, "hello", "main.go"), "package main\n\nfunc main() { println(\""+text+"\") }\n", 0o600)
		path, err := build(root, target, "./hello", false)
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(path).CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Link(path, filepath.Join(t.TempDir(), "kept")); err != nil { // its inode is not reused
			t.Fatal(err)
		}
		built, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out)), built
	}
	one, first := said("one")
	again, second := said("one")
	two, third := said("two")
	if one != "one" || again != "one" || two != "two" {
		t.Errorf("the programs say %q, %q and %q, want one, one and two", one, again, two)
	}
	if !os.SameFile(first, second) || os.SameFile(second, third) {
		t.Error("want the second to be the file that was there, and the third another one")
	}
	write(t, filepath.Join(root, "hello", "main.go"), "package main\n\nfunc main() { no }\n", 0o600)
	if _, err := build(root, target, "./hello", false); err == nil || !strings.Contains(err.Error(), "undefined: no") {
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
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	if _, err := packages(dir, true); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("packages = %v without package-lock.json", err)
	}
	locked := filepath.Join(dir, "package-lock.json")
	write(t, locked, "{}", 0o600)
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(locked, long, long); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "node_modules", "a"), "half\n", 0o600)
	if _, err := packages(dir, false); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("packages = %v for a folder that is half full, want ErrNotInstalled", err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			modules, err := packages(dir, true)
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
	if log, err := os.ReadFile(filepath.Join(dir, "installed")); strings.Count(string(log), "\n") != 1 {
		t.Errorf("installed %q, %v, want once", log, err)
	}
	if _, err := packages(dir, false); err != nil {
		t.Errorf("packages = %v when they are there", err)
	}
	later := time.Now().Add(time.Hour) // other packages are needed now
	if err := os.Chtimes(locked, later, later); err != nil {
		t.Fatal(err)
	}
	if _, err := packages(dir, false); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("packages = %v for those of an older package-lock.json, want ErrNotInstalled", err)
	}
}
