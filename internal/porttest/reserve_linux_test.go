package porttest

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// Programs listen on a reserved port again and again. Between them it is nobody else's.
func TestReserve(t *testing.T) {
	address := Address(t)
	rude := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		_ = c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 0) })
		return err
	}}
	for range 3 {
		if l, err := rude.Listen(t.Context(), "tcp", address); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("somebody else listens: %v, %v", l, err)
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		l.Close()
	}
}
