//go:build !linux && !darwin && !windows

package child

import "errors"

// limit refuses to run scripts without limits.
func limit() error { return errors.New("scripts run on Linux, macOS and Windows only") }
