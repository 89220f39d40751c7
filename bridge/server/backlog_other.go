//go:build !unix

package server

import "net"

// waits returns false: the backlog is unknown here, so closing the listener resets its connections.
func waits(net.Listener) bool { return false }
