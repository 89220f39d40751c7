package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// Two bridges in one program are two instances (S-004). A call says in the access log
// which instance has made it, and which one has sent it on, whatever clients say in
// headers of the bridge's own (S-081).
func TestClusterEmbedded(t *testing.T) {
	t.Parallel()
	severally(t, 0, plain, func(t *testing.T, s *several) {
		s.store.Evicts = "allkeys-lru"
		dir := t.TempDir()
		for _, name := range []string{"a", "b"} {
			s.conf = func(c *config.Config) {
				c.AccessLog.To = filepath.Join(dir, name)
				c.Access = []config.Access{{Name: "alice", Token: wholeKeys[0]}, {Name: "bob", Token: wholeKeys[1]}}
				if name == "b" {
					c.Servers = append(c.Servers, config.DefaultServer("more", ""))
					c.Servers[1].Stdio = c.Servers[0].Stdio
				}
			}
			s.add(plain)
		}
		s.joined(2)
		a, b := s.all[0], s.all[1]
		alice, bob := as(wholeKeys[0]), as(wholeKeys[1])
		time.Sleep(time.Second)
		if _, s := a.status(alice...); s.Get("store_ms").Raw == "" {
			t.Errorf("/readyz says %s", s.Raw)
		}
		s.by(0)
		id := s.begin(a)
		at := func(w *wholeOne, method, body string, header ...string) *wiretest.Reply {
			return w.site.Do(method, "/files/mcp", body, append(header, "Mcp-Session-Id", id)...).Wait()
		}
		for i, w := range s.all {
			body := call(fmt.Sprint(i), "echo")
			if r := at(w, "POST", body, append(alice, "Bridge-Front", "FORGED", "Bridge-Principal", "Ym9i", "Bridge-Hops", "1")...); r.Status() != http.StatusOK || gjson.Get(r.Body(), "result").Raw == "" {
				t.Errorf("call %d = %d %s", i, r.Status(), r.Body())
			}
			// (S-026): the session of another caller does not exist, at no instance.
			if r := at(w, "POST", body, bob...); r.Status() != http.StatusNotFound {
				t.Errorf("the same with another key = %d %s", r.Status(), r.Body())
			}
			if r := at(w, "DELETE", "", append(bob, "Bridge-Principal", "YWxpY2U")...); r.Status() != http.StatusNotFound {
				t.Errorf("DELETE with another key = %d %s", r.Status(), r.Body())
			}
		}
		s.warned("policy=allkeys-lru")
		s.warned("an instance has other servers")
		tag := func(w *wholeOne) string { return w.s.instance.tag() }
		b.stop()
		<-b.done
		a.stop()
		<-a.done
		var calls []string
		for _, name := range []string{"a", "b"} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				var l struct{ Method, Instance, Front, Principal string }
				if err := json.Unmarshal([]byte(line), &l); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				if l.Method == "tools/call" {
					calls = append(calls, fmt.Sprint(name, " ", l.Instance, " ", l.Front, " ", l.Principal))
				}
			}
		}
		if want := []string{"a " + tag(a) + "  alice", "a " + tag(a) + " " + tag(b) + " alice"}; fmt.Sprint(calls) != fmt.Sprint(want) {
			t.Errorf("the access logs have %q, want %q", calls, want)
		}
	})
}

// An instance does not start where another one answers in its place; an instance with
// another secret is told of.
func TestClusterMistakes(t *testing.T) {
	t.Parallel()
	severally(t, 1, plain, func(t *testing.T, s *several) {
		a := s.all[0]
		s.conf = func(c *config.Config) { c.Cluster.Advertise = a.peer.at }
		second := s.add(plain)
		select {
		case <-second.done:
		default:
			t.Fatal("an instance serves at the address of another one")
		}
		if second.err == nil || !strings.Contains(second.err.Error(), "where another instance answers ("+a.s.instance.tag()+")") {
			t.Errorf("Serve = %v", second.err)
		}
		s.conf = func(c *config.Config) { c.Cluster.Secret = "another secret of 32 characters or more" }
		b := s.add(plain)
		s.warned("has another secret")
		if n := len(b.s.instance.node.Members()); n > 1 {
			t.Errorf("one with another secret sees %d members", n)
		}
	})
}
