//go:build unix

package sign

import (
	"os/exec"
	"syscall"
)

// together runs a program as the leader of a process group. The whole group ends with the program's
// context, since a script seldom is only one process.
func together(c *exec.Cmd) error {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	return c.Run()
}
