package metrics

import (
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Strangers choose names of tools and methods, and who they are: none of that
// makes a metric of its own.
func TestMetricsBounded(t *testing.T) {
	m := New("")
	m.Set([]string{"one"})
	count := func() int {
		n, err := testutil.GatherAndCount(m.registry, "mcp_bridge_calls_total", "mcp_bridge_call_duration_seconds", "mcp_bridge_request_bytes_total", "mcp_bridge_tool_calls_total", "mcp_bridge_tool_call_seconds_total")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	flood := func() {
		for range 2000 {
			name := fmt.Sprintf("x%d", rand.Uint64())
			for _, method := range append(methodNames[:], name) {
				q, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"name":"` + name + `"}}`))
				if err != nil {
					t.Fatal(err)
				}
				m.Take(&report.Report{Server: []string{"", "one"}[rand.IntN(2)], Principal: name, Session: name, Revision: []string{"2026-07-28", "2025-11-25", name}[rand.IntN(3)],
					Outcome: bridge.Outcome(rand.IntN(bridge.Outcomes)), Request: q})
			}
		}
	}
	flood()
	most := 2*(methods*eras*bridge.Outcomes+methods) + 2 + bridge.Outcomes + 1
	before := count()
	if before > most {
		t.Errorf("%d series, want at most %d", before, most)
	}
	flood()
	if after := count(); after > before+10 { // what chance has left out before
		t.Errorf("%d series, and %d after more of the same", before, after)
	}
}

// fixed has the states of the servers of a bridge; the first is on stdio.
type fixed []gateway.Status

func (f fixed) Totals() gateway.Totals {
	return gateway.Totals{Refused: map[string]uint64{"sessions": 1}}
}
func (f fixed) Status() []gateway.Status        { return f }
func (f fixed) ReadyWith([]gateway.Status) bool { return true }
func (f fixed) OnStdio(server string) bool      { return server == f[0].Name }
func (f fixed) Refused() uint64                 { return 1 }
func (f fixed) LogLost() uint64                 { return 1 }

// A registry checks that the same metric is not described twice, and differently.
func TestMetricsDescribed(t *testing.T) {
	one := gateway.Status{Name: "one", Breaker: "closed"}
	one.Refused = map[string]uint64{"calls": 1}
	asked := newGauges(Bridge{Counts: fixed{one, {Name: "two", Breaker: "off"}}})
	if err := testutil.CollectAndCompare(asked, strings.NewReader(""), "mcp_bridge_nothing"); err != nil {
		t.Error(err)
	}
	m := New("")
	m.Set([]string{"one"})
	pedantic := prometheus.NewPedanticRegistry()
	pedantic.MustRegister(asked, m.calls, m.durations)
	if _, err := pedantic.Gather(); err != nil {
		t.Error(err)
	}
}

// Tools are counted by name if a list of the server had the name, up to a number, and else together. Who may not see
// all of a server's tools does not see these metrics.
func TestMetricsTools(t *testing.T) {
	m := New("")
	m.Set([]string{"one"})
	parse := func(text string) *jsonrpc.Message {
		t.Helper()
		msg, err := jsonrpc.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return msg
	}
	call := func(server, name string, outcome bridge.Outcome) {
		m.Take(&report.Report{Server: server, Outcome: outcome, Took: time.Second, Request: parse(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + name + `"}}`)})
	}
	listed := func(names ...string) {
		m.Take(&report.Report{Server: "one", Request: parse(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`),
			Answer: parse(`{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"` + strings.Join(names, `"},{"name":"`) + `"}]}}`)})
	}
	call("one", "echo", bridge.Answered) // before anybody has listed the tools
	listed("echo", "add")
	call("one", "echo", bridge.Answered)
	call("one", "echo", bridge.ToolFailed)
	call("one", "invented", bridge.Answered)
	call("", "echo", bridge.Denied)
	want := `
		# HELP mcp_bridge_tool_call_seconds_total How long the calls of tools took together.
		# TYPE mcp_bridge_tool_call_seconds_total counter
		mcp_bridge_tool_call_seconds_total{server="one",tool="echo"} 2
		mcp_bridge_tool_call_seconds_total{server="one",tool="other"} 2
	`
	if err := testutil.CollectAndCompare(m.toolTimes, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	for tool, outcomes := range map[string]map[string]float64{"echo": {"ok": 1, "tool_error": 1}, "other": {"ok": 2}} {
		for outcome, n := range outcomes {
			if got := testutil.ToFloat64(m.tools.WithLabelValues("one", tool, outcome)); got != n {
				t.Errorf("%s of %s: %v, want %v", outcome, tool, got, n)
			}
		}
	}
	var many []string
	for i := range 2 * maxTools {
		many = append(many, fmt.Sprint("tool", i))
	}
	listed(many...)
	for _, name := range many {
		call("one", name, bridge.Answered)
	}
	if n := testutil.CollectAndCount(m.toolTimes); n > maxTools+1 {
		t.Errorf("%d tools have metrics of their own", n)
	}
	for of, want := range map[string]bool{"all": true, "one": false} {
		w := httptest.NewRecorder()
		m.Serve(w, httptest.NewRequest("GET", "/metrics", nil), map[string]func(string) bool{"one": func(name string) bool { return name == "one" }}[of])
		if got := w.Body.String(); strings.Contains(got, "mcp_bridge_tool_") != want || !strings.Contains(got, `mcp_bridge_calls_total{era="legacy",method="tools/list",outcome="ok",server="one"} 2`) {
			t.Errorf("for %s:\n%s", of, got)
		}
	}
	m.Set(nil)
	if n := testutil.CollectAndCount(m.tools) + testutil.CollectAndCount(m.toolTimes); n > 0 {
		t.Errorf("%d values of a server that is gone", n)
	}
}

func BenchmarkMetrics(b *testing.B) {
	m := New("")
	m.Set([]string{"one"})
	q, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}`))
	if err != nil {
		b.Fatal(err)
	}
	r := report.Report{Request: q, Answer: q, Took: time.Millisecond, Revision: "2025-11-25"}
	b.ReportAllocs()
	for b.Loop() {
		m.Take(&r)
	}
}

// A server that leaves takes its metrics along, and what was counted for others
// stays.
func TestMetricsSet(t *testing.T) {
	m := New("")
	m.Set([]string{"one", "two"})
	q, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`))
	if err != nil {
		t.Fatal(err)
	}
	take := func() {
		for _, name := range []string{"one", "two", "three"} {
			m.Take(&report.Report{Server: name, Request: q})
		}
	}
	shown := func() string {
		w := httptest.NewRecorder()
		m.Serve(w, httptest.NewRequest("GET", "/metrics", nil), nil)
		return w.Body.String()
	}
	take()
	m.Set([]string{"two", "three"})
	take()
	got := shown()
	for want, n := range map[string]int{`server="one"`: 0, `server="two"`: 1, `mcp_bridge_calls_total{era="legacy",method="tools/call",outcome="ok",server="two"} 2`: 1,
		`mcp_bridge_calls_total{era="legacy",method="tools/call",outcome="ok",server="three"} 1`: 1, `mcp_bridge_calls_total{era="legacy",method="tools/call",outcome="ok",server=""} 2`: 1} {
		if has := strings.Contains(got, want); has != (n > 0) {
			t.Errorf("%s is shown: %t, in\n%s", want, has, got)
		}
	}
}

// The metrics as values: those with a prefix, of the servers that somebody may see, each with what its kind has.
func TestValues(t *testing.T) {
	m := New("")
	m.Set([]string{"one", "two"})
	take := taking(t, m)
	take("one", bridge.Answered, time.Millisecond)
	take("two", bridge.Answered, time.Second)
	read := func(prefix string, of func(string) bool) map[string]Family {
		all, err := m.Values(prefix, of, true)
		if err != nil {
			t.Fatal(err)
		}
		by := map[string]Family{}
		for _, f := range all {
			by[f.Name] = f
		}
		return by
	}
	all := read("", nil)
	calls, took, pauses := all["mcp_bridge_calls_total"], all["mcp_bridge_call_duration_seconds"], all["go_gc_duration_seconds"]
	if calls.Kind != "counter" || calls.Help == "" || took.Kind != "histogram" || pauses.Kind != "summary" || pauses.Values[0].Count == nil || len(pauses.Values[0].Quantiles) == 0 {
		t.Fatalf("%+v %+v %+v", calls, took, pauses)
	}
	for _, v := range calls.Values {
		if v.Labels["method"] != "tools/call" || v.Labels["outcome"] != "ok" || *v.Value != 1 || v.Count != nil {
			t.Errorf("a counter: %+v", v)
		}
	}
	for _, v := range took.Values {
		if v.Value != nil || *v.Count != 1 || *v.Sum <= 0 || len(v.Buckets) < 10 || v.Buckets[len(v.Buckets)-1].Count > *v.Count {
			t.Errorf("a histogram: %+v", v)
		}
	}
	some := read("mcp_bridge_call_", func(server string) bool { return server == "two" })
	if len(some) != 1 || len(some[took.Name].Values) != 1 || some[took.Name].Values[0].Labels["server"] != "two" {
		t.Errorf("those of one server that begin so: %+v", some)
	}
}
