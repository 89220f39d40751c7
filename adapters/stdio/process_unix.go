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

// group is a leader and what it started: a process group, whose id is the
// leader's process id.
//
// Ids are used again by the operating system. The leader's cannot be before it
// is reaped, nor while the group has members; so signals are sent under the
// same lock under which the leader is reaped and the group is found empty.
type group struct {
	pid    int
	leader *os.File // pidfd; nil where there is none, then waiting takes a thread

	mu    sync.Mutex // guards ended, looks
	ended bool       // no member is left: the id may belong to somebody else
	looks int        // how often empty was asked, see there
}

// spawn starts the program at path with the three files as its standard
// streams, as leader of a new group.
func spawn(path string, c command, files []*os.File) (*group, error) {
	pidfd := -1
	attr := &syscall.ProcAttr{Dir: c.dir, Env: c.env, Sys: leaderAttr(&pidfd)}
	for _, f := range files {
		// Fd makes the file blocking, which is what programs expect of the
		// standard streams; our ends are separate and stay non-blocking.
		attr.Files = append(attr.Files, f.Fd())
	}
	argv := append([]string{c.path}, c.args...)
	// os.StartProcess would hold a second pidfd and a second idea of who reaps.
	pid, err := theStarter.fork(func() (int, error) { return syscall.ForkExec(path, argv, attr) })
	runtime.KeepAlive(files)
	if err != nil {
		return nil, os.NewSyscallError("exec", err)
	}
	return &group{pid: pid, leader: pollable(pidfd)}, nil
}

// reap collects the leader if it has ended.
func (g *group) reap(options int) (state string, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var status syscall.WaitStatus
	pid, err := retry(func() (int, error) { return syscall.Wait4(g.pid, &status, options, nil) })
	switch {
	case err != nil:
		// Somebody in this process waits for children that are not theirs.
		state = "unknown: " + err.Error()
	case pid == 0:
		return "", false
	default:
		state = describe(status)
	}
	g.probe()
	return state, true
}

// terminate asks all members to end.
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

// empty reports whether no member is left. It is for the time after the
// leader has been reaped.
func (g *group) empty() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended {
		g.probe()
	}
	if g.ended {
		return true
	}
	g.adopt()
	g.probe()
	// Where process 1 is somebody who does not reap, zombies stay for ever and
	// count as members. To see them takes a search, so it is done seldom.
	if g.looks++; !g.ended && g.looks%10 == 0 && onlyZombies(g.pid) {
		g.adopt() // some may have ended since it was looked, and be ours
		g.ended = true
	}
	return g.ended
}

// adopt reaps the orphans of the group. Where the bridge is process 1, as in a
// container, they are its children, and remain as zombies until it does. Nobody
// else can have a claim on children in this group. The caller holds mu.
func (g *group) adopt() {
	for {
		pid, err := retry(func() (int, error) { return syscall.Wait4(-g.pid, nil, unix.WNOHANG, nil) })
		if err != nil || pid == 0 {
			return
		}
	}
}

// probe notes whether the group is empty. The caller holds mu.
func (g *group) probe() {
	switch err := g.send(0); {
	case errors.Is(err, syscall.ESRCH):
		g.ended = true
	case errors.Is(err, syscall.EPERM) && runtime.GOOS != "linux":
		// There, zombies may not be signalled. It may also be a member that runs
		// as another user, but that one we could not end either.
		g.ended = true
	}
}

// release gives back what the group needed, whether it is empty or given up.
func (g *group) release() {
	g.mu.Lock()
	g.ended = true // hence no signal any more
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

// hint says what to do about a failed start, where the bare error does not.
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
