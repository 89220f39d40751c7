package programtest

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// Need returns the path of a program of the system. If the program is not in PATH, Need skips the test, or fails it if
// BRIDGE_TEST_REQUIRE names the program or is "all".
func Need(t testing.TB, program string) string {
	t.Helper()
	scaletest.Integration(t)
	path, err := exec.LookPath(program)
	if err != nil {
		Missing(t, program, err)
	}
	return path
}

// Missing does what Need does about a missing program. why is the reason why name is missing.
func Missing(t testing.TB, name string, why error) {
	t.Helper()
	if all := strings.Split(os.Getenv("BRIDGE_TEST_REQUIRE"), ","); slices.Contains(all, name) || slices.Contains(all, "all") {
		t.Fatalf("%s is required by BRIDGE_TEST_REQUIRE: %v", name, why)
	}
	t.Skipf("needs %s: %v", name, why)
}
