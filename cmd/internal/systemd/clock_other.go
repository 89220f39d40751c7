//go:build !linux

package systemd

// monotonic returns nothing: systemd is for Linux only.
func monotonic() (usec int64, ok bool) { return 0, false }
