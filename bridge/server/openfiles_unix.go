//go:build unix

package server

import (
	"math"
	"syscall"
)

// maxOpenFiles returns the limit of open files of the process; 0 if that is unknown.
func maxOpenFiles() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0
	}
	return int(min(uint64(l.Cur), math.MaxInt32))
}
