// Package socket is a transport for MCP over a TCP connection or a Unix socket. In both directions, each line is one
// JSON message. Each session of the bridge has its own connection.
//
// It does the handshake of the revisions 2024-11-05 to 2025-11-25. The wire does not name callers and is not encrypted,
// so use it only for servers on the same machine.
package socket

import (
	"errors"
	"net/url"
)

type Config struct {
	// Address is the server's address: tcp://HOST:PORT or unix:///PATH.
	Address string
}

// Validate reports faults of the settings. It opens nothing.
func (c Config) Validate() error {
	_, _, err := c.target()
	return err
}

// target returns the arguments of net.Dial.
func (c Config) target() (network, address string, err error) {
	u, err := url.Parse(c.Address)
	switch {
	case err != nil || u.User != nil:
	case u.Scheme == "tcp" && u.Hostname() != "" && u.Port() != "" && u.Path == "":
		return "tcp", u.Host, nil
	case u.Scheme == "unix" && u.Host == "" && u.Path != "":
		return "unix", u.Path, nil
	}
	return "", "", errors.New("address must be tcp://HOST:PORT or unix:///PATH, such as tcp://127.0.0.1:9000")
}
