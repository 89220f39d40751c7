package remote

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"

	"golang.org/x/net/idna"
)

// lone makes a connection for each request and reads the answer in the
// goroutine of whoever reads its body. Streams that say little for hours are
// many: net/http would keep two goroutines more for each of them. A session with
// an open stream takes 12 KB of the bridge's memory with it, and 16 KB without.
type lone struct {
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	tls   *tls.Config
	proxy func(*http.Request) (*url.URL, error) // nil means none
	other *http.Transport                       // for requests through a proxy
}

// RoundTrip implements http.RoundTripper. The end of the request's context
// closes the connection.
func (l *lone) RoundTrip(r *http.Request) (*http.Response, error) {
	if l.proxy != nil {
		if at, err := l.proxy(r); err != nil || at != nil {
			return l.other.RoundTrip(r)
		}
	}
	c, err := l.connect(r)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(r.Context(), func() { _ = c.Close() })
	res, err := exchange(r, c)
	if err != nil {
		stop()
		_ = c.Close()
		if cause := context.Cause(r.Context()); cause != nil {
			err = cause
		}
		return nil, err
	}
	res.Body = &loneBody{res.Body, c, stop, r.Context()}
	return res, nil
}

// connect opens the connection.
func (l *lone) connect(r *http.Request) (net.Conn, error) {
	host := r.URL.Hostname()
	if ascii, err := idna.Lookup.ToASCII(host); err == nil { // as net/http does; otherwise it is an address, or odd
		host = ascii
	}
	c, err := l.dial(r.Context(), "tcp", net.JoinHostPort(host, port(r.URL)))
	if err != nil || r.URL.Scheme != "https" {
		return c, err
	}
	secure := l.tls.Clone()
	if secure == nil {
		secure = &tls.Config{}
	}
	secure.ServerName, secure.NextProtos = host, []string{"http/1.1"}
	t := tls.Client(c, secure)
	ctx, cancel := context.WithTimeout(r.Context(), dialLimit)
	defer cancel()
	if err := t.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return t, nil
}

// loneWindow is the size of the buffer for what has been read: events are small.
const loneWindow = 512

// exchange sends the request and reads the head of its answer.
func exchange(r *http.Request, c net.Conn) (*http.Response, error) {
	if err := r.Write(c); err != nil {
		return nil, err
	}
	head := &io.LimitedReader{R: c, N: maxHeaders}
	b := bufio.NewReaderSize(head, loneWindow)
	for {
		res, err := http.ReadResponse(b, r)
		switch {
		case err != nil && head.N <= 0:
			return nil, fmt.Errorf("the head of its answer is larger than %d bytes", maxHeaders)
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		case res.StatusCode >= 200 || res.StatusCode == http.StatusSwitchingProtocols:
			head.N = math.MaxInt64 // the body's limits are its reader's
			return res, nil
		}
	}
}

// loneBody is the body of an answer, with the connection that it comes over.
type loneBody struct {
	io.ReadCloser
	c    net.Conn
	stop func() bool
	ctx  context.Context
}

// Read implements io.Reader. A connection that was closed because nobody wants
// the answer any more says so.
func (b *loneBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		if cause := context.Cause(b.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

// Close closes the connection: what is left of the answer is not wanted.
func (b *loneBody) Close() error {
	b.stop()
	return b.c.Close()
}

// CloseIdleConnections closes those of requests that went through a proxy.
func (l *lone) CloseIdleConnections() { l.other.CloseIdleConnections() }
