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
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

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

// A subscription: the acknowledgement first, everything with its id, and the closing result when the bridge stops
// . While the bridge stops, what is new is refused with its id, in both eras.
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
		c := m.begin("2025-11-25")
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
		for name, r := range map[string]*wiretest.Reply{
			"a subscription": m.send(modernBody("8", listen, filter)),
			"a call":         m.send(modernCallBody("8", "echo", "1")),
			"a legacy call":  c.call("8", "echo", "{}"),
			"a session":      m.Do("POST", "/mcp", strings.Replace(fmt.Sprintf(initialize, "2025-11-25"), `"id":0`, `"id":8`, 1)),
		} {
			if r.Wait(); r.Status() != 503 || !strings.Contains(r.Body(), `"id":8,"error"`) || r.Header("Retry-After") == "" {
				t.Errorf("%s after that = %d %s, want 503 with the id", name, r.Status(), r.Body())
			}
		}
		if r := c.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`).Wait(); r.Status() != 200 {
			t.Errorf("a ping after that = %d", r.Status())
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

// Clients of both eras at one URL, with the same ids at the same time, get their own answers.
func TestSameIDs(t *testing.T) {
	runModern(t, func(t *testing.T, m *modernRig) {
		want := map[*wiretest.Reply]string{}
		for i := range 8 {
			c := m.begin("2025-06-18")
			for _, id := range []string{"1", `"1"`, "0"} {
				mine := fmt.Sprintf(`{"client":%d,"id":%s}`, i, id)
				want[c.call(id, "echo", mine)] = `"id":` + id + `,"result":{"echo":` + mine
				want[m.send(modernCallBody(id, "echo", mine))] = `"structuredContent":` + mine
			}
		}
		for r, want := range want {
			if got := r.Wait().Body(); !strings.Contains(got, want) {
				t.Errorf("got %s, want %s", got, want)
			}
		}
	})
}

// A kept connection works after each kind of response, however late: no deadline is left on it.
func TestKeepAlive(t *testing.T) {
	runModern(t, func(t *testing.T, m *modernRig) {
		c := m.begin("2025-06-18")
		client := &http.Client{Transport: &http.Transport{
			MaxConnsPerHost: 1,
			DialContext:     func(context.Context, string, string) (net.Conn, error) { return m.Dial(), nil },
		}}
		defer client.CloseIdleConnections()
		for _, tool := range []string{"log", "large", "echo", "log", "echo"} {
			args := `{"n":100000}`
			modern := modernCallBody("1", tool, args)
			for body, header := range map[string][]string{call("1", tool, args): {sessionHeader, c.id}, modern: modernHeaders(modern)} {
				req, _ := http.NewRequest("POST", "http://127.0.0.1/mcp", strings.NewReader(body))
				req.Header.Set("Content-Type", "application/json")
				for h := range slices.Chunk(header, 2) {
					req.Header.Set(h[0], h[1])
				}
				resp, err := client.Do(req)
				if err != nil {
					t.Fatalf("%s: %v", body, err)
				}
				text, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || !bytes.Contains(text, []byte(`"id":1,"result"`)) {
					t.Errorf("%s: %v %.100s", body, err, text)
				}
				wiretest.Advance(10 * time.Minute)
			}
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

// unread makes a request on a connection whose client does not read.
func (m *modernRig) unread(body string) net.Conn {
	conn := m.Dial()
	writePost(conn, body, modernHeaders(body))
	return conn
}

// A client that does not read: its events are bounded and coalesced, a subscription that would miss events ends,
// and its connection is given up in the end (R-178, D0.11).
func TestModernUnread(t *testing.T) {
	updated := func(uri string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":%q}}`, uri)
	}
	subscribe := modernBody("1", listen, `"notifications":{"resourceSubscriptions":["file:///"]}`)
	for name, play := range map[string]func(t *testing.T, m *modernRig){
		"coalesced": func(t *testing.T, m *modernRig) {
			conn := m.unread(subscribe)
			synctest.Wait()
			for i := range 5000 {
				m.m.Say(updated(fmt.Sprintf("file:///%d", i%300)))
			}
			go func() { wiretest.Advance(time.Second); m.g.Close(t.Context()) }()
			text, _ := io.ReadAll(conn)
			e := strings.Split(string(text), "\n\n")
			if n := len(e); n < 300 || n > 700 || !strings.Contains(e[0], "acknowledged") || !strings.Contains(e[n-2], `"resultType":"complete"`) {
				t.Errorf("%d events, from %q to %q", n, e[0], e[max(n-2, 0)])
			}
			for i := range 300 {
				if !bytes.Contains(text, []byte(fmt.Sprintf(`"uri":"file:///%d"`, i))) {
					t.Errorf("nothing of %d", i)
				}
			}
		},
		"tasks": func(t *testing.T, m *modernRig) {
			var ids []string
			for i := range 250 {
				ids = append(ids, fmt.Sprintf(`"t%d"`, i))
			}
			conn := m.unread(modernBody("1", listen, `"notifications":{"taskIds":[`+strings.Join(ids, ",")+`],"resourceSubscriptions":["file:///"]}`))
			synctest.Wait()
			for i := range 5000 {
				m.m.Say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"t%d","n":%d}}`, i%250, i))
			}
			for i := range 300 {
				m.m.Say(updated(fmt.Sprintf("file:///%d", i)))
			}
			go func() { wiretest.Advance(time.Second); m.g.Close(t.Context()) }()
			text, _ := io.ReadAll(conn)
			if n := bytes.Count(text, []byte("\n\n")); n > 900 {
				t.Errorf("%d events", n)
			}
			for i := range 250 {
				if !bytes.Contains(text, []byte(fmt.Sprintf(`"taskId":"t%d","n":%d`, i, 4750+i))) {
					t.Errorf("the last of task %d is missing", i)
				}
			}
		},
		"too much": func(t *testing.T, m *modernRig) {
			conn := m.unread(subscribe)
			defer conn.Close()
			synctest.Wait()
			for i := range 100 {
				m.m.Say(updated(fmt.Sprintf("file:///%d", i) + strings.Repeat("x", 128<<10)))
			}
			synctest.Wait()
			if m.m.Listens() != 0 {
				t.Error("the subscription goes on though it misses what it waits for")
			}
			wiretest.Advance(time.Minute)
			synctest.Wait()
			m.d.mu.RLock()
			defer m.d.mu.RUnlock()
			if n := len(m.d.listening); n > 0 {
				t.Errorf("%d connections are left", n)
			}
		},
		"for good": func(t *testing.T, m *modernRig) {
			conn := m.unread(subscribe)
			defer conn.Close()
			synctest.Wait()
			wiretest.Advance(time.Minute) // a beat, and the time to write it
			synctest.Wait()
			if got := m.m.Cancelled(); len(got) != 1 {
				t.Errorf("cancelled %q", got)
			}
		},
		"at the end": func(t *testing.T, m *modernRig) {
			conn := m.unread(subscribe)
			defer conn.Close()
			synctest.Wait()
			began := time.Now()
			m.g.Close(t.Context())
			m.d.Close()
			if took := time.Since(began); took > breakAfter {
				t.Errorf("Close took %v", took)
			}
		},
		"progress": func(t *testing.T, m *modernRig) {
			conn := m.unread(modernCallBody("1", "flood", `{"n":150,"bytes":50000}`)) // 7.5 MB
			synctest.Wait()
			go func() { _ = conn.SetReadDeadline(time.Now().Add(5 * time.Second)) }()
			text, _ := io.ReadAll(conn)
			if len(text) > 6<<20 || !strings.Contains(string(text), `"progress":150,`) || !strings.Contains(string(text), `"id":1,"result"`) {
				t.Errorf("%d bytes, ending in %q", len(text), text[max(0, len(text)-200):])
			}
			_ = conn.Close()
		},
		"answer": func(t *testing.T, m *modernRig) {
			conn := m.unread(modernCallBody("1", "large", `{"n":262144}`))
			synctest.Wait()
			wiretest.Advance(40 * time.Second)
			if text, _ := io.ReadAll(conn); len(text) > 256<<10 {
				t.Errorf("%d bytes could be read still", len(text))
			}
			_ = conn.Close()
		},
	} {
		t.Run(name, func(t *testing.T) { runModern(t, play) })
	}
}
