package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// A client of the SDK's leaves without a word. The process of its session ends, long before
// session_idle.
func TestLeaves(t *testing.T) {
	scaletest.Large(t)
	t.Parallel()
	p := serveFile(t, writeFile(t, t.TempDir(), "bridge.yaml", fmt.Sprintf("listen: 127.0.0.1:0\nsession_left: 1s\nservers:\n  fake:\n    stdio: { command: %q }\n", fakeProgram(t))))
	for range 2 {
		if got := string(runNode(t, "leaves.mjs", p.base+"/mcp", "echo")); !strings.Contains(got, "hello") {
			t.Fatalf("the client was told %q", got)
		}
	}
	p.childless(t)
}
