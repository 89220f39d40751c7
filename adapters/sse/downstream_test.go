package sse

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a bridge to two servers that are the same, and the site that publishes them.
type rig struct {
	*wiretest.Site
	t testing.TB
	g gateway.Gateway
	d *Downstream
	s *wiretest.Server
}

func newRig(t testing.TB, s *wiretest.Server, bo gateway.Options, o Options) *rig {
	bo.Servers = []gateway.ServerOptions{{Name: "fake", Adapter: s}, {Name: "other", Adapter: s}}
	bo.Log = slog.New(slog.DiscardHandler)
	o.Log = bo.Log
	r := &rig{t: t, g: gateway.New(bo), s: s}
	r.d = New(r.g, o)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /sse", func(w http.ResponseWriter, q *http.Request) { r.d.Stream("fake", "/messages", w, q) })
	mux.HandleFunc("POST /messages", func(w http.ResponseWriter, q *http.Request) { r.d.Message("fake", w, q) })
	mux.HandleFunc("POST /other/messages", func(w http.ResponseWriter, q *http.Request) { r.d.Message("other", w, q) })
	r.Site = wiretest.NewSite(t, mux)
	t.Cleanup(func() {
		r.g.Close(context.Background())
		r.d.Close()
		if synctest.Wait(); r.peers() > 0 {
			t.Errorf("%d streams are left", r.peers())
		}
		if n := r.g.Totals().Bytes; n != 0 {
			t.Errorf("%d bytes are under way still", n)
		}
		if st := r.g.Status()[0]; st.Sessions > 0 || st.Lanes > 0 {
			t.Errorf("%d sessions and %d connections are left", st.Sessions, st.Lanes)
		}
	})
	return r
}

func (r *rig) peers() int {
	r.d.mu.RLock()
	defer r.d.mu.RUnlock()
	return len(r.d.peers)
}

func run(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newRig(t, &wiretest.Server{}, gateway.Options{}, Options{})) })
}

// client is one stream.
type client struct {
	*rig
	*wiretest.Reply
	endpoint string
}

// open opens a stream. Its first event is the endpoint.
func (r *rig) open() *client {
	r.t.Helper()
	c := &client{rig: r, Reply: r.Do("GET", "/sse", "")}
	synctest.Wait()
	e := c.Events()
	if c.Status() != 200 || len(e) != 1 || e[0].Type != "endpoint" || !strings.HasPrefix(e[0].Data, "/messages?sessionId=") {
		r.t.Fatalf("GET /sse = %d %q", c.Status(), c.Body())
	}
	c.endpoint = e[0].Data
	return c
}

const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{"sampling":{}},"clientInfo":{"name":"c","version":"1"}}}`

func (r *rig) begin(revision string) *client {
	r.t.Helper()
	c := r.open()
	c.post(fmt.Sprintf(initialize, revision), 202)
	c.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, 202)
	return c
}

func (c *client) post(body string, status int) {
	c.t.Helper()
	if r := c.Do("POST", c.endpoint, body).Wait(); r.Status() != status {
		c.t.Errorf("POST %.100s = %d %s, want %d", body, r.Status(), r.Body(), status)
	}
	synctest.Wait()
}

// unread opens a stream whose client reads from the connection itself. The endpoint has been read.
func (r *rig) unread() (*client, net.Conn, *bufio.Reader) {
	r.t.Helper()
	conn := r.Dial()
	_, _ = fmt.Fprint(conn, "GET /sse HTTP/1.1\r\nHost: x\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	body := bufio.NewReader(res.Body)
	for {
		line, err := body.ReadString('\n')
		if err != nil {
			r.t.Fatal(err)
		}
		if endpoint, ok := strings.CutPrefix(line, "data: "); ok {
			return &client{rig: r, endpoint: strings.TrimSpace(endpoint)}, conn, body
		}
	}
}

// last returns the newest message on the stream.
func (c *client) last() string {
	synctest.Wait()
	e := c.Events()
	return e[len(e)-1].Data
}

func (c *client) expect(want string) {
	c.t.Helper()
	if got := c.last(); got != want {
		c.t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestDialogues plays what clients and bridge say to each other.
func TestDialogues(t *testing.T) {
	wiretest.Play(t, "testdata/*.txtar", func(t *testing.T, s *wiretest.Server) *wiretest.Site {
		return newRig(t, s, gateway.Options{}, Options{}).Site
	})
}

// Every legacy revision may use the old transport (A6), and batches those that know them (A9). A batch that is refused says
// why: it is too large, or the revision has none.
func TestRevisions(t *testing.T) {
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	run(t, func(t *testing.T, r *rig) {
		for revision, known := range map[string]bool{"2024-11-05": true, "2025-03-26": true, "2025-06-18": false, "2025-11-25": false} {
			c := r.begin(revision)
			if !strings.Contains(c.last(), `"protocolVersion":"`+revision+`"`) {
				t.Errorf("%s: %s", revision, c.last())
			}
			before := len(c.Events())
			refused := map[string]string{"[]": "a batch has 1 to 100 messages", "[" + strings.Repeat(ping+",", 100) + ping + "]": "a batch has 1 to 100 messages"}
			want := 2
			if !known {
				refused, want = map[string]string{"[" + ping + "]": "batches do not exist in revision " + revision + ": send one message in each POST"}, 0
			}
			for batch, why := range refused {
				if r := c.Do("POST", c.endpoint, batch).Wait(); r.Status() != 400 || strings.TrimSpace(r.Body()) != why {
					t.Errorf("%.40s: %d %s, want 400 %s", batch, r.Status(), r.Body(), why)
				}
			}
			if known {
				c.post(`[{"jsonrpc":"2.0","id":"b","method":"ping"},{"jsonrpc":"2.0","id":2},{"jsonrpc":"2.0","method":"x"}]`, 202)
			}
			if got := len(c.Events()) - before; got != want {
				t.Errorf("%s: a batch has %d answers, want %d", revision, got, want)
			}
			c.Leave()
		}
	})
}

// What is POSTed and cannot be taken.
func TestRefused(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		c := r.begin("2025-06-18")
		const ping = `{"jsonrpc":"2.0","id":7,"method":"ping"}`
		for _, test := range []struct {
			name, path, body string
			header           []string
			status           int
		}{
			{"unknown session", "/messages?sessionId=AAAAAAAAAAAAAAAAAAAAAAAAAA", ping, nil, 404},
			{"no session", "/messages", ping, nil, 404},
			{"session of another server", "/other" + c.endpoint, ping, nil, 404},
			{"content type", c.endpoint, ping, []string{"Content-Type", "text/plain"}, 415},
			{"not json", c.endpoint, "{", nil, 400},
			{"null id", c.endpoint, `{"jsonrpc":"2.0","id":null,"method":"ping"}`, nil, 400},
			{"too large", c.endpoint, ping + strings.Repeat(" ", 17<<20), nil, 413},
			{"batch", c.endpoint, "[" + ping + "]", nil, 400},
			{"fine", c.endpoint, ping, []string{"Content-Type", "Application/JSON;charset=utf-8"}, 202},
			{"late answer (R-189)", c.endpoint, `{"jsonrpc":"2.0","id":7,"result":{}}`, nil, 202},
		} {
			if a := r.Do("POST", test.path, test.body, test.header...).Wait(); a.Status() != test.status {
				t.Errorf("%s: %d %s, want %d", test.name, a.Status(), a.Body(), test.status)
			}
		}
		synctest.Wait() // for the answer to the ping, which comes by itself
		c.post(`{"jsonrpc":"2.0","id":"bad","method":5}`, 400)
		if got := c.last(); !strings.Contains(got, `"id":"bad","error":{"code":-32600`) {
			t.Errorf("a request that is none was answered by %s", got)
		}
		c.Leave()
	})
}

// The end of the stream ends the session and its upstream, and its endpoint.
func TestStreamEndsSession(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		c := r.begin("2025-06-18")
		c.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}`, 202)
		if st := r.g.Status()[0]; st.Sessions != 1 || st.Lanes != 1 {
			t.Errorf("status is %+v", st)
		}
		c.Leave()
		synctest.Wait()
		if st := r.g.Status()[0]; st.Sessions != 0 || st.Lanes != 0 {
			t.Errorf("after the stream: %+v", st)
		}
		c.post(`{"jsonrpc":"2.0","id":2,"method":"ping"}`, 404)
	})
}

// The stream ends during the handshake: nothing is left of it.
func TestLeavesInHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &wiretest.Server{Before: func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}}, gateway.Options{}, Options{})
		c := r.open()
		c.post(fmt.Sprintf(initialize, "2025-06-18"), 202)
		c.post(`{"jsonrpc":"2.0","id":5,"method":"tools/list"}`, 202)
		c.expect(`{"jsonrpc":"2.0","id":5,"error":{"code":-32600,"message":"initialize first, and wait for its answer"}}`)
		c.Leave()
		synctest.Wait()
		if n := r.peers(); n != 0 {
			t.Errorf("%d streams are left", n)
		}
	})
}

// A stream that ends takes no new handshake: its session would never end.
func TestInitializeAfterEnd(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		c := r.open()
		r.d.mu.RLock()
		p := r.d.peers[strings.TrimPrefix(c.endpoint, "/messages?sessionId=")]
		r.d.mu.RUnlock()
		c.Leave()
		synctest.Wait()
		m, err := jsonrpc.Parse(fmt.Appendf(nil, initialize, "2025-06-18"))
		if err != nil {
			t.Fatal(err)
		}
		freed := 0
		p.take(m, gateway.Envelope{}, func() { freed++ })
		if synctest.Wait(); r.s.Opened() != 0 || p.session != nil || freed != 1 {
			t.Errorf("%d connections, session %v, freed %d times", r.s.Opened(), p.session, freed)
		}
	})
}

// A handshake that failed may be tried again on the same stream.
func TestInitializeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		r := newRig(t, &wiretest.Server{Before: func(context.Context) error {
			if tries++; tries == 1 {
				return &bridge.Error{Server: "fake", Kind: bridge.ErrUnavailable, Public: "it cannot start"}
			}
			return nil
		}}, gateway.Options{}, Options{})
		c := r.open()
		c.post(fmt.Sprintf(initialize, "2025-06-18"), 202)
		if !strings.Contains(c.last(), "upstream_unavailable") {
			t.Errorf("the first = %s", c.last())
		}
		c.post(fmt.Sprintf(initialize, "2025-06-18"), 202)
		if !strings.Contains(c.last(), `"result"`) {
			t.Errorf("the second = %s", c.last())
		}
		c.Leave()
	})
}

// Two clients with the same ids.
func TestSameIDs(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		c, b := r.begin("2024-11-05"), r.begin("2025-11-25")
		for _, id := range []string{"1", `"1"`, "9007199254740993"} {
			c.post(`{"jsonrpc":"2.0","id":`+id+`,"method":"tools/call","params":{"name":"echo","arguments":"a"}}`, 202)
			b.post(`{"jsonrpc":"2.0","id":`+id+`,"method":"tools/call","params":{"name":"echo","arguments":"b"}}`, 202)
			c.expect(`{"jsonrpc":"2.0","id":` + id + `,"result":{"echo":"a"}}`)
			b.expect(`{"jsonrpc":"2.0","id":` + id + `,"result":{"echo":"b"}}`)
		}
		c.Leave()
		b.Leave()
	})
}

// A silent stream has heartbeats, and is no idle session.
func TestHeartbeat(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		c := r.begin("2025-06-18")
		c.Take()
		wiretest.Advance(61 * time.Second)
		if got := c.Take(); got != ": ping\n\n: ping\n\n: ping\n\n" {
			t.Errorf("in a minute came %q", got)
		}
		wiretest.Advance(2 * time.Hour)
		c.post(`{"jsonrpc":"2.0","id":"late","method":"ping"}`, 202)
		c.expect(`{"jsonrpc":"2.0","id":"late","result":{}}`)
		c.Leave()
	})
}

// Limits: streams, sessions.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &wiretest.Server{}, gateway.Options{Sessions: session.NewMemory(1)}, Options{MaxStreams: 2})
		one, two := r.begin("2025-06-18"), r.open()
		if a := r.Do("GET", "/sse", "").Wait(); a.Status() != 503 || a.Header("Retry-After") == "" {
			t.Errorf("one stream too many = %d", a.Status())
		}
		two.post(fmt.Sprintf(initialize, "2025-06-18"), 202)
		if !strings.Contains(two.last(), `"id":0,"error"`) || !strings.Contains(two.last(), "overloaded") {
			t.Errorf("one session too many = %s", two.last())
		}
		one.Leave()
		synctest.Wait()
		two.post(fmt.Sprintf(initialize, "2025-06-18"), 202)
		if !strings.Contains(two.last(), `"result"`) {
			t.Errorf("after that = %s", two.last())
		}
		two.Leave()
	})
}

// While the bridge drains there are no new streams, and none is noted; calls in flight finish.
func TestDrain(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		c, idle := r.begin("2025-06-18"), r.open()
		c.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}`, 202)
		drained := make(chan error, 1)
		go func() { drained <- r.g.Drain(t.Context()) }()
		synctest.Wait()
		for range 3 {
			if a := r.Do("GET", "/sse", "").Wait(); a.Status() != 503 {
				t.Errorf("a new stream = %d, want 503", a.Status())
			}
		}
		if n := r.peers(); n != 2 {
			t.Errorf("%d streams, want 2", n)
		}
		c.post(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, 202)
		c.expect(`{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"the bridge is stopping; try again later","data":{"bridge":"stopping"}}}`)
		r.s.Answer("{}")
		c.expect(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		if err := <-drained; err != nil {
			t.Errorf("Drain = %v", err)
		}
		r.g.Close(context.Background())
		c.Wait()
		r.d.Close() // a stream without session has nothing else that ends it
		idle.Wait()
	})
}

// A client that does not read loses its stream in the end, and with it the session; others are not held up.
func TestNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &wiretest.Server{}, gateway.Options{}, Options{MaxMessage: 128 << 10}) // 4.5 MiB may wait
		deaf, conn, _ := r.unread()
		deaf.post(fmt.Sprintf(initialize, "2025-06-18"), 202)
		other := r.begin("2025-06-18")
		for i := range 20 {
			deaf.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i), 202)
			other.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, 202)
			other.expect(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		}
		wiretest.Advance(31 * time.Second)
		synctest.Wait()
		if n := r.peers(); n != 1 {
			t.Errorf("%d streams, want the one that is read", n)
		}
		_ = conn.Close()
		other.Leave()
	})
}

// While too much waits for a client that does not read, its requests are refused;
// the waiting events and the session are there when it reads again.
func TestReadsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &wiretest.Server{}, gateway.Options{}, Options{MaxMessage: 64 << 10}) // 256 KiB may wait
		c, conn, body := r.unread()
		defer conn.Close()
		got := ""
		read := func(until string) {
			for !strings.Contains(got, until) {
				line, err := body.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				got += line
			}
		}
		c.post(fmt.Sprintf(initialize, "2025-06-18"), 202)
		const large = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"large","arguments":{"n":1048576}}}`
		c.post(fmt.Sprintf(large, 1), 202)
		c.post(fmt.Sprintf(large, 2), 503)
		read(`"id":1,"result":{"large":`)
		synctest.Wait()
		c.post(fmt.Sprintf(large, 3), 202)
		head := make([]byte, 100) // the rest is lost with the connection
		if _, err := io.ReadFull(body, head); err != nil || !strings.Contains(string(head), `"id":3,"result":{"large":`) {
			t.Errorf("the stream goes on with %q, %v", head, err)
		}
		if strings.Contains(got, `"id":2`) {
			t.Error("the request that was refused was answered on the stream")
		}
	})
}

// When the session ends by itself, calls in flight are answered before the stream ends: every request gets one answer.
func TestSessionEndsUnderCalls(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		c := r.begin("2025-06-18")
		for id := range 3 {
			c.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"wait"}}`, id), 202)
		}
		r.g.Close(context.Background())
		c.Wait() // the stream has ended
		answered := map[string]int{}
		for _, e := range c.Events() {
			if m, err := jsonrpc.Parse([]byte(e.Data)); err == nil && m.Error != nil {
				answered[string(m.ID)]++
			}
		}
		if len(answered) != 3 || answered["0"] != 1 || answered["1"] != 1 || answered["2"] != 1 {
			t.Errorf("error answers by id: %v, want one for each of 0, 1, 2", answered)
		}
	})
}

// The messages of a batch count among the bytes in flight for as long as one of
// them is used: a client must not get around the limit with arrays.
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
		defer c.Leave()
		c.post(`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait","arguments":{"x":"`+strings.Repeat("x", limit/2)+`"}}}]`, 202)
		if free() {
			t.Error("a call of a batch is under way and does not count")
		}
		c.post(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"wait","arguments":{"x":"`+strings.Repeat("x", limit/2)+`"}}}`, 503)
		r.s.Answer(`{}`)
		c.expect(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		if !free() {
			t.Error("the batch counts after its last answer")
		}
	})
}

// A9: of two requests with the same id in one batch, the later one is refused.
func TestBatchSameID(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		c := r.begin("2025-03-26")
		defer c.Leave()
		const call = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":%q}}`
		c.post("["+strings.ReplaceAll(call, "%q", "1")+","+strings.ReplaceAll(call, "%q", "2")+`,{"jsonrpc":"2.0","id":"7","method":"ping"}]`, 202)
		var got []string
		for _, e := range c.Events()[2:] {
			got = append(got, e.Data)
		}
		slices.Sort(got)
		if s := strings.Join(got, "\n"); s != `{"jsonrpc":"2.0","id":"7","result":{}}
{"jsonrpc":"2.0","id":7,"error":{"code":-32600,"message":"this id stands twice in the batch"}}
{"jsonrpc":"2.0","id":7,"result":{"echo":1}}` {
			t.Errorf("got\n%s", s)
		}
	})
}

// Events for a client that does not read count among the bytes in flight. An
// answer that has no room is an error that says so; each call gets exactly one, and
// other clients are served.
func TestUnreadCounts(t *testing.T) {
	const limit, size, calls = 2 << 20, 256 << 10, 20
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &wiretest.Server{}, gateway.Options{MaxBytes: limit}, Options{})
		deaf, conn, body := r.unread()
		other := r.begin("2025-06-18")
		deaf.post(fmt.Sprintf(initialize, "2025-06-18"), 202)
		for id := range calls {
			deaf.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"large","arguments":{"n":%d}}}`, id+1, size), 202)
			synctest.Wait()
		}
		if n := r.g.Totals().Bytes; n < limit/2 || n > limit {
			t.Errorf("%d bytes are under way with up to %d of answers that nobody reads, want some, and no more than %d", n, calls*size, limit)
		}
		other.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":7}}`, 202)
		other.expect(`{"jsonrpc":"2.0","id":1,"result":{"echo":7}}`)
		deaf.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, 202) // small things get through
		other.Leave()
		go func() { synctest.Wait(); _ = conn.Close() }() // when all is read
		got, _ := io.ReadAll(body)
		answers, refused := map[string]int{}, 0
		for line := range strings.SplitSeq(string(got), "\n") {
			for id := range calls {
				head := fmt.Sprintf(`data: {"jsonrpc":"2.0","id":%d,`, id+1)
				if strings.HasPrefix(line, head) {
					answers[head]++
					if strings.Contains(line, `"error"`) && strings.Contains(line, "max_bytes_in_flight") && strings.Contains(line, "upstream_too_large") {
						refused++
					}
				}
			}
		}
		if len(answers) != calls || refused < calls-limit/size || refused > calls-4 {
			t.Errorf("%d calls have answers, %d of them that there is no room", len(answers), refused)
		}
		for head, n := range answers {
			if n != 1 {
				t.Errorf("%d answers begin with %s", n, head)
			}
		}
		synctest.Wait()
		if n := r.g.Totals().Bytes; n != 0 {
			t.Errorf("%d bytes are under way when all is read", n)
		}
	})
}
