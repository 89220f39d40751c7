package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/config"
)

// scrape reads /metrics and returns the lines that begin so.
func (r *rig) scrape(prefix string) []string {
	r.t.Helper()
	a := r.Do("GET", "/metrics", "").Wait()
	if a.Status() != 200 || !strings.HasPrefix(a.Header("Content-Type"), "text/plain") {
		r.t.Fatalf("/metrics = %d %s", a.Status(), a.Header("Content-Type"))
	}
	var lines []string
	for line := range strings.Lines(a.Body()) {
		if strings.HasPrefix(line, prefix) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// callStateless makes a request of a client without a session.
func callStateless(id, method, params string) string {
	if params != "" {
		params += ","
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`, id, method, params)
}

// value fails the test unless the metric that begins so is one, with that value.
func (r *rig) value(prefix, want string) {
	r.t.Helper()
	if got := r.scrape(prefix); len(got) != 1 || !strings.HasSuffix(got[0], " "+want) {
		r.t.Errorf("%s = %q, want %s", prefix, got, want)
	}
}

// counted fails the test unless the lines of mcp_bridge_calls_total are these.
func (r *rig) counted(want ...string) {
	r.t.Helper()
	for i := range want {
		want[i] = "mcp_bridge_calls_total" + want[i]
	}
	if got := r.scrape("mcp_bridge_calls_total"); !slices.Equal(got, want) {
		r.t.Errorf("counted\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// lint fails the test unless the metrics are as Prometheus wants them: names, units, help.
func (r *rig) lint() {
	r.t.Helper()
	if problems, err := testutil.GatherAndLint(r.s.metrics); err != nil || len(problems) > 0 {
		r.t.Errorf("GatherAndLint = %v, %v", problems, err)
	}
}

// inCluster is for an instance that is not served: it has no store, and looks for none.
func inCluster(c *config.Config) {
	c.Cluster.Redis, c.Cluster.Secret, c.Cluster.Listen = "redis://127.0.0.1:1", "a secret of more than 32 characters", "127.0.0.1:0"
}

// An instance that does not reach the store is not ready, and its metrics say why.
func TestMetricsCluster(t *testing.T) {
	run(t, inCluster, []string{"one"}, func(t *testing.T, r *rig) {
		want := []string{
			"mcp_bridge_cluster_members 0", "mcp_bridge_cluster_members_unreached 0", "mcp_bridge_cluster_requests_forwarded_total 0", "mcp_bridge_cluster_requests_refused_total 1",
			"mcp_bridge_cluster_sessions_lost_total 0", "mcp_bridge_cluster_sessions_taken_over_total 0",
			`mcp_bridge_cluster_state{state="frozen"} 0`, `mcp_bridge_cluster_state{state="isolated"} 1`, `mcp_bridge_cluster_state{state="sure"} 0`, "mcp_bridge_cluster_store_seconds 0",
		}
		if a := r.Do("POST", "/mcp", call("1", "one__echo"), "Mcp-Session-Id", "AAAAAAA-of-another").Wait(); a.Status() != 503 || a.Header("Retry-After") == "" {
			t.Errorf("a request for another's session: %d %s", a.Status(), a.Body())
		}
		if got := r.scrape("mcp_bridge_cluster_"); !slices.Equal(got, want) {
			t.Errorf("metrics:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		r.value("mcp_bridge_ready ", "0")
		r.lint()
	})
}

// What clients do is counted by server, method, outcome and era; what no server gets, without a server. A call is counted
// while it is under way, and a subscription is too.
func TestMetricsCalls(t *testing.T) {
	run(t, nil, []string{"one", "two"}, func(t *testing.T, r *rig) {
		id := r.begin("/mcp")
		for _, body := range []string{call("1", "one__echo"), call("2", "one__echo"), call("3", "two__echo"), call("4", "nobody")} {
			r.Do("POST", "/mcp", body, "Mcp-Session-Id", id).Wait()
		}
		r.Do("POST", "/one/mcp", callStateless("5", "tools/call", `"name":"echo","arguments":{}`), "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "echo").Wait()
		r.counted(
			`{era="legacy",method="initialize",outcome="ok",server=""} 1`,
			`{era="legacy",method="tools/call",outcome="error",server=""} 1`,
			`{era="legacy",method="tools/call",outcome="ok",server="one"} 2`,
			`{era="legacy",method="tools/call",outcome="ok",server="two"} 1`,
			`{era="modern",method="tools/call",outcome="ok",server="one"} 1`,
		)
		for prefix, want := range map[string]string{
			`mcp_bridge_call_duration_seconds_count{method="tools/call",server="one"}`: "3",
			`mcp_bridge_sessions{server=""}`:                                           "1",
			`mcp_bridge_sessions{server="one"}`:                                        "0",
			`mcp_bridge_connections{server="two"}`:                                     "1",
			`mcp_bridge_children{server="two"}`:                                        "1",
			`mcp_bridge_connections_opened_total{server="two"}`:                        "1",
			`mcp_bridge_server_up{server="one"}`:                                       "1",
			`mcp_bridge_calls_in_flight{server="one"}`:                                 "0",
			`mcp_bridge_ready`:                                                         "1",
			`mcp_bridge_build_info{goversion=`:                                         "1",
			`mcp_bridge_notifications_dropped_total`:                                   "0",
			`mcp_bridge_in_flight_limit_bytes`:                                         "5.36870912e+08",
		} {
			r.value(prefix, want)
		}
		for _, prefix := range []string{`mcp_bridge_request_bytes_total{server="one"}`, "go_goroutines", "process_start_time_seconds"} {
			if got := r.scrape(prefix); len(got) != 1 || strings.HasSuffix(got[0], " 0") {
				t.Errorf("%s = %q", prefix, got)
			}
		}
		r.lint()

		x := r.Do("POST", "/mcp", call("6", "one__wait"), "Mcp-Session-Id", id)
		y := r.Do("POST", "/one/mcp", callStateless("7", "subscriptions/listen", `"notifications":{"toolsListChanged":true}`), "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen")
		synctest.Wait()
		r.value(`mcp_bridge_calls_in_flight{server="one"}`, "2")
		r.value("mcp_bridge_subscriptions", "1")
		y.Leave()
		r.Do("DELETE", "/mcp", "", "Mcp-Session-Id", id).Wait()
		x.Wait()
		synctest.Wait()
		r.value(`mcp_bridge_calls_in_flight{server="one"}`, "0")
		if got := r.scrape(`mcp_bridge_call_duration_seconds_count{method="subscriptions/listen"`); len(got) != 0 {
			t.Errorf("how long somebody listens is counted as a duration: %q", got)
		}
	})
}

// What guards refuse, and what goes wrong at a server, has an outcome of its own.
func TestMetricsOutcomes(t *testing.T) {
	const key, other = "0123456789abcdef", "fedcba9876543210"
	run(t, func(c *config.Config) {
		c.Access = []config.Access{{Name: "p", Token: key}, {Name: "q", Token: other, Servers: []string{"none*"}}}
		c.PublicStatus = true
		c.Servers[0].Limits = limits.Options{Calls: 1, Queue: 1}
		c.Servers[1].Limits = limits.Options{Tools: map[string]limits.Rate{"echo": {PerSecond: 0.01, Burst: 1}}}
		c.Servers[2].Breaker = breaker.Options{Failures: 1, Pause: time.Minute}
	}, []string{"narrow", "slow", "bad"}, func(t *testing.T, r *rig) {
		head := func(id string) []string { return []string{"X-Api-Key", key, "Mcp-Session-Id", id} }
		begin := func(path string) string {
			return r.Do("POST", path, initialize, "X-Api-Key", key).Wait().Header("Mcp-Session-Id")
		}
		narrow := begin("/narrow/mcp")
		x := r.Do("POST", "/narrow/mcp", call("1", "wait"), head(narrow)...)
		synctest.Wait()
		y := r.Do("POST", "/narrow/mcp", call("2", "wait"), head(narrow)...)
		synctest.Wait()
		r.Do("POST", "/narrow/mcp", call("3", "wait"), head(narrow)...).Wait() // overloaded
		r.value(`mcp_bridge_queue_length{server="narrow"}`, "1")
		r.Do("POST", "/narrow/mcp", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`, head(narrow)...).Wait()
		r.f.Answer(`{}`)
		x.Wait()
		y.Leave()
		r.Do("POST", "/narrow/mcp", call("4", "quit"), head(narrow)...).Wait() // lost

		slow := begin("/slow/mcp")
		r.Do("POST", "/slow/mcp", call("1", "echo"), head(slow)...).Wait()
		r.Do("POST", "/slow/mcp", call("2", "echo"), head(slow)...).Wait() // too often

		r.f.Before = func(context.Context) error {
			return &bridge.Error{Server: "bad", Kind: bridge.ErrUnavailable, Public: "no such program"}
		}
		begin("/bad/mcp")                                           // unavailable
		begin("/bad/mcp")                                           // left alone
		r.Do("POST", "/mcp", initialize, "X-Api-Key", other).Wait() // it may use none
		synctest.Wait()
		r.counted(
			`{era="legacy",method="initialize",outcome="circuit_open",server="bad"} 1`,
			`{era="legacy",method="initialize",outcome="denied",server=""} 1`,
			`{era="legacy",method="initialize",outcome="ok",server="narrow"} 1`,
			`{era="legacy",method="initialize",outcome="ok",server="slow"} 1`,
			`{era="legacy",method="initialize",outcome="unavailable",server="bad"} 1`,
			`{era="legacy",method="tools/call",outcome="cancelled",server="narrow"} 1`,
			`{era="legacy",method="tools/call",outcome="lost",server="narrow"} 1`,
			`{era="legacy",method="tools/call",outcome="ok",server="narrow"} 1`,
			`{era="legacy",method="tools/call",outcome="ok",server="slow"} 1`,
			`{era="legacy",method="tools/call",outcome="overloaded",server="narrow"} 1`,
			`{era="legacy",method="tools/call",outcome="rate_limited",server="slow"} 1`,
		)
		for line, value := range map[string]string{
			`mcp_bridge_circuit_breaker_state{server="bad",state="open"}`:      "1",
			`mcp_bridge_circuit_breaker_state{server="bad",state="closed"}`:    "0",
			`mcp_bridge_circuit_breaker_opened_total{server="bad"}`:            "1",
			`mcp_bridge_circuit_breaker_state{server="narrow",state="closed"}`: "1",
			`mcp_bridge_server_up{server="bad"}`:                               "0",
			`mcp_bridge_server_failures_total{server="bad"}`:                   "1",
			`mcp_bridge_refused_total{limit="queue",server="narrow"}`:          "1",
			`mcp_bridge_refused_total{limit="rate",server="slow"}`:             "1",
			`mcp_bridge_connections_lost_total{server="narrow"}`:               "1",
		} {
			r.value(line, value)
		}
	})
}

// Metrics and /readyz may be read while clients come, call and go.
func TestMetricsUnderLoad(t *testing.T) {
	run(t, nil, []string{"one", "two"}, func(t *testing.T, r *rig) {
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				id := r.Do("POST", "/mcp", initialize).Wait().Header("Mcp-Session-Id")
				for range 10 {
					r.Do("POST", "/mcp", call("1", "one__echo"), "Mcp-Session-Id", id).Wait()
				}
				if i%2 == 0 {
					r.Do("DELETE", "/mcp", "", "Mcp-Session-Id", id).Wait()
				}
			})
		}
		for _, path := range []string{"/metrics", "/readyz", "/readyz?format=text"} {
			wg.Go(func() {
				for range 10 {
					if a := r.Do("GET", path, "").Wait(); a.Status() != 200 {
						t.Errorf("%s = %d", path, a.Status())
					}
				}
			})
		}
		wg.Wait()
		r.value(`mcp_bridge_calls_total{era="legacy",method="tools/call",outcome="ok",server="one"}`, "40")
	})
}
