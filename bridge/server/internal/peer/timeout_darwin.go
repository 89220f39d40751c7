package peer

import (
	"time"

	"golang.org/x/sys/unix"
)

// setTimeout makes a socket fail when its data stays unacknowledged for that long.
func setTimeout(fd uintptr, after time.Duration) error {
	return unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_RXT_CONNDROPTIME, int(after.Seconds()))
}
