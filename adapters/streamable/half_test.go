package streamable

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// A client that closes its side of the connection before the answer gets an error. It could take an empty 200 for an answer.
func TestHalfClosed(t *testing.T) {
	for _, modern := range []bool{false, true} {
		r := newRig(t, &wiretest.Server{}, gateway.Options{}, Options{})
		site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { r.d.Serve("fake", w, q) }))
		defer site.Close()
		header, body := "", modernCallBody("1", "wait", "{}")
		if modern {
			for i, h := 0, modernHeaders(body); i < len(h); i += 2 {
				header += h[i] + ": " + h[i+1] + "\r\n"
			}
		} else {
			res, err := http.Post(site.URL, "application/json", strings.NewReader(fmt.Sprintf(initialize, "2025-11-25")))
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			header, body = "Mcp-Session-Id: "+res.Header.Get("Mcp-Session-Id")+"\r\n", call("1", "wait", "{}")
		}
		c, err := net.Dial("tcp", site.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAccept: application/json\r\n%sContent-Length: %d\r\n\r\n%s", header, len(body), body)
		_ = c.(*net.TCPConn).CloseWrite()
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(res.Body)
		if res.StatusCode != 400 || !strings.Contains(string(got), "closed on your side") {
			t.Errorf("modern %v: %d %s", modern, res.StatusCode, got)
		}
	}
}
