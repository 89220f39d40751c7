//go:build !unix

package server

import "net"

// hasBacklog reports false: the backlog is unknown here, so closing the listener resets its connections.
func hasBacklog(net.Listener) bool { return false }
