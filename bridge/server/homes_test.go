package server

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/server/internal/placement"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/cluster/redis/redistest"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// several are some instances of one cluster in this process, before one server in
// memory.
type several struct {
	t     *testing.T
	f     *wiretest.Server
	store *redistest.Server
	all   []*one
	role  string // of the next instance; then the server's connections are at workers
	keys  []config.Access
	slots int    // of a worker; 0 for enough
	other string // another server, with connections of each session's own; empty for none
	at    string // the server that clients use; empty for the first
	// conf, if not nil, changes the whole configuration; then the server is not in memory.
	conf  func(*config.Config)
	shows string // what callers show in Authorization; empty for nothing
}

// one is an instance of them.
type one struct {
	s    *server
	base string
	stop context.CancelFunc
	done chan struct{}
}

func severally(t *testing.T, n int, change func(*config.Server)) *several {
	t.Helper()
	v := &several{t: t, f: &wiretest.Server{}, store: redistest.Start(t)}
	for range n {
		v.add(change)
	}
	v.joined(n)
	return v
}

// joined waits until all instances see n. Each looks at once, not at its next beat.
func (s *several) joined(n int) {
	s.t.Helper()
	for _, o := range s.all {
		s.until("all see each other", func() bool {
			_ = o.s.instance.node.Beat(s.t.Context())
			return len(o.s.instance.node.Members()) == n
		})
	}
}

// until waits for a condition.
func (s *several) until(what string, so func() bool) {
	s.t.Helper()
	s.t.Log("waiting until " + what)
	for !so() {
		time.Sleep(5 * time.Millisecond)
	}
}

func (s *several) add(change func(*config.Server)) {
	s.t.Helper()
	c := config.Default()
	files := config.DefaultServer("files", "")
	files.Stdio = &config.Stdio{Command: "in memory"}
	change(&files)
	c.Servers = append(c.Servers, files)
	if s.other != "" {
		c.Servers = append(c.Servers, config.DefaultServer(s.other, ""))
		c.Servers[1].Stdio = files.Stdio
	}
	c.Cluster.Redis, c.Cluster.Secret, c.Cluster.Listen, c.Cluster.Advertise = "redis://"+s.store.Address, strings.Repeat("secret ", 6), "127.0.0.1:0", "127.0.0.1"
	c.Cluster.Lease, c.Drain = 9*time.Second, 10*time.Minute // a beat of a starved process takes seconds
	o := &one{done: make(chan struct{})}
	c.Cluster.Role, c.Access, c.MaxChildren = s.role, s.keys, cmp.Or(s.slots, c.MaxChildren)
	if s.conf != nil {
		s.conf(&c)
	}
	o.s = build(&c, slog.New(slog.NewTextHandler(tlog{s.t}, &slog.HandlerOptions{Level: slog.LevelWarn})), func(own *server, item *config.Server) backend {
		if s.conf != nil {
			return own.reach(item)
		}
		if s.role != "" {
			return own.atWorkers(item, placement.Local{Adapter: s.f, MaxProcesses: 100})
		}
		return backend{Adapter: s.f, transport: func() string { return "stdio" }}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	o.base = "http://" + l.Addr().String()
	var ctx context.Context
	ctx, o.stop = context.WithCancel(context.Background())
	go func() {
		defer close(o.done)
		_ = o.s.Serve(ctx, l)
	}()
	s.t.Cleanup(func() {
		for _, o := range s.all { // at once: each takes seconds
			o.stop()
		}
		<-o.done
	})
	s.all = append(s.all, o)
}

// tlog writes a log to that of the test.
type tlog struct{ t *testing.T }

func (t tlog) Write(b []byte) (int, error) {
	t.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// post sends a message and returns the answer to it.
func (s *several) post(base, session, body string) (*http.Response, gjson.Result) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), "POST", base+"/"+cmp.Or(s.at, "files")+"/mcp", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	if s.shows != "" {
		r.Header.Set("Authorization", s.shows)
	}
	if strings.Contains(body, "2026-07-28") {
		r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		r.Header.Set("Mcp-Method", gjson.Get(body, "method").Str)
		if name := gjson.Get(body, "params.name").Str; name != "" {
			r.Header.Set("Mcp-Name", name)
		}
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		m := gjson.ParseBytes(bytes.TrimPrefix(bytes.TrimSpace(line), []byte("data: ")))
		if m.Get("id").Raw == gjson.Get(body, "id").Raw && m.Get("id").Exists() {
			return res, m
		}
	}
	return res, gjson.ParseBytes(text)
}

// begin begins a session.
func (s *several) begin(base string) string {
	s.t.Helper()
	res, m := s.post(base, "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
	if res.StatusCode != 200 || !m.Get("result").Exists() {
		s.t.Fatalf("initialize = %d %s", res.StatusCode, m.Raw)
	}
	return res.Header.Get("Mcp-Session-Id")
}

func echo(id int, text string) string {
	args, _ := json.Marshal(map[string]string{"text": text})
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":%s}}`, id, args)
}

// (S-040): the connection of `share: all` is one over all instances, and when its home
// stops the next one goes on.
func TestHomes(t *testing.T) {
	t.Parallel()
	for _, share := range []string{"all", "principal"} {
		t.Run(share, func(t *testing.T) {
			t.Parallel()
			v := severally(t, 3, func(c *config.Server) { c.Share = share })
			var sessions []string
			for _, o := range v.all {
				sessions = append(sessions, v.begin(o.base))
			}
			for i, o := range v.all {
				for n := range 3 {
					if res, m := v.post(o.base, sessions[(i+n)%3], echo(n, "hello")); res.StatusCode != 200 || !strings.Contains(m.Raw, "hello") {
						t.Errorf("echo = %d %s", res.StatusCode, m.Raw)
					}
				}
			}
			if n := v.f.Opened(); n != 1 {
				t.Errorf("the server was connected to %d times", n)
			}
		})
	}
}

// stateless makes a request of a client of 2026-07-28 that can be asked for samplings.
func stateless(id int, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"sampling":{}}}%s}}`, id, method, params)
}

// (S-040, S-041): clients without sessions have one connection to a legacy server over
// all instances, and a call that waits for its client goes on from any of them, once.
func TestHomesStateless(t *testing.T) {
	t.Parallel()
	v := severally(t, 3, func(c *config.Server) { c.Share = "principal" })
	for n := range 9 {
		if res, m := v.post(v.all[n%3].base, "", stateless(n, "tools/call", `,"name":"echo","arguments":{"text":"hello"}`)); res.StatusCode != 200 || m.Get("result.echo.text").Str != "hello" {
			t.Errorf("echo = %d %s", res.StatusCode, m.Raw)
		}
	}
	if n := v.f.Opened(); n != 1 {
		t.Errorf("the server was connected to %d times", n)
	}
	for from := range 3 {
		_, m := v.post(v.all[from].base, "", stateless(10, "tools/call", `,"name":"ask","arguments":{}`))
		state, key := m.Get("result.requestState"), ""
		m.Get("result.inputRequests").ForEach(func(k, _ gjson.Result) bool {
			key = k.Str
			return true
		})
		if m.Get("result.resultType").Str != "input_required" || key == "" {
			t.Fatalf("ask = %s", m.Raw)
		}
		again := stateless(11, "tools/call", `,"name":"ask","arguments":{},"requestState":`+state.Raw+`,"inputResponses":{"`+key+`":{"role":"assistant","content":{"type":"text","text":"yes"},"model":"m"}}`)
		if _, m := v.post(v.all[(from+1)%3].base, "", again); m.Get("result.result.content.text").Str != "yes" {
			t.Errorf("the answer, given at another instance: %s", m.Raw)
		}
		asked := 0
		for _, got := range v.f.Got() {
			if gjson.Get(got, "params.name").Str == "ask" {
				asked++
			}
		}
		if asked != 1 {
			t.Errorf("the server was called %d times", asked)
		}
		forged := strings.Replace(again, state.Str[:20], strings.Repeat("A", 20), 1)
		if _, m := v.post(v.all[(from+2)%3].base, "", forged); m.Get("error.code").Int() != -32602 {
			t.Errorf("a forged state: %s", m.Raw)
		}
	}
}

// stream reads what a stream says, until it ends.
func (s *several) stream(method, base, session, body string) (events chan gjson.Result, stop context.CancelFunc) {
	s.t.Helper()
	ctx, stop := context.WithCancel(s.t.Context())
	r, err := http.NewRequestWithContext(ctx, method, base+"/"+cmp.Or(s.at, "files")+"/mcp", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
		if strings.Contains(body, "2026-07-28") {
			r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
			r.Header.Set("Mcp-Method", gjson.Get(body, "method").Str)
			if name := gjson.Get(body, "params.name").Str; name != "" {
				r.Header.Set("Mcp-Name", name)
			}
		}
	}
	events = make(chan gjson.Result, 100)
	began := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(events)
		res, err := http.DefaultClient.Do(r)
		close(began)
		if err != nil {
			return
		}
		defer res.Body.Close()
		lines := bufio.NewScanner(res.Body)
		for lines.Scan() {
			data := strings.TrimPrefix(lines.Text(), "data: ") // or all is one answer
			if strings.HasPrefix(data, "{") {
				events <- gjson.Parse(data)
			}
		}
	}()
	if method == "GET" {
		<-began
	}
	s.t.Cleanup(func() {
		stop()
		<-done
	})
	return events, stop
}

// merged returns what comes first of either.
func merged(a, b chan gjson.Result) chan gjson.Result {
	both := make(chan gjson.Result, 1)
	go func() {
		select {
		case e := <-a:
			both <- e
		case e := <-b:
			both <- e
		}
	}()
	return both
}

// next returns the next event that has what is wanted in it.
func (s *several) next(events chan gjson.Result, want string) gjson.Result {
	s.t.Helper()
	for e := range events {
		if strings.Contains(e.Raw, want) {
			return e
		}
	}
	s.t.Fatal("the stream has ended before " + want)
	return gjson.Result{}
}

// What the server of a shared connection says by itself, and asks, reaches the sessions
// that it is for at whatever instance (S-026, S-040).
func TestHomesTell(t *testing.T) {
	t.Parallel()
	v := severally(t, 3, func(c *config.Server) { c.Share = "principal" })
	var sessions []string
	var streams []chan gjson.Result
	for _, o := range v.all {
		res, m := v.post(o.base, "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"sampling":{}},"clientInfo":{"name":"c","version":"1"}}}`)
		if res.StatusCode != 200 {
			t.Fatalf("initialize = %d %s", res.StatusCode, m.Raw)
		}
		id := res.Header.Get("Mcp-Session-Id")
		v.post(o.base, id, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		events, _ := v.stream("GET", o.base, id, "")
		sessions, streams = append(sessions, id), append(streams, events)
	}
	for i, o := range v.all[:2] {
		if _, m := v.post(o.base, sessions[i], `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"file:///a"}}`); m.Get("error").Exists() {
			t.Fatal(m.Raw)
		}
	}
	subscribed := 0
	for _, got := range v.f.Got() {
		if strings.Contains(got, "resources/subscribe") {
			subscribed++
		}
	}
	if subscribed != 1 {
		t.Errorf("the server was subscribed to %d times", subscribed)
	}
	v.f.Say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///a"}}`)
	v.f.Say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	for i, events := range streams {
		if i < 2 {
			v.next(events, "resources/updated")
		}
		if e := v.next(events, "notifications/"); i == 2 && !strings.Contains(e.Raw, "tools/list_changed") {
			t.Errorf("a session that has not subscribed hears %s", e.Raw)
		}
	}
	for i, o := range v.all {
		asked, _ := v.stream("POST", o.base, sessions[i], `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"ask","arguments":{}}}`)
		q := v.next(merged(asked, streams[i]), "sampling/createMessage") // the server does not say which call it is about
		v.post(v.all[(i+1)%3].base, sessions[i], `{"jsonrpc":"2.0","id":`+q.Get("id").Raw+`,"result":{"role":"assistant","content":{"type":"text","text":"yes"},"model":"m"}}`)
		if a := v.next(asked, `"id":7`); !strings.Contains(a.Raw, "yes") {
			t.Errorf("the answer: %s", a.Raw)
		}
	}
	// What its own connection loses, the home opens again, and tells all.
	if _, m := v.post(v.all[0].base, sessions[0], `{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"quit","arguments":{}}}`); m.Get("error.data.bridge").Str != "upstream_lost" {
		t.Errorf("a lost call: %s", m.Raw)
	}
	for _, events := range streams {
		v.next(events, "tools/list_changed")
	}
	if n := v.f.Opened(); n != 2 {
		t.Errorf("the server was connected to %d times, want 2", n)
	}
	again := ""
	v.until("the subscription is made again", func() bool {
		for _, got := range v.f.Got() {
			if strings.Contains(got, "resources/subscribe") {
				again = got
			}
		}
		return again != ""
	})
}

// home returns the index of the instance that is home of the only shared connection.
func (s *several) home(but ...int) int {
	s.t.Helper()
	at := -1
	s.until("somebody is the home", func() bool {
		for i, o := range s.all {
			if !slices.Contains(but, i) && o.s.instance.homes.Owned() > 0 {
				at = i
				return true
			}
		}
		return false
	})
	return at
}

// An instance that stops gives its homes up when the calls over them have ended. Those that
// come meanwhile wait, and none fails; who listens goes on (S-040, S-070).
func TestHomesStop(t *testing.T) {
	t.Parallel()
	v := severally(t, 3, func(c *config.Server) { c.Share = "all" })
	var sessions []string
	for _, o := range v.all {
		sessions = append(sessions, v.begin(o.base))
	}
	if _, m := v.post(v.all[0].base, sessions[0], echo(1, "x")); !m.Get("result").Exists() {
		t.Fatal(m.Raw)
	}
	home := v.home()
	var front []int
	for i := range v.all {
		if i != home {
			front = append(front, i)
		}
	}
	v.post(v.all[front[0]].base, "", stateless(1, "tools/call", `,"name":"echo","arguments":{}`))
	heard, _ := v.stream("POST", v.all[front[0]].base, "", stateless(9, "subscriptions/listen", `,"notifications":{"toolsListChanged":true}`))
	v.next(heard, "acknowledged")
	waits, _ := v.stream("POST", v.all[front[0]].base, "", stateless(2, "tools/call", `,"name":"wait","arguments":{}`))
	waiting, _ := v.stream("POST", v.all[front[1]].base, sessions[front[1]], `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"wait","arguments":{},"_meta":{"progressToken":1}}}`)
	v.until("both calls are under way", func() bool { return v.f.Waiting() == 2 })
	v.all[home].stop()
	v.until("the home holds calls back", func() bool { return !v.all[home].s.instance.homes.Owns(t.Context(), "files", "") })
	type outcome struct{ text string }
	out := make(chan outcome, 20)
	for n := range 10 {
		go func() {
			_, m := v.post(v.all[front[n%2]].base, sessions[front[n%2]], echo(n, "during"))
			out <- outcome{m.Raw}
		}()
		go func() {
			_, m := v.post(v.all[front[n%2]].base, "", stateless(n, "tools/call", `,"name":"echo","arguments":{"text":"during"}`))
			out <- outcome{m.Raw}
		}()
	}
	v.f.Answer(`{"waited":1}`)
	v.f.Answer(`{"waited":2}`)
	if e := v.next(waits, `"id":2`); !strings.Contains(e.Raw, "waited") {
		t.Errorf("a call under way: %s", e.Raw)
	}
	if e := v.next(waiting, `"id":3`); !strings.Contains(e.Raw, "waited") {
		t.Errorf("a call under way: %s", e.Raw)
	}
	for range 20 {
		if o := <-out; !strings.Contains(o.text, "during") {
			t.Errorf("a call that came while the home stopped: %s", o.text)
		}
	}
	<-v.all[home].done
	for _, i := range front {
		if _, m := v.post(v.all[i].base, sessions[i], echo(1, "after")); !strings.Contains(m.Raw, "after") {
			t.Errorf("a call after the home has stopped: %s", m.Raw)
		}
	}
	v.home(home)
	v.next(heard, "tools/list_changed")
	if n := v.f.Opened(); n != 2 {
		t.Errorf("the server was connected to %d times, want 2", n)
	}
	v.until("who listens hears the next home", func() bool {
		v.f.Say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		select {
		case e := <-heard:
			return strings.Contains(e.Raw, "tools/list_changed")
		default:
			return false
		}
	})
}

// What an instance that stops has to do for its own clients, at another server, holds up no
// call of others to connections that live there (S-070).
func TestHomesStopBusy(t *testing.T) {
	t.Parallel()
	v := &several{t: t, f: &wiretest.Server{}, store: redistest.Start(t), other: "other"}
	for range 2 {
		v.add(func(c *config.Server) { c.Share = "all" })
	}
	home, front := v.all[0], v.all[1]
	v.joined(2)
	v.begin(home.base)
	v.until("it is the home", func() bool { return home.s.instance.homes.Owned() == 1 })
	id := v.begin(front.base)
	v.at = "other"
	own, _ := v.stream("POST", home.base, v.begin(home.base), `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait","arguments":{}}}`)
	v.until("its own call is under way", func() bool { return v.f.Waiting() == 1 })
	v.at = "files"
	home.stop()
	v.until("the home holds calls back", func() bool { return !home.s.instance.homes.Owns(t.Context(), "files", "") })
	if _, m := v.post(front.base, id, echo(1, "during")); !strings.Contains(m.Raw, "during") {
		t.Errorf("a call of a session: %s", m.Raw)
	}
	if _, m := v.post(front.base, "", stateless(1, "tools/call", `,"name":"echo","arguments":{"text":"during"}`)); !strings.Contains(m.Raw, "during") {
		t.Errorf("a call of a client without a session: %s", m.Raw)
	}
	if n := v.f.Waiting(); n != 1 {
		t.Errorf("they have waited for the home's own call: %d are under way", n)
	}
	v.f.Answer(`{"waited":1}`)
	if e := v.next(own, `"id":2`); !strings.Contains(e.Raw, "waited") {
		t.Errorf("the home's own call: %s", e.Raw)
	}
	<-home.done
}
