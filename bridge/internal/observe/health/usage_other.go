//go:build !linux

package health

// Usage returns nil: only Linux is supported.
func Usage() Used { return nil }
