package httpio

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// Detach begins the response like OpenWriter, but first takes the connection from the HTTP server. A quiet stream then
// needs 16 KB of memory, not 36, since the server's buffers and the request are freed. The handler must return at once,
// and another goroutine must call run. run returns after serve, which must return when its context ends, because the
// client disconnected.
//
// abort closes the connection, even during a write to a client that does not read, since the HTTP server no longer does
// so. It may be called at any time.
//
// If the connection cannot be taken (HTTP/2, the recorder of a test) or must not be taken (Attached), Detach does
// nothing and reports false. The caller then uses OpenWriter.
func Detach(w http.ResponseWriter, r *http.Request) (run func(serve func(context.Context, *Writer)), abort func(), ok bool) {
	if _, can := innermost(w).(http.Hijacker); !can || r.ProtoMajor != 1 || r.Context().Value(attached{}) != nil {
		return nil, nil, false
	}
	setHeaders(w.Header())
	head := bytes.NewBufferString("HTTP/1.1 200 OK\r\n")
	h := w.Header().Clone()
	h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	h.Set("Connection", "close") // so that the body needs no framing
	if err := h.Write(head); err != nil {
		return nil, nil, false
	}
	head.WriteString("\r\n")
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, nil, false
	}
	first := head.Bytes()
	run = func(serve func(context.Context, *Writer)) { attend(c, first, serve) }
	return run, func() { _ = c.Close() }, true
}

type attached struct{}

// Attached returns a context for a request whose stream must end with the request, even if the client stays connected.
// Detach does not take its connection.
func Attached(ctx context.Context) context.Context {
	return context.WithValue(ctx, attached{}, true)
}

// attend owns the connection until serve returns.
func attend(c net.Conn, head []byte, serve func(context.Context, *Writer)) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		var b [1]byte
		_, _ = c.Read(b[:]) // a client has nothing more to send, so whatever comes means its end
		cancel()
	})
	defer wg.Wait()
	defer c.Close()
	defer cancel()
	out := &connection{c: c, b: head}
	if out.Flush() == nil {
		serve(ctx, &Writer{s: out, c: c})
	}
}

// gathered bounds the bytes that a connection buffers.
const gathered = 64 << 10

// connection is a sink that buffers small writes until Flush.
type connection struct {
	c net.Conn
	b []byte
}

func (c *connection) Write(p []byte) (int, error) {
	if len(c.b)+len(p) <= gathered {
		c.b = append(c.b, p...)
		return len(p), nil
	}
	if err := c.Flush(); err != nil {
		return 0, err
	}
	Deadline(c.c, len(p))
	return c.c.Write(p)
}

func (c *connection) Flush() error {
	Deadline(c.c, len(c.b)) // b holds all bytes to write
	_, err := c.c.Write(c.b)
	c.b = nil // the stream may be quiet for long
	return err
}
