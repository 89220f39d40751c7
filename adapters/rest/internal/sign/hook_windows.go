package sign

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"

	"github.com/mcp-bridge/bridge/internal/process"
)

// together runs a program in a job. The whole job ends with the program's context, since a script
// seldom is only one process.
func together(c *exec.Cmd) error {
	members, err := process.New()
	if err != nil {
		return err
	}
	defer members.Close()
	c.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_SUSPENDED, HideWindow: true}
	c.Cancel = members.Kill // before Run, the job is empty, and WaitDelay ends the program
	if err := c.Start(); err != nil {
		return err
	}
	if err := members.Run(c.Process.Pid); err != nil {
		_ = c.Process.Kill()
		_ = c.Wait()
		return err
	}
	return c.Wait()
}
