package metrics

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// noLoad is the load of idle servers.
func noLoad(string) Load { return Load{} }

// taking returns a function that counts a call of a tool.
func taking(t testing.TB, m *Metrics) func(server string, o bridge.Outcome, took time.Duration) {
	q, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}`))
	if err != nil {
		t.Fatal(err)
	}
	return func(server string, o bridge.Outcome, took time.Duration) {
		m.Take(&report.Report{Server: server, Request: q, Outcome: o, Took: took})
	}
}

// Buckets stay in order although ticks are late, early or missing, and when the clock is set back.
func TestHistoryTicks(t *testing.T) {
	m := New("")
	m.Set([]string{"one"})
	h, take := m.NewHistory(), taking(t, m)
	if s, _ := h.SeriesOf("one", time.Time{}); s != (Span{Step: Step.Milliseconds()}) {
		t.Errorf("before the first tick: %+v", s)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var got [][]uint64
	for _, after := range []time.Duration{0, 5 * time.Second, 5010 * time.Millisecond, 7600 * time.Millisecond, 2390 * time.Millisecond, 5 * time.Second, 20 * time.Second, -time.Hour, 5 * time.Second} {
		now = now.Add(after)
		take("one", bridge.Answered, time.Millisecond)
		h.Tick(now, noLoad)
		_, c := h.SeriesOf("one", time.Time{})
		got = append(got, c.Calls)
	}
	want := [][]uint64{
		{1}, {1, 1}, {1, 1, 1},
		{1, 1, 1, 0, 1},    // a late one, after a gap
		{1, 1, 1, 0, 1},    // an early one: nothing is lost
		{1, 1, 1, 0, 1, 2}, // but counted later
		{1, 1, 1, 0, 1, 2, 0, 0, 0, 1},
		{1, 1, 1, 0, 1, 2, 0, 0, 0, 1, 1},
		{1, 1, 1, 0, 1, 2, 0, 0, 0, 1, 1, 1},
	}
	for i := range want {
		if !slices.Equal(got[i], want[i]) {
			t.Errorf("after tick %d: %v, want %v", i, got[i], want[i])
		}
	}
	from := now
	now = now.Add(5003 * time.Millisecond)
	h.Tick(now, noLoad)
	if s, c := h.SeriesOf("one", from); s.Points != 1 || len(c.Calls) != 1 || s.To != now.UnixMilli() {
		t.Errorf("what is new after %v: %+v %v", from, s, c.Calls)
	}
	now = now.Add(24 * time.Hour)
	take("one", bridge.Answered, time.Millisecond)
	h.Tick(now, noLoad)
	if s, c := h.SeriesOf("one", time.Time{}); s.Points != Points || c.Calls[Points-1] != 1 || slices.Max(c.Calls[:Points-1]) != 0 {
		t.Errorf("after a day asleep: %+v %v", s, c.Calls)
	}
}

// Percentiles are those of all servers together, also where one has very many calls.
func TestHistoryPercentiles(t *testing.T) {
	scaletest.Unraced(t)
	if n := len(durationBuckets) + 1; n != len(times{}) {
		t.Fatalf("%d classes of durations", n)
	}
	m := New("")
	m.Set([]string{"one", "two"})
	h, take := m.NewHistory(), taking(t, m)
	for range 3 * math.MaxUint16 {
		take("one", bridge.Answered, 2*time.Millisecond)
	}
	for range math.MaxUint16 {
		take("two", bridge.ToolFailed, 2*time.Second)
	}
	take("two", bridge.TimedOut, time.Hour)
	h.Tick(time.Now(), noLoad)
	near := func(what string, got *float64, want float64) {
		if got == nil || math.Abs(*got-want) > .02*want {
			t.Errorf("%s = %v, want about %v", what, got, want)
		}
	}
	all := func(string) bool { return true }
	_, total, servers := h.Series(time.Time{}, all, true)
	near("p50 of all", total.P50[0], 2)    // two thirds of the three quarters that took 1 to 2.5 ms
	near("p95 of all", total.P95[0], 2200) // four fifths of those that took 1 to 2.5 s
	near("p99 of all", total.P99[0], 2440)
	_, one := h.SeriesOf("one", time.Time{})
	near("p95 of one", one.P95[0], 2.425)
	_, two := h.SeriesOf("two", time.Time{})
	near("p50 of two", two.P50[0], 1750)
	if two.Errors[0] != 1 || two.ToolErrors[0] != math.MaxUint16 || servers[0].Server != "one" || total.Calls[0] != 4*math.MaxUint16+1 {
		t.Errorf("%+v, %+v", two, servers)
	}
	near("p95 of all, in 5 minutes", total.Recent.P95, 2200)
	if got := h.Recent()["two"]; math.Abs(got.Errors*(math.MaxUint16+1)-1) > 1e-9 {
		t.Errorf("errors of two: %v", got.Errors)
	}
	h.Tick(time.Now().Add(Step), noLoad)
	_, one = h.SeriesOf("one", time.Now())
	if one.Recent == nil || h.Recent()["one"] == nil {
		t.Errorf("after another bucket, nothing is recent: %+v", one)
	}
	if _, one = h.SeriesOf("one", time.Time{}); one.P50[1] != nil {
		t.Errorf("without calls: %v", *one.P50[1])
	}
	for i := range recentBuckets {
		h.Tick(time.Now().Add(time.Duration(2+i)*Step), noLoad)
	}
	if _, one = h.SeriesOf("one", time.Time{}); one.Recent != nil || h.Recent()["one"] != nil {
		t.Errorf("after 5 minutes: %+v", one.Recent)
	}
}

// A server without calls takes no memory, and one that comes back counts anew.
func TestHistoryServers(t *testing.T) {
	m := New("")
	m.Set([]string{"one", "two"})
	h, take := m.NewHistory(), taking(t, m)
	now := time.Now()
	tick := func(load func(string) Load) {
		now = now.Add(Step)
		h.Tick(now, load)
	}
	take("one", bridge.Answered, time.Millisecond)
	tick(func(server string) Load {
		return map[string]Load{"one": {InFlight: 3, Memory: 5 << 20}}[server]
	})
	if h.of["one"].buckets == nil || h.of["two"].buckets != nil {
		t.Error("buckets are for those with calls")
	}
	tick(func(string) Load { return Load{Memory: -1} })
	if _, c := h.SeriesOf("one", time.Time{}); !slices.Equal(c.InFlight, []uint64{3, 0}) || !slices.Equal(c.Memory, []uint64{5 << 20, 5 << 20}) {
		t.Errorf("%+v", c)
	}
	for range Points {
		tick(noLoad)
	}
	if h.of["one"].buckets != nil {
		t.Error("after 15 idle minutes it still takes memory")
	}
	take("two", bridge.Answered, time.Millisecond)
	tick(noLoad)
	m.Set([]string{"one"})
	tick(noLoad)
	m.Set([]string{"one", "two"})
	take("two", bridge.Answered, time.Millisecond)
	tick(noLoad)
	if s, c := h.SeriesOf("two", time.Time{}); s.Points != 1 || !slices.Equal(c.Calls, []uint64{1}) {
		t.Errorf("one that came back: %+v %v", s, c.Calls)
	}
	if s, c := h.SeriesOf("none", time.Time{}); s.Points != 0 || len(c.Calls) != 0 {
		t.Errorf("an unknown one: %+v %v", s, c.Calls)
	}
}

// The size of a list is that of all of its pages.
func TestToolList(t *testing.T) {
	m := New("")
	m.Set([]string{"one"})
	page := func(params, result string) {
		q, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + params + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		m.Take(&report.Report{Server: "one", Request: q, Answer: jsonrpc.NewResult(nil, []byte(result))})
	}
	is := func(t ToolList, tools, bytes int) bool {
		return t.Tools == tools && t.Bytes == bytes && len(t.First) == tools
	}
	first, last := `{"tools":[{"name":"a"},{"name":"b"}],"nextCursor":"x"}`, `{"tools":[{"name":"c"}]}`
	if l, ok := m.ToolList("one"); ok {
		t.Errorf("before a list: %+v", l)
	}
	for range 2 {
		page("", first)
		page(`"cursor":"x"`, last)
		if l, ok := m.ToolList("one"); !ok || !is(l, 3, len(first)+len(last)) || l.First[2].Name != "c" {
			t.Errorf("%+v, %t", l, ok)
		}
	}
	page("", last)
	if l, _ := m.ToolList("one"); !is(l, 1, len(last)) {
		t.Errorf("a shorter list: %+v", l)
	}
	page("", first) // of one client, and the last page of another one
	page(`"cursor":"y"`, last)
	if l, _ := m.ToolList("one"); !is(l, 1, len(last)) {
		t.Errorf("a page that continues no list: %+v", l)
	}
	page(`"cursor":"x"`, last)
	page(`"cursor":"x"`, last)
	if l, _ := m.ToolList("one"); !is(l, 3, len(first)+len(last)) {
		t.Errorf("a last page that comes twice: %+v", l)
	}

	page("", `{"tools":[{"name":"t","title":"T","description":"d","annotations":{"readOnlyHint":true}},{"name":"u","annotations":7}]}`)
	l, _ := m.ToolList("one")
	if b, err := json.Marshal(l.First); err != nil || string(b) != `[{"name":"t","title":"T","annotations":{"readOnlyHint":true}},{"name":"u"}]` {
		t.Errorf("the first tools: %s, %v", b, err)
	}
	many := func(n int, title string) {
		t.Helper()
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`{"name":"t%d","title":%q}`, i, title))
		}
		page("", `{"tools":[`+strings.Join(all, ",")+`,{"name":"last"}]}`)
		l, _ := m.ToolList("one")
		if l.Tools != n+1 || len(l.First) > maxTools || l.kept > maxKept || len(l.First) < n/2 || l.First[len(l.First)-1].Name != fmt.Sprintf("t%d", len(l.First)-1) {
			t.Errorf("%d tools, %d of them kept in %d bytes", l.Tools, len(l.First), l.kept)
		}
	}
	many(2*maxTools, "")
	many(maxTools/2, strings.Repeat("x", maxKept/100))
}

// BenchmarkSeries measures what a bucket and an answer cost with 1,000 servers: idle, or each with calls in each bucket.
func BenchmarkSeries(b *testing.B) {
	const servers = 1000
	var names []string
	for i := range servers {
		names = append(names, fmt.Sprintf("server-%d", i))
	}
	m := New("")
	m.Set(names)
	take, now := taking(b, m), time.Now()
	each := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/servers, "ns/server")
	}
	b.Run("tick/idle", func(b *testing.B) {
		h := m.NewHistory()
		for b.Loop() {
			now = now.Add(Step)
			h.Tick(now, noLoad)
		}
		each(b)
	})
	busy := func(h *History) {
		for _, name := range names {
			take(name, bridge.Answered, time.Millisecond)
			take(name, bridge.ToolFailed, time.Millisecond)
		}
		now = now.Add(Step)
	}
	h := m.NewHistory()
	b.Run("tick/busy", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			busy(h)
			b.StartTimer()
			h.Tick(now, noLoad)
		}
		each(b)
	})
	for range Points {
		busy(h)
		h.Tick(now, noLoad)
	}
	all := func(string) bool { return true }
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			h.Series(time.Time{}, all, true)
		}
		each(b)
	})
	b.Run("read/new", func(b *testing.B) {
		for b.Loop() {
			h.Series(now.Add(-Step), all, true)
		}
		each(b)
	})
}
