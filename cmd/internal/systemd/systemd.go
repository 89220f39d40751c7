// Package systemd reports the state of the service to systemd by sd_notify(3). Without NOTIFY_SOCKET, it does nothing.
package systemd

import (
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// Notifier reports to the service manager. A nil Notifier does nothing.
type Notifier struct{ address string }

// New returns a Notifier for a value of NOTIFY_SOCKET, or nil if the value is empty.
func New(address string) *Notifier {
	if strings.HasPrefix(address, "@") { // in the abstract namespace
		address = "\x00" + address[1:]
	}
	if address == "" {
		return nil
	}
	return &Notifier{address}
}

// FromEnvironment returns the Notifier of this process. It unsets the variable, so that no child reports for the
// bridge.
func FromEnvironment() *Notifier {
	defer func() { _ = os.Unsetenv("NOTIFY_SOCKET") }()
	return New(os.Getenv("NOTIFY_SOCKET"))
}

// Ready reports that the service serves. Callers also call it after Reloading.
func (n *Notifier) Ready(status string) error { return n.tell("READY=1", "STATUS="+line(status)) }

// Starting reports the reason why the service is not ready, and requests more time.
func (n *Notifier) Starting(status string, more time.Duration) error {
	return n.tell("STATUS="+line(status), fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", more.Microseconds()))
}

// Reloading reports a reload. The caller must call Ready afterwards.
func (n *Notifier) Reloading() error {
	lines := []string{"RELOADING=1", "STATUS=reading the configuration"}
	if usec, ok := monotonic(); ok { // required by Type=notify-reload
		lines = append(lines, fmt.Sprintf("MONOTONIC_USEC=%d", usec))
	}
	return n.tell(lines...)
}

// Stopping reports that the service stops.
func (n *Notifier) Stopping() error { return n.tell("STOPPING=1", "STATUS=stopping") }

// line joins a text into one line.
func line(s string) string { return strings.Join(strings.Fields(s), " ") }

// writeLimit bounds a write to a full socket.
const writeLimit = time.Second

// tell sends one datagram.
func (n *Notifier) tell(lines ...string) error {
	if n == nil {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.address, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	defer c.Close()
	_ = c.SetWriteDeadline(time.Now().Add(writeLimit)) // fails only on a closed connection
	if _, err := c.Write([]byte(strings.Join(lines, "\n"))); err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	return nil
}
