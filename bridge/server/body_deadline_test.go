package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge/server/internal/access"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth/authtest"
)

// A body that is announced and not sent keeps no connection for longer than ten seconds, on any path.
func TestUnsentBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := authtest.New(t, "https://idp.example.com")
		r := newRig(t, func(c *config.Config) {
			users(i)(c)
			c.Console = config.ConsoleOn
		}, "one")
		const page = "Content-Type: application/json\r\n"
		for _, tc := range []struct {
			method, path, header string
			want                 int
		}{
			{"GET", "/healthz", "", 400},
			{"HEAD", "/healthz", "", 200},
			{"POST", "/readyz", "", 405},
			{"GET", access.WellKnown, "", 400},
			{"HEAD", access.WellKnown, "", 200},
			{"POST", "/.well-known/nothing", "", 404},
			{"POST", "/one/mcp", "Origin: https://evil.example\r\n", 403},
			{"OPTIONS", "/one/mcp", "Origin: http://127.0.0.1:8808\r\nAccess-Control-Request-Method: POST\r\n", 204},
			{"POST", "/one/mcp", "", 401},
			{"HEAD", "/ui/", "", 200},
			{"POST", "/ui/login", page, 400},
			{"POST", "/ui/login", "", 415},
			{"POST", "/ui/api/v1/drain", page, 401},
		} {
			for _, length := range []string{"Content-Length: 100\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n1\r\n{"} {
				conn := r.Dial()
				began := time.Now()
				_ = conn.SetDeadline(began.Add(time.Minute))
				fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: 127.0.0.1:8808\r\n%s%s", tc.method, tc.path, tc.header, length)
				in := bufio.NewReader(conn)
				res, err := http.ReadResponse(in, &http.Request{Method: tc.method})
				if err != nil {
					t.Errorf("%s %s: %v", tc.method, tc.path, err)
				} else if _, err = io.Copy(io.Discard, in); res.StatusCode != tc.want || err != nil || time.Since(began) > 11*time.Second {
					t.Errorf("%s %s: %d, want %d; the connection ends after %v: %v", tc.method, tc.path, res.StatusCode, tc.want, time.Since(began), err)
				}
				_ = conn.Close()
			}
		}
	})
}

// The deadline of a body ends neither a stream nor a call that lasts longer than it.
func TestSentBodies(t *testing.T) {
	run(t, private, []string{"one"}, func(t *testing.T, r *rig) {
		for _, body := range []string{"Content-Length: 2\r\n\r\n{}", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"} {
			conn := r.Dial()
			_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
			fmt.Fprintf(conn, "GET /one/sse HTTP/1.1\r\nHost: 127.0.0.1:8808\r\nAccept: text/event-stream\r\nAuthorization: Bearer %s\r\n%s", aliceKey, body)
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || res.StatusCode != 200 {
				t.Fatal(res, err)
			}
			if _, err := io.Copy(io.Discard, res.Body); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%q: the stream has ended: %v", body, err)
			}
			_ = conn.Close()
		}
		id := r.Do("POST", "/one/mcp", initialize, as(aliceKey)...).Wait().Header("Mcp-Session-Id")
		late := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"late","arguments":{"after":"1m"}}}`
		for _, more := range [][]string{nil, {"Transfer-Encoding", "chunked"}} {
			header := append(append(as(aliceKey), "Mcp-Session-Id", id), more...)
			if a := r.Do("POST", "/one/mcp", late, header...).Wait(); a.Status() != 200 || !strings.Contains(a.Body(), `"late":true`) {
				t.Errorf("a call of a minute: %d %s", a.Status(), a.Body())
			}
		}
	})
}
