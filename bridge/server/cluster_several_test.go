package server

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/server/internal/placement"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// several are some instances of one cluster before one server in memory.
type several struct {
	*world
	f     *wiretest.Server
	all   []*wholeOne
	role  string               // of the next instance; then the server's connections are at workers
	conf  func(*config.Config) // changes the whole configuration of the next instance; may be nil
	path  string               // where clients send; empty for /files/mcp
	shows string               // what callers show in Authorization; empty for nothing
	said  lines                // warnings in the logs of all instances
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

func plain(*config.Server) {}

// add starts an instance. Servers that are no child processes are reached as they are configured.
func (s *several) add(change func(*config.Server)) *wholeOne {
	s.t.Helper()
	c, item := instanceIn(), config.DefaultServer("files", "")
	item.Stdio = &config.Stdio{Command: "in memory"}
	change(&item)
	c.Servers, c.Drain, c.Cluster.Role = []config.Server{item}, 10*time.Minute, s.role
	if s.conf != nil {
		s.conf(c)
	}
	log := slog.New(slog.NewTextHandler(io.MultiWriter(s.t.Output(), &s.said), &slog.HandlerOptions{Level: slog.LevelWarn}))
	w := s.start(c, log, func(own *server, item *config.Server) backend {
		switch {
		case item.Stdio == nil:
			return own.reach(item)
		case s.role != "":
			return own.atWorkers(item, placement.Local{Adapter: s.f, MaxProcesses: item.MaxChildren})
		}
		return reaching(s.f)(own, item)
	})
	s.all = append(s.all, w)
	return w
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
	return at.site.Do(method, cmp.Or(s.path, "/files/mcp"), body, header...)
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

// warned waits for a text in the logs.
func (s *several) warned(what string) {
	s.t.Helper()
	s.until(what, func() bool { return strings.Contains(s.said.String(), what) })
}

// says makes a call whose answer has a text.
func (s *several) says(what string, at *wholeOne, session, body, want string) {
	s.t.Helper()
	if r, m := s.post(at, session, body); !strings.Contains(m.Raw, want) {
		s.t.Errorf("%s: %d %s, want %s", what, r.Status(), m.Raw, want)
	}
}

// begin begins a session of a client that can be asked for samplings.
func (s *several) begin(at *wholeOne) string {
	s.t.Helper()
	r, m := s.post(at, "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"sampling":{}},"clientInfo":{"name":"c","version":"1"}}}`)
	if r.Status() != 200 || !m.Get("result").Exists() {
		s.t.Fatalf("initialize = %d %s", r.Status(), m.Raw)
	}
	return r.Header("Mcp-Session-Id")
}

// close ends a session.
func (s *several) close(at *wholeOne, session string) {
	s.t.Helper()
	if r := s.send("DELETE", at, session, "").Wait(); r.Status() >= 300 || r.Err() != nil {
		s.t.Errorf("DELETE = %d %s %v", r.Status(), r.Body(), r.Err())
	}
}

// sent returns how many messages with a text have come to the server since it was asked last.
func (s *several) sent(part string) (n int) {
	for _, got := range s.f.Got() {
		if strings.Contains(got, part) {
			n++
		}
	}
	return n
}

// opened fails unless so many connections to the server were opened.
func (s *several) opened(what string, want int) {
	s.t.Helper()
	if n := s.f.Opened(); n != want {
		s.t.Errorf("%s: the server was connected to %d times, want %d", what, n, want)
	}
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
			for m, there := one.next(); there; m, there = one.next() {
				if found = m; strings.Contains(m.Raw, want) {
					return true
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

func echo(id int, text string) string {
	args, _ := json.Marshal(map[string]string{"text": text})
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":%s}}`, id, args)
}

// stateless makes a request of a client of 2026-07-28 that can be asked for samplings.
func stateless(id int, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"sampling":{}}}%s}}`, id, method, params)
}

// sampled is the answer to a question.
const sampled = `{"role":"assistant","content":{"type":"text","text":"yes"},"model":"m"}`

// retried makes the call again whose answer asks for input.
func retried(t *testing.T, asked gjson.Result) string {
	t.Helper()
	key := asked.Get("result.inputRequests|@keys|0").Str
	if asked.Get("result.resultType").Str != "input_required" || key == "" {
		t.Fatalf("ask = %s", asked.Raw)
	}
	return stateless(11, "tools/call", fmt.Sprintf(`,"name":"ask","arguments":{},"requestState":%s,"inputResponses":{%q:%s}`, asked.Get("result.requestState").Raw, key, sampled))
}
