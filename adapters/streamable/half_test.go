package streamable

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge/gateway"
)

// A client that has closed its half of the connection has gone. Before the response has begun, the client gets an
// error, because it could take an empty 200 for an answer. Afterwards nothing is said any more, and the request is cancelled.
func TestHalfClosed(t *testing.T) {
	m := newModernRig(t, gateway.Options{}, Options{})
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { m.d.Serve("fake", w, q) }))
	defer site.Close()
	res, err := http.Post(site.URL, "application/json", strings.NewReader(fmt.Sprintf(initialize, "2025-11-25")))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	legacy, wait := call("1", "wait", "{}"), modernCallBody("1", "wait", "{}")
	linger, subscription := modernCallBody("1", "linger", "{}"), modernBody("1", listen, `"notifications":{"toolsListChanged":true}`)
	for _, test := range []struct {
		name, body string
		header     []string
		begun      bool
	}{
		{"legacy", legacy, []string{sessionHeader, res.Header.Get(sessionHeader)}, false},
		{"modern", wait, modernHeaders(wait), false},
		{"a call that has begun", linger, modernHeaders(linger), true},
		{"a subscription", subscription, modernHeaders(subscription), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := net.Dial("tcp", site.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			writePost(c, test.body, append(test.header, "Accept", "application/json, text/event-stream"))
			from := bufio.NewReader(c)
			if test.begun {
				_, _ = from.Peek(1)
			}
			_ = c.(*net.TCPConn).CloseWrite()
			res, err := http.ReadResponse(from, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(res.Body)
			if test.begun {
				if res.StatusCode != 200 || strings.Contains(string(got), `"id":1`) {
					t.Errorf("an answer after the end: %d %s", res.StatusCode, got)
				}
			} else if res.StatusCode != 400 || !strings.Contains(string(got), "closed on your side") {
				t.Errorf("%d %s", res.StatusCode, got)
			}
		})
	}
	m.d.Close() // no subscription is left
	got := m.m.Cancelled()
	for _, want := range []string{"tools/call linger: cancelled by the client", "subscriptions/listen: cancelled by the client"} {
		if !slices.Contains(got, want) {
			t.Errorf("cancelled %q, want %q", got, want)
		}
	}
}

// writePost writes a POST with pairs of a name and a value as headers.
func writePost(w io.Writer, body string, header []string) {
	head := ""
	for h := range slices.Chunk(header, 2) {
		head += h[0] + ": " + h[1] + "\r\n"
	}
	_, _ = fmt.Fprintf(w, "POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", head, len(body), body)
}
