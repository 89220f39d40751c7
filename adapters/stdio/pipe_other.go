//go:build !linux

package stdio

import "syscall"

// widen does nothing here: only Linux can change the size of a pipe.
func widen(any) {}

// holds is unknown here.
func holds(syscall.Conn) bool { return false }
