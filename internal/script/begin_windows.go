package script

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"

	"github.com/mcp-bridge/bridge/internal/process"
)

// begin starts the child in a job that bounds its memory and its processor time, and in which it cannot start another
// process.
func begin(c *exec.Cmd) (release func(), err error) {
	job, err := process.New()
	if err != nil {
		return nil, err
	}
	if err := job.Limit(MaxMemory, MaxProcessor); err != nil {
		job.Close()
		return nil, err
	}
	c.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_SUSPENDED, HideWindow: true}
	c.Cancel = job.Kill
	if err := c.Start(); err != nil {
		job.Close()
		return nil, err
	}
	if err := job.Run(c.Process.Pid); err != nil {
		_ = c.Process.Kill()
		_ = c.Wait()
		job.Close()
		return nil, err
	}
	return job.Close, nil
}
