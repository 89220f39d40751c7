package wiretest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// An end of a pipe is a connection: what is written waits, arrives in order and ends with the end;
// deadlines hold; and nothing arrives while it is held.
func TestPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, b := Pipe()
		buf := make([]byte, 4)
		expect := func(what string, n int, err error, want int, wantErr error) {
			t.Helper()
			if n != want || !errors.Is(err, wantErr) {
				t.Errorf("%s: %d, %v; want %d, %v", what, n, err, want, wantErr)
			}
		}
		n, err := e.Write([]byte("hello"))
		expect("nobody reads yet", n, err, 5, nil)
		n, err = b.Read(buf)
		expect("a part", n, err, 4, nil)
		e.Hold(true)
		begun := time.Now()
		_ = b.SetReadDeadline(begun.Add(time.Second))
		n, err = b.Read(buf)
		expect("held", n, err, 0, os.ErrDeadlineExceeded)
		if time.Since(begun) != time.Second {
			t.Errorf("a deadline of a second has come after %v", time.Since(begun))
		}
		_ = b.SetReadDeadline(time.Time{})
		time.AfterFunc(time.Second, func() { b.Hold(false) })
		n, err = b.Read(buf)
		expect("the rest", n, err, 1, nil)

		// A writer waits when the buffer is full, until the deadline, a reader, or the end.
		big := bytes.Repeat([]byte("x"), buffered+10)
		_ = e.SetWriteDeadline(time.Now().Add(time.Second))
		n, err = e.Write(big)
		expect("too much", n, err, buffered, os.ErrDeadlineExceeded)
		_ = e.SetWriteDeadline(time.Time{})
		time.AfterFunc(time.Second, func() { _, _ = io.ReadFull(b, make([]byte, len(big))) })
		n, err = e.Write(big)
		expect("with a reader", n, err, len(big), nil)

		_ = e.Close()
		left, err := io.ReadAll(b)
		expect("what was written before the end", len(left), err, buffered, nil)
		n, err = e.Read(buf)
		expect("read from what is closed", n, err, 0, net.ErrClosed)
		n, err = e.Write(buf)
		expect("write to what is closed", n, err, 0, net.ErrClosed)
		n, err = b.Write(buf)
		expect("nobody reads any more", n, err, 0, io.ErrClosedPipe)

		c, d := Pipe()
		time.AfterFunc(time.Second, func() { _ = c.Close() })
		n, err = c.Read(buf)
		expect("closed while it reads", n, err, 0, net.ErrClosed)
		n, err = d.Read(buf)
		expect("the other end", n, err, 0, io.EOF)
	})
}
