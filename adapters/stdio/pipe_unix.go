//go:build unix

package stdio

import (
	"errors"
	"syscall"
)

// canTry says whether pipes can be read and written without waiting.
const canTry = true

// tryRead reads without waiting. If there is nothing to read yet, it drops the buffer and reports
// false.
func (l *lineReader) tryRead(fd uintptr) bool {
	l.hold()
	for {
		l.n, l.err = syscall.Read(int(fd), *l.buf)
		switch {
		case errors.Is(l.err, syscall.EINTR):
			continue
		case errors.Is(l.err, syscall.EAGAIN):
			l.n = 0
			l.drop()
			return false
		}
		return true
	}
}

// writeNow writes as much as the pipe accepts without waiting, and returns the number of bytes.
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
		return true // never wait
	})
	if err != nil || n < 0 {
		return 0
	}
	return n
}
