//go:build unix

package stdio

import "syscall"

// writeNow writes as much as the pipe takes without waiting, and returns how
// much that was.
func writeNow(pipe any, b []byte) (n int) {
	c, ok := pipe.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	err = raw.Write(func(fd uintptr) bool {
		n, err = syscall.Write(int(fd), b)
		return true // whatever it was: do not wait
	})
	if err != nil || n < 0 {
		return 0
	}
	return n
}
