package stdio

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// largePipe is the size of a pipe, in bytes, after a message that was larger than the usual 64 KiB.
// A large pipe saves switches between the processes. But the kernel bounds the sizes of all pipes
// of a user together.
const largePipe = 256 << 10

// widen makes a pipe larger, if the kernel allows it.
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
		_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, largePipe) // if this fails, messages are only slower
	})
}

// holds reports whether a pipe has bytes that the other end has not read.
func holds(pipe syscall.Conn) bool {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	_ = raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return err == nil && n > 0
}
