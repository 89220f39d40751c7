//go:build !linux && !darwin && !windows

package peer

import "time"

// setTimeout does nothing: this system has no such setting. The keep-alive probes still end a connection.
func setTimeout(uintptr, time.Duration) error { return nil }
