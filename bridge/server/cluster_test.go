package server

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
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
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Evicts = "allkeys-lru"
		said, dir := &lines{}, t.TempDir()
		start := func(name string, servers ...string) *wholeOne {
			c := instanceIn()
			for _, name := range servers {
				c.Servers = append(c.Servers, config.DefaultServer(name, ""))
			}
			c.AccessLog.To = filepath.Join(dir, name)
			c.Access = []config.Access{{Name: "alice", Token: wholeKeys[0]}, {Name: "bob", Token: wholeKeys[1]}}
			return w.start(c, slog.New(slog.NewTextHandler(said, nil)), reaching(&wiretest.Server{}))
		}
		a, b := start("a", "files"), start("b", "files", "more")
		w.joined(2)
		alice, bob := as(wholeKeys[0]), as(wholeKeys[1])
		time.Sleep(time.Second)
		if _, s := a.status(alice...); s.Get("store_ms").Raw == "" {
			t.Errorf("/readyz says %s", s.Raw)
		}
		at := func(w *wholeOne, method, body string, header ...string) *wiretest.Reply {
			return w.site.Do(method, "/files/mcp", body, header...).Wait()
		}
		began := at(a, "POST", initialize, alice...)
		id := began.Header("Mcp-Session-Id")
		if began.Status() != http.StatusOK || id == "" {
			t.Fatalf("initialize = %d %s", began.Status(), began.Body())
		}
		for i, w := range []*wholeOne{a, b} {
			body := call(fmt.Sprint(i), "echo")
			forged := []string{"Mcp-Session-Id", id, "Bridge-Front", "FORGED", "Bridge-Principal", "Ym9i", "Bridge-Hops", "1"}
			if r := at(w, "POST", body, slices.Concat(alice, forged)...); r.Status() != http.StatusOK || gjson.Get(r.Body(), "result").Raw == "" {
				t.Errorf("call %d = %d %s", i, r.Status(), r.Body())
			}
			// (S-026): the session of another caller does not exist, at no instance.
			if r := at(w, "POST", body, slices.Concat(bob, forged[:2])...); r.Status() != http.StatusNotFound {
				t.Errorf("the same with another key = %d %s", r.Status(), r.Body())
			}
			if r := at(w, "DELETE", "", slices.Concat(bob, forged[:2], []string{"Bridge-Principal", "YWxpY2U"})...); r.Status() != http.StatusNotFound {
				t.Errorf("DELETE with another key = %d %s", r.Status(), r.Body())
			}
		}
		for _, want := range []string{"policy=allkeys-lru", "an instance has other servers"} {
			w.until(want, func() bool { return strings.Contains(said.String(), want) })
		}
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
	inWorld(t, func(t *testing.T, w *world) {
		said := &lines{}
		start := func(change func(*config.Cluster)) *wholeOne {
			c := instanceIn()
			change(&c.Cluster)
			return w.start(c, slog.New(slog.NewTextHandler(said, nil)), reaching(&wiretest.Server{}))
		}
		a := start(func(*config.Cluster) {})
		second := start(func(c *config.Cluster) { c.Advertise = a.peer.at })
		select {
		case <-second.done:
		default:
			t.Fatal("an instance serves at the address of another one")
		}
		if second.err == nil || !strings.Contains(second.err.Error(), "where another instance answers ("+a.s.instance.tag()+")") {
			t.Errorf("Serve = %v", second.err)
		}
		b := start(func(c *config.Cluster) { c.Secret = "another secret of 32 characters or more" })
		w.until("a word about the secret", func() bool { return strings.Contains(said.String(), "has another secret") })
		if n := len(b.s.instance.node.Members()); n > 1 {
			t.Errorf("one with another secret sees %d members", n)
		}
	})
}
