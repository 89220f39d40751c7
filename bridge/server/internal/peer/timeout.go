package peer

import (
	"context"
	"net"
	"syscall"
	"time"
)

// silenceTimeout limits the life of a connection without any sign from the other machine: no data, no
// acknowledgement, or no room in its buffers. A network that drops all packets breaks no connection, and the kernel
// alone would wait for a quarter of an hour. The kernel of a busy or stopped instance still answers.
func silenceTimeout(lease time.Duration) time.Duration { return 3 * lease }

// keepAlive makes the kernel probe a connection that waits for an answer.
func keepAlive(lease time.Duration) net.KeepAliveConfig {
	return net.KeepAliveConfig{
		Enable:   true,
		Idle:     lease,
		Interval: lease / 2,
		Count:    4,
	}
}

// controlSocket sets the silence timeout of sockets.
func controlSocket(lease time.Duration) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = setTimeout(fd, silenceTimeout(lease)) }) // if this fails, the timeout is longer
	}
}

// dialer makes connections to other instances.
func dialer(lease time.Duration) *net.Dialer {
	return &net.Dialer{KeepAliveConfig: keepAlive(lease), Control: controlSocket(lease)}
}

// Listen listens for other instances.
func Listen(ctx context.Context, address string, lease time.Duration) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: keepAlive(lease), Control: controlSocket(lease)} // connections inherit these settings from the listener
	lc.SetMultipathTCP(false)                                                                // instances do not dial MPTCP, which has no such settings
	return lc.Listen(ctx, "tcp", address)
}
