package peer

import (
	"time"

	"golang.org/x/sys/windows"
)

// setTimeout makes a socket fail when its data stays unacknowledged for that long.
func setTimeout(fd uintptr, after time.Duration) error {
	return windows.SetsockoptInt(windows.Handle(fd), windows.IPPROTO_TCP, windows.TCP_MAXRT, int(after.Seconds()))
}
