package peer

import (
	"time"

	"golang.org/x/sys/unix"
)

// giveUp has a socket end when what it has sent is not acknowledged for so long.
func giveUp(fd uintptr, after time.Duration) error {
	return unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(after.Milliseconds()))
}
