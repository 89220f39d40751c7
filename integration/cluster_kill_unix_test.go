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
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// ledger is a remote server that outlives every instance, and counts what it executes; or
// the file in which child processes note that.
type ledger struct {
	url  string
	file string

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
	if l.file != "" {
		text, _ := os.ReadFile(l.file) // none has been executed yet
		return strings.Count("\n"+string(text), "\n"+tag+"\n")
	}
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

// halt stops a process, and waits until it has stopped: it goes on for a while.
func halt(t *testing.T, p *process) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for {
		var state syscall.WaitStatus
		_, err := syscall.Wait4(p.cmd.Process.Pid, &state, syscall.WUNTRACED, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || !state.Stopped() {
			t.Fatalf("the process does not stop: %v, state %#x", err, state)
		}
		return
	}
}

// TestClusterPaused stops the process of an owner, and lets it go on
// when its session has a new owner: it serves nothing of it (S-012), and sends what it
// gets to the new one. The same holds of what it was the home of: a connection of share:
// all, and one of clients without sessions.
func TestClusterPaused(t *testing.T) {
	t.Parallel()
	fake := map[string]any{"command": fakeProgram(t)}
	f := newFleet(t, map[string]any{"fake": map[string]any{"stdio": fake}, "all": map[string]any{"stdio": fake, "share": "all"}, "plain": map[string]any{"stdio": fake}})
	f.server = "/fake"
	for range 3 {
		f.add()
	}
	for _, p := range f.instances {
		f.sees(p, 3)
	}
	owner, other := f.instances[0], f.instances[1]
	l := f.begin(owner.base)
	old := f.call(l, "pid", nil)
	shared := []*guest{f.guest("all", true), f.guest("plain", false)}
	for _, g := range shared {
		for i := range f.instances { // the first of them becomes the home
			g.at(t, i)
		}
	}
	halt(t, owner)
	l.base = other.base + f.server
	stopped := time.Now()
	pid := func() (string, bool) {
		_, body, err := l.post(t.Context(), `{"jsonrpc":"2.0","id":"p","method":"tools/call","params":{"name":"pid","arguments":{}}}`)
		all := answers(body, `"p"`)
		if err != nil || len(all) != 1 {
			return string(body), false
		}
		return all[0].Get("result.content.0.text").Str, all[0].Get("result").Exists()
	}
	now, ok := eventually(pid)
	if !ok || now == old {
		t.Fatalf("the session is not taken over: %s", now)
	}
	t.Logf("taken over after %v", time.Since(stopped))
	for _, g := range shared {
		g.moves(t, 1)
	}
	t.Logf("shared connections: after %v", time.Since(stopped))
	for range scaletest.Of(5, 50) { // they are served by the new ones meanwhile
		if got := f.call(l, "pid", nil); got != now {
			t.Fatalf("served by process %s, want %s", got, now)
		}
		for _, g := range shared {
			g.at(t, 1)
			g.at(t, 2)
		}
	}
	if err := owner.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	l.base = owner.base + f.server
	if got, ok := eventually(pid); !ok || got != now { // 503 until it has reached the store, which it waits half a second for
		t.Fatalf("the old owner, awake again, answers %q, want process %s", got, now)
	}
	for range scaletest.Of(5, 50) {
		for i, p := range f.instances {
			for _, g := range shared {
				g.at(t, i)
			}
			l.base = p.base + f.server
			if got := f.call(l, "pid", nil); got != now {
				t.Fatalf("served by process %s of the old owner, want %s", got, now)
			}
		}
	}
	if state := f.sees(owner, 3); gjson.Get(state, "cluster.lost_to_others").Int() != 3 { // the session, and both homes
		t.Errorf("the old owner says %s", gjson.Get(state, "cluster").Raw)
	}
}

// guest calls one server at each instance, over a connection that all of them share.
type guest struct {
	f        *fleet
	server   string
	sessions []string // one at each instance; none for a client without sessions
	process  string   // which answers now
	lost     int      // calls that ended with an error, since it has changed
}

func (f *fleet) guest(server string, sessions bool) *guest {
	f.t.Helper()
	g := &guest{f: f, server: server}
	for _, p := range f.instances {
		if sessions {
			_, id := f.session(p.base, server, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
			g.sessions = append(g.sessions, id)
		}
	}
	return g
}

// pid returns the process that answers a call at an instance, or an error of the bridge.
func (g *guest) pid(i int) (process, fault string) {
	g.f.t.Helper()
	var a gjson.Result
	if base := g.f.instances[i].base; g.sessions == nil {
		a = g.f.stateless(base, g.server, "pid")
	} else {
		a, _ = g.f.session(base, g.server, g.sessions[i], `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pid","arguments":{}}}`)
	}
	return a.Get("result.content.0.text").Str, a.Raw
}

// moves waits until another process answers at an instance.
func (g *guest) moves(t *testing.T, i int) {
	t.Helper()
	old := g.process
	now, ok := eventually(func() (string, bool) {
		now, fault := g.pid(i)
		if now == old {
			t.Fatalf("%s: still served by process %s, whose instance is stopped", g.server, old)
		}
		return now + fault, now != ""
	})
	if !ok {
		t.Fatalf("%s does not go on: %s", g.server, now)
	}
	g.process, _ = g.pid(i)
	g.lost = 0
}

// at makes a call at an instance: the process that has answered before answers. A connection that an
// instance had to the one before may take a call yet, which is lost.
func (g *guest) at(t *testing.T, i int) {
	t.Helper()
	now, fault := g.pid(i)
	switch {
	case now == "" && g.process != "" && g.lost < len(g.f.instances):
		g.lost++
	case now == "":
		t.Fatalf("%s at instance %d: %s", g.server, i, fault)
	case g.process == "":
		g.process = now
	case now != g.process:
		t.Fatalf("%s at instance %d: served by process %s, want %s", g.server, i, now, g.process)
	}
}
