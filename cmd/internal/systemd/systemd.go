// Package systemd tells the service manager the state of the service, as sd_notify(3)
// describes it. Where nobody wants to know, which is so unless NOTIFY_SOCKET is set, it
// does nothing.
package systemd

import (
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// Notifier tells the service manager. nil tells nobody.
type Notifier struct{ address string }

// New returns what tells the service manager that address names, which is the value of
// NOTIFY_SOCKET; nil for the empty one.
func New(address string) *Notifier {
	if strings.HasPrefix(address, "@") { // in the abstract namespace
		address = "\x00" + address[1:]
	}
	if address == "" {
		return nil
	}
	return &Notifier{address}
}

// FromEnvironment returns what tells the service manager that started the process. The
// variable is unset: no child shall speak for the bridge.
func FromEnvironment() *Notifier {
	defer func() { _ = os.Unsetenv("NOTIFY_SOCKET") }()
	return New(os.Getenv("NOTIFY_SOCKET"))
}

// Ready says that the service serves, or does so again after Reloading.
func (n *Notifier) Ready(status string) error { return n.tell("READY=1", "STATUS="+line(status)) }

// Starting says what the service waits for before it is ready, and that this may take so
// much longer from now on.
func (n *Notifier) Starting(status string, more time.Duration) error {
	return n.tell("STATUS="+line(status), fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", more.Microseconds()))
}

// Reloading says that the configuration is being read. Ready has to follow.
func (n *Notifier) Reloading() error {
	lines := []string{"RELOADING=1", "STATUS=reading the configuration"}
	if usec, ok := monotonic(); ok { // which Type=notify-reload asks for
		lines = append(lines, fmt.Sprintf("MONOTONIC_USEC=%d", usec))
	}
	return n.tell(lines...)
}

// Stopping says that the service begins to stop.
func (n *Notifier) Stopping() error { return n.tell("STOPPING=1", "STATUS=stopping") }

// line makes one line of a text.
func line(s string) string { return strings.Join(strings.Fields(s), " ") }

// patience is how long who reads what it is told is waited for, when much waits already.
const patience = time.Second

// tell sends one datagram, and hardly waits for whoever reads it.
func (n *Notifier) tell(lines ...string) error {
	if n == nil {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.address, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	defer c.Close()
	_ = c.SetWriteDeadline(time.Now().Add(patience)) // fails for what is closed only
	if _, err := c.Write([]byte(strings.Join(lines, "\n"))); err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	return nil
}
