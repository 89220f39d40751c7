package server

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/cluster"
)

// staffed runs f in a bubble with an instance for each role, before one server in memory that workers reach.
func staffed(t *testing.T, change func(*config.Server), roles []string, f func(t *testing.T, s *several)) {
	t.Helper()
	severally(t, 0, change, func(t *testing.T, s *several) {
		for _, role := range roles {
			s.role = role
			s.add(change)
		}
		s.joined(len(roles))
		f(t, s)
	})
}

const roleFront, roleWorker = cluster.RoleFront, cluster.RoleWorker

// held waits until an instance that stops holds calls back.
func (s *several) held(w *wholeOne) {
	s.t.Helper()
	s.until("calls that come are held back", func() bool { return w.s.instance.workerState([]string{"files"}).Stopping })
}

// Calls, notifications and questions of a session pass between any front and the process at a worker, and so do
// those of a stateless client (S-050). A tool that fails there is counted as that, once over all instances.
func TestWorkers(t *testing.T) {
	t.Parallel()
	for _, share := range []string{"session", "principal", "all"} {
		t.Run(share, func(t *testing.T) {
			t.Parallel()
			staffed(t, func(s *config.Server) { s.Share = gateway.Share(share) }, []string{roleFront, roleFront, roleWorker}, func(t *testing.T, s *several) {
				w, b := s.all[0], s.all[1]
				id := s.begin(w)
				s.post(b, id, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
				events := s.stream("GET", b, id, "")
				for n := range 6 {
					s.says("echo", s.all[n%2], id, echo(n, "hello"), "hello")
				}
				s.post(w, id, `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}}`)
				s.f.Say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
				s.next("tools/list_changed", events)
				steps := s.stream("POST", b, id, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"steps","arguments":{"n":3},"_meta":{"progressToken":"mine"}}}`)
				for i := range 3 {
					if e := s.next("notifications/progress", steps); e.Get("params.progressToken").Str != "mine" || e.Get("params.progress").Int() != int64(i+1) {
						t.Errorf("progress %d: %s", i+1, e.Raw)
					}
				}
				s.next(`"steps"`, steps)
				logged := s.stream("POST", b, id, `{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"log","arguments":{}}}`)
				s.next("", logged, events)
				for i, at := range []*wholeOne{w, b} {
					if share == "all" { // whom it asks is not known: it is refused
						break
					}
					asked := s.stream("POST", at, id, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"ask","arguments":{}}}`, 10+i))
					q := s.next("sampling/createMessage", asked, events)
					s.post(s.all[1-i], id, `{"jsonrpc":"2.0","id":`+q.Get("id").Raw+`,"result":`+sampled+`}`)
					if e := s.next(fmt.Sprintf(`"id":%d`, 10+i), asked); !strings.Contains(e.Raw, "yes") {
						t.Errorf("the answer: %s", e.Raw)
					}
				}
				waits := s.stream("POST", w, id, `{"jsonrpc":"2.0","id":20,"method":"tools/call","params":{"name":"wait","arguments":{}}}`)
				s.until("the server has the call", func() bool { return s.f.Waiting() == 1 })
				s.post(b, id, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":20,"reason":"enough"}}`)
				s.until("the server hears of the cancellation", func() bool { return s.sent("enough") > 0 })
				s.until("its stream ends, or says that it was cancelled", func() bool {
					_, there := waits.next()
					return there || waits.Over()
				})
				s.opened("a session", 1)
				for n := range 4 {
					s.says("echo without a session", s.all[n%2], "", stateless(n, "tools/call", `,"name":"echo","arguments":{"text":"hello"}`), `"text":"hello"`)
				}
				if res, _ := s.post(s.all[2], "", echo(1, "x")); res.Status() != http.StatusServiceUnavailable {
					t.Errorf("a worker answers a client with %d", res.Status())
				}
				for n := range 2 {
					s.post(s.all[n], id, call(fmt.Sprint(n), "fail"))
					s.post(s.all[n], "", stateless(n, "tools/call", `,"name":"fail","arguments":{}`))
				}
				if got, want := s.counted("tool_error"), map[string]float64{"files legacy": 2, "files modern": 2}; !maps.Equal(got, want) {
					t.Errorf("counted %v, want %v", got, want)
				}
				if share != "all" {
					_, m := s.post(w, "", stateless(30, "tools/call", `,"name":"ask","arguments":{}`))
					s.says("the answer without a session", b, "", retried(t, m), `"text":"yes"`)
				}
			})
		})
	}
}

// counted returns how many calls had an outcome, by server and era, over all instances.
func (s *several) counted(outcome string) map[string]float64 {
	s.t.Helper()
	got := map[string]float64{}
	for _, w := range s.all {
		families, err := w.s.metrics.Values("mcp_bridge_calls_total", nil, false)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, f := range families {
			for _, one := range f.Values {
				if one.Labels["method"] == "tools/call" && one.Labels["outcome"] == outcome {
					got[one.Labels["server"]+" "+one.Labels["era"]] += *one.Value
				}
			}
		}
	}
	return got
}

// The process of a session goes on at its worker when its owner stops, and the session with it, also for a client that
// only listens. When the worker stops, calls under way end well, and those that come meanwhile go on at another one
// (S-051), also while sessions of its own have calls (S-070).
func TestWorkerStops(t *testing.T) {
	t.Parallel()
	staffed(t, plain, []string{roleFront, roleFront, cluster.RoleAll}, func(t *testing.T, s *several) {
		w, b, old := s.all[0], s.all[1], s.all[2]
		id := s.begin(w)
		w.stop()
		<-w.done
		s.stream("GET", b, id, "")
		s.until("the next instance has the process", func() bool { return len(b.s.instance.workerState([]string{"files"}).Connections) == 1 })
		s.says("after the owner has stopped", b, id, echo(1, "hello"), "hello")
		s.opened("the process goes on", 1)
		own := s.begin(old)
		s.role = roleWorker
		s.add(plain)
		s.until("the front sees the next worker", func() bool { return len(b.s.instance.node.Members()) == 3 })
		var slow []*stream
		for at, id := range map[*wholeOne]string{old: own, b: id} {
			slow = append(slow, s.stream("POST", at, id, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait","arguments":{}}}`))
		}
		s.until("the server has the calls", func() bool { return s.f.Waiting() == 2 })
		old.stop()
		s.held(old)
		var later sync.WaitGroup
		for i := range 4 {
			later.Go(func() { s.says("a call that comes meanwhile", b, id, echo(10+i, "hello"), "hello") })
		}
		for range slow {
			s.f.Answer(`{"done":true}`)
		}
		for _, one := range slow {
			if e := s.next(`"id":2`, one); !e.Get("result.done").Bool() {
				t.Errorf("a call that was under way: %s", e.Raw)
			}
		}
		later.Wait()
		<-old.done
		s.says("afterwards", b, id, echo(20, "hello"), "hello")
		s.opened("two sessions, one of which has moved", 3)
	})
}

// While Redis is away connections to workers go on, and new ones wait; it is emptied, and
// those that wait are opened (S-060). A worker that its front has found dead, and that is back before it gives up
// the process of a session, goes on with this process.
func TestWorkersWithoutStore(t *testing.T) {
	t.Parallel()
	staffed(t, func(s *config.Server) { s.Limits.Wait = 40 * time.Second }, []string{roleFront, roleFront, roleWorker}, func(t *testing.T, s *several) {
		w, b := s.all[0], s.all[1]
		id := s.begin(w)
		s.refuse(s.all...)
		for n := range 20 {
			s.says("without the store", s.all[n%2], id, echo(n, "hello"), "hello")
		}
		begun := s.send("POST", b, "", initialize)
		s.until("an opening waits", func() bool { return b.s.instance.workers.Status().Waiting["files"] == 1 })
		s.wipe(nil)
		s.heal()
		next := begun.Wait().Header("Mcp-Session-Id")
		goesOn := func(what string) {
			t.Helper()
			for n, id := range []string{id, next} {
				s.says(what, s.all[n], id, echo(30, "hello"), "hello")
			}
			s.opened(what, 2)
		}
		goesOn("afterwards")
		s.refuse(s.all[2])
		s.until("the worker is found dead", func() bool { return len(w.s.instance.node.Members()) == 2 })
		time.Sleep(time.Second)
		s.heal()
		s.joined(3)
		goesOn("the worker is back")
	})
}

// Without a worker an opening is refused after its wait, and the error says what is missing (S-052). An instance with
// the role all is one, for itself too. A server that cannot be started there is told as one that cannot be started here.
// (A hung one is found by a ping: TestPing in bridge/server/internal/placement.)
func TestNoWorker(t *testing.T) {
	t.Parallel()
	staffed(t, func(s *config.Server) { s.Limits.Wait = 2 * time.Second }, []string{roleFront}, func(t *testing.T, s *several) {
		_, m := s.post(s.all[0], "", initialize)
		e := m.Get("error")
		if e.Get("data.bridge").Str != "overloaded" || e.Get("data.retryAfterMs").Int() == 0 || !strings.Contains(e.Get("message").Str, "files") || !strings.Contains(e.Get("message").Str, "no instance with cluster: role: worker or all is there") {
			t.Errorf("initialize = %s", m.Raw)
		}
		s.role = cluster.RoleAll
		o := s.add(plain)
		s.joined(2)
		fails := true
		s.f.Before = func(context.Context) error {
			if fails {
				return fmt.Errorf("no such program")
			}
			return nil
		}
		if _, m := s.post(s.all[0], "", initialize); m.Get("error").Raw == "" || strings.Contains(m.Raw, "worker") {
			t.Errorf("a server that cannot be started: %s", m.Raw)
		}
		fails = false
		for _, at := range s.all {
			s.says("echo", at, s.begin(at), echo(1, "hello"), "hello")
		}
		if w := o.s.instance.workerState([]string{"files"}); w.Running["files"] != 2 || len(w.Connections) != 1 || w.Queued["files"] != 0 || len(w.Waiting) != 0 {
			t.Errorf("%+v", w)
		}
	})
}

// When all places of a server at the workers are taken, as many openings wait as the queue has places for, however many
// slots are free for other servers, and however few processes their front may have: the next one is refused at once
// (S-052).
func TestWorkersQueue(t *testing.T) {
	t.Parallel()
	severally(t, 0, plain, func(t *testing.T, s *several) {
		s.conf = func(c *config.Config) { c.MaxChildren = 3 }
		for _, s.role = range []string{roleFront, roleFront, roleWorker, roleWorker} {
			s.add(func(s *config.Server) { s.MaxChildren, s.Limits.Queue, s.Limits.Wait = 2, 3, time.Hour })
		}
		s.joined(4)
		at := s.all[0]
		var taken []string
		for n := range 4 {
			taken = append(taken, s.begin(s.all[n%2]))
		}
		s.until("the fronts know that the workers are full", func() bool {
			for _, w := range s.all[:2] {
				running := 0
				for _, m := range w.s.instance.node.Members() {
					running += m.Running["files"]
				}
				if running != 4 {
					return false
				}
			}
			return true
		})
		var all sync.WaitGroup
		for n := range 3 {
			all.Go(func() { s.close(s.all[n%2], s.begin(s.all[n%2])) })
		}
		s.until("as many wait as may", func() bool { return at.s.instance.workerState([]string{"files"}).Queued["files"] == 3 })
		begun := time.Now()
		res, m := s.post(at, "", initialize)
		if took := time.Since(begun); m.Get("error.data.bridge").Str != "overloaded" || took > time.Minute {
			t.Errorf("one too many: %d %s after %v", res.Status(), m.Raw, took)
		}
		for n, id := range taken {
			s.close(s.all[n%2], id)
		}
		all.Wait()
	})
}

// The bridge asks Redis nothing for a caller of /readyz without a key: otherwise, strangers would decide how much Redis
// has to do.
func TestReadyAsksNobody(t *testing.T) {
	t.Parallel()
	severally(t, 0, plain, func(t *testing.T, s *several) {
		s.role, s.conf = cluster.RoleAll, func(c *config.Config) { c.Access = []config.Access{{Name: "alice", Token: aliceKey}} }
		w := s.add(plain)
		for _, header := range [][]string{nil, as("a-wrong-key-of-alice"), as(aliceKey)} {
			w.status(header...)
			s.mu.Lock()
			asked, may := s.lengths > 0, slices.Equal(header, as(aliceKey))
			s.mu.Unlock()
			if asked != may {
				t.Errorf("with %q, the store is asked: %t", header, asked)
			}
		}
	})
}
