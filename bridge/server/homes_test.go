package server

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/server/internal/placement"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// several are some instances of one cluster before one server in memory.
type several struct {
	*world
	f     *wiretest.Server
	all   []*wholeOne
	role  string // of the next instance; then the server's connections are at workers
	keys  []config.Access
	slots int    // of a worker; 0 for enough
	other string // another server, with connections of each session's own; empty for none
	at    string // the server that clients use; empty for the first
	// conf, if not nil, changes the whole configuration; then the server is not in memory.
	conf  func(*config.Config)
	shows string // what callers show in Authorization; empty for nothing
}

// severally runs f in a bubble with n instances.
func severally(t *testing.T, n int, change func(*config.Server), f func(t *testing.T, s *several)) {
	t.Helper()
	inWorld(t, func(t *testing.T, w *world) {
		s := &several{world: w, f: &wiretest.Server{}}
		for range n {
			s.add(change)
		}
		s.joined(n)
		f(t, s)
	})
}

func (s *several) add(change func(*config.Server)) *wholeOne {
	s.t.Helper()
	c := instanceIn()
	item := config.DefaultServer("files", "")
	item.Stdio = &config.Stdio{Command: "in memory"}
	change(&item)
	c.Servers = append(c.Servers, item)
	if s.other != "" {
		c.Servers = append(c.Servers, config.DefaultServer(s.other, ""))
		c.Servers[1].Stdio = item.Stdio
	}
	c.Drain = 10 * time.Minute
	c.Cluster.Role, c.Access, c.MaxChildren = s.role, s.keys, cmp.Or(s.slots, c.MaxChildren)
	if s.conf != nil {
		s.conf(c)
	}
	w := s.start(c, slog.New(slog.NewTextHandler(tlog{s.t}, &slog.HandlerOptions{Level: slog.LevelWarn})), func(own *server, item *config.Server) backend {
		if s.conf != nil {
			return own.reach(item)
		}
		if s.role != "" {
			return own.atWorkers(item, placement.Local{Adapter: s.f, MaxProcesses: item.MaxChildren})
		}
		return reaching(s.f)(own, item)
	})
	s.all = append(s.all, w)
	return w
}

// tlog writes a log to that of the test.
type tlog struct{ t *testing.T }

func (t tlog) Write(b []byte) (int, error) {
	t.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// send sends a message.
func (s *several) send(method string, at *wholeOne, session, body string) *wiretest.Reply {
	var header []string
	if session != "" {
		header = append(header, "Mcp-Session-Id", session)
	}
	if s.shows != "" {
		header = append(header, "Authorization", s.shows)
	}
	if strings.Contains(body, "2026-07-28") {
		header = append(header, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", gjson.Get(body, "method").Str)
		if name := gjson.Get(body, "params.name").Str; name != "" {
			header = append(header, "Mcp-Name", name)
		}
	}
	return at.site.Do(method, "/"+cmp.Or(s.at, "files")+"/mcp", body, header...)
}

// post sends a message and returns the answer to it.
func (s *several) post(at *wholeOne, session, body string) (*wiretest.Reply, gjson.Result) {
	r := s.send("POST", at, session, body).Wait()
	for line := range strings.Lines(r.Body()) {
		m := gjson.Parse(strings.TrimPrefix(strings.TrimSpace(line), "data: "))
		if m.Get("id").Raw == gjson.Get(body, "id").Raw && m.Get("id").Exists() {
			return r, m
		}
	}
	return r, gjson.Parse(r.Body())
}

// stream is the response to a message, as far as it was heard.
type stream struct {
	*wiretest.Reply
	heard int
}

// stream sends a message whose answer takes a while.
func (s *several) stream(method string, at *wholeOne, session, body string) *stream {
	r := &stream{Reply: s.send(method, at, session, body)}
	if method == "GET" {
		s.until("the stream begins", func() bool { return r.Status() != 0 })
	}
	return r
}

// next returns the next message, if it is there.
func (s *stream) next() (m gjson.Result, there bool) {
	over, rest := s.Over(), s.Body()[s.heard:]
	for line := range strings.Lines(rest) {
		if !strings.HasSuffix(line, "\n") && !over {
			break
		}
		s.heard += len(line)
		if data := strings.TrimPrefix(line, "data: "); strings.HasPrefix(data, "{") { // or all is one answer
			return gjson.Parse(data), true
		}
	}
	return m, false
}

// next returns the next message of streams that has what is wanted in it.
func (s *several) next(want string, all ...*stream) (found gjson.Result) {
	s.t.Helper()
	s.until("a stream says "+want, func() bool {
		over := 0
		for _, one := range all {
			for {
				m, there := one.next()
				if there && strings.Contains(m.Raw, want) {
					found = m
					return true
				}
				if !there {
					break
				}
			}
			if one.Over() {
				over++
			}
		}
		if over == len(all) {
			s.t.Fatal("the streams have ended before " + want)
		}
		return false
	})
	return found
}

// begin begins a session.
func (s *several) begin(at *wholeOne) string {
	s.t.Helper()
	r, m := s.post(at, "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
	if r.Status() != 200 || !m.Get("result").Exists() {
		s.t.Fatalf("initialize = %d %s", r.Status(), m.Raw)
	}
	return r.Header("Mcp-Session-Id")
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
			severally(t, 3, func(s *config.Server) { s.Share = gateway.Share(share) }, func(t *testing.T, s *several) {
				var sessions []string
				for _, w := range s.all {
					sessions = append(sessions, s.begin(w))
				}
				for i, w := range s.all {
					for n := range 3 {
						if res, m := s.post(w, sessions[(i+n)%3], echo(n, "hello")); res.Status() != 200 || !strings.Contains(m.Raw, "hello") {
							t.Errorf("echo = %d %s", res.Status(), m.Raw)
						}
					}
				}
				if n := s.f.Opened(); n != 1 {
					t.Errorf("the server was connected to %d times", n)
				}
			})
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
	severally(t, 3, func(s *config.Server) { s.Share = "principal" }, func(t *testing.T, s *several) {
		for n := range 9 {
			if res, m := s.post(s.all[n%3], "", stateless(n, "tools/call", `,"name":"echo","arguments":{"text":"hello"}`)); res.Status() != 200 || m.Get("result.echo.text").Str != "hello" {
				t.Errorf("echo = %d %s", res.Status(), m.Raw)
			}
		}
		if n := s.f.Opened(); n != 1 {
			t.Errorf("the server was connected to %d times", n)
		}
		for from := range 3 {
			_, m := s.post(s.all[from], "", stateless(10, "tools/call", `,"name":"ask","arguments":{}`))
			state, key := m.Get("result.requestState"), ""
			m.Get("result.inputRequests").ForEach(func(k, _ gjson.Result) bool {
				key = k.Str
				return true
			})
			if m.Get("result.resultType").Str != "input_required" || key == "" {
				t.Fatalf("ask = %s", m.Raw)
			}
			again := stateless(11, "tools/call", `,"name":"ask","arguments":{},"requestState":`+state.Raw+`,"inputResponses":{"`+key+`":{"role":"assistant","content":{"type":"text","text":"yes"},"model":"m"}}`)
			if _, m := s.post(s.all[(from+1)%3], "", again); m.Get("result.result.content.text").Str != "yes" {
				t.Errorf("the answer, given at another instance: %s", m.Raw)
			}
			asked := 0
			for _, got := range s.f.Got() {
				if gjson.Get(got, "params.name").Str == "ask" {
					asked++
				}
			}
			if asked != 1 {
				t.Errorf("the server was called %d times", asked)
			}
			forged := strings.Replace(again, state.Str[:20], strings.Repeat("A", 20), 1)
			if _, m := s.post(s.all[(from+2)%3], "", forged); m.Get("error.code").Int() != -32602 {
				t.Errorf("a forged state: %s", m.Raw)
			}
		}
	})
}

// What the server of a shared connection says by itself, and asks, reaches the sessions
// that it is for at whatever instance (S-026, S-040).
func TestHomesTell(t *testing.T) {
	t.Parallel()
	severally(t, 3, func(s *config.Server) { s.Share = "principal" }, func(t *testing.T, s *several) {
		var sessions []string
		var streams []*stream
		for _, w := range s.all {
			res, m := s.post(w, "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"sampling":{}},"clientInfo":{"name":"c","version":"1"}}}`)
			if res.Status() != 200 {
				t.Fatalf("initialize = %d %s", res.Status(), m.Raw)
			}
			id := res.Header("Mcp-Session-Id")
			s.post(w, id, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			events := s.stream("GET", w, id, "")
			sessions, streams = append(sessions, id), append(streams, events)
		}
		for i, w := range s.all[:2] {
			if _, m := s.post(w, sessions[i], `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"file:///a"}}`); m.Get("error").Exists() {
				t.Fatal(m.Raw)
			}
		}
		subscribed := 0
		for _, got := range s.f.Got() {
			if strings.Contains(got, "resources/subscribe") {
				subscribed++
			}
		}
		if subscribed != 1 {
			t.Errorf("the server was subscribed to %d times", subscribed)
		}
		s.f.Say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///a"}}`)
		s.f.Say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		for i, events := range streams {
			if i < 2 {
				s.next("resources/updated", events)
			}
			if e := s.next("notifications/", events); i == 2 && !strings.Contains(e.Raw, "tools/list_changed") {
				t.Errorf("a session that has not subscribed hears %s", e.Raw)
			}
		}
		for i, w := range s.all {
			asked := s.stream("POST", w, sessions[i], `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"ask","arguments":{}}}`)
			q := s.next("sampling/createMessage", asked, streams[i]) // the server does not say which call it is about
			s.post(s.all[(i+1)%3], sessions[i], `{"jsonrpc":"2.0","id":`+q.Get("id").Raw+`,"result":{"role":"assistant","content":{"type":"text","text":"yes"},"model":"m"}}`)
			if a := s.next(`"id":7`, asked); !strings.Contains(a.Raw, "yes") {
				t.Errorf("the answer: %s", a.Raw)
			}
		}
		// What its own connection loses, the home opens again, and tells all.
		if _, m := s.post(s.all[0], sessions[0], `{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"quit","arguments":{}}}`); m.Get("error.data.bridge").Str != "upstream_lost" {
			t.Errorf("a lost call: %s", m.Raw)
		}
		for _, events := range streams {
			s.next("tools/list_changed", events)
		}
		if n := s.f.Opened(); n != 2 {
			t.Errorf("the server was connected to %d times, want 2", n)
		}
		again := ""
		s.until("the subscription is made again", func() bool {
			for _, got := range s.f.Got() {
				if strings.Contains(got, "resources/subscribe") {
					again = got
				}
			}
			return again != ""
		})
	})
}

// home returns the index of the instance that is home of the only shared connection.
func (s *several) home(but ...int) int {
	s.t.Helper()
	at := -1
	s.until("somebody is the home", func() bool {
		for i, w := range s.all {
			if !slices.Contains(but, i) && w.s.instance.homes.Owned() > 0 {
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
	severally(t, 3, func(s *config.Server) { s.Share = "all" }, func(t *testing.T, s *several) {
		var sessions []string
		for _, w := range s.all {
			sessions = append(sessions, s.begin(w))
		}
		if _, m := s.post(s.all[0], sessions[0], echo(1, "x")); !m.Get("result").Exists() {
			t.Fatal(m.Raw)
		}
		home := s.home()
		var front []int
		for i := range s.all {
			if i != home {
				front = append(front, i)
			}
		}
		s.post(s.all[front[0]], "", stateless(1, "tools/call", `,"name":"echo","arguments":{}`))
		heard := s.stream("POST", s.all[front[0]], "", stateless(9, "subscriptions/listen", `,"notifications":{"toolsListChanged":true}`))
		s.next("acknowledged", heard)
		waits := s.stream("POST", s.all[front[0]], "", stateless(2, "tools/call", `,"name":"wait","arguments":{}`))
		waiting := s.stream("POST", s.all[front[1]], sessions[front[1]], `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"wait","arguments":{},"_meta":{"progressToken":1}}}`)
		s.until("both calls are under way", func() bool { return s.f.Waiting() == 2 })
		s.all[home].stop()
		s.until("the home holds calls back", func() bool { return !s.all[home].s.instance.homes.Owns(t.Context(), "files", "") })
		type outcome struct{ text string }
		out := make(chan outcome, 20)
		for n := range 10 {
			go func() {
				_, m := s.post(s.all[front[n%2]], sessions[front[n%2]], echo(n, "during"))
				out <- outcome{m.Raw}
			}()
			go func() {
				_, m := s.post(s.all[front[n%2]], "", stateless(n, "tools/call", `,"name":"echo","arguments":{"text":"during"}`))
				out <- outcome{m.Raw}
			}()
		}
		s.f.Answer(`{"waited":1}`)
		s.f.Answer(`{"waited":2}`)
		if e := s.next(`"id":2`, waits); !strings.Contains(e.Raw, "waited") {
			t.Errorf("a call under way: %s", e.Raw)
		}
		if e := s.next(`"id":3`, waiting); !strings.Contains(e.Raw, "waited") {
			t.Errorf("a call under way: %s", e.Raw)
		}
		for range 20 {
			if o := <-out; !strings.Contains(o.text, "during") {
				t.Errorf("a call that came while the home stopped: %s", o.text)
			}
		}
		<-s.all[home].done
		for _, i := range front {
			if _, m := s.post(s.all[i], sessions[i], echo(1, "after")); !strings.Contains(m.Raw, "after") {
				t.Errorf("a call after the home has stopped: %s", m.Raw)
			}
		}
		s.home(home)
		s.next("tools/list_changed", heard)
		if n := s.f.Opened(); n != 2 {
			t.Errorf("the server was connected to %d times, want 2", n)
		}
		s.until("who listens hears the next home", func() bool {
			s.f.Say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			e, _ := heard.next()
			return strings.Contains(e.Raw, "tools/list_changed")
		})
	})
}

// What an instance that stops has to do for its own clients, at another server, holds up no
// call of others to connections that live there (S-070).
func TestHomesStopBusy(t *testing.T) {
	t.Parallel()
	severally(t, 0, plain, func(t *testing.T, s *several) {
		s.other = "other"
		for range 2 {
			s.add(func(s *config.Server) { s.Share = "all" })
		}
		home, front := s.all[0], s.all[1]
		s.joined(2)
		s.begin(home)
		s.until("it is the home", func() bool { return home.s.instance.homes.Owned() == 1 })
		id := s.begin(front)
		s.at = "other"
		own := s.stream("POST", home, s.begin(home), `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait","arguments":{}}}`)
		s.until("its own call is under way", func() bool { return s.f.Waiting() == 1 })
		s.at = "files"
		home.stop()
		s.until("the home holds calls back", func() bool { return !home.s.instance.homes.Owns(t.Context(), "files", "") })
		if _, m := s.post(front, id, echo(1, "during")); !strings.Contains(m.Raw, "during") {
			t.Errorf("a call of a session: %s", m.Raw)
		}
		if _, m := s.post(front, "", stateless(1, "tools/call", `,"name":"echo","arguments":{"text":"during"}`)); !strings.Contains(m.Raw, "during") {
			t.Errorf("a call of a client without a session: %s", m.Raw)
		}
		if n := s.f.Waiting(); n != 1 {
			t.Errorf("they have waited for the home's own call: %d are under way", n)
		}
		s.f.Answer(`{"waited":1}`)
		if e := s.next(`"id":2`, own); !strings.Contains(e.Raw, "waited") {
			t.Errorf("the home's own call: %s", e.Raw)
		}
		<-home.done
	})
}
