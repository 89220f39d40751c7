package stdio

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// largePipe is the size of a pipe that has carried a message larger than the
// usual 64 KiB: fewer turns between the two processes. It is not more because
// the kernel bounds what all pipes of a user may take.
const largePipe = 256 << 10

// widen makes a pipe larger, if the kernel lets us.
func widen(pipe any) {
	c, ok := pipe.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, largePipe) // without it, all works, only slower
	})
}

// holds reports whether something that was written to a pipe has not been read
// by the other end.
func holds(pipe syscall.Conn) bool {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	_ = raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return err == nil && n > 0
}
