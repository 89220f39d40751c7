package streamable

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// The status table of protocol.md A7.
func TestStatus(t *testing.T) {
	const (
		ping    = `{"jsonrpc":"2.0","id":7,"method":"ping"}`
		unknown = "AAAAAAAAAAAAAAAAAAAAAAAAAA"
	)
	tests := []struct {
		name, method, body string
		header             []string
		status             int
		want               string // in the body
	}{
		{"fine", "POST", ping, nil, 200, `{"jsonrpc":"2.0","id":7,"result":{}}`},
		{"accept in any case, order and with parameters (R-042)", "POST", ping, []string{"Accept", "Text/Event-Stream; q=0.9,APPLICATION/json;x=y"}, 200, `"id":7`},
		{"accept everything", "POST", ping, []string{"Accept", "text/html, */*;q=0.1"}, 200, `"id":7`},
		{"accept kinds of everything", "POST", ping, []string{"Accept", "application/*, text/*"}, 200, `"id":7`},
		{"no accept", "POST", ping, []string{"Accept", ""}, 200, `"id":7`},
		{"accept without stream", "POST", ping, []string{"Accept", "application/json"}, 200, `{"jsonrpc":"2.0","id":7,"result":{}}`},
		{"accept without json", "POST", ping, []string{"Accept", "text/event-stream"}, 200, `data: {"jsonrpc":"2.0","id":7,"result":{}}`},
		{"accept neither", "POST", ping, []string{"Accept", "text/html"}, 406, "-32600"},
		{"content type", "POST", ping, []string{"Content-Type", "text/plain"}, 415, "-32600"},
		{"no content type", "POST", ping, []string{"Content-Type", ""}, 415, "-32600"},
		{"not json", "POST", `{"jsonrpc":"2.0","id":7,"method":`, nil, 400, `{"jsonrpc":"2.0","error":{"code":-32700`},
		{"two messages", "POST", ping + ping, nil, 400, "-32700"},
		{"no body", "POST", "", nil, 400, "-32700"},
		{"not json-rpc", "POST", `{"id":7}`, nil, 400, `{"jsonrpc":"2.0","id":7,"error":{"code":-32600`},
		{"null id (R-002, R-014)", "POST", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, nil, 400, `{"jsonrpc":"2.0","error":{"code":-32600`},
		{"a string", "POST", `"ping"`, nil, 400, "-32600"},
		{"repeated member", "POST", `{"jsonrpc":"2.0","id":7,"id":8,"method":"ping"}`, nil, 400, "-32600"},
		{"array (R-044)", "POST", "[" + ping + "]", nil, 400, "-32600"},
		{"two sessions", "POST", ping, []string{"Mcp-Session-Id", "$id\n" + unknown}, 400, "the header Mcp-Session-Id appears twice"},
		{"two sessions, get", "GET", "", []string{"Mcp-Session-Id", "$id\n" + unknown}, 400, "the header Mcp-Session-Id appears twice"},
		{"two sessions, delete", "DELETE", "", []string{"Mcp-Session-Id", "$id\n" + unknown}, 400, "the header Mcp-Session-Id appears twice"},
		{"two revisions", "POST", ping, []string{"Mcp-Protocol-Version", "2025-11-25\n2025-06-18"}, 400, "the header Mcp-Protocol-Version appears twice"},
		{"unknown session (R-027)", "POST", ping, []string{"Mcp-Session-Id", unknown}, 404, `"id":7`},
		{"unknown session, notification", "POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, []string{"Mcp-Session-Id", unknown}, 404, `{"jsonrpc":"2.0","error"`},
		{"unknown session, initialize (C3)", "POST", fmt.Sprintf(initialize, "2025-11-25"), []string{"Mcp-Session-Id", unknown}, 200, `"id":0,"result":{"protocolVersion"`},
		{"initialize, whatever revision its header has (R-017)", "POST", fmt.Sprintf(initialize, "2025-11-25"), []string{"Mcp-Session-Id", "", "Mcp-Protocol-Version", "nonsense"}, 200, `"id":0,"result":{"protocolVersion"`},
		{"answer without session", "POST", `{"jsonrpc":"2.0","id":7,"result":{}}`, []string{"Mcp-Session-Id", ""}, 400, "-32600"},
		{"revision", "POST", ping, []string{"Mcp-Protocol-Version", "2025-11-25"}, 200, `"id":7`},
		{"another revision that we speak", "POST", ping, []string{"Mcp-Protocol-Version", "2025-03-26"}, 200, `"id":7`},
		{"no revision (R-031)", "POST", ping, []string{"Mcp-Protocol-Version", "1.0"}, 400, `"id":7`},
		{"revision between eras (R-031)", "POST", ping, []string{"Mcp-Protocol-Version", "2026-01-01"}, 400, `"id":7`},
		{"late answer (R-189)", "POST", `{"jsonrpc":"2.0","id":7,"result":{}}`, nil, 202, ""},
		{"late error (R-189)", "POST", `{"jsonrpc":"2.0","id":"no","error":{"code":1,"message":""}}`, nil, 202, ""},
		{"error without id (R-189)", "POST", `{"jsonrpc":"2.0","error":{"code":1,"message":""}}`, nil, 202, ""},
		{"unknown notification (R-005, R-189)", "POST", `{"jsonrpc":"2.0","method":"what"}`, nil, 202, ""},
		{"server's error is an answer", "POST", call("7", "no such", "{}"), nil, 200, `"id":7,"error":{"code":-32602,"message":"no such tool"}`},
		{"lost server is an answer (D7)", "POST", call("7", "quit", "{}"), nil, 200, `{"bridge":"upstream_lost"}`},
		{"get without accept of a stream", "GET", "", []string{"Accept", "application/json"}, 406, "-32600"},
		{"get without session", "GET", "", []string{"Mcp-Session-Id", ""}, 400, "-32600"},
		{"get of an unknown session", "GET", "", []string{"Mcp-Session-Id", unknown}, 404, "-32600"},
		{"get with no revision", "GET", "", []string{"Mcp-Protocol-Version", "x"}, 400, "-32600"},
		{"get behind an unknown event of a POST", "GET", "", []string{"Last-Event-ID", "pAAAAAAAAAAAA-1"}, 400, "-32600"},
		{"get behind nonsense", "GET", "", []string{"Last-Event-ID", "%0d%0aX: y"}, 400, "-32600"},
		{"put (R-047)", "PUT", "", nil, 405, "-32600"},
		{"head", "HEAD", "", nil, 405, ""},
		{"delete without session", "DELETE", "", []string{"Mcp-Session-Id", ""}, 400, "-32600"},
		{"delete of an unknown session", "DELETE", "", []string{"Mcp-Session-Id", unknown}, 404, "-32600"},
	}
	run(t, func(t *testing.T, r *rig) {
		for _, test := range tests {
			c := r.begin("2025-11-25")
			a := c.Do(test.method, "/mcp", test.body, append([]string{"Mcp-Session-Id", c.id}, strings.Split(strings.ReplaceAll(strings.Join(test.header, "\x00"), "$id", c.id), "\x00")...)...).Wait()
			if a.Status() != test.status || !strings.Contains(a.Body(), test.want) || test.want == "" && a.Body() != "" {
				t.Errorf("%s: %d %q, want %d with %q", test.name, a.Status(), a.Body(), test.status, test.want)
			}
			if allow := a.Header("Allow"); (test.status == 405) != (allow != "") {
				t.Errorf("%s: Allow is %q", test.name, allow)
			}
			if made := a.Header("Mcp-Session-Id") != ""; made != strings.Contains(test.want, "protocolVersion") {
				t.Errorf("%s: a session id in the response: %t", test.name, made)
			}
		}
	})
}

// A handshake that fails: the answer says so and there is no session.
func TestFailedInitialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &wiretest.Server{Before: func(context.Context) error {
			return &bridge.Error{Server: "fake", Kind: bridge.ErrUnavailable, Public: "it cannot start", Err: errors.New("secret")}
		}}, gateway.Options{}, Options{})
		for body, want := range map[string]string{
			fmt.Sprintf(initialize, "2025-11-25"):            `{"bridge":"upstream_unavailable"}`,
			`{"jsonrpc":"2.0","id":3,"method":"initialize"}`: `"id":3,"error":{"code":-32602`,
		} {
			a := r.Do("POST", "/mcp", body).Wait()
			if a.Status() != 200 || a.Header("Mcp-Session-Id") != "" || !strings.Contains(a.Body(), want) || strings.Contains(a.Body(), "secret") {
				t.Errorf("initialize = %d %q %s", a.Status(), a.Header("Mcp-Session-Id"), a.Body())
			}
		}
	})
}

// Limits: a body above it is 413, also one that comes in chunks and does not say its length.
func TestBodyLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &wiretest.Server{}, gateway.Options{}, Options{MaxMessage: 100 << 10})
		c := r.begin("2025-06-18")
		for _, test := range []struct{ size, status int }{{90 << 10, 200}, {300 << 10, 413}} {
			body := call("1", "echo", `"`+strings.Repeat("x", test.size)+`"`)
			for _, header := range [][]string{nil, {"Transfer-Encoding", "chunked"}} {
				if r := c.post(body, header...).Wait(); r.Status() != test.status {
					t.Errorf("%d bytes %v = %d, want %d", test.size, header, r.Status(), test.status)
				}
			}
		}
	})
}

// The answers to a batch are bounded together; each request is answered all the same.
func TestBatchAnswersBounded(t *testing.T) {
	for _, way := range []string{"json", "stream"} {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, &wiretest.Server{}, gateway.Options{}, Options{MaxMessage: 64 << 10}) // 4.25 MiB for all answers
				c := r.begin("2025-03-26")
				tool := map[string]string{"json": "echo", "stream": "log"}[way]
				b := call(`"first"`, tool, "1")
				for i := range 6 {
					b += "," + call(strconv.Itoa(i), "large", `{"n":1048576}`)
				}
				a := c.post("[" + b + "]").Wait()
				if got := strings.Count(a.Body(), `"result":{"large":`); got != 4 {
					t.Errorf("%d large results, want 4", got)
				}
				if got := strings.Count(a.Body(), "upstream_too_large"); got != 2 {
					t.Errorf("%d errors, want 2", got)
				}
			})
		})
	}
}

// A client that does not send its body, and one that does not read its answer, hold a connection for a limited time.
func TestSlowClients(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		c := r.begin("2025-06-18")
		const head = "POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nMcp-Session-Id: %s\r\n"
		for name, rest := range map[string]string{"length": "Content-Length: 100\r\n\r\n{", "chunks": "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"} {
			conn := r.Dial()
			began := time.Now()
			go func() { _, _ = fmt.Fprintf(conn, head+rest, c.id) }()
			answer, _ := io.ReadAll(conn)
			if took := time.Since(began); !strings.HasPrefix(string(answer), "HTTP/1.1 400") || took.Truncate(time.Second) != 2*time.Minute {
				t.Errorf("%s: %q after %v, want 400 after 2m", name, answer, took)
			}
			_ = conn.Close()
		}
		for _, tool := range []string{"echo", "log"} {
			body := call("1", tool, `"`+strings.Repeat("x", 256<<10)+`"`)
			conn := r.Dial()
			_, _ = fmt.Fprintf(conn, head+"Content-Length: %d\r\n\r\n%s", c.id, len(body), body)
			synctest.Wait()
			wiretest.Advance(40 * time.Second) // 30 s, and 4 s for 256 KiB
			rest, _ := io.ReadAll(conn)
			if len(rest) >= 256<<10 {
				t.Errorf("%s: %d bytes could be read still, want a broken connection", tool, len(rest))
			}
			_ = conn.Close()
		}
		if r := c.call("2", "echo", "{}").Wait(); r.Status() != 200 {
			t.Errorf("afterwards = %d", r.Status())
		}
	})
}

// When a session ends each of its calls is answered, also on a stream, and its GETs end.
func TestEndAnswersCalls(t *testing.T) {
	for name, wait := range map[string]time.Duration{"json": 0, "stream": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, r *rig) {
				for range 20 { // it was a race
					c := r.begin("2025-06-18")
					call, get := c.call("5", "wait", "{}"), c.get()
					wiretest.Advance(wait)
					synctest.Wait()
					if r := c.Do("DELETE", "/mcp", "", "Mcp-Session-Id", c.id).Wait(); r.Status() != 204 {
						t.Errorf("DELETE = %d", r.Status())
					}
					if body := call.Wait().Body(); !strings.Contains(body, `"id":5,"error"`) {
						t.Errorf("the call ended with %q", body)
					}
					get.Wait()
				}
			})
		})
	}
}

// What comes for a call that was answered as JSON must not touch its answer: its memory may be another client's by then.
func TestSendAfterJSON(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		p := &peer{d: r.d}
		st := newStream(p, postPrefix, 1)
		st.answer(jsonrpc.NewResult([]byte("1"), []byte("{}")), nil)
		answers, ok := st.complete()
		if st.Send(replay.Event{Data: []byte("late")}) || !ok || len(answers) != 1 || string(answers[0].m.Result) != "{}" {
			t.Errorf("Send after the answer was taken changed something: %v", answers)
		}
	})
}

// An answer that comes at the moment at which its POST becomes a stream ends the stream.
func TestAnswerAtTheTurn(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		p := &peer{d: r.d}
		st := newStream(p, postPrefix, 1)
		st.answer(jsonrpc.NewResult([]byte("1"), []byte("{}")), nil)
		st.beginStream()
		if !st.log.Finished() {
			t.Error("the stream goes on though its answer is there")
		}
		p.forget()
		st.disconnected()
		c := r.begin("2025-06-18")
		for range 20 {
			r := c.call("1", "late", `{"after":"1s"}`)
			wiretest.Advance(time.Second)
			synctest.Wait()
			if !r.Over() || !strings.Contains(r.Body(), `"late":true`) {
				t.Fatalf("after 1 s: over %t, %q", r.Over(), r.Body())
			}
		}
	})
}

// An answer stays for the POST that is about to read it, though the session ends or
// needs the room for others; and it goes when the client has gone.
func TestAnswerBeforeItsReader(t *testing.T) {
	for name, drop := range map[string]func(*peer){
		"end":  (*peer).forget,
		"room": func(p *peer) { newStream(p, postPrefix, 1).beginStream() },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, r *rig) {
				p := &peer{d: r.d}
				var all []*stream
				for range 2 {
					st := newStream(p, postPrefix, 1)
					st.beginStream()
					st.answer(jsonrpc.NewResult([]byte("1"), []byte(`"`+strings.Repeat("x", keepPeerBytes)+`"`)), nil)
					all = append(all, st)
				}
				drop(p)
				me := all[0].attach(0)
				if n := len(all[0].log.Next(0)); n != 1 {
					t.Errorf("%d answers are there, want 1", n)
				}
				all[0].detach(me)
				all[1].disconnected()
				p.forget()
				for _, st := range all {
					if n := st.log.Bytes(); n != 0 {
						t.Errorf("%d bytes are held for nobody", n)
					}
				}
				for _, st := range p.streams {
					t.Error("kept: ", st.id)
				}
			})
		})
	}
}

// The id of a session is good from the moment that its client has it, which is before the handshake with a slow server is
// over: what names it waits for that. The session stays when its client breaks the connection as soon as it has the answer.
// A client that leaves before the answer leaves nothing behind.
func TestStartingSession(t *testing.T) {
	for _, tc := range []struct {
		name   string
		fails  error
		status int
	}{{"the handshake succeeds", nil, 200}, {"it fails", errors.New("no"), 404}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ready := make(chan struct{})
				s := &wiretest.Server{Before: func(ctx context.Context) error {
					select {
					case <-ready:
						return tc.fails
					case <-ctx.Done():
						return ctx.Err()
					}
				}}
				r := newRig(t, s, gateway.Options{}, Options{})
				gone := r.Do("POST", "/mcp", fmt.Sprintf(initialize, "2025-11-25"))
				wiretest.Advance(streamAfter)
				gone.Leave()
				synctest.Wait()
				r.d.mu.RLock()
				if n := len(r.d.peers); n != 0 {
					t.Errorf("a client that has left leaves %d peers", n)
				}
				r.d.mu.RUnlock()
				begin := r.Do("POST", "/mcp", fmt.Sprintf(initialize, "2025-11-25"))
				wiretest.Advance(streamAfter)
				synctest.Wait()
				c := &client{rig: r, id: begin.Header("Mcp-Session-Id")}
				if c.id == "" {
					t.Fatalf("the answer to initialize has begun without a session id: %d", begin.Status())
				}
				get, ping := c.get(), c.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
				foreign := r.Do("GET", "/other/mcp", "", "Mcp-Session-Id", c.id)
				wiretest.Advance(3 * streamAfter)
				synctest.Wait()
				if get.Status() != 0 || ping.Status() != 0 || foreign.Status() != 404 {
					t.Errorf("before the handshake is over: GET %d, POST %d, under the address of another server %d", get.Status(), ping.Status(), foreign.Status())
				}
				close(ready)
				synctest.Wait()
				if get.Status() != tc.status || ping.Wait().Status() != tc.status {
					t.Errorf("afterwards: GET %d, POST %d, want %d", get.Status(), ping.Status(), tc.status)
				}
				if tc.fails != nil {
					return
				}
				if e := begin.Events(); len(e) != 1 || !strings.Contains(e[0].Data, `"result"`) || !begin.Over() {
					t.Errorf("initialize: %+v", e)
				}
				begin.Leave()
				c.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`).Wait()
				s.Say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
				wiretest.Advance(streamAfter)
				synctest.Wait()
				if got := get.Take(); !strings.Contains(got, "list_changed") {
					t.Errorf("the stream has %q", got)
				}
				get.Leave()
			})
		})
	}
}

// A client that has closed its half of the connection has gone. Before the response has begun, the client gets an
// error, because it could take an empty 200 for an answer. After the beginning of the response the client gets nothing more, and the request is cancelled.
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

// The messages of a batch count among the bytes in flight for as long as one of
// its calls is: a client must not get around the limit with arrays. A batch has 100 messages at most.
func TestBatchCounts(t *testing.T) {
	const limit = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &wiretest.Server{}, gateway.Options{MaxBytes: limit}, Options{})
		free := func() bool { // reports that nothing is in flight
			ok := r.g.Room("").Reserve(limit)
			if ok {
				r.g.Room("").Return(limit)
			}
			return ok
		}
		c := r.begin("2025-03-26")
		half := `"` + strings.Repeat("x", limit/2) + `"`
		a := c.post(`[{"jsonrpc":"2.0","id":1,"method":"ping"},` + call("2", "wait", half) + `]`)
		synctest.Wait()
		if free() {
			t.Error("a call of a batch is under way and does not count")
		}
		if r := c.call("3", "wait", half).Wait(); r.Status() != 503 || r.Header("Retry-After") == "" || !strings.Contains(r.Body(), "-32603") {
			t.Errorf("what is too much beside it: %d %s, want 503 with Retry-After", r.Status(), r.Body())
		}
		r.s.Answer(`{"done":true}`)
		if a.Wait(); !strings.Contains(a.Body(), `"id":2,"result":{"done":true}`) || !strings.Contains(a.Body(), `"id":1,"result":{}`) {
			t.Errorf("the batch was answered %s", a.Body())
		}
		if synctest.Wait(); !free() {
			t.Error("the batch counts after its last answer")
		}
		for n, status := range map[int]int{100: 200, 101: 400} {
			rest := strings.Repeat(`,{"jsonrpc":"2.0","method":"x"}`, n-1)
			if r := c.post(`[{"jsonrpc":"2.0","id":1,"method":"ping"}` + rest + "]").Wait(); r.Status() != status {
				t.Errorf("a batch of %d = %d, want %d", n, r.Status(), status)
			}
		}
	})
}

// A cancellation within a batch reaches a call before it, as it does over other transports. What has no answer then
// is accepted without a body.
func TestBatchCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &wiretest.Server{}, gateway.Options{}, Options{})
		c := r.begin("2025-03-26")
		const cancelled = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`
		if r := c.post("[" + call("2", "wait", "1") + "," + cancelled + "]").Wait(); r.Status() != 202 || r.Body() != "" {
			t.Errorf("the cancelled call was answered %d %s", r.Status(), r.Body())
		}
		if r := c.post(`[{"jsonrpc":"2.0","id":3,"method":"ping"},` + call("2", "wait", "1") + "," + cancelled + "]").Wait(); r.Status() != 200 || r.Body() != `[{"jsonrpc":"2.0","id":3,"result":{}}]` {
			t.Errorf("the batch was answered %d %s", r.Status(), r.Body())
		}
	})
}
