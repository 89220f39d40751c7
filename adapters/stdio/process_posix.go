//go:build unix && !linux

package stdio

import (
	"os"
	"syscall"
)

// leaderAttr makes the child the leader of a group. There is no signal upon
// the parent's death here: that is the watchdog's part.
func leaderAttr(*int) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// pollable is nil: there are no pidfds here.
func pollable(int) *os.File { return nil }

// wait returns after the leader was reaped. It holds a thread meanwhile.
func (g *group) wait() string {
	// Unlike on Linux the leader is reaped without the lock. A signal may be sent between that and
	// the check of the group.
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

// onlyZombies is false: see probe, which recognizes them.
func onlyZombies(int) bool { return false }
