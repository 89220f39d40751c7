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

	"github.com/tidwall/gjson"

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

func plain(*config.Server) {}

// Calls, notifications and questions of a session pass between any front and the process at a worker, and so do
// those of a stateless client (S-050).
func TestWorkers(t *testing.T) {
	t.Parallel()
	for _, share := range []string{"session", "principal", "all"} {
		t.Run(share, func(t *testing.T) {
			t.Parallel()
			staffed(t, func(s *config.Server) { s.Share = gateway.Share(share) }, []string{cluster.RoleFront, cluster.RoleFront, cluster.RoleWorker}, func(t *testing.T, s *several) {
				w, b := s.all[0], s.all[1]
				res, m := s.post(w, "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"sampling":{}},"clientInfo":{"name":"c","version":"1"}}}`)
				if res.Status() != http.StatusOK {
					t.Fatalf("initialize = %d %s", res.Status(), m.Raw)
				}
				id := res.Header("Mcp-Session-Id")
				s.post(b, id, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
				events := s.stream("GET", b, id, "")
				for n := range 6 {
					if _, m := s.post(s.all[n%2], id, echo(n, "hello")); !strings.Contains(m.Raw, "hello") {
						t.Errorf("echo = %s", m.Raw)
					}
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
					s.post(s.all[1-i], id, `{"jsonrpc":"2.0","id":`+q.Get("id").Raw+`,"result":{"role":"assistant","content":{"type":"text","text":"yes"},"model":"m"}}`)
					if e := s.next(fmt.Sprintf(`"id":%d`, 10+i), asked); !strings.Contains(e.Raw, "yes") {
						t.Errorf("the answer: %s", e.Raw)
					}
				}
				waits := s.stream("POST", w, id, `{"jsonrpc":"2.0","id":20,"method":"tools/call","params":{"name":"wait","arguments":{}}}`)
				s.until("the server has the call", func() bool { return s.f.Waiting() == 1 })
				s.post(b, id, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":20,"reason":"enough"}}`)
				s.until("the server hears of the cancellation", func() bool {
					for _, got := range s.f.Got() {
						if strings.Contains(got, "notifications/cancelled") && strings.Contains(got, "enough") {
							return true
						}
					}
					return false
				})
				s.until("its stream ends, or says that it was cancelled", func() bool {
					_, there := waits.next()
					return there || waits.Over()
				})
				if n := s.f.Opened(); n != 1 {
					t.Errorf("the server was connected to %d times", n)
				}
				for n := range 4 {
					_, m := s.post(s.all[n%2], "", stateless(n, "tools/call", `,"name":"echo","arguments":{"text":"hello"}`))
					for m.Get("error.data.bridge").Str == "overloaded" { // a starved instance answers the other one too late
						t.Logf("a call is made again: %s", m.Raw)
						time.Sleep(100 * time.Millisecond)
						_, m = s.post(s.all[n%2], "", stateless(n, "tools/call", `,"name":"echo","arguments":{"text":"hello"}`))
					}
					if m.Get("result.echo.text").Str != "hello" {
						t.Errorf("echo without a session = %s", m.Raw)
					}
				}
				if res, _ := s.post(s.all[2], "", echo(1, "x")); res.Status() != http.StatusServiceUnavailable {
					t.Errorf("a worker answers a client with %d", res.Status())
				}
				if share == "all" {
					return
				}
				_, m = s.post(w, "", stateless(30, "tools/call", `,"name":"ask","arguments":{}`))
				key := ""
				m.Get("result.inputRequests").ForEach(func(k, _ gjson.Result) bool {
					key = k.Str
					return true
				})
				again := stateless(31, "tools/call", `,"name":"ask","arguments":{},"requestState":`+m.Get("result.requestState").Raw+`,"inputResponses":{"`+key+`":{"role":"assistant","content":{"type":"text","text":"yes"},"model":"m"}}`)
				if _, m := s.post(b, "", again); m.Get("result.result.content.text").Str != "yes" {
					t.Errorf("the answer without a session: %s", m.Raw)
				}
			})
		})
	}
}

// A tool that fails at a worker is counted as that, once over all instances, by whichever of
// them the call came.
func TestWorkersFailedTools(t *testing.T) {
	t.Parallel()
	staffed(t, plain, []string{cluster.RoleFront, cluster.RoleFront, cluster.RoleWorker}, func(t *testing.T, s *several) {
		id := s.begin(s.all[0])
		for n := range 2 {
			s.post(s.all[n], id, call(fmt.Sprint(n), "fail"))
			s.post(s.all[n], "", stateless(n, "tools/call", `,"name":"fail","arguments":{}`))
		}
		got := map[string]float64{}
		for _, w := range s.all {
			families, err := w.s.metrics.Values("mcp_bridge_calls_total", nil, false)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				for _, one := range f.Values {
					if one.Labels["method"] == "tools/call" {
						got[one.Labels["server"]+" "+one.Labels["era"]+" "+one.Labels["outcome"]] += *one.Value
					}
				}
			}
		}
		if want := map[string]float64{"files legacy tool_error": 2, "files modern tool_error": 2}; !maps.Equal(got, want) {
			t.Errorf("counted %v, want %v", got, want)
		}
	})
}

// An instance with the role all is a worker for itself, too: also the only one.
func TestWorkerAlone(t *testing.T) {
	t.Parallel()
	staffed(t, plain, []string{cluster.RoleAll}, func(t *testing.T, s *several) {
		o := s.all[0]
		id := s.begin(o)
		if _, m := s.post(o, id, echo(1, "hello")); !strings.Contains(m.Raw, "hello") {
			t.Errorf("echo = %s", m.Raw)
		}
		w := o.s.instance.workerState([]string{"files"})
		if w.Running["files"] != 1 || len(w.Connections) != 1 || w.Queued["files"] != 0 || len(w.Waiting) != 0 {
			t.Errorf("%+v", w)
		}
	})
}

// The process of a session goes on at its worker when its owner stops, and the session with
// it; when the worker stops, calls under way end well, and those that come go on at another
// one (S-051).
func TestWorkerStops(t *testing.T) {
	t.Parallel()
	staffed(t, plain, []string{cluster.RoleFront, cluster.RoleFront, cluster.RoleWorker}, func(t *testing.T, s *several) {
		w, b, old := s.all[0], s.all[1], s.all[2]
		id := s.begin(w)
		w.stop()
		<-w.done
		if _, m := s.post(b, id, echo(1, "hello")); !strings.Contains(m.Raw, "hello") {
			t.Errorf("after the owner has stopped: %s", m.Raw)
		}
		if n := s.f.Opened(); n != 1 {
			t.Errorf("the server was connected to %d times: the process did not go on", n)
		}
		s.role = cluster.RoleWorker
		s.add(plain)
		s.until("the front sees the next worker", func() bool { return len(b.s.instance.node.Members()) == 3 })
		slow := s.stream("POST", b, id, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait","arguments":{}}}`)
		s.until("the server has the call", func() bool { return s.f.Waiting() == 1 })
		old.stop()
		s.until("calls that come are held back", func() bool { return old.s.instance.workerState([]string{"files"}).Stopping })
		var later sync.WaitGroup
		for i := range 4 {
			later.Go(func() {
				if _, m := s.post(b, id, echo(10+i, "hello")); !strings.Contains(m.Raw, "hello") {
					t.Errorf("a call that comes meanwhile: %s", m.Raw)
				}
			})
		}
		s.f.Answer(`{"done":true}`)
		if e := s.next(`"id":2`, slow); !e.Get("result.done").Bool() {
			t.Errorf("a call that was under way: %s", e.Raw)
		}
		later.Wait()
		<-old.done
		if _, m := s.post(b, id, echo(20, "hello")); !strings.Contains(m.Raw, "hello") {
			t.Errorf("afterwards: %s", m.Raw)
		}
		if n := s.f.Opened(); n != 2 {
			t.Errorf("the server was connected to %d times, want one at each worker", n)
		}
	})
}

// An instance that stops holds back calls of others to its processes also while its own
// sessions have calls, and all of them end well (S-070).
func TestWorkerStopsBusy(t *testing.T) {
	t.Parallel()
	staffed(t, plain, []string{cluster.RoleAll, cluster.RoleFront}, func(t *testing.T, s *several) {
		old, w := s.all[0], s.all[1]
		own, id := s.begin(old), s.begin(w) // both have their processes at the only worker
		s.role = cluster.RoleWorker
		s.add(plain)
		s.joined(3)
		slow := s.stream("POST", old, own, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait","arguments":{}}}`)
		s.until("the server has the call", func() bool { return s.f.Waiting() == 1 })
		old.stop()
		s.until("calls that come are held back", func() bool { return old.s.instance.workerState([]string{"files"}).Stopping })
		var later sync.WaitGroup
		later.Go(func() {
			if _, m := s.post(w, id, echo(3, "hello")); !strings.Contains(m.Raw, "hello") {
				t.Errorf("a call that comes meanwhile: %s", m.Raw)
			}
		})
		s.f.Answer(`{"done":true}`)
		if e := s.next(`"id":2`, slow); !e.Get("result.done").Bool() {
			t.Errorf("the call of its own session: %s", e.Raw)
		}
		later.Wait()
		<-old.done
		if n := s.f.Opened(); n != 3 {
			t.Errorf("the server was connected to %d times, want 3", n)
		}
	})
}

// While Redis is away connections to workers go on, and new ones wait; it is emptied, and
// those that wait are opened (S-060).
func TestWorkersWithoutStore(t *testing.T) {
	t.Parallel()
	staffed(t, func(s *config.Server) { s.Limits.Wait = 40 * time.Second }, []string{cluster.RoleFront, cluster.RoleFront, cluster.RoleWorker}, func(t *testing.T, s *several) {
		w, b := s.all[0], s.all[1]
		id := s.begin(w)
		s.refuse(s.all...)
		for n := range 20 {
			if _, m := s.post(s.all[n%2], id, echo(n, "hello")); !strings.Contains(m.Raw, "hello") {
				t.Errorf("without the store: %s", m.Raw)
			}
		}
		begun := s.send("POST", b, "", initialize)
		s.until("an opening waits", func() bool { return b.s.instance.workers.Status().Waiting["files"] == 1 })
		s.wipe(nil)
		s.heal()
		next := begun.Wait().Header("Mcp-Session-Id")
		for _, id := range []string{id, next} {
			if _, m := s.post(w, id, echo(30, "hello")); !strings.Contains(m.Raw, "hello") {
				t.Errorf("afterwards: %s", m.Raw)
			}
		}
	})
}

// A server that cannot be started at the worker is told as one that cannot be started here.
// (A hung one is found by a ping: TestPing in bridge/server/internal/placement.)
func TestWorkerFails(t *testing.T) {
	t.Parallel()
	fails := true
	staffed(t, plain, []string{cluster.RoleFront, cluster.RoleWorker}, func(t *testing.T, s *several) {
		s.f.Before = func(context.Context) error {
			if fails {
				return fmt.Errorf("no such program")
			}
			return nil
		}
		_, m := s.post(s.all[0], "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
		if m.Get("error").Raw == "" || strings.Contains(m.Raw, "worker") {
			t.Errorf("initialize = %s", m.Raw)
		}
		fails = false
		s.begin(s.all[0])
	})
}

// Openings wait while all slots of the workers are taken, however few: the limits of their front count processes,
// and it has none (S-052).
func TestWorkersFull(t *testing.T) {
	t.Parallel()
	severally(t, 0, plain, func(t *testing.T, s *several) {
		s.slots = 1
		for _, role := range []string{cluster.RoleFront, cluster.RoleWorker} {
			s.role = role
			s.add(func(s *config.Server) { s.MaxChildren, s.Limits.Wait = 1, time.Hour })
		}
		s.joined(2)
		front := s.all[0]
		holder := s.begin(front)
		const many = 4
		var all sync.WaitGroup
		for range many {
			all.Go(func() { s.close(front, s.begin(front)) })
		}
		s.until("all wait", func() bool { return front.s.instance.workerState([]string{"files"}).Waiting["files"] == many })
		s.close(front, holder)
		all.Wait()
	})
}

// When all places of a server at the workers are taken, as many openings wait as the queue has places for, however many
// slots are free for other servers: the next one is refused at once (S-052).
func TestWorkersQueue(t *testing.T) {
	t.Parallel()
	change := func(s *config.Server) { s.MaxChildren, s.Limits.Queue, s.Limits.Wait = 2, 3, time.Hour }
	staffed(t, change, []string{cluster.RoleFront, cluster.RoleFront, cluster.RoleWorker, cluster.RoleWorker}, func(t *testing.T, s *several) {
		var held []string
		for n := range 4 {
			held = append(held, s.begin(s.all[n%2]))
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
		s.until("as many wait as may", func() bool { return s.all[0].s.instance.workerState([]string{"files"}).Queued["files"] == 3 })
		begun := time.Now()
		res, m := s.post(s.all[0], "", initialize)
		if took := time.Since(begun); m.Get("error.data.bridge").Str != "overloaded" || took > time.Minute {
			t.Errorf("one too many: %d %s after %v", res.Status(), m.Raw, took)
		}
		for n, id := range held {
			s.close(s.all[n%2], id)
		}
		all.Wait()
	})
}

// close ends a session.
func (s *several) close(at *wholeOne, session string) {
	s.t.Helper()
	if r := s.send("DELETE", at, session, "").Wait(); r.Status() >= 300 || r.Err() != nil {
		s.t.Errorf("DELETE = %d %s %v", r.Status(), r.Body(), r.Err())
	}
}

// A client that only listens where its session goes on has its process kept, too.
func TestWorkerAttached(t *testing.T) {
	t.Parallel()
	staffed(t, plain, []string{cluster.RoleFront, cluster.RoleFront, cluster.RoleWorker}, func(t *testing.T, s *several) {
		w, b := s.all[0], s.all[1]
		id := s.begin(w)
		if _, m := s.post(w, id, echo(1, "hello")); !strings.Contains(m.Raw, "hello") {
			t.Errorf("echo = %s", m.Raw)
		}
		w.stop()
		<-w.done
		s.stream("GET", b, id, "")
		s.until("the next instance has the process", func() bool { return len(b.s.instance.workerState([]string{"files"}).Connections) == 1 })
		if n := s.f.Opened(); n != 1 {
			t.Errorf("the server was connected to %d times: the process did not go on", n)
		}
	})
}

// The bridge asks Redis nothing for a caller of /readyz without a key: otherwise, strangers would decide how much Redis
// has to do.
func TestReadyAsksNobody(t *testing.T) {
	t.Parallel()
	const key = "the-key-of-alice-1"
	severally(t, 0, plain, func(t *testing.T, s *several) {
		s.role, s.keys = cluster.RoleAll, []config.Access{{Name: "alice", Token: key}}
		w := s.add(plain)
		for _, header := range [][]string{nil, as("a-wrong-key-of-alice"), as(key)} {
			w.status(header...)
			s.mu.Lock()
			asked, may := s.asked["Lengths"] > 0, slices.Equal(header, as(key))
			s.mu.Unlock()
			if asked != may {
				t.Errorf("with %q, the store is asked: %t", header, asked)
			}
		}
	})
}
