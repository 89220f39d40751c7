package cli

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Children cannot read the environment and the memory of the bridge. The bridge still reads all that it needs of its
// own. Without shield the child prints the secret.
func TestShield(t *testing.T) {
	const mark, secret = "BRIDGE_TEST_SHIELD", "a secret of the bridge"
	if os.Getenv(mark) == "" {
		c := exec.Command("/proc/self/exe", "-test.run=^TestShield$", "-test.v")
		c.Env = []string{"PATH=" + os.Getenv("PATH"), mark + "=" + secret}
		if os.Getuid() == 0 { // root may read everything
			c.Dir, c.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		out, err := c.CombinedOutput()
		if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EPERM) {
			t.Skipf("root of a container that has no other users: %v", err)
		}
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	shield()
	out, err := exec.Command("sh", "-c", "for f in environ mem maps fd/0; do head -c 1000 /proc/$PPID/$f && echo read $f; done; head -c 1000 /proc/$$/environ >/dev/null && echo its own").CombinedOutput()
	if text := string(out); strings.Contains(text, "read ") || strings.Contains(text, secret) || !strings.Contains(text, "its own\n") {
		t.Errorf("a child of the bridge: %v: %s", err, text)
	}
	for _, name := range []string{"stat", "limits", "cgroup", "mountinfo", "maps"} {
		if _, err := os.ReadFile("/proc/self/" + name); err != nil {
			t.Error(err)
		}
	}
	if open, err := os.ReadDir("/proc/self/fd"); err != nil || len(open) == 0 {
		t.Errorf("/proc/self/fd has %v: %v", open, err)
	}
	if _, err := os.Stat("/dev/stdin"); err != nil {
		t.Error(err)
	}
}
