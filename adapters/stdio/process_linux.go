package stdio

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// leaderAttr makes the child the leader of a group and asks for a pidfd. The
// kernel kills the leader when the thread that forked it ends, see starter.
func leaderAttr(pidfd *int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Setpgid:   true,
		Pdeathsig: syscall.SIGKILL,
		PidFD:     pidfd,
	}
}

// pollable returns the pidfd as a file of the runtime's poller, so that waiting for a child blocks
// a goroutine and not a thread. It is nil if there is no pidfd: the kernel is older than 5.3, or a
// sandbox refuses it.
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

// wait returns after the leader was reaped.
func (g *group) wait() (state string) {
	if g.leader != nil {
		reaped := false
		if raw, err := g.leader.SyscallConn(); err == nil {
			// The function is called at once, and whenever the pidfd is readable, which it is from
			// the leader's end on. If Read fails, reaped is false.
			_ = raw.Read(func(uintptr) bool {
				state, reaped = g.reap(unix.WNOHANG)
				return reaped
			})
		}
		if reaped {
			return state
		}
		// The poller has refused the pidfd: wait as if there were none.
	}
	// Waitid does not reap: that is done under the lock, which must not be held while waiting.
	for errors.Is(unix.Waitid(unix.P_PID, g.pid, nil, unix.WEXITED|unix.WNOWAIT, nil), syscall.EINTR) {
	}
	state, _ = g.reap(0)
	return state
}

// send signals the group. The caller holds mu.
func (g *group) send(sig syscall.Signal) error {
	if g.leader != nil {
		// Linux 6.9 can name the group by the pidfd, which unlike a number never becomes another
		// group's.
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

// onlyZombies reports whether all members of a group have ended, and only wait to be reaped by
// their parents.
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
		// pid (name) state ppid pgrp ... num_threads; the name may hold anything.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 18 || string(fields[2]) != strconv.Itoa(pgid) {
			continue
		}
		// A program whose first thread alone has ended looks like a zombie too.
		if state, threads := string(fields[0]), string(fields[17]); state != "Z" && state != "X" || threads > "1" {
			return false
		}
	}
	return true
}
