package remote

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// peers are servers in memory: serve handles each connection.
type peers struct {
	serve func(net.Conn)
	wg    sync.WaitGroup

	mu     sync.Mutex // guards the rest
	dialed []string
	closed int
}

// dial connects to a peer.
func (p *peers) dial(_ context.Context, _, address string) (net.Conn, error) {
	p.mu.Lock()
	p.dialed = append(p.dialed, address)
	p.mu.Unlock()
	ours, theirs := net.Pipe()
	p.wg.Go(func() {
		p.serve(theirs)
		_, _ = io.Copy(io.Discard, theirs) // until ours is closed
		_ = theirs.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.closed++
	})
	return ours, nil
}

// head reads the head of a request.
func head(c net.Conn) string {
	var text []byte
	for b := make([]byte, 1); !bytes.HasSuffix(text, []byte("\r\n\r\n")); text = append(text, b[0]) {
		if _, err := c.Read(b); err != nil {
			break
		}
	}
	return string(text)
}

// says serves text, and nothing after it.
func says(text string) func(net.Conn) {
	return func(c net.Conn) {
		head(c)
		_, _ = io.WriteString(c, text)
	}
}

// inMemory makes a client of url whose connections are those of p.
func inMemory(t *testing.T, url string, p *peers) *Client {
	c := client(t, Config{URL: url, Proxy: "none"})
	c.short.Transport.(*http.Transport).DialContext = p.dial
	c.long.Transport.(*streamTransport).dial = p.dial
	return c
}

// stream opens a stream.
func stream(ctx context.Context, c *Client) (*http.Response, error) {
	return c.Stream(c.Request(ctx, "GET", c.URL(), nil, nil))
}

// A stream goes to the same host as a request, whatever alphabet its name is in.
func TestStreamHost(t *testing.T) {
	for _, test := range []struct{ url, dialed, host string }{
		{"http://bücher.example/x", "xn--bcher-kva.example:80", "xn--bcher-kva.example"},
		{"http://bücher.example:81/x", "xn--bcher-kva.example:81", "xn--bcher-kva.example:81"},
		{"http://a_b.example/x", "a_b.example:80", "a_b.example"},
		{"http://[::1]:81/x", "[::1]:81", "[::1]:81"},
	} {
		hosts := make(chan string, 2)
		p := &peers{serve: func(c net.Conn) {
			_, host, _ := strings.Cut(head(c), "Host: ")
			host, _, _ = strings.Cut(host, "\r\n")
			hosts <- host
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}}
		c := inMemory(t, test.url, p)
		if got, err := ask(t, c, "GET", nil, nil); got != "ok" || err != nil {
			t.Errorf("%s: %q, %v", test.url, got, err)
		}
		for i := range 2 {
			if host := <-hosts; p.dialed[i] != test.dialed || host != test.host {
				t.Errorf("%s: connected to %s for %s, want %s for %s", test.url, p.dialed[i], host, test.dialed, test.host)
			}
		}
		c.Close()
		p.wg.Wait()
	}
}

// The answer of a stream is read as of any request, however it comes; what is said before it (1xx) is skipped. A peer that
// breaks off, or does not come to the end of the head, is an error, and its connection is closed.
func TestStreamAnswer(t *testing.T) {
	for _, test := range []struct{ name, text, want, err string }{
		{"length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, and more", "hello", ""},
		{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", "hello", ""},
		{"until the end", "HTTP/1.0 200 OK\r\n\r\nhello", "hello", ""},
		{"nothing", "HTTP/1.1 204 No Content\r\n\r\n", "", ""},
		{"hints before", "HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", ""},
		{"large", "HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", 4*maxHeaders), strings.Repeat("x", 4*maxHeaders), ""}, // the limit is the head's
		{"cut", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", "hello", "unexpected EOF"},
		{"cut chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello", "hello", "unexpected EOF"},
		{"no head", "", "", "unexpected EOF"},
		{"half a head", "HTTP/1.1 200 OK\r\nContent-Type: te", "", "unexpected EOF"},
		{"only hints", "HTTP/1.1 103 Early Hints\r\n\r\n", "", "unexpected EOF"},
		{"a head too large", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxHeaders), "", "larger than 65536 bytes"},
		{"hints for ever", strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n", 2000), "", "larger than 65536 bytes"},
	} {
		p := &peers{}
		p.serve = func(c net.Conn) { says(test.text)(c); _ = c.Close() }
		var got []byte
		res, err := stream(t.Context(), inMemory(t, "http://h/", p))
		if err == nil {
			got, err = io.ReadAll(res.Body)
			_ = res.Body.Close()
		}
		if string(got) != test.want || (err == nil) != (test.err == "") || err != nil && (!strings.Contains(err.Error(), test.err) || Unsent(err)) {
			t.Errorf("%s: %d bytes, %v, want %d, %q", test.name, len(got), err, len(test.want), test.err)
		}
		p.wg.Wait() // ends only when the connection was closed
	}
}

// Wherever a stream stands, the end of its context ends it, says why, and
// closes the connection.
func TestStreamGivenUp(t *testing.T) {
	why := errors.New("nobody wants it")
	for _, test := range []struct {
		name, url string
		serve     func(net.Conn)
	}{
		{"not read", "http://h/", func(c net.Conn) { <-time.After(time.Minute) }},
		{"no answer", "http://h/", func(c net.Conn) { head(c) }},
		{"half a head", "http://h/", says("HTTP/1.1 200 OK\r\nConte")},
		{"no event", "http://h/", says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")},
		{"half an event", "http://h/", says("HTTP/1.1 200 OK\r\n\r\ndata: 1")},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peers{serve: test.serve}
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(why) })
				began := time.Now()
				res, err := stream(ctx, inMemory(t, test.url, p))
				if err == nil {
					_, err = io.ReadAll(res.Body)
					_ = res.Body.Close()
				}
				if took := time.Since(began); !errors.Is(err, why) || took != time.Second {
					t.Errorf("%v after %v, want %v after 1 s", err, took, why)
				}
				p.wg.Wait()
			})
		})
	}
}

// A peer that accepts the connection and does not shake hands is given up, and
// nothing was sent to it.
func TestStreamHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peers{serve: func(net.Conn) {}}
		c := inMemory(t, "https://h/", p)
		began := time.Now()
		if _, err := stream(t.Context(), c); err == nil || time.Since(began) != dialLimit {
			t.Errorf("%v after %v, want an error after %v", err, time.Since(began), dialLimit)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := stream(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want that the context has ended", err)
		}
		p.wg.Wait()
	})
}

// inBubble returns how many goroutines the bubble has.
func inBubble() int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "synctest bubble")
}

// What streams are for: one that is silent has no goroutine of its own. Closing
// it closes its connection, also under a Read.
func TestStreamSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peers{serve: says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")}
		c := inMemory(t, "http://h/", p)
		const many = 5
		before := inBubble()
		var open []*http.Response
		for range many {
			res, err := stream(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, res)
		}
		synctest.Wait()
		if n := inBubble() - before; n != many { // the peers'
			t.Errorf("%d streams have %d goroutines, want none", many, n-many)
		}
		var readers sync.WaitGroup
		for _, res := range open {
			readers.Go(func() {
				if got, err := io.ReadAll(res.Body); string(got) != "x" || err == nil {
					t.Errorf("%q, %v, want an error behind x", got, err)
				}
			})
		}
		synctest.Wait()
		for _, res := range open {
			_ = res.Body.Close()
		}
		readers.Wait()
		p.wg.Wait()
		if p.closed != many {
			t.Errorf("%d connections were closed, want %d", p.closed, many)
		}
	})
}
