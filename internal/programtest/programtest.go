// Package programtest provides programs for tests: programs of this module, and npm packages. Tests of
// several packages run at the same time and need the same programs: each is built or installed once.
//
// "make test" names a new, empty folder in BRIDGE_TEST_PROGRAMS, where all tests of that run build. Without the
// variable, as with plain "go test", each package builds for itself. A program is never older than its
// source: every test process calls the go command, which rebuilds only changed packages.
package programtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/gofrs/flock"
)

// own makes the folder for the builds of this process if BRIDGE_TEST_PROGRAMS is not set.
var own = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "programs-")
	ownDir = dir
	return dir, err
})

// ownDir is the folder that the function own made; empty before its first call.
var ownDir string

// Main runs the tests of a package that uses Build, and returns the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	if ownDir != "" {
		os.RemoveAll(ownDir)
	}
	return code
}

// builds holds a func() (string, error) for each program, by its path below the folder.
var builds sync.Map

// Build builds a program and returns its path. The package path is relative to the repository, such as
// ./cmd/bridge. With race, the program has the race detector. TestMain must call Main.
func Build(t testing.TB, pkg string, race bool) string {
	t.Helper()
	name := filepath.Join(map[bool]string{false: "plain", true: "race"}[race], filepath.FromSlash(pkg))
	build, _ := builds.LoadOrStore(name, sync.OnceValues(func() (string, error) {
		dir, err := os.Getenv("BRIDGE_TEST_PROGRAMS"), error(nil)
		if dir == "" {
			if dir, err = own(); err != nil {
				return "", err
			}
		}
		root, err := Root()
		if err != nil {
			return "", err
		}
		return build(root, filepath.Join(dir, name), pkg, race)
	}))
	path, err := build.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// build builds a package of the module at root, as the file target.
func build(root, target, pkg string, race bool) (string, error) {
	if runtime.GOOS == "windows" {
		target += ".exe"
	}
	unlock, err := lock(target + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	args := []string{"build", "-tags=nomsgpack", "-ldflags=-s -w", "-o", target} // debug information takes half of the time
	if race {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, pkg)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return target, nil
}

// lock waits for the lock at path and takes it.
func lock(path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	l := flock.New(path)
	if err := l.Lock(); err != nil {
		return nil, err
	}
	return func() { l.Unlock() }, nil
}

// ErrNotInstalled means that npm packages are missing and must not be installed.
var ErrNotInstalled = errors.New("are not installed")

// Packages returns the folder node_modules with all packages of the package-lock.json in a folder, such as
// integration, relative to the repository. With install it installs missing packages. It waits for another
// process that installs them.
func Packages(folder string, install bool) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	return packages(filepath.Join(root, filepath.FromSlash(folder)), install)
}

func packages(dir string, install bool) (string, error) {
	modules := filepath.Join(dir, "node_modules")
	wanted, err := os.Stat(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return "", err
	}
	complete := func() bool { // npm writes this file last
		done, err := os.Stat(filepath.Join(modules, ".package-lock.json"))
		return err == nil && !done.ModTime().Before(wanted.ModTime())
	}
	if complete() {
		return modules, nil
	}
	if !install {
		return "", ErrNotInstalled
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(dir, ".npm.lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if complete() { // another process has installed them
		return modules, nil
	}
	cmd := exec.Command(npm, "ci", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	return modules, nil
}

// began is the folder in which the tests began: some tests change it.
var began, errBegan = os.Getwd()

// Root returns the folder of the repository.
func Root() (string, error) {
	for dir := began; errBegan == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			return "", os.ErrNotExist
		}
	}
	return "", errBegan
}
