package peer

import (
	"time"

	"golang.org/x/sys/windows"
)

// giveUp has a socket end when what it has sent is not acknowledged for so long.
func giveUp(fd uintptr, after time.Duration) error {
	return windows.SetsockoptInt(windows.Handle(fd), windows.IPPROTO_TCP, windows.TCP_MAXRT, int(after.Seconds()))
}
