//go:build unix

package sign

import (
	"os/exec"
	"syscall"
)

// lead makes a program the leader of a process group, which ends as a whole with the
// program's context: a script is seldom one process.
func lead(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
}
