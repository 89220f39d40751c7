//go:build !unix

package server

import "net"

// waits returns false: the backlog is unknown here, so closing the listener resets its connections.
// hasBacklog reports false: the system does not tell.
func hasBacklog(net.Listener) bool { return false }
