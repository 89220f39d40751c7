package streamable

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/scaletest"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// What is said before the answer makes a stream at once, without event ids; the answer ends it (R-093, R-155; B6).
func TestModernStream(t *testing.T) {
	runModern(t, func(t *testing.T, m *modernRig) {
		r := m.send(modernCallBody(`"s"`, "steps", `{"n":3}`)).Wait()
		if r.Status() != 200 || r.Header("Content-Type") != "text/event-stream" || r.Header("X-Accel-Buffering") != "no" {
			t.Errorf("status %d, type %q, X-Accel-Buffering %q", r.Status(), r.Header("Content-Type"), r.Header("X-Accel-Buffering"))
		}
		e := r.Events()
		if len(e) != 4 {
			t.Fatalf("got %+v, want 3 reports and the answer", e)
		}
		for i, e := range e[:3] {
			if gjson.Get(e.Data, "params.progressToken").Raw != `"tok"` || gjson.Get(e.Data, "params.progress").Int() != int64(i+1) || e.ID != "" {
				t.Errorf("report %d = %+v", i, e)
			}
		}
		if !strings.HasPrefix(e[3].Data, `{"jsonrpc":"2.0","id":"s","result":{"resultType":"complete"`) || e[3].ID != "" {
			t.Errorf("the answer = %+v", e[3])
		}
		if e := m.send(strings.Replace(modernCallBody("1", "log", "{}"), `"_meta":{`, `"_meta":{"io.modelcontextprotocol/logLevel":"info",`, 1)).Wait().Events(); len(e) != 2 || gjson.Get(e[0].Data, "method").Str != "notifications/message" {
			t.Errorf("log = %+v", e)
		}
	})
}

// An answer that takes long: a stream after a second, with comments while nothing is said.
func TestModernHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModernRig(t, gateway.Options{}, Options{Heartbeat: 5 * time.Second})
		for _, body := range []string{modernCallBody("1", "wait", "{}"), modernBody("2", listen, `"notifications":{}`)} {
			r := m.send(body)
			wiretest.Advance(1001 * time.Millisecond)
			synctest.Wait()
			if r.Status() != 200 || r.Header("Content-Type") != "text/event-stream" {
				t.Fatalf("after a second: %d %q", r.Status(), r.Header("Content-Type"))
			}
			r.Take()
			for i := range 3 {
				wiretest.Advance(5 * time.Second)
				synctest.Wait()
				if got := r.Take(); got != ": ping\n\n" {
					t.Errorf("beat %d = %q", i, got)
				}
			}
			if m.m.Answer(`{"resultType":"complete","content":[]}`) {
				if e := r.Wait().Events(); len(e) != 1 || !strings.Contains(e[0].Data, `"id":1,"result"`) {
					t.Errorf("the answer = %+v", e)
				}
			}
			r.Leave()
		}
	})
}

// A client that breaks its connection has its request cancelled, whatever stage it is at, and nothing is left of it.
func TestModernCancel(t *testing.T) {
	for _, test := range []struct {
		name, body string
		after      time.Duration
		want       string
	}{
		{"before anything is written", modernCallBody("1", "wait", "{}"), 0, "tools/call wait: cancelled by the client"},
		{"while it is a stream", modernCallBody("1", "wait", "{}"), 3 * time.Second, "tools/call wait: cancelled by the client"},
		{"a subscription", modernBody("1", listen, `"notifications":{"toolsListChanged":true}`), 0, "subscriptions/listen: cancelled by the client"},
		{"a subscription after hours", modernBody("1", listen, `"notifications":{}`), 5 * time.Hour, "subscriptions/listen: cancelled by the client"},
	} {
		t.Run(test.name, func(t *testing.T) {
			runModern(t, func(t *testing.T, m *modernRig) {
				r := m.send(test.body)
				synctest.Wait()
				wiretest.Advance(test.after)
				if got := m.m.Cancelled(); len(got) > 0 {
					t.Errorf("cancelled while the client is there: %q", got)
				}
				r.Leave()
				synctest.Wait()
				if got := m.m.Cancelled(); !slices.Equal(got, []string{test.want}) {
					t.Errorf("cancelled %q, want %q", got, test.want)
				}
				if n, _ := m.g.Activity(); n != 0 || m.m.Listens() != 0 {
					t.Errorf("%d calls and %d subscriptions are left", n, m.m.Listens())
				}
				if !m.g.Room("").Reserve(512 << 20) { // of the body
					t.Error("bytes are reserved still")
				}
				m.g.Room("").Return(512 << 20)
			})
		})
	}
}

// A client that has ended its half of the connection has gone too: nothing is said to it any more.
func TestModernHalfClosed(t *testing.T) {
	m := newModernRig(t, gateway.Options{}, Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.d.Serve("fake", w, r) })}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	defer func() { _ = srv.Close(); <-served }()
	for _, body := range []string{modernCallBody("1", "linger", "{}"), modernBody("1", listen, `"notifications":{"toolsListChanged":true}`)} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		head := ""
		for h := range slices.Chunk(modernHeaders(body), 2) {
			head += h[0] + ": " + h[1] + "\r\n"
		}
		_, _ = fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", head, len(body), body)
		buf := make([]byte, 4<<10)
		n, err := conn.Read(buf) // it has begun
		if err != nil || !bytes.Contains(buf[:n], []byte("200 OK")) {
			t.Fatalf("%.200q, %v", buf[:n], err)
		}
		_ = conn.(*net.TCPConn).CloseWrite()
		rest, _ := io.ReadAll(conn)
		if bytes.Contains(rest, []byte(`"id":1`)) {
			t.Errorf("an answer after the end: %q", rest)
		}
		_ = conn.Close()
	}
	m.d.Close() // no subscription is left
	if got := m.m.Cancelled(); len(got) != 2 {
		t.Errorf("cancelled %q, want both", got)
	}
}

// A notification of the era cancels nothing, least of all what another client has under the same id.
func TestModernCancelledNotification(t *testing.T) {
	runModern(t, func(t *testing.T, m *modernRig) {
		call := m.send(modernCallBody("1", "wait", "{}"))
		synctest.Wait()
		note := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`
		for _, body := range []string{note, strings.Replace(note, "1}", "1,"+modernMeta+"}", 1)} {
			if r := m.Do("POST", "/mcp", body, versionHeader, "2026-07-28", "Mcp-Method", "notifications/cancelled").Wait(); r.Status() != 202 || r.Body() != "" {
				t.Errorf("%s = %d %q", body, r.Status(), r.Body())
			}
		}
		if got := m.m.Cancelled(); len(got) > 0 {
			t.Errorf("cancelled %q", got)
		}
		m.m.Answer(`{"resultType":"complete"}`)
		if body := call.Wait().Body(); !strings.Contains(body, `"id":1,"result"`) {
			t.Errorf("the call = %q", body)
		}
	})
}

// A subscription: the acknowledgement first, everything with its id, and the closing result when the bridge stops
//
func TestModernListen(t *testing.T) {
	runModern(t, func(t *testing.T, m *modernRig) {
		const filter = `"notifications":{"toolsListChanged":true,"resourceSubscriptions":["file:///a"]}`
		ids := []string{"7", `"7"`, "12345678901234567890"}
		var all []*wiretest.Reply
		for _, id := range ids {
			all = append(all, m.send(modernBody(id, listen, filter)))
		}
		synctest.Wait()
		wiretest.Advance(time.Hour)
		m.m.Say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		m.m.Say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///a","_meta":{"x":1}}}`)
		synctest.Wait()
		if err := m.g.Drain(t.Context()); err != nil { // which subscriptions do not hold up
			t.Errorf("Drain = %v", err)
		}
		for i, id := range ids {
			const key = `_meta.io\.modelcontextprotocol/subscriptionId`
			e := all[i].Wait().Events()
			if len(e) != 4 || all[i].Err() != nil {
				t.Fatalf("%s: %+v, %v", id, e, all[i].Err())
			}
			for j, want := range []string{"notifications/subscriptions/acknowledged", "notifications/tools/list_changed", "notifications/resources/updated"} {
				if gjson.Get(e[j].Data, "method").Str != want || gjson.Get(e[j].Data, "params."+key).Raw != id || e[j].ID != "" {
					t.Errorf("%s: event %d = %+v, want %s", id, j, e[j], want)
				}
			}
			if last := e[3].Data; gjson.Get(last, "id").Raw != id || gjson.Get(last, "result.resultType").Str != "complete" || gjson.Get(last, "result."+key).Raw != id {
				t.Errorf("%s: the closing result = %s", id, last)
			}
		}
		if r := m.send(modernBody("8", listen, filter)).Wait(); r.Status() != 503 || !strings.Contains(r.Body(), `"id":8`) || r.Header("Retry-After") == "" {
			t.Errorf("after that = %d %s", r.Status(), r.Body())
		}
		if r := m.send(modernCallBody("9", "echo", "1")).Wait(); r.Status() != 503 || !strings.Contains(r.Body(), `"id":9`) || r.Header("Retry-After") == "" {
			t.Errorf("a call after that = %d %s", r.Status(), r.Body())
		}
	})
}

// Subscriptions get only the events that they ask for, and do not disturb others when they end.
func TestModernListenLeaves(t *testing.T) {
	runModern(t, func(t *testing.T, m *modernRig) {
		const filter = `"notifications":{"toolsListChanged":true}`
		one, other := m.send(modernBody("1", listen, filter)), m.send(modernBody("1", listen, filter))
		synctest.Wait()
		one.Leave()
		synctest.Wait()
		m.m.Say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		synctest.Wait()
		if e := other.Events(); len(e) != 2 || len(one.Events()) != 1 {
			t.Errorf("the other has %+v", e)
		}
		other.Leave()
	})
}

// Answers of all sizes, as JSON and as a stream, with the digits and members that the server has sent.
func TestModernLarge(t *testing.T) {
	runModern(t, func(t *testing.T, m *modernRig) {
		for _, n := range []int{0, copied, 64 << 10, scaletest.Of(1, 8) << 20} {
			r := m.send(modernCallBody("1", "large", fmt.Sprintf(`{"n":%d}`, n))).Wait()
			if want := `"large":"` + strings.Repeat("x", n) + `"`; r.Header("Content-Type") != "application/json" || !strings.Contains(r.Body(), want) {
				t.Errorf("large %d: %q, %d bytes", n, r.Header("Content-Type"), len(r.Body()))
			}
			args := fmt.Sprintf(`{"n":12345678901234567890,"pad":"%s"}`, strings.Repeat("y", n))
			if r := m.send(modernCallBody("1", "echo", args)).Wait(); !strings.Contains(r.Body(), args) {
				t.Errorf("echo %d: %d %d bytes", n, r.Status(), len(r.Body()))
			}
			late := m.send(modernCallBody("1", "late", `{"after":"2s","pad":"`+strings.Repeat("z", n)+`"}`)).Wait()
			if e := late.Events(); len(e) != 1 || !strings.Contains(e[0].Data, `"late":true`) {
				t.Errorf("late %d: %+v", n, e)
			}
		}
	})
}

// A large answer is written from where it was read: no copy of it is made, neither for its envelope nor for what the bridge
// puts into it.
func TestModernLargeUncopied(t *testing.T) {
	const size = 1 << 20
	for _, kind := range []string{`"resultType":"complete",`, ""} { // the second is completed by the bridge
		k := &keeper{Modern: &wiretest.Modern{}, answer: []byte(`{"jsonrpc":"2.0","id":1,"result":{` + kind + `"content":[],"large":"` + strings.Repeat("x", size) + `"}}`)}
		r := publish(t, k, gateway.Options{}, Options{})
		body := modernCallBody("1", "echo", "1")
		ask := func() {
			q := httptest.NewRequest("POST", "/mcp", strings.NewReader(body))
			q.Header.Set("Content-Type", "application/json")
			for h := range slices.Chunk(modernHeaders(body), 2) {
				q.Header.Set(h[0], h[1])
			}
			c := &counted{header: http.Header{}}
			r.d.Serve("fake", c, q)
			if c.n < size || c.header.Get("Content-Length") != strconv.Itoa(c.n) {
				t.Fatalf("%d bytes, announced as %s", c.n, c.header.Get("Content-Length"))
			}
		}
		ask()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		const times = 20
		for range times {
			ask()
		}
		runtime.ReadMemStats(&after)
		if each := (after.TotalAlloc - before.TotalAlloc) / times; each > size/8 {
			t.Errorf("%q: %d bytes are allocated for an answer of %d", kind, each, size)
		}
	}
}

// counted is a response of which only the size is of interest.
type counted struct {
	header http.Header
	n      int
}

func (c *counted) Header() http.Header { return c.header }

func (c *counted) WriteHeader(int) {}

func (c *counted) Write(b []byte) (int, error) {
	c.n += len(b)
	return len(b), nil
}

// A connection serves further requests after each kind of response, however late: no deadline is left on it.
func TestModernKeepAlive(t *testing.T) {
	runModern(t, func(t *testing.T, m *modernRig) {
		client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1,
			DialContext: func(context.Context, string, string) (net.Conn, error) { return m.Dial(), nil }}}
		defer client.CloseIdleConnections()
		for _, body := range []string{modernCallBody("1", "echo", "1"), modernCallBody("1", "log", "{}"), modernCallBody("1", "large", `{"n":100000}`), modernBody("1", "ping", ""), modernCallBody("1", "echo", "1")} {
			req, _ := http.NewRequest("POST", "http://127.0.0.1/mcp", strings.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			for h := range slices.Chunk(modernHeaders(body), 2) {
				req.Header.Set(h[0], h[1])
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || !bytes.Contains(text, []byte(`"id":1`)) {
				t.Errorf("%s: %v %.100s", body, err, text)
			}
			wiretest.Advance(10 * time.Minute)
		}
	})
}

// What the bridge has no room for is refused with the request's id.
func TestModernCounts(t *testing.T) {
	runModern(t, func(t *testing.T, m *modernRig) {
		var all []*wiretest.Reply
		for range 600 { // more than one principal may have; without access rules there is none
			all = append(all, m.send(modernCallBody("1", "wait", "{}")))
		}
		for range 40 {
			all = append(all, m.send(modernBody("1", listen, `"notifications":{}`)))
		}
		synctest.Wait()
		if r := m.send(modernCallBody("2", "echo", "1")).Wait(); r.Status() != 200 {
			t.Errorf("one more = %d %s", r.Status(), r.Body())
		}
		for _, r := range all {
			r.Leave()
		}
		synctest.Wait()
	})
}

// Clients of both eras at one URL, with the same ids at the same time.
func TestBothEras(t *testing.T) {
	runModern(t, func(t *testing.T, m *modernRig) {
		c := m.begin("2025-11-25")
		old, young, again := c.call("1", "echo", `{"era":"old"}`), m.send(modernCallBody("1", "echo", `{"era":"young"}`)), m.send(modernCallBody("1", "echo", `{"era":"other"}`))
		if got := old.Wait().Body(); got != `{"jsonrpc":"2.0","id":1,"result":{"echo":{"era":"old"}}}` {
			t.Errorf("old = %s", got)
		}
		if got := young.Wait().Body(); !strings.Contains(got, `"structuredContent":{"era":"young"}`) {
			t.Errorf("young = %s", got)
		}
		if got := again.Wait().Body(); !strings.Contains(got, `"structuredContent":{"era":"other"}`) {
			t.Errorf("another = %s", got)
		}
	})
}

// A body that a call still uses keeps its memory until the call ends (D1.4).
func TestSharedBody(t *testing.T) {
	runModern(t, func(t *testing.T, m *modernRig) {
		kept := make(chan func(), 1)
		keeper := &keeper{Modern: m.m, kept: kept}
		r := publish(t, keeper, gateway.Options{MaxBytes: 1 << 20}, Options{})
		body := modernCallBody("1", "echo", `"`+strings.Repeat("x", 700<<10)+`"`)
		a := r.Do("POST", "/mcp", body, modernHeaders(body)...).Wait()
		if a.Status() != 200 {
			t.Fatalf("%d %s", a.Status(), a.Body())
		}
		free := <-kept
		if r.g.Room("").Reserve(700 << 10) {
			t.Error("the body is freed while it is kept")
		}
		free()
		if !r.g.Room("").Reserve(1 << 20) {
			t.Error("the body is not freed")
		}
		r.g.Room("").Return(1 << 20)
	})
}

// keeper keeps the message of a call, or answers it with bytes that are always the same.
type keeper struct {
	*wiretest.Modern
	kept   chan func()
	answer []byte
}

func (k *keeper) Open(context.Context, *bridge.Caller, bridge.Client) (bridge.Upstream, error) {
	return k, nil
}

func (k *keeper) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	switch {
	case k.answer != nil:
		return jsonrpc.Parse(k.answer)
	case r.Method == "tools/call":
		k.kept <- r.Keep()
	}
	return k.Modern.Call(ctx, r)
}
