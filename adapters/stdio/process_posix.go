//go:build unix && !linux

package stdio

import (
	"os"
	"syscall"
)

// leaderAttr makes the child the leader of a group. These systems send no signal when the parent dies,
// so only the watchdog ends the child then.
func leaderAttr(*int) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// pollable returns nil, since these systems have no pidfds.
func pollable(int) *os.File { return nil }

// wait reaps the leader when it ends, and returns how it ended. It blocks a thread.
func (g *group) wait() string {
	// Unlike on Linux, the leader is reaped without the lock. A signal may be sent before the group is
	// checked.
	var status syscall.WaitStatus
	_, err := retry(func() (int, error) { return syscall.Wait4(g.pid, &status, 0, nil) })
	g.mu.Lock()
	defer g.mu.Unlock()
	g.probe()
	if err != nil {
		return "unknown: " + err.Error()
	}
	return describe(status)
}

// send signals the group. The caller holds mu.
func (g *group) send(sig syscall.Signal) error { return syscall.Kill(-g.pid, sig) }

// onlyZombies returns false, since probe recognizes zombies on these systems.
func onlyZombies(int) bool { return false }
