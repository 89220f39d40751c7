//go:build !linux

package stdio

import "syscall"

// widen does nothing, since only Linux can change the size of a pipe.
func widen(any) {}

// holds returns false, since only Linux shows what a pipe holds.
func holds(syscall.Conn) bool { return false }
