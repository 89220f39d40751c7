//go:build unix

package server

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// hasBacklog reports whether the backlog of a listener has a connection.
func hasBacklog(l net.Listener) (yes bool) {
	s, ok := l.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		yes = err == nil && n == 1 && p[0].Revents&unix.POLLIN != 0
	})
	return err == nil && yes
}
