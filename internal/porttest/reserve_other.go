//go:build !linux

package porttest

import "net"

// reserve only finds a free port, because only Linux lets two sockets have one port in this way.
func reserve() (port int, release func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, nil, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, func() {}, nil
}
