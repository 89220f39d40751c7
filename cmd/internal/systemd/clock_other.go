//go:build !linux

package systemd

// monotonic returns nothing, because systemd exists only on Linux.
func monotonic() (usec int64, ok bool) { return 0, false }
