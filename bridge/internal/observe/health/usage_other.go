//go:build !linux

package health

// Usage returns nothing: only Linux is supported.
func Usage() Used { return nil }
