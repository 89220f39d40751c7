package systemd

import "golang.org/x/sys/unix"

// monotonic returns the time of the service manager's clock.
func monotonic() (usec int64, ok bool) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0, false
	}
	return t.Nano() / 1000, true
}
