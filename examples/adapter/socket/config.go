// Package socket speaks MCP over a socket: one JSON message on each line, both ways, over
// a connection of TCP or a Unix socket. Each session of the bridge's has its own.
//
// It makes the handshake of the revisions from 2024-11-05 to 2025-11-25. Nothing on the
// wire says who calls, and nothing is encrypted: it is for servers on the same machine.
package socket

import (
	"errors"
	"net/url"
)

// Config says where a server listens.
type Config struct {
	// Address is that of the server: tcp://HOST:PORT or unix:///PATH.
	Address string
}

// Validate reports what is wrong with the settings. It only looks.
func (c Config) Validate() error {
	_, _, err := c.target()
	return err
}

// target returns what net.Dial takes.
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
