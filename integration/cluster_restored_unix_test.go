//go:build unix

package integration

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// ledger is a remote server that outlives every instance, and counts what it executes.
type ledger struct {
	url string

	mu  sync.Mutex // guards ran
	ran map[string]int
}

// work is what its tool is called with.
type work struct {
	Tag string `json:"tag"`
	Ask bool   `json:"ask,omitempty"` // a question to the client
	MS  int    `json:"ms,omitempty"`
}

func startLedger(t *testing.T) *ledger {
	t.Helper()
	l := &ledger{ran: map[string]int{}}
	s := mcp.NewServer(&mcp.Implementation{Name: "counter", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "work"}, func(ctx context.Context, r *mcp.CallToolRequest, w work) (*mcp.CallToolResult, any, error) {
		l.mu.Lock()
		l.ran[w.Tag]++
		l.mu.Unlock()
		for i := range 3 {
			if token := r.Params.GetProgressToken(); token != nil {
				_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(i + 1)}) // who has asked may be gone
			}
		}
		text := w.Tag
		if w.Ask {
			a, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: w.Tag, RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{"said": map[string]any{"type": "string"}}}})
			if err != nil {
				return nil, nil, err
			}
			text += fmt.Sprint(" ", a.Content["said"])
		}
		time.Sleep(time.Duration(w.MS) * time.Millisecond)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
	})
	server := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	l.url = server.URL
	return l
}

func (l *ledger) count(tag string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ran[tag]
}

// servers is the counter as the bridge reaches it.
func (l *ledger) servers() map[string]any {
	return map[string]any{"counter": map[string]any{"http": map[string]any{"url": l.url}}}
}

// What became of a call.
const (
	succeeded = "succeeded"
	lost      = "lost"   // an error that says that it is not known
	broken    = "broken" // the client's connection
	turned    = "turned away"
)

// worked is a call and what became of it.
type worked struct {
	work
	how string
}

// call makes one call at an instance, and answers the question that comes meanwhile at
// another one. Whatever happens, there is one answer or a broken connection (S-020).
func (l *ledger) call(f *fleet, ctx context.Context, session, at, other string, w work) (how string) {
	id := fmt.Sprintf("%q", "id of "+w.Tag)
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"work","arguments":{"tag":%q,"ask":%t,"ms":%d},"_meta":{"progressToken":%q}}}`, id, w.Tag, w.Ask, w.MS, "of "+w.Tag)
	r, err := http.NewRequestWithContext(ctx, "POST", at+"/mcp", strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Session-Id", session)
	res, err := rawHTTP.Do(r)
	if err != nil {
		return broken
	}
	defer res.Body.Close()
	if comeAgain(res) {
		return turned
	}
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(res.Body)
		return fmt.Sprint("status ", res.StatusCode, " ", gjson.GetBytes(text, "error.message"))
	}
	lines := bufio.NewReaderSize(res.Body, 1<<16)
	var all []gjson.Result
	progress, asked, begun := int64(0), "not asked", time.Now()
	for {
		line, err := lines.ReadBytes('\n')
		m := gjson.ParseBytes(bytes.TrimPrefix(bytes.TrimSpace(line), []byte("data: ")))
		switch {
		case m.Get("id").Raw == id && (m.Get("result").Exists() || m.Get("error").Exists()):
			all = append(all, m)
		case m.Get("method").Str == "elicitation/create":
			answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"said":%q}}}`, m.Get("id").Raw, "yes "+m.Get("params.message").Str)
			asked = fmt.Sprint("asked after ", time.Since(begun), " as ", m.Get("id").Raw, ", answered:", answered(ctx, &legacyClient{base: other, session: session}, answer), " after ", time.Since(begun))
		case m.Get("method").Str == "notifications/progress": // (S-023): in order, and its own
			if now := m.Get("params.progress").Int(); m.Get("params.progressToken").Str != "of "+w.Tag || now != progress+1 {
				return "progress out of order: " + m.Raw
			} else {
				progress = now
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			if len(all) == 0 {
				return broken
			}
			break
		}
	}
	switch {
	case len(all) != 1:
		return fmt.Sprintf("%d answers", len(all))
	case all[0].Get("error.data.bridge").Str == "upstream_lost":
		return lost
	case all[0].Get("result.isError").Bool() || !all[0].Get("result").Exists():
		return all[0].Raw + ", " + asked
	case w.Ask && all[0].Get("result.content.0.text").Str != w.Tag+" yes "+w.Tag || !w.Ask && all[0].Get("result.content.0.text").Str != w.Tag:
		return "another's answer: " + all[0].Raw
	}
	return succeeded
}

// answered answers a question, and says how that went.
func answered(ctx context.Context, at *legacyClient, answer string) string {
	how := ""
	for {
		res, body, err := at.post(ctx, answer)
		if err == nil && res.StatusCode != http.StatusServiceUnavailable {
			return how + fmt.Sprint(" ", res.StatusCode, " ", string(body))
		}
		how += fmt.Sprint(" ", err, " ", string(body)) // it may be lost with an instance, and its call with it
		if err != nil {
			return how
		}
		select {
		case <-ctx.Done():
			return how
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// crowd makes calls of one session at one instance until it is told to stop.
type crowd struct {
	name  string
	begun atomic.Int32 // calls
	good  atomic.Int32 // those that succeeded
	stop  chan struct{}
	all   sync.WaitGroup

	mu  sync.Mutex // guards how
	how []worked
}

var crowds atomic.Int32

// crowd starts n callers. Their questions are answered at other.
func (f *fleet) crowd(l *ledger, n int, session, at, other string) *crowd {
	c := &crowd{name: fmt.Sprint("crowd ", crowds.Add(1)), stop: make(chan struct{})}
	for range n {
		c.all.Go(func() {
			for {
				select {
				case <-c.stop:
					return
				default:
				}
				k := c.begun.Add(1)
				w := work{Tag: fmt.Sprint(c.name, " call ", k), Ask: k%3 == 0, MS: mathrand.IntN(30)}
				ctx, cancel := context.WithCancel(f.t.Context())
				how := l.call(f, ctx, session, at, other, w)
				cancel()
				c.mu.Lock()
				c.how = append(c.how, worked{w, how})
				c.mu.Unlock()
				switch how {
				case succeeded:
					c.good.Add(1)
				case broken: // the instance has gone
					return
				}
			}
		})
	}
	return c
}

// goesOn waits for more calls that succeed.
func (c *crowd) goesOn(t *testing.T, what string, more int32) {
	t.Helper()
	from := c.good.Load()
	if _, ok := eventually(func() (int32, bool) { n := c.good.Load(); return n, n >= from+more }); !ok {
		t.Fatalf("%s: %s does not go on after %s", what, c.name, c.tally())
	}
}

func (c *crowd) tally() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	tally := map[string]int{}
	for _, w := range c.how {
		tally[w.how]++
	}
	return fmt.Sprint(tally)
}

// end stops the callers. What became of their calls is one of those, or that they are to come again, as on a busy
// machine: of calls that should all succeed, at most a quarter. None was executed twice (S-021).
func (c *crowd) end(t *testing.T, one *ledger, may ...string) {
	t.Helper()
	close(c.stop)
	c.all.Wait()
	away := 0
	for _, w := range c.how {
		if w.how == turned {
			away++
		}
		n := one.count(w.Tag)
		if w.how != succeeded && w.how != turned && !slices.Contains(may, w.how) {
			t.Errorf("%s: %s", w.Tag, w.how)
		}
		if n > 1 || w.how == succeeded && n != 1 || w.how == turned && n != 0 {
			t.Errorf("%s: %s, and executed %d times", w.Tag, w.how, n)
		}
	}
	if len(may) == 0 && 4*away > len(c.how) {
		t.Errorf("%d of %d calls were turned away", away, len(c.how))
	}
}

// TestClusterRestored has Redis come back with a file that is older than what it had: since
// then a session has begun, one has ended, and one has moved to another instance. The calls
// that are made meanwhile succeed, and no session ends or moves (S-061); the one that has ended
// does not come back (S-036). Then an instance is killed: what the store says of its session is
// right again (S-030).
func TestClusterRestored(t *testing.T) {
	t.Parallel()
	scaletest.Large(t)
	l := startLedger(t)
	f := newFleet(t, l.servers())
	for range 3 {
		f.add()
	}
	p := f.instances
	for _, i := range p {
		f.sees(i, 3)
	}
	redis := f.store.Client()
	defer redis.Close()
	ctx := t.Context()
	whatever := func(session.Record) bool { return true }
	stays, ended, moved := f.begin(p[0].base), f.begin(p[0].base), f.begin(p[2].base)
	for _, s := range []*legacyClient{stays, ended, moved} {
		f.kept(s, whatever)
		if how := l.call(f, ctx, s.session, p[1].base, p[0].base, work{Tag: "before " + s.session}); how != succeeded {
			t.Fatal(how)
		}
	}
	if err := redis.Set(ctx, "of the file", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := redis.Save(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	if err := redis.Del(ctx, "of the file").Err(); err != nil {
		t.Fatal(err)
	}
	fresh := f.begin(p[1].base)
	if status := (&legacyClient{base: p[1].base, session: ended.session}).end(t); status != http.StatusNoContent {
		t.Fatalf("DELETE = %d", status)
	}
	p[2].stop(t) // which gives its session away
	if how := l.call(f, ctx, moved.session, p[1].base, p[0].base, work{Tag: "moved"}); how != succeeded {
		t.Fatal(how)
	}
	f.instances = p[:2:2]
	third := f.add()
	for _, p := range f.instances {
		f.sees(p, 3)
	}
	f.seesOnly(p[0], 3)
	var crowds []*crowd
	for _, s := range []*legacyClient{stays, fresh, moved} {
		crowds = append(crowds, f.crowd(l, 2, s.session, third.base, p[1].base))
	}
	all := func(what string, more int32) {
		t.Helper()
		for _, c := range crowds {
			c.goesOn(t, what, more)
		}
	}
	all("begun", 3)
	f.store.Kill()
	all("without Redis", 3)
	f.store.Run()
	if n, ok := eventually(func() (int64, bool) {
		n, err := redis.Exists(ctx, "of the file").Result()
		return n, err == nil
	}); !ok || n != 1 {
		t.Fatal("Redis has not read its file")
	}
	all("Redis is back", 10)
	if n, ok := eventually(func() (int64, bool) {
		n, err := redis.Exists(ctx, "bridge:s:"+session.Key(ended.session)).Result()
		return n, err == nil && n == 0
	}); !ok {
		t.Errorf("the session that has ended has %d records", n)
	}
	for _, p := range f.instances {
		f.sees(p, 3)
		if status, ok := eventually(func() (int, bool) { // for one lease it is 503
			status := (&legacyClient{base: p.base, session: ended.session}).end(t)
			return status, status != http.StatusServiceUnavailable
		}); !ok || status != http.StatusNotFound {
			t.Errorf("the session that has ended = %d", status)
		}
	}
	for _, l := range []*legacyClient{stays, fresh, moved} {
		f.kept(l, whatever)
	}
	for _, c := range crowds[1:] {
		c.end(t, l)
	}
	p[0].cmd.Process.Kill()
	killed := time.Now()
	crowds[0].goesOn(t, "the owner is killed", 4)
	t.Logf("the session went on after %v", time.Since(killed))
	crowds[0].end(t, l, lost)
	<-p[0].exited
}
