package server

import (
	"context"
	"errors"
	"net"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Connections that were made before the listener finishes are accepted, however late, and
// none after it.
func TestFinish(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not tell what waits")
	}
	defer goleak.VerifyNone(t)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := newBacklog(inner)
	dial := func() (net.Conn, error) { return net.DialTimeout("tcp", inner.Addr().String(), 30*time.Second) }
	const waiting = 5
	for range waiting {
		c, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("request")); err != nil {
			t.Fatal(err)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	l.Finish(gone) // nobody accepts: it comes back with ctx
	accepted := make(chan int)
	go func() {
		n := 0
		for {
			c, err := l.Accept()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					t.Errorf("the last Accept fails with %v", err)
				}
				accepted <- n
				return
			}
			b := make([]byte, 7)
			if _, err := c.Read(b); err != nil || string(b) != "request" {
				t.Errorf("a connection that waited has %q %v", b, err)
			}
			n++
			_ = c.Close()
		}
	}()
	l.Finish(t.Context())
	if c, err := dial(); err == nil {
		_ = c.Close()
		t.Error("there is a connection after the end")
	}
	select {
	case <-accepted:
		t.Error("Accept fails before Close: an HTTP server would take that for a failure")
	default:
	}
	if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if n := <-accepted; n != waiting {
		t.Errorf("%d of %d connections were accepted", n, waiting)
	}
}

// Close ends what Finish waits for, and Accept.
func TestClose(t *testing.T) {
	defer goleak.VerifyNone(t)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := newBacklog(inner)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.Finish(context.Background())
	}()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	<-ended
	if _, err := b.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
}
