package server

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/bridge/config"
)

// (S-040, S-041): clients without sessions have one connection to a legacy server over
// all instances, and a call that waits for its client goes on from any of them, once.
func TestHomesStateless(t *testing.T) {
	t.Parallel()
	severally(t, 3, func(s *config.Server) { s.Share = "principal" }, func(t *testing.T, s *several) {
		for n := range 9 {
			s.says("echo", s.all[n%3], "", stateless(n, "tools/call", `,"name":"echo","arguments":{"text":"hello"}`), `"text":"hello"`)
		}
		s.opened("clients without sessions", 1)
		for from := range 3 {
			_, m := s.post(s.all[from], "", stateless(10, "tools/call", `,"name":"ask","arguments":{}`))
			again := retried(t, m)
			s.says("the answer, given at another instance", s.all[(from+1)%3], "", again, `"text":"yes"`)
			if n := s.sent(`"name":"ask"`); n != 1 {
				t.Errorf("the server was called %d times", n)
			}
			forged := strings.Replace(again, m.Get("result.requestState").Str[:20], strings.Repeat("A", 20), 1)
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
		for i, w := range s.all {
			id := s.begin(w)
			s.post(w, id, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			sessions, streams = append(sessions, id), append(streams, s.stream("GET", w, id, ""))
			if i < 2 {
				s.says("a subscription", w, id, `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"file:///a"}}`, "result")
			}
		}
		if n := s.sent("resources/subscribe"); n != 1 {
			t.Errorf("the server was subscribed to %d times", n)
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
			s.post(s.all[(i+1)%3], sessions[i], `{"jsonrpc":"2.0","id":`+q.Get("id").Raw+`,"result":`+sampled+`}`)
			if a := s.next(`"id":7`, asked); !strings.Contains(a.Raw, "yes") {
				t.Errorf("the answer: %s", a.Raw)
			}
		}
		// What its own connection loses, the home opens again, and tells all.
		s.says("a lost call", s.all[0], sessions[0], `{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"quit","arguments":{}}}`, `"upstream_lost"`)
		for _, events := range streams {
			s.next("tools/list_changed", events)
		}
		s.opened("a lost connection", 2)
		s.until("the subscription is made again", func() bool { return s.sent("resources/subscribe") > 0 })
	})
}

// An instance that stops gives its homes up when the calls over them have ended, whatever it has to do for its own
// clients at another server. Calls that come meanwhile wait, and none fails; who listens goes on (S-040, S-070).
func TestHomesStop(t *testing.T) {
	t.Parallel()
	severally(t, 0, plain, func(t *testing.T, s *several) {
		s.conf = func(c *config.Config) {
			other := config.DefaultServer("other", "")
			other.Stdio = c.Servers[0].Stdio
			c.Servers = append(c.Servers, other)
		}
		for range 3 {
			s.add(func(s *config.Server) { s.Share = "all" })
		}
		s.joined(3)
		home, fronts := s.all[0], s.all[1:]
		s.begin(home)
		s.until("it is the home", func() bool { return home.s.instance.homes.Owned() == 1 })
		sessions := []string{s.begin(fronts[0]), s.begin(fronts[1])}
		s.post(fronts[0], "", stateless(1, "tools/call", `,"name":"echo","arguments":{}`))
		heard := s.stream("POST", fronts[0], "", stateless(9, "subscriptions/listen", `,"notifications":{"toolsListChanged":true}`))
		s.next("acknowledged", heard)
		waits := s.stream("POST", fronts[0], "", stateless(2, "tools/call", `,"name":"wait","arguments":{}`))
		waiting := s.stream("POST", fronts[1], sessions[1], `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"wait","arguments":{},"_meta":{"progressToken":1}}}`)
		s.until("both calls are under way", func() bool { return s.f.Waiting() == 2 })
		s.path = "/other/mcp"
		own := s.stream("POST", home, s.begin(home), `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"wait","arguments":{}}}`)
		s.path = ""
		s.until("its own call is under way", func() bool { return s.f.Waiting() == 3 })
		home.stop()
		s.until("the home holds calls back", func() bool { return !home.s.instance.homes.Owns(t.Context(), "files", "") })
		var all sync.WaitGroup
		for n := range 10 {
			at, id := fronts[n%2], sessions[n%2]
			all.Go(func() { s.says("a call of a session meanwhile", at, id, echo(n, "during"), "during") })
			all.Go(func() {
				s.says("a call of a client without a session meanwhile", at, "", stateless(n, "tools/call", `,"name":"echo","arguments":{"text":"during"}`), "during")
			})
		}
		s.f.Answer(`{"waited":true}`)
		s.f.Answer(`{"waited":true}`)
		for id, one := range map[string]*stream{`"id":2`: waits, `"id":3`: waiting} {
			if e := s.next(id, one); !strings.Contains(e.Raw, "waited") {
				t.Errorf("a call under way: %s", e.Raw)
			}
		}
		all.Wait()
		if n := s.f.Waiting(); n != 1 {
			t.Errorf("they have waited for the home's own call: %d are under way", n)
		}
		s.f.Answer(`{"waited":true}`)
		if e := s.next(`"id":4`, own); !strings.Contains(e.Raw, "waited") {
			t.Errorf("the home's own call: %s", e.Raw)
		}
		<-home.done
		for i, w := range fronts {
			s.says("a call after the home has stopped", w, sessions[i], echo(1, "after"), "after")
		}
		s.until("somebody is the home", func() bool {
			return slices.ContainsFunc(fronts, func(w *wholeOne) bool { return w.s.instance.homes.Owned() > 0 })
		})
		s.next("tools/list_changed", heard)
		s.opened("two homes, and another server", 3)
		s.until("who listens hears the next home", func() bool {
			s.f.Say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			e, _ := heard.next()
			return strings.Contains(e.Raw, "tools/list_changed")
		})
	})
}
