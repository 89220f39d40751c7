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
	"sync"

	"golang.org/x/net/idna"
)

// streamTransport opens a connection for each request, and reads the answer in the goroutine that
// reads the body. Silent streams are many, and net/http would use two more goroutines for each: a
// session with an open stream to its server takes 43 KB of memory instead of 60 KB.
type streamTransport struct {
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	tls   *tls.Config
	proxy func(*http.Request) (*url.URL, error) // nil if there is no proxy
	other *http.Transport                       // for requests through a proxy
}

// RoundTrip implements http.RoundTripper. The end of the request's context closes the connection.
func (s *streamTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.proxy != nil {
		if at, err := s.proxy(r); err != nil || at != nil {
			return s.other.RoundTrip(r)
		}
	}
	c, err := s.connect(r)
	if err != nil {
		return nil, err
	}
	closed := make(chan struct{})
	stop := context.AfterFunc(r.Context(), func() {
		_ = c.Close()
		close(closed)
	})
	end := sync.OnceFunc(func() {
		if !stop() {
			<-closed
		}
		_ = c.Close()
	})
	res, err := exchange(r, c)
	if err != nil {
		end()
		if cause := context.Cause(r.Context()); cause != nil {
			err = cause
		}
		return nil, err
	}
	res.Body = &streamBody{res.Body, end, r.Context()}
	return res, nil
}

// connect opens the connection for a request, with TLS for https.
func (s *streamTransport) connect(r *http.Request) (net.Conn, error) {
	host := r.URL.Hostname()
	if ascii, err := idna.Lookup.ToASCII(host); err == nil { // as net/http does; an address, or an invalid name, stays
		host = ascii
	}
	c, err := s.dial(r.Context(), "tcp", net.JoinHostPort(host, port(r.URL)))
	if err != nil || r.URL.Scheme != "https" {
		return c, err
	}
	secure := s.tls.Clone()
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

// streamWindow is the size of the read buffer, in bytes. Events are small.
const streamWindow = 512

// exchange sends the request and reads the head of the response, of at most maxHeaders bytes.
func exchange(r *http.Request, c net.Conn) (*http.Response, error) {
	if err := r.Write(c); err != nil {
		return nil, err
	}
	head := &io.LimitedReader{R: c, N: maxHeaders}
	b := bufio.NewReaderSize(head, streamWindow)
	for {
		res, err := http.ReadResponse(b, r)
		switch {
		case err != nil && head.N <= 0:
			return nil, fmt.Errorf("the head of its response is larger than %d bytes", maxHeaders)
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		case res.StatusCode >= 200 || res.StatusCode == http.StatusSwitchingProtocols:
			head.N = math.MaxInt64 // whoever reads the body bounds it
			return res, nil
		}
	}
}

// streamBody is the body of a response that has a connection of its own.
type streamBody struct {
	io.ReadCloser
	end func() // closes the connection
	ctx context.Context
}

// Read implements io.Reader. After the end of the request's context, the error is its cause.
func (s *streamBody) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		if cause := context.Cause(s.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

// Close closes the connection, and so drops the rest of the response.
func (s *streamBody) Close() error {
	s.end()
	return nil
}

// CloseIdleConnections closes idle connections of requests that went through a proxy.
func (s *streamTransport) CloseIdleConnections() { s.other.CloseIdleConnections() }
