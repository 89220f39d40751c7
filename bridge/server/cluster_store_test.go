package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// fault makes a call, and returns "" if it was answered as it should be, and otherwise the answer.
func (s *several) fault(i int, id string) string {
	r := s.send("POST", s.all[i], id, echo(1, "")).Wait()
	if r.Status() == http.StatusOK && gjson.Get(r.Body(), "result").Exists() {
		return ""
	}
	return fmt.Sprintln(r.Status(), "Retry-After:", r.Header("Retry-After"), r.Body())
}

// goesOn makes calls that have to succeed, at all instances.
func (s *several) goesOn(what string, ids ...string) {
	s.t.Helper()
	for i := range s.all {
		for _, id := range ids {
			if fault := s.fault(i, id); fault != "" {
				s.t.Errorf("%s: a call at %d: %s", what, i, fault)
			}
		}
	}
}

// is waits until instances are in a state.
func (s *several) is(want cluster.State, all ...*wholeOne) {
	s.t.Helper()
	for _, w := range all {
		s.until(fmt.Sprint("instance ", w.n, " is ", want), func() bool { return w.s.instance.node.State() == want })
	}
}

// taken returns how many sessions the instances have taken over.
func (s *several) taken() (n int64) {
	for _, w := range s.all {
		_, state := w.status()
		n += state.Get("taken_over").Int()
	}
	return n
}

// An owner that the others cannot connect to keeps its sessions while it reaches the store: none is taken over.
// The others answer 503 with Retry-After (S-027), and serve their own sessions. When they reach it again, its
// sessions are served.
func TestClusterCut(t *testing.T) {
	t.Parallel()
	severally(t, 3, plain, func(t *testing.T, s *several) {
		id, other := s.begin(s.all[0]), s.begin(s.all[1])
		s.goesOn("begun", id, other)
		s.part(s.all[0], s.all[1], refuses)
		for i, want := range []struct{ id, other string }{{"", "503"}, {"503", ""}, {"", ""}} {
			for id, want := range map[string]string{id: want.id, other: want.other} {
				if fault := s.fault(i, id); (want == "") != (fault == "") || want != "" && (!strings.Contains(fault, "503 Retry-After: 2") || !strings.Contains(fault, `"bridge":"unavailable"`)) {
					t.Errorf("a call at %d: %q, want %q", i, fault, want)
				}
			}
		}
		s.until("it is said to be out of reach", func() bool {
			status, s := s.all[1].status()
			return status == http.StatusOK && len(s.Get("members.#(unreached==true)#").Array()) == 1
		})
		s.heal()
		s.goesOn("healed", id, other)
		s.is(cluster.Sure, s.all...)
		if n := s.taken(); n != 0 {
			t.Errorf("%d sessions were taken over", n)
		}
	})
}

// A store that does not answer. If one instance cannot reach it, that one refuses clients (S-072), and another
// one takes its session over (S-010). If none can, all go on, with new sessions too (S-060), also if they do not
// hear of each other for a moment. No session ends when the store answers again (S-061).
func TestClusterSilent(t *testing.T) {
	t.Parallel()
	for n := range scaletest.Of(2, 10) { // between a beat and the next
		severally(t, 3, plain, func(t *testing.T, s *several) {
			id := s.begin(s.all[0])
			s.hush(s.all[0])
			s.is(cluster.Isolated, s.all[0])
			if status, s := s.all[0].status(); status != http.StatusServiceUnavailable {
				t.Errorf("/readyz of an instance alone without the store = %d %s", status, s.Raw)
			}
			if fault := s.fault(0, id); !strings.Contains(fault, "503 Retry-After: 2") {
				t.Errorf("a call at an instance alone without the store: %s", fault)
			}
			s.until("the session is taken over", func() bool { return s.fault(1, id) == "" })
			s.heal()
			s.is(cluster.Sure, s.all[0])
			s.goesOn("taken over", id)
			time.Sleep(time.Duration(n) * wholeLease / 10)
			s.hush(s.all...)
			s.is(cluster.Frozen, s.all...)
			fresh := s.begin(s.all[2])
			lasts := func(what string) {
				for begun := time.Now(); time.Since(begun) < 2*wholeLease; time.Sleep(300 * time.Millisecond) {
					s.goesOn(what, id, fresh)
				}
			}
			lasts("without a store")
			for _, i := range []int{1, 2} {
				s.part(s.all[0], s.all[i], silent)
			}
			time.Sleep(time.Second)
			s.join()
			lasts("they hear of each other again")
			s.heal()
			s.is(cluster.Sure, s.all...)
			s.goesOn("the store is back", id, fresh)
			if n := s.taken(); n != 1 {
				t.Errorf("%d sessions were taken over, want only the one of the instance that was alone", n)
			}
		})
	}
}

// A store that takes 200 ms for each answer is no reason to turn anybody away, and no call
// waits for it (S-065).
func TestClusterSlowStore(t *testing.T) {
	t.Parallel()
	severally(t, 2, plain, func(t *testing.T, s *several) {
		s.mu.Lock()
		for _, w := range s.all {
			w.slow = 200 * time.Millisecond
		}
		s.mu.Unlock()
		id := s.begin(s.all[0])
		s.goesOn("begun", id) // the second reads whose it is
		begun := time.Now()
		for range 40 {
			s.goesOn("a slow store", id)
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("calls have waited for %v", took)
		}
		for range 40 {
			time.Sleep(wholeLease / 20)
			s.goesOn("a slow store", id)
			for i := range s.all {
				if _, s := s.all[i].status(); s.Get("state").Str != "sure" || time.Since(begun) > wholeLease && s.Get("store_ms").Float() < 200 {
					t.Fatalf("instance %d says %s", i, s.Raw)
				}
			}
		}
	})
}
