// Package programtest provides programs for tests: programs of this module, programs of the system, and npm packages. A
// test that uses this package belongs to "make integration" and is skipped in short mode, as in "make test".
//
// Before the tests, "make integration" builds the programs into a folder and sets BRIDGE_TEST_PROGRAMS to that folder.
// The name of the folder is a hash of the programs' bytes, so the go command keeps test results as long as the programs
// are the same. If a program is not there, as with plain "go test", each test process that needs the program builds it.
package programtest

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/gofrs/flock"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// own makes the folder for the programs that this process builds.
var own = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "programs-")
	ownDir = dir
	return dir, err
})

// ownDir is the folder that own made, or empty before the first call of own.
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

// Build returns the path of a program. The package path is relative to the repository, such as ./cmd/bridge. With race,
// the program has the race detector. TestMain must call Main.
func Build(t testing.TB, pkg string, race bool) string {
	t.Helper()
	scaletest.Integration(t)
	name := filepath.Join(map[bool]string{false: "plain", true: "race"}[race], path.Base(pkg))
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	built, _ := builds.LoadOrStore(name, sync.OnceValues(func() (string, error) {
		if dir := os.Getenv("BRIDGE_TEST_PROGRAMS"); dir != "" {
			if _, err := os.Stat(dir); err != nil {
				return "", fmt.Errorf("BRIDGE_TEST_PROGRAMS: %w", err)
			}
			program := filepath.Join(dir, name)
			if _, err := os.Stat(program); err == nil {
				return program, nil
			}
		}
		dir, err := own()
		if err != nil {
			return "", err
		}
		root, err := Root()
		if err != nil {
			return "", err
		}
		program := filepath.Join(dir, name)
		return program, build(root, program, pkg, race)
	}))
	program, err := built.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

func build(root, target, pkg string, race bool) error {
	args := []string{"build", "-tags=nomsgpack", "-ldflags=-s -w", "-buildvcs=false", "-o", target} // debug information would take half of the time
	if race {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, pkg)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return nil
}

// Packages returns the folder node_modules with all packages of the package-lock.json in a folder. The folder, such as
// integration, is relative to the repository. Packages installs missing packages, or waits for another process that
// installs them.
func Packages(t testing.TB, folder string) string {
	t.Helper()
	npm := Need(t, "npm")
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	modules, err := packages(npm, filepath.Join(root, filepath.FromSlash(folder)))
	if err != nil {
		t.Fatal(err)
	}
	return modules
}

func packages(npm, dir string) (string, error) {
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
	lock := flock.New(filepath.Join(dir, ".npm.lock"))
	if err := lock.Lock(); err != nil {
		return "", err
	}
	defer lock.Unlock()
	if complete() { // another process has installed the packages
		return modules, nil
	}
	cmd := exec.Command(npm, "ci", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	return modules, nil
}

// began is the folder in which the tests began. Some tests change the current folder.
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
