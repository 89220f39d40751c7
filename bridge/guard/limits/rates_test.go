package limits

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
)

// A rate is read from text, and written as text.
func TestParseRate(t *testing.T) {
	for _, test := range []struct {
		text string
		want Rate
		back string
	}{
		{"10/s", Rate{PerSecond: 10, Burst: 10}, "10/s"},
		{"1/s", Rate{PerSecond: 1, Burst: 1}, "1/s"},
		{"600/m", Rate{PerSecond: 10, Burst: 10}, "10/s"},
		{"6/m", Rate{PerSecond: 0.1, Burst: 1}, "6/m"},
		{"36/h", Rate{PerSecond: 0.01, Burst: 1}, "36/h"},
		{"5/h", Rate{PerSecond: 5.0 / 3600, Burst: 1}, "5/h"},
		{"13/h", Rate{PerSecond: 13.0 / 3600, Burst: 1}, "13/h"},
		{"31/m burst 2", Rate{PerSecond: 31.0 / 60, Burst: 2}, "31/m burst 2"},
		{"0.5/s burst 7", Rate{PerSecond: 0.5, Burst: 7}, "30/m burst 7"},
	} {
		got, err := ParseRate(test.text)
		if err != nil || got != test.want || got.String() != test.back {
			t.Errorf("ParseRate(%q) = %+v (%v), %v, want %+v (%s)", test.text, got, got, err, test.want, test.back)
		}
	}
	for _, bad := range []string{"", "10", "10/d", "x/s", "-1/s", "0/s", "NaN/s", "1e99/s", "10/s burst", "10/s burst 0", "10/s burst x"} {
		if r, err := ParseRate(bad); err == nil {
			t.Errorf("ParseRate(%q) = %v, want an error", bad, r)
		}
	}
}

// What is refused because it comes too often, in which words, and when it is not refused any more.
func TestRateRefusals(t *testing.T) {
	perTool := map[string]Rate{"index": {1.0 / 3600, 1}, "search_*": {0.5, 2}, "search_all": {0.25, 1}}
	for _, test := range []struct {
		name, principal string
		o               Options
		door            Rate
		calls           []string // tools, all but the last of which may be called
		want            string   // of the last
		after           time.Duration
	}{
		{"rate", "p", Options{Rate: Rate{5, 2}}, Rate{}, []string{"a", "b", "c"}, "server fake: it may be called 5/s burst 2 by one caller (limits: rate); try again in 200 ms", 200 * time.Millisecond},
		{"everybody", "", Options{Rate: Rate{10, 1}}, Rate{}, []string{"a", "b"}, "server fake: it may be called 10/s burst 1 (limits: rate); try again in 100 ms", 100 * time.Millisecond},
		{"tool", "p", Options{Tools: perTool}, Rate{}, []string{"other", "index", "other", "index"}, "server fake: tool index may be called 1/h by one caller (limits: tools: index); try again in 1h0m0s", time.Hour},
		{"pattern", "p", Options{Tools: perTool}, Rate{}, []string{"search_a", "search_b", "search_c"}, "server fake: tools search_* may be called 30/m burst 2 by one caller (limits: tools: search_*); try again in 2 s", 2 * time.Second},
		{"the strictest of several", "p", Options{Tools: perTool}, Rate{}, []string{"search_all", "search_all"}, "server fake: tool search_all may be called 15/m by one caller (limits: tools: search_all); try again in 4 s", 4 * time.Second},
		{"door", "p", Options{}, Rate{2, 2}, []string{"a", "b", "c"}, "the bridge may be called 2/s by one caller (per_principal: rate); try again in 500 ms", 500 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, q := NewRates("fake", test.o), NewQuota(PerPrincipal{Rate: test.door})
				ask := func(principal, method, tool string) error {
					m, from := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{"name":"`+tool+`"}}`), &bridge.Caller{Principal: principal}
					if err := q.Enter(from, m); err != nil {
						return err
					}
					defer q.Leave(from)
					if r == nil { // without rates
						return nil
					}
					return r.refuse(&bridge.Request{From: from, Message: m})
				}
				last := test.calls[len(test.calls)-1]
				for _, name := range test.calls[:len(test.calls)-1] {
					if err := ask(test.principal, "tools/call", name); err != nil {
						t.Fatal(err)
					}
				}
				for range 100 { // which costs nothing
					err, _ := errors.AsType[*bridge.Error](ask(test.principal, "tools/call", last))
					if err == nil || err.Told() != test.want || err.After != test.after || !errors.Is(err, bridge.ErrLimited) {
						t.Fatalf("got  %v\nwant %s", err, test.want)
					}
				}
				if err := ask(test.principal, "tools/list", ""); (err != nil) != (test.name == "door") {
					t.Errorf("a list: %v", err)
				}
				if err := ask("other", "tools/call", last); test.principal != "" && err != nil {
					t.Errorf("another caller: %v", err)
				}
				time.Sleep(test.after - time.Millisecond)
				if err := ask(test.principal, "tools/call", last); bridge.RetryAfter(err) != time.Millisecond {
					t.Errorf("a moment too early: %v", err)
				}
				time.Sleep(time.Millisecond)
				if err := ask(test.principal, "tools/call", last); err != nil {
					t.Error(err)
				}
				want := uint64(101)
				if test.name == "door" {
					want++ // the list
				}
				if n := r.Refused() + q.Refused()["rate"]; n != want || !q.Idle() {
					t.Errorf("%d were refused, want %d", n, want)
				}
			})
		})
	}
}

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
		if n := len(r.rules.Load().matching(string(long))); n != 3 {
			t.Errorf("%d rates count for a long name, want 3", n)
		}
		rules := r.rules.Load()
		if _, kept := rules.known[string(long)]; kept || len(rules.known) > maxKnownTools {
			t.Errorf("%d names are kept; the long one %t", len(rules.known), kept)
		}
		left := func() int {
			rules.mu.Lock()
			defer rules.mu.Unlock()
			return rules.buckets.Len()
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

// Other rates count at once, and the same go on counting.
func TestRatesSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Rate: Rate{1, 1}}
		r := NewRates("x", o)
		ask := func(tool string) error {
			m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`"}}`)
			return r.refuse(&bridge.Request{From: &bridge.Caller{}, Message: m})
		}
		if err := ask("a"); err != nil {
			t.Fatal(err)
		}
		if ask("a") == nil {
			t.Fatal("the rate does not count")
		}
		o.Calls = 7
		if r.Set(o); ask("a") == nil {
			t.Error("the same rate has begun anew")
		}
		r.Set(Options{Tools: map[string]Rate{"b": {1, 2}}})
		for range 5 {
			if err := ask("a"); err != nil {
				t.Error(err)
			}
		}
		for n := range 3 {
			if err := ask("b"); (err == nil) != (n < 2) {
				t.Errorf("call %d of a tool with a rate: %v", n+1, err)
			}
		}
		if r.Set(Options{}); ask("b") != nil || r.Refused() != 3 {
			t.Errorf("without rates; %d were refused", r.Refused())
		}
	})
	var none *Rates
	none.Set(Options{Rate: Rate{1, 1}})
}

// Of callers that have nothing in flight, only some are remembered.
func TestQuotaForgets(t *testing.T) {
	q, m := NewQuota(PerPrincipal{}), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	for i := range 3 * keptCallers {
		from := bridgetest.Caller(era.LatestModern, fmt.Sprint(i), "{}")
		if err := q.Enter(from, m); err != nil {
			t.Fatal(err)
		}
		q.Leave(from)
	}
	if n := len(q.callers); n != keptCallers {
		t.Errorf("%d callers are remembered, want %d", n, keptCallers)
	}
}
