package server

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// listening is a Server on a real socket, with a server "ev" that has a webhook.
type listening struct {
	t       testing.TB
	s       *server
	address string
	log     *lines
}

// lines is a log that is written and read at once.
type lines struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// withHook makes a bridge with a server "ev" that has a webhook.
func withHook(log io.Writer, change func(*config.Config)) *server {
	c := config.Default()
	c.Listen = "127.0.0.1:0"
	c.Servers = []config.Server{config.DefaultServer("ev", "")}
	if change != nil {
		change(&c)
	}
	return build(&c, slog.New(slog.NewTextHandler(log, nil)), func(*server, *config.Server) backend {
		return backend{Adapter: &wiretest.Server{}, transport: func() string { return "rest" },
			hook: newHook(hookSecret, func(context.Context, []byte) (int, error) { return 3, nil })}
	})
}

func onSocket(t testing.TB, change func(*config.Config)) *listening {
	t.Helper()
	log := &lines{}
	s := withHook(log, change)
	at, err := s.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, at) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return &listening{t, s, at.Addr().String(), log}
}

// dial connects until the test ends.
func (l *listening) dial() net.Conn {
	l.t.Helper()
	c, err := net.Dial("tcp", l.address)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = c.Close() })
	return c
}

// drip begins a POST of which only the first byte comes, and returns when the
// bridge has begun to read that.
func (l *listening) drip(path string, announced int, header string) {
	l.t.Helper()
	c := l.dial()
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n%s\r\n", path, announced, header)
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100") {
		l.t.Fatalf("POST %s of %d bytes: %q %v, want 100 Continue", path, announced, line, err)
	}
	_, _ = io.WriteString(c, "{")
}

// post makes a request and returns what came of it.
func (l *listening) post(path, body string, header ...string) (status int, answer string, h http.Header) {
	l.t.Helper()
	r, err := http.NewRequestWithContext(l.t.Context(), "POST", "http://"+l.address+path, strings.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return res.StatusCode, string(text), res.Header
}

// Bodies that are announced and hardly come take the bridge from nobody: neither
// those of a caller with a key, nor those that come to a webhook without a secret.
func TestAnnouncedBodies(t *testing.T) {
	for name, attack := range map[string]struct{ path, header string }{
		"with a key":       {"/ev/mcp", "Accept: application/json, text/event-stream\r\nAuthorization: Bearer " + aliceKey + "\r\n"},
		"without a secret": {"/hooks/ev", "X-Hub-Signature-256: sha256=00\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			l := onSocket(t, func(c *config.Config) {
				c.Access = []config.Access{{Name: "alice", Token: aliceKey}, {Name: "bob", Token: bobKey}}
			})
			bob := append(as(bobKey), "Accept", "application/json, text/event-stream")
			_, _, h := l.post("/ev/mcp", initialize, bob...)
			session := append([]string{"Mcp-Session-Id", h.Get("Mcp-Session-Id")}, bob...)
			for _, wave := range []struct{ n, announced int }{{490, 1_200_000}, {110, 16_000}, {40, 500}, {30, 60}, {10, 16}} {
				if attack.path == "/hooks/ev" && wave.announced > smallBody {
					wave.n = signedBodies // the others wait for their turn
				}
				for range wave.n {
					l.drip(attack.path, wave.announced, attack.header)
				}
			}
			for i := range 10 {
				if status, answer, _ := l.post("/ev/mcp", call("1", "echo"), session...); status != 200 || !strings.Contains(answer, `"result"`) {
					t.Errorf("call %d of an open session: %d %s", i, status, answer)
				}
				if status, answer, _ := l.post("/ev/mcp", initialize, bob...); status != 200 {
					t.Errorf("session %d: %d %s", i, status, answer)
				}
			}
			if status, answer, _ := l.post("/hooks/ev", "[]", signature, sign(hookSecret, "[]")); status != 200 {
				t.Errorf("a webhook that is signed: %d %s", status, answer)
			}
			if n := l.s.g.Totals().Bytes; n > 1<<20 {
				t.Errorf("%d bytes are reserved for less than a kilobyte that has come", n)
			}
		})
	}
}

// One caller cannot take all bytes under way, with bodies that do come either.
func TestBytesOfOneCaller(t *testing.T) {
	l := onSocket(t, func(c *config.Config) {
		c.Access = []config.Access{{Name: "alice", Token: aliceKey}, {Name: "bob", Token: bobKey}}
		c.MaxInFlight, c.MaxMessage = 4<<20, 1<<20
	})
	alice := l.s.g.Room("alice")
	n := 0
	for alice.Reserve(1 << 10) {
		n += 1 << 10
	}
	if n != 3<<20 {
		t.Errorf("one caller has %d of 4 MiB", n)
	}
	header := append(as(aliceKey), "Accept", "application/json, text/event-stream")
	if status, answer, h := l.post("/ev/mcp", initialize, header...); status != 503 || h.Get("Retry-After") == "" || !strings.Contains(answer, "max_bytes_in_flight") {
		t.Errorf("her next call: %d %s", status, answer)
	}
	bob := append(as(bobKey), "Accept", "application/json, text/event-stream")
	if status, answer, _ := l.post("/ev/mcp", initialize, bob...); status != 200 {
		t.Errorf("another's call: %d %s", status, answer)
	}
	alice.Return(n)
	if status, answer, _ := l.post("/ev/mcp", initialize, header...); status != 200 {
		t.Errorf("when there is room again: %d %s", status, answer)
	}
}

// inMemory plays with a bridge that serves in memory, in a bubble: the time is fake.
func inMemory(t *testing.T, play func(t *testing.T, dial func() net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		s, site := withHook(io.Discard, nil), wiretest.NewClients(t)
		ended := make(chan error, 1)
		go func() { ended <- s.serve(site.Listener()) }()
		play(t, site.Dial)
		_ = s.http.Close()
		<-ended
		s.Close(context.Background())
		time.Sleep(time.Second) // of the bubble: what the HTTP server closes lingers for half of it
	})
}

// Whoever knows no secret gets little room and time for large bodies at a webhook:
// two are read at once, for ten seconds at most however steadily they come, others wait
// five seconds for a place, and small ones need none.
func TestSignedBodies(t *testing.T) {
	for name, test := range map[string]struct {
		framing string
		piece   string // a byte of the body
		whole   func(body string) string
	}{
		"announced": {"Content-Length: 1000000\r\n", " ", func(body string) string {
			return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
		}},
		"chunked": {"Transfer-Encoding: chunked\r\n", "1\r\n \r\n", func(body string) string {
			return fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, dial func() net.Conn) {
				type reply struct {
					status int
					header http.Header
					took   time.Duration
				}
				// send posts in the background, a piece more each second until its connection
				// ends, and returns where the answer comes.
				send := func(signed, rest, more string) <-chan reply {
					client := dial()
					began, answered := time.Now(), make(chan reply, 1)
					go func() {
						_, err := fmt.Fprintf(client, "POST /hooks/ev HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s: %s\r\n%s", signature, signed, rest)
						for more != "" && err == nil {
							time.Sleep(time.Second)
							_, err = io.WriteString(client, more)
						}
					}()
					go func() {
						defer client.Close()
						res, err := http.ReadResponse(bufio.NewReader(client), nil)
						if err != nil {
							t.Error(err)
							answered <- reply{}
							return
						}
						_, _ = io.Copy(io.Discard, res.Body)
						answered <- reply{res.StatusCode, res.Header, time.Since(began)}
					}()
					synctest.Wait()
					return answered
				}
				check := func(what string, got reply, status int, took time.Duration) {
					t.Helper()
					if got.status != status || got.took != took {
						t.Errorf("%s: %d after %v, want %d after %v", what, got.status, got.took, status, took)
					}
				}
				large, small := strings.Repeat(" ", smallBody+1), "[]"
				slow := test.framing + "\r\n" + test.piece
				silent := send("sha256=00", slow, "")
				steady := send("sha256=00", slow, test.piece)
				third := send(sign(hookSecret, large), test.whole(large), "")
				check("a small body beside two large ones", <-send(sign(hookSecret, small), fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(small), small), ""), 200, 0)
				refused := <-third
				check("a third large body", refused, 503, 5*time.Second)
				if refused.header.Get("Retry-After") == "" {
					t.Error("the refusal does not say when to come again")
				}
				time.Sleep(time.Second) // of the bubble
				next := send(sign(hookSecret, large), test.whole(large), "")
				check("one of which nothing more comes", <-silent, 400, 10*time.Second)
				check("one that comes steadily", <-steady, 400, 10*time.Second)
				check("one that waits when a place becomes free", <-next, 200, 4*time.Second)
			})
		})
	}
}

// A body that is announced above the limit is refused at once, whether or not it
// comes; a client that sends it all the same can read the answer.
func TestAnnouncedTooLarge(t *testing.T) {
	const size = 18 << 20
	refused := func(t *testing.T, c net.Conn, path string) {
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s: sha256=00\r\nContent-Length: %d\r\n\r\n{", path, signature, size)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || res.StatusCode != 413 || !res.Close {
			t.Fatalf("%s: %v %v, want 413 and the end of the connection", path, res, err)
		}
		if text, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(text), "larger than the limit") {
			t.Errorf("%s: %q %v", path, text, err)
		}
	}
	l := onSocket(t, nil)
	for _, path := range []string{"/ev/mcp", "/hooks/ev"} {
		inMemory(t, func(t *testing.T, dial func() net.Conn) {
			c := dial()
			defer c.Close()
			began := time.Now()
			if refused(t, c, path); time.Since(began) > 0 {
				t.Errorf("%s: refused after %v", path, time.Since(began))
			}
		})
		c := l.dial()
		refused(t, c, path)
		if n, err := c.Write(make([]byte, size-1)); err != nil {
			t.Errorf("%s: the connection broke after %d more bytes: %v", path, n, err)
		}
	}
}
