//go:build unix

package stdio

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// group is a leader and the processes that it started: a process group, whose id is the leader's
// process id.
//
// The operating system reuses ids, but not before the leader is reaped, and not while the group has
// members. So one lock is held when a signal is sent, when the leader is reaped, and when the group is
// found empty.
type group struct {
	pid    int
	leader *os.File // pidfd; nil if there is none, so that wait blocks a thread

	mu    sync.Mutex // guards ended and looks
	ended bool       // no member is left, and another group may have the id
	looks int        // how often empty has found members
}

// spawn starts the program at path with the three files as its standard
// streams, as leader of a new group.
func spawn(path string, c command, files []*os.File) (*group, error) {
	pidfd := -1
	attr := &syscall.ProcAttr{
		Dir: c.dir,
		Env: c.env,
		Sys: leaderAttr(&pidfd),
	}
	for _, f := range files {
		// Fd makes the file blocking, as programs expect of the standard streams. The bridge's ends of
		// the pipes are other files, and stay non-blocking.
		attr.Files = append(attr.Files, f.Fd())
	}
	argv := append([]string{c.path}, c.args...)
	// os.StartProcess would open a second pidfd, and reap by itself.
	pid, err := theStarter.fork(func() (int, error) { return syscall.ForkExec(path, argv, attr) })
	runtime.KeepAlive(files)
	if err != nil {
		return nil, os.NewSyscallError("exec", err)
	}
	return &group{pid: pid, leader: pollable(pidfd)}, nil
}

// reap reaps the leader, and returns how it ended. With the option WNOHANG, it reports false if the
// leader still runs.
func (g *group) reap(options int) (state string, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var status syscall.WaitStatus
	pid, err := retry(func() (int, error) { return syscall.Wait4(g.pid, &status, options, nil) })
	switch {
	case err != nil:
		// Other code of this process has reaped the leader, against the rules.
		state = "unknown: " + err.Error()
	case pid == 0:
		return "", false
	default:
		state = describe(status)
	}
	g.probe()
	return state, true
}

// terminate sends SIGTERM to all members.
func (g *group) terminate() { g.signal(syscall.SIGTERM) }

// kill ends all members.
func (g *group) kill() { g.signal(syscall.SIGKILL) }

func (g *group) signal(sig syscall.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended {
		g.send(sig)
	}
}

// empty reports whether no member is left. The leader must have been reaped.
func (g *group) empty() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended {
		g.probe()
	}
	if g.ended {
		return true
	}
	g.reapOrphans()
	g.probe()
	// If process 1 does not reap orphans, zombies stay for ever and count as members. The search for
	// zombies is slow, so only every tenth look does it.
	if g.looks++; !g.ended && g.looks%10 == 0 && onlyZombies(g.pid) {
		g.reapOrphans() // those that have ended since the last time
		g.ended = true
	}
	return g.ended
}

// reapOrphans reaps the ended members of the group that are children of the bridge. If the bridge
// is process 1, as in a container, it adopts all orphans. No other code has children in this group.
// The caller holds mu.
func (g *group) reapOrphans() {
	for {
		pid, err := retry(func() (int, error) { return syscall.Wait4(-g.pid, nil, unix.WNOHANG, nil) })
		if err != nil || pid == 0 {
			return
		}
	}
}

// probe records whether the group is empty. The caller holds mu.
func (g *group) probe() {
	switch err := g.send(0); {
	case errors.Is(err, syscall.ESRCH):
		g.ended = true
	case errors.Is(err, syscall.EPERM) && runtime.GOOS != "linux":
		// These systems refuse to signal a zombie. They also refuse to signal a process of another
		// user, but the bridge could not end such a process anyway.
		g.ended = true
	}
}

// release frees the resources of the group, even if processes have survived.
func (g *group) release() {
	g.mu.Lock()
	g.ended = true // so that no more signals are sent
	g.mu.Unlock()
	if g.leader != nil {
		g.leader.Close()
	}
	theStarter.leave(g.pid)
}

func describe(s syscall.WaitStatus) string {
	if s.Signaled() {
		text := "signal: " + s.Signal().String()
		if s.CoreDump() {
			text += " (core dumped)"
		}
		return text
	}
	return "exit status " + strconv.Itoa(s.ExitStatus())
}

func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}

// hint returns what to do about a failed start, or "" if the error itself says enough.
func hint(err error) string {
	switch {
	case errors.Is(err, syscall.ENOENT):
		// The program itself was found before.
		return ": the interpreter that its first line names, or its loader, does not exist: install it"
	case errors.Is(err, syscall.ENOEXEC):
		return ": it is not a program for this machine, or a script without a #! line: run it by its interpreter"
	case errors.Is(err, syscall.EACCES):
		return ": it may not be run: check the rights of the program, of its folders and of cwd, and the mount's noexec"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return ": raise the limit of open files (ulimit -n), or run fewer servers"
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		return ": raise the limit of processes (ulimit -u) or of memory, or run fewer servers"
	case errors.Is(err, syscall.E2BIG):
		return ": args and env are too large"
	case errors.Is(err, syscall.EINVAL):
		return ": args and env must not hold a NUL character"
	}
	return ""
}
