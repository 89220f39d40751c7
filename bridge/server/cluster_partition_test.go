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

// parted are instances that lose the store, or each other.
type parted struct{ *several }

// call makes a call, and returns "" if it was answered as it should, and otherwise the answer.
func (p parted) call(i int, id string) string {
	r := p.all[i].site.Do("POST", "/files/mcp", call("1", "echo"), "Mcp-Session-Id", id).Wait()
	if r.Status() == http.StatusOK && gjson.Get(r.Body(), "result").Exists() {
		return ""
	}
	return fmt.Sprintln(r.Status(), "Retry-After:", r.Header("Retry-After"), r.Body())
}

// goesOn makes calls that have to succeed, at all instances.
func (p parted) goesOn(what string, ids ...string) {
	p.t.Helper()
	for i := range p.all {
		for _, id := range ids {
			if fault := p.call(i, id); fault != "" {
				p.t.Errorf("%s: a call at %d: %s", what, i, fault)
			}
		}
	}
}

// is waits until instances are in a state.
func (p parted) is(want cluster.State, all ...*wholeOne) {
	p.t.Helper()
	for _, w := range all {
		p.until(fmt.Sprint("instance ", w.n, " is ", want), func() bool { return w.s.instance.node.State() == want })
	}
}

// taken returns how many sessions an instance has taken over.
func (p parted) taken(i int) int64 {
	_, state := p.all[i].status()
	return state.Get("taken_over").Int()
}

func hasAll(text string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// An owner that the others cannot connect to keeps its sessions while it reaches the store: none is taken over.
// The others answer 503 with Retry-After (S-027), and serve their own sessions. When they reach it again, its
// sessions are served.
func TestClusterCut(t *testing.T) {
	t.Parallel()
	severally(t, 3, plain, func(t *testing.T, s *several) {
		p := parted{s}
		id, other := p.begin(p.all[0]), p.begin(p.all[1])
		p.goesOn("begun", id, other)
		p.part(p.all[0], p.all[1], refuses)
		if fault := p.call(1, id); !hasAll(fault, "503 Retry-After: 2", `"bridge":"unavailable"`) {
			t.Errorf("a call for a session that is out of reach: %s", fault)
		}
		for _, i := range []int{0, 2} {
			if fault := p.call(i, id); fault != "" {
				t.Errorf("a call at %d, which reaches its owner: %s", i, fault)
			}
		}
		for _, i := range []int{1, 2} {
			if fault := p.call(i, other); fault != "" {
				t.Errorf("a call at %d of another owner: %s", i, fault)
			}
		}
		p.until("it is said to be out of reach", func() bool {
			status, s := p.all[1].status()
			return status == http.StatusOK && len(s.Get("members.#(unreached==true)#").Array()) == 1
		})
		p.heal()
		p.goesOn("healed", id, other)
		for i := range p.all {
			if _, s := p.all[i].status(); s.Get("taken_over").Int() != 0 || s.Get("state").Str != "sure" {
				t.Errorf("instance %d says %s", i, s.Raw)
			}
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
			p := parted{s}
			id := p.begin(p.all[0])
			p.goesOn("begun", id)
			p.hush(p.all[0])
			p.is(cluster.Isolated, p.all[0])
			if status, s := p.all[0].status(); status != http.StatusServiceUnavailable {
				t.Errorf("/readyz of an instance alone without the store = %d %s", status, s.Raw)
			}
			if fault := p.call(0, id); !hasAll(fault, "503 Retry-After: 2") {
				t.Errorf("a call at an instance alone without the store: %s", fault)
			}
			p.until("the session is taken over", func() bool { return p.call(1, id) == "" })
			p.heal()
			p.is(cluster.Sure, p.all[0])
			p.goesOn("taken over", id)
			if n := p.taken(1); n != 1 {
				t.Errorf("the one that has taken the session over says %d", n)
			}
			time.Sleep(time.Duration(n) * wholeLease / 10)
			p.hush(p.all...)
			p.is(cluster.Frozen, p.all...)
			fresh := p.begin(p.all[2])
			for begun := time.Now(); time.Since(begun) < 2*wholeLease; time.Sleep(300 * time.Millisecond) {
				p.goesOn("without a store", id, fresh)
			}
			for _, i := range []int{1, 2} {
				p.part(p.all[0], p.all[i], silent)
			}
			time.Sleep(time.Second)
			p.join()
			for begun := time.Now(); time.Since(begun) < 2*wholeLease; time.Sleep(300 * time.Millisecond) {
				p.goesOn("they hear of each other again", id, fresh)
			}
			p.heal()
			p.is(cluster.Sure, p.all...)
			p.goesOn("the store is back", id, fresh)
			if n := p.taken(0) + p.taken(1) + p.taken(2); n != 1 {
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
		p := parted{s}
		p.mu.Lock()
		for _, w := range p.all {
			w.slow = 200 * time.Millisecond
		}
		p.mu.Unlock()
		id := p.begin(p.all[0])
		p.goesOn("begun", id) // the second reads whose it is
		begun := time.Now()
		for range 40 {
			p.goesOn("a slow store", id)
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("calls have waited for %v", took)
		}
		for range 40 {
			time.Sleep(wholeLease / 20)
			p.goesOn("a slow store", id)
			for i := range p.all {
				if _, s := p.all[i].status(); s.Get("state").Str != "sure" || time.Since(begun) > wholeLease && s.Get("store_ms").Float() < 200 {
					t.Fatalf("instance %d says %s", i, s.Raw)
				}
			}
		}
	})
}
