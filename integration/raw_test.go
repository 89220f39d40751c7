package integration

import (
	"os"
	"testing"
)

// TestKilledBridge checks that nothing outlives a bridge that had no chance to
// clean up, not even servers that ignore the end of stdin and SIGTERM, and
// what they have started.
func TestKilledBridge(t *testing.T) {
	t.Parallel()
	p := start(t, bridgeCommand(t, nil, fakeProgram(t), "-deaf", "-parent"))
	for range 3 {
		mustOpenRaw(t, p.base).must(t, "echo", map[string]any{"message": "hello"})
	}
	if family := p.family.look(); len(family) < 6 {
		t.Fatalf("%d processes below the bridge, want at least 6: %v", len(family), family)
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.exited
	p.allGone(t)
}

// kill ends a process without a chance to do anything about it.
func kill(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}
