package porttest

import "syscall"

// reserve binds a socket that never listens. Programs that set SO_REUSEADDR can listen on the same port, such as those
// in Go, node, nginx and Redis. Linux never returns such a port to a program that asks for any port.
func reserve() (port int, release func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, err
	}
	release = func() { _ = syscall.Close(fd) }
	defer func() {
		if err != nil {
			release()
		}
	}()
	if err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, nil, err
	}
	if err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, nil, err
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, nil, err
	}
	return name.(*syscall.SockaddrInet4).Port, release, nil
}
