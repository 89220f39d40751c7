package peer

import (
	"context"
	"net"
	"syscall"
	"time"
)

// silence is after how long a connection ends on which nothing comes from the machine of the
// other instance, not even that it has got what was sent, or on which the other instance takes
// nothing for as long. A network that drops everything breaks no connection, and a kernel alone
// would wait for a quarter of an hour. An instance that is busy, or stopped, is not silent: its
// kernel answers, and takes what has room there.
func silence(lease time.Duration) time.Duration { return 3 * lease }

// alive has the kernel ask for a sign of life on a connection that waits for an answer.
func alive(lease time.Duration) net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: lease, Interval: lease / 2, Count: 4}
}

// heeds has sockets end when what they have sent gets no sign of life.
func heeds(lease time.Duration) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = giveUp(fd, silence(lease)) }) // without it, it takes longer
	}
}

// dialer makes connections to other instances.
func dialer(lease time.Duration) *net.Dialer {
	return &net.Dialer{KeepAliveConfig: alive(lease), Control: heeds(lease)}
}

// Listen listens for other instances.
func Listen(ctx context.Context, address string, lease time.Duration) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: alive(lease), Control: heeds(lease)} // connections have it of their listener
	lc.SetMultipathTCP(false)                                                    // which instances do not dial, and which takes no such settings
	return lc.Listen(ctx, "tcp", address)
}
