package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/cmd/bridge/exit"
)

// A document is no program. That is said before anything is served, and so is
// what to do.
func TestRunDocument(t *testing.T) {
	path := file(t, "api.yaml", "openapi: 3.0.0\npaths: {}\n")
	for _, args := range [][]string{{path}, {"--cwd", filepath.Dir(path), "--", "./api.yaml"}} {
		code, stdout, stderr := in(t, append([]string{"run"}, args...)...)
		if code != exit.Usage || stdout != "" || !strings.Contains(stderr, args[len(args)-1]+" is no program.") || !strings.Contains(stderr, "rest: { openapi: "+args[len(args)-1]+" }") {
			t.Errorf("%q: exit code %d, stdout\n%s\nstderr\n%s", args, code, stdout, stderr)
		}
	}
	// A program may be called so.
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := document(path, ""); err != nil {
		t.Error(err)
	}
}
