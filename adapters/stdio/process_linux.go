package stdio

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// leaderAttr makes the child the leader of a group, and asks for a pidfd. When the thread that forked
// the leader ends, the kernel kills the leader: see starter.
func leaderAttr(pidfd *int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Setpgid:   true,
		Pdeathsig: syscall.SIGKILL,
		PidFD:     pidfd,
	}
}

// pollable returns the pidfd as a file of the runtime's poller, so that waiting for a child blocks a
// goroutine and not a thread. It returns nil without a pidfd: the kernel is older than 5.3, or a
// sandbox refuses pidfds.
func pollable(pidfd int) *os.File {
	if pidfd < 0 {
		return nil
	}
	// NewFile uses the poller for a non-blocking descriptor.
	if err := unix.SetNonblock(pidfd, true); err != nil {
		unix.Close(pidfd)
		return nil
	}
	return os.NewFile(uintptr(pidfd), "pidfd")
}

// wait reaps the leader when it ends, and returns how it ended.
func (g *group) wait() (state string) {
	if g.leader != nil {
		reaped := false
		if raw, err := g.leader.SyscallConn(); err == nil {
			// Read calls the function at once, and when the pidfd becomes readable, at the end of the
			// leader. If Read fails, reaped is false.
			_ = raw.Read(func(uintptr) bool {
				state, reaped = g.reap(unix.WNOHANG)
				return reaped
			})
		}
		if reaped {
			return state
		}
		// The poller has refused the pidfd, so the leader is awaited without it.
	}
	// Waitid waits without the lock, and does not reap: reap does that with the lock.
	for errors.Is(unix.Waitid(unix.P_PID, g.pid, nil, unix.WEXITED|unix.WNOWAIT, nil), syscall.EINTR) {
	}
	state, _ = g.reap(0)
	return state
}

// send signals the group. The caller holds mu.
func (g *group) send(sig syscall.Signal) error {
	if g.leader != nil {
		// Since Linux 6.9, the pidfd can name the group. Unlike the number, it never means another
		// group.
		if raw, err := g.leader.SyscallConn(); err == nil {
			var sent error
			err := raw.Control(func(fd uintptr) {
				sent = unix.PidfdSendSignal(int(fd), sig, nil, unix.PIDFD_SIGNAL_PROCESS_GROUP)
			})
			if err == nil && (sent == nil || errors.Is(sent, syscall.ESRCH)) {
				return sent
			}
		}
	}
	return syscall.Kill(-g.pid, sig)
}

// onlyZombies reports whether all members of a group have ended, and their parents have not reaped
// them.
func onlyZombies(pgid int) bool {
	proc, err := os.Open("/proc")
	if err != nil {
		return false
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return false
	}
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // ended meanwhile
		}
		// pid (name) state ppid pgrp ... num_threads; the name may have any characters.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 18 || string(fields[2]) != strconv.Itoa(pgid) {
			continue
		}
		// A program looks like a zombie if only its first thread has ended.
		if state, threads := string(fields[0]), string(fields[17]); state != "Z" && state != "X" || threads > "1" {
			return false
		}
	}
	return true
}
