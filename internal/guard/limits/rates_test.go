package limits

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/bridgetest"
	"github.com/mcp-bridge/bridge/internal/era"
)

// A call that goes on after a question is not refused, but counts, and not for
// ever: a client can say what it likes.
func TestRateOfRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRates("x", Options{Rate: Rate{1, 1}})
		from := &bridge.Caller{Revision: era.LatestModern}
		ask := func(params string) error {
			return r.refuse(&bridge.Request{From: from, Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`)})
		}
		if err := ask(`{"name":"x"}`); err != nil {
			t.Fatal(err)
		}
		for i := range 12 {
			if err := ask(`{"name":"x","requestState":"s"}`); (err == nil) != (i < maxOwed) {
				t.Errorf("round %d: %v", i+1, err)
			}
		}
		if err := ask(`{"name":"x"}`); bridge.RetryAfter(err) != 11*time.Second {
			t.Errorf("after that: %v, want 11 s for what was owed", err)
		}
		from = &bridge.Caller{Revision: era.LatestLegacy} // to which the member means nothing
		if err := ask(`{"name":"x","requestState":"s"}`); err == nil {
			t.Error("a client of another era is let through")
		}
	})
}

// Neither names that clients make up nor principals make memory grow, and what is
// not used is forgotten.
func TestRatesBounded(t *testing.T) {
	o := Options{Rate: Rate{1000, 1000}, Tools: map[string]Rate{"*": {1000, 10}, "t*": {1000, 10}}}
	synctest.Test(t, func(t *testing.T) {
		r := NewRates("fake", o)
		for i := range 5000 {
			for _, principal := range []string{"p", fmt.Sprint("p", i)} {
				m := bridgetest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t%d"}}`, i))
				_ = r.refuse(&bridge.Request{From: &bridge.Caller{Principal: principal}, Message: m})
			}
		}
		long := make([]byte, 100_000)
		for i := range long {
			long[i] = 't'
		}
		if n := len(r.matching(string(long))); n != 3 {
			t.Errorf("%d rates count for a long name, want 3", n)
		}
		if _, kept := r.known[string(long)]; kept || len(r.known) > maxKnownTools {
			t.Errorf("%d names are kept; the long one %t", len(r.known), kept)
		}
		left := func() int {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.buckets.Len()
		}
		if n := left(); n > maxBuckets {
			t.Errorf("%d buckets, want at most %d", n, maxBuckets)
		}
		time.Sleep(30 * time.Second)
		r.Sweep(time.Now())
		if n := left(); n != 0 {
			t.Errorf("%d buckets after a pause, want none", n)
		}
	})
}

// Buckets that are full again go one by one with the calls that come, too.
func TestBucketsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newLimiter()
		of := []limit{{Rate{1, 1}, 0}}
		never := func() bool { return false }
		for i := range 3 * keptCallers {
			p.take(fmt.Sprint(i), of, never)
		}
		time.Sleep(500 * time.Millisecond)
		if wait, _ := p.take("0", of, never); wait != 500*time.Millisecond {
			t.Errorf("the first may call again in %v", wait)
		}
		time.Sleep(time.Minute)
		for range 2 * keptCallers {
			p.take("x", of, never)
		}
		if n := p.buckets.Len(); n != keptCallers {
			t.Errorf("%d buckets are left, want %d", n, keptCallers)
		}
	})
}
