package metrics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// dashboardFile is the dashboard for Grafana. It is in the chart, which makes a ConfigMap of it.
const dashboardFile = "../../../../deploy/helm/mcp-bridge/files/dashboard.json"

// unshown are metrics that have no panel: another one shows the same.
var unshown = []string{"mcp_bridge_cache_entries", "mcp_bridge_cluster_worker_openings_waiting"}

// A panel is a panel of the dashboard.
type panel struct {
	title, kind, unit, text string
	width                   int // of 24 columns
	queries                 []query
	states                  map[string]state // of values that stand for states
	most                    float64          // of the axis; 0 for any
}

// A query is a PromQL expression with the name of its series.
type query struct{ expr, legend string }

// A state is how a value is shown.
type state struct {
	Text  string `json:"text"`
	Color string `json:"color"`
}

// A row is a part of the dashboard.
type row struct {
	title  string
	closed bool
	panels []panel
}

// painter makes expressions of metrics that the table has.
type painter struct {
	t     *testing.T
	table map[string]tableRow
	shown map[string]bool
}

// selected returns the series of a metric that the variables of the dashboard select.
func (p *painter) selected(name, kind, suffix string, by []string, matchers []string) string {
	p.t.Helper()
	if !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
		name = "mcp_bridge_" + name
	}
	t, ok := p.table[name]
	if !ok || t.kind != kind {
		p.t.Errorf("%s is no %s of the table, but %q", name, kind, t.kind)
	}
	p.shown[name] = true
	all := []string{`job=~"$job"`, `instance=~"$instance"`}
	if slices.Contains(t.labels, "server") {
		all = append(all, `server=~"$server"`)
		if slices.Contains(by, "server") {
			all = append(all, `server!=""`)
		}
	}
	return name + suffix + "{" + strings.Join(append(all, matchers...), ",") + "}"
}

// grouped aggregates by labels, which are words.
func grouped(how string, by []string, expr string) string {
	if len(by) == 0 {
		return how + "(" + expr + ")"
	}
	return how + " by (" + strings.Join(by, ", ") + ") (" + expr + ")"
}

// rate returns the events of a counter in a second.
func (p *painter) rate(name, by string, matchers ...string) string {
	p.t.Helper()
	return grouped("sum", strings.Fields(by), "rate("+p.selected(name, "counter", "", strings.Fields(by), matchers)+"[$__rate_interval])")
}

// events returns the events of a counter in each interval of the picture.
func (p *painter) events(name, by string, matchers ...string) string {
	p.t.Helper()
	return grouped("sum", strings.Fields(by), "increase("+p.selected(name, "counter", "", strings.Fields(by), matchers)+"[$__rate_interval])")
}

// during returns the events of a counter in the whole range of time.
func (p *painter) during(name, by string, matchers ...string) string {
	p.t.Helper()
	return grouped("sum", strings.Fields(by), "increase("+p.selected(name, "counter", "", strings.Fields(by), matchers)+"[$__range])")
}

// now returns the value of a gauge.
func (p *painter) now(how, name, by string, matchers ...string) string {
	p.t.Helper()
	return grouped(how, strings.Fields(by), p.selected(name, "gauge", "", strings.Fields(by), matchers))
}

// quantile returns a quantile of a histogram.
func (p *painter) quantile(q, name, by string) string {
	p.t.Helper()
	return "histogram_quantile(" + q + ", " + grouped("sum", append(strings.Fields(by), "le"), "rate("+p.selected(name, "histogram", "_bucket", strings.Fields(by), nil)+"[$__rate_interval])") + ")"
}

var (
	good   = map[string]state{"0": {"no", "red"}, "1": {"yes", "green"}}
	up     = map[string]state{"0": {"failing", "red"}, "1": {"up", "green"}}
	broken = map[string]state{"0": {"closed", "green"}, "1": {"half-open", "yellow"}, "2": {"open", "red"}}
)

// rows returns the dashboard.
func (p *painter) rows() []row {
	const failed = `outcome!~"ok|cancelled"`
	server := func(expr string) []query { return []query{{expr, "{{server}}"}} }
	tool := func(expr string) []query { return []query{{expr, "{{server}} {{tool}}"}} }
	share := func(part, all string) string { return part + " / " + all }
	return []row{
		{title: "State", panels: []panel{
			{title: "Ready", kind: "stat", width: 4, states: good, text: "Whether /readyz answers 200 at every instance.", queries: []query{{p.now("min", "ready", ""), "ready"}}},
			{title: "Servers up", kind: "stat", width: 4, unit: "short", text: "Servers that work, or have not been tried, and all servers.",
				queries: []query{{"sum(" + p.now("min", "server_up", "server") + ")", "up"}, {"count(" + p.now("min", "server_up", "server") + ")", "all"}}},
			{title: "Instances", kind: "stat", width: 4, unit: "short", text: "Running instances of each version.", queries: []query{{p.now("count", "build_info", "version"), "{{version}}"}}},
			{title: "Uptime", kind: "stat", width: 4, unit: "s", text: "How long the instance that started last has been running.", queries: []query{{"time() - " + p.now("max", "process_start_time_seconds", ""), "uptime"}}},
			{title: "Calls", kind: "stat", width: 4, unit: "reqps", text: "Requests of clients in a second, with any outcome.", queries: []query{{p.rate("calls_total", ""), "calls"}}},
			{title: "Failures", kind: "stat", width: 4, unit: "percentunit", text: "The share of calls that fail, with tool errors.", queries: []query{{share(p.rate("calls_total", "", failed), p.rate("calls_total", "")), "failures"}}},
			{title: "Servers", kind: "state-timeline", width: 12, states: up, text: "Whether the server works, or has not been tried. /readyz says why one fails.", queries: server(p.now("min", "server_up", "server"))},
			{title: "Circuit breakers", kind: "state-timeline", width: 12, states: broken, text: "Open: calls are refused. Half-open: the server is probed.",
				queries: server("2 * " + p.now("max", "circuit_breaker_state", "server", `state="open"`) + " + " + p.now("max", "circuit_breaker_state", "server", `state="half-open"`))},
			{title: "Restarts", unit: "short", queries: server(p.events("restarts_total", "server"))},
			{title: "Failures to connect", unit: "short", queries: server(p.events("server_failures_total", "server"))},
			{title: "Lost connections and opened breakers", unit: "short", text: "Connections that ended by themselves, and how often the circuit breaker of the server opened.",
				queries: []query{{p.events("connections_lost_total", "server"), "{{server}} lost"}, {p.events("circuit_breaker_opened_total", "server"), "{{server}} breaker"}}},
		}},
		{title: "Calls", panels: []panel{
			{title: "Calls by server", unit: "reqps", text: "A request to several servers counts for each.", queries: server(p.rate("calls_total", "server"))},
			{title: "Calls by outcome", unit: "reqps", text: "With those that no server got. docs/observability.md says what each outcome means.", queries: []query{{p.rate("calls_total", "outcome"), "{{outcome}}"}}},
			{title: "Calls by method", unit: "reqps", text: "With those that no server got, and the era of the clients.", queries: []query{{p.rate("calls_total", "method era"), "{{method}} {{era}}"}}},
			{title: "Failures by server", unit: "percentunit", most: 1, width: 12, text: "The share of calls that fail, with tool errors. Models cause some of these: they send wrong arguments.",
				queries: server(share(p.rate("calls_total", "server", failed), p.rate("calls_total", "server")))},
			{title: "Calls without an answer", unit: "percentunit", most: 1, width: 12, text: "The share of calls that the server did not answer. BridgeCallsFail is an alert on it.",
				queries: server(share(p.rate("calls_total", "server", `outcome=~"timeout|unavailable|lost|circuit_open|overloaded"`), p.rate("calls_total", "server")))},
			{title: "Duration, median", unit: "s", text: "Half of the calls take less. Subscriptions are not counted.", queries: server(p.quantile("0.5", "call_duration_seconds", "server"))},
			{title: "Duration, 95 %", unit: "s", text: "95 % of the calls take less. Subscriptions are not counted.", queries: server(p.quantile("0.95", "call_duration_seconds", "server"))},
			{title: "Duration, 99 %", unit: "s", text: "99 % of the calls take less. Subscriptions are not counted.", queries: server(p.quantile("0.99", "call_duration_seconds", "server"))},
			{title: "Requests, bytes", unit: "Bps", width: 12, queries: server(p.rate("request_bytes_total", "server"))},
			{title: "Answers, bytes", unit: "Bps", width: 12, queries: server(p.rate("response_bytes_total", "server"))},
		}},
		{title: "Tools", panels: []panel{
			{title: "Slowest tools", kind: "bargauge", unit: "s", text: "The mean duration of the calls in the range of time.",
				queries: tool("topk(10, " + share(p.during("tool_call_seconds_total", "server tool"), p.during("tool_calls_total", "server tool")) + " >= 0)")},
			{title: "Most failing tools", kind: "bargauge", unit: "percentunit", most: 1, text: "The share of the calls in the range of time that fail, with tool errors.",
				queries: tool("topk(10, " + share(p.during("tool_calls_total", "server tool", failed), p.during("tool_calls_total", "server tool")) + " > 0)")},
			{title: "Most called tools", kind: "bargauge", unit: "short", text: "Calls in the range of time.", queries: tool("topk(10, " + p.during("tool_calls_total", "server tool") + " > 0)")},
		}},
		{title: "Resources", panels: []panel{
			{title: "Calls in flight by server", unit: "short", queries: server(p.now("sum", "calls_in_flight", "server"))},
			{title: "Requests in flight", unit: "short", text: "Requests of all clients in flight, those of clients without sessions, and subscriptions.",
				queries: []query{{p.now("sum", "requests_in_flight", ""), "requests"}, {p.now("sum", "stateless_requests_in_flight", ""), "without sessions"}, {p.now("sum", "subscriptions", ""), "subscriptions"}}},
			{title: "Bytes in flight", unit: "bytes", text: "Size of the messages in flight, and its limit (max_bytes_in_flight). Requests beyond it are refused.",
				queries: []query{{p.now("sum", "in_flight_bytes", "instance"), "{{instance}}"}, {p.now("min", "in_flight_limit_bytes", ""), "limit"}}},
			{title: "Queue", unit: "short", queries: server(p.now("sum", "queue_length", "server"))},
			{title: "Parked calls", unit: "short", queries: server(p.now("sum", "parked_calls", "server"))},
			{title: "Sessions", unit: "short", text: "Sessions at the own address of each server, and at that of all servers as one.",
				queries: []query{{p.now("sum", "sessions", "server"), "{{server}}"}, {p.now("sum", "sessions", "", `server=""`), "all servers as one"}}},
			{title: "Connections", unit: "short", queries: server(p.now("sum", "connections", "server"))},
			{title: "Opened connections", unit: "short", text: "Many in relation to the calls: a server that is started for each call, or ends by itself.", queries: server(p.events("connections_opened_total", "server"))},
			{title: "Child processes", unit: "short", queries: server(p.now("sum", "children", "server"))},
			{title: "Cache", unit: "reqps", queries: []query{{p.rate("cache_requests_total", "result"), "{{result}}"}}},
			{title: "Cache, bytes", unit: "bytes", queries: server(p.now("sum", "cache_bytes", "server"))},
			{title: "Old lists", unit: "short", most: 1, queries: server(p.now("max", "cache_stale", "server"))},
		}},
		{title: "Security", panels: []panel{
			{title: "Refused by a limit", unit: "reqps", queries: []query{{p.rate("refused_total", "server limit"), "{{server}} {{limit}}"}, {p.rate("refused_total", "limit", `server=""`), "{{limit}}"}}},
			{title: "Keys and tokens", unit: "reqps", text: "Requests by the result of checking their key or token. invalid is a wrong key.", queries: []query{{p.rate("auth_total", "result"), "{{result}}"}}},
			{title: "Denied calls", unit: "reqps", text: "Calls that the access rules do not allow.", queries: []query{{p.rate("calls_total", "server method", `outcome="denied"`), "{{server}} {{method}}"}, {p.rate("calls_total", "method", `outcome="denied"`, `server=""`), "{{method}}"}}},
			{title: "Age of issuers' keys", unit: "s", queries: []query{{p.now("max", "jwks_age_seconds", "issuer"), "{{issuer}}"}}},
			{title: "Requests to issuers", unit: "short", text: "Requests for keys, and about opaque tokens.",
				queries: []query{{p.events("jwks_fetches_total", "issuer"), "{{issuer}} keys"}, {p.events("introspections_total", "issuer"), "{{issuer}} tokens"}}},
			{title: "Failed requests to issuers", unit: "short", text: "Failed requests for keys, and about opaque tokens.",
				queries: []query{{p.events("jwks_fetch_failures_total", "issuer"), "{{issuer}} keys"}, {p.events("introspection_failures_total", "issuer"), "{{issuer}} tokens"}}},
		}},
		{title: "Process", panels: []panel{
			{title: "Configuration is good", kind: "stat", width: 4, states: good, text: "Whether the last reload of the configuration succeeded at every instance. /readyz and the log have the fault.", queries: []query{{p.now("min", "config_last_reload_successful", ""), "good"}}},
			{title: "Configuration read", kind: "stat", width: 4, unit: "s", text: "How long ago the current configuration was read.", queries: []query{{"time() - " + p.now("min", "config_last_reload_success_timestamp_seconds", ""), "ago"}}},
			{title: "Certificate ends", kind: "stat", width: 4, unit: "s", text: "The time until the certificate in use ends.", queries: []query{{p.now("min", "tls_certificate_expiry_timestamp_seconds", "") + " - time()", "in"}}},
			{title: "Certificate files are good", kind: "stat", width: 4, states: good, queries: []query{{p.now("min", "tls_certificate_last_reload_successful", ""), "good"}}},
			{title: "Lost lines of the access log", kind: "stat", width: 4, unit: "short", text: "Lines of the access log that could not be written, in the range of time.", queries: []query{{p.during("access_log_lines_lost_total", ""), "lines"}}},
			{title: "Dropped notifications", kind: "stat", width: 4, unit: "short", text: "Notifications that were dropped because too many waited for their client or server, in the range of time.", queries: []query{{p.during("notifications_dropped_total", ""), "notifications"}}},
			{title: "Memory", unit: "bytes", text: "Memory of the bridge itself, and the Go heap in it. Child processes are not counted.",
				queries: []query{{p.now("sum", "process_resident_memory_bytes", "instance"), "{{instance}}"}, {p.now("sum", "go_memstats_heap_alloc_bytes", "instance"), "{{instance}} heap"}}},
			{title: "CPU", unit: "short", text: "Processors that the bridge itself uses. Child processes are not counted.", queries: []query{{p.rate("process_cpu_seconds_total", "instance"), "{{instance}}"}}},
			{title: "Goroutines", unit: "short", text: "A number that grows without more sessions and calls is a leak.", queries: []query{{p.now("sum", "go_goroutines", "instance"), "{{instance}}"}}},
			{title: "Open files", unit: "percentunit", most: 1, width: 12, text: "Open file descriptors, as a share of the limit of the process.", queries: []query{{share(p.now("sum", "process_open_fds", "instance"), p.now("sum", "process_max_fds", "instance")), "{{instance}}"}}},
			{title: "Reloads", unit: "short", width: 12, queries: []query{{p.events("config_reloads_total", "outcome"), "{{outcome}}"}}},
		}},
		{title: "Cluster", closed: true, panels: []panel{
			{title: "Instances by state", unit: "short", queries: []query{{p.now("sum", "cluster_state", "state"), "{{state}}"}}},
			{title: "Members", unit: "short", text: "Live instances as each one sees them, and those that it could not reach.",
				queries: []query{{p.now("max", "cluster_members", "instance"), "{{instance}}"}, {p.now("max", "cluster_members_unreached", "instance"), "{{instance}} unreached"}}},
			{title: "Store", unit: "s", queries: []query{{p.now("max", "cluster_store_seconds", "instance"), "{{instance}}"}}},
			{title: "Forwarded requests", unit: "reqps", text: "Requests that were forwarded to the instance of their session, and those refused because it is unreachable.",
				queries: []query{{p.rate("cluster_requests_forwarded_total", ""), "forwarded"}, {p.rate("cluster_requests_refused_total", ""), "refused"}}},
			{title: "Sessions that moved", unit: "short", text: "Sessions that an instance took over from others, or that others took over while it was unreachable.",
				queries: []query{{p.events("cluster_sessions_taken_over_total", "instance"), "{{instance}} taken over"}, {p.events("cluster_sessions_lost_total", "instance"), "{{instance}} lost"}}},
			{title: "Queue for workers", unit: "short", queries: server(p.now("max", "cluster_worker_queue_length", "server"))},
			{title: "Connections to workers", unit: "short", width: 12, queries: []query{{p.now("sum", "cluster_worker_connections", "worker"), "{{worker}}"}}},
			{title: "Processes at workers", unit: "short", width: 12, queries: []query{{p.now("sum", "cluster_worker_children", "server instance"), "{{server}} {{instance}}"}}},
		}},
	}
}

type object = map[string]any

var source = object{"type": "prometheus", "uid": "${datasource}"}

// painted returns a panel as Grafana has it.
func (p *painter) painted(of panel, id, x, y, width, height int) object {
	if of.text == "" { // the help of its only metric
		for name, t := range p.table {
			if strings.Contains(of.queries[0].expr, name+"{") {
				of.text = t.help
			}
		}
	}
	defaults := object{"unit": of.unit, "min": 0}
	if of.most > 0 {
		defaults["max"] = of.most
	}
	options := object{}
	switch of.kind {
	case "timeseries":
		defaults["custom"] = object{"fillOpacity": 10, "showPoints": "never"}
		options = object{"legend": object{"displayMode": "list", "placement": "bottom", "showLegend": true}, "tooltip": object{"mode": "multi", "sort": "desc"}}
	case "stat":
		options = object{"colorMode": "value", "reduceOptions": object{"calcs": []string{"lastNotNull"}}}
	case "bargauge":
		options = object{"displayMode": "basic", "orientation": "horizontal", "reduceOptions": object{"calcs": []string{"lastNotNull"}}}
	case "state-timeline":
		options = object{"showValue": "never", "mergeValues": true}
	}
	if of.states != nil {
		defaults["unit"] = "none"
		defaults["mappings"] = []object{{"type": "value", "options": of.states}}
	}
	var targets []object
	for i, q := range of.queries {
		target := object{"refId": string(rune('A' + i)), "datasource": source, "expr": q.expr, "legendFormat": q.legend}
		if of.kind == "bargauge" {
			target["instant"] = true
		}
		targets = append(targets, target)
	}
	return object{"id": id, "type": of.kind, "title": of.title, "description": of.text, "datasource": source, "targets": targets,
		"gridPos": object{"x": x, "y": y, "w": width, "h": height}, "fieldConfig": object{"defaults": defaults, "overrides": []object{}}, "options": options}
}

// variable returns a variable of the dashboard that has the values of a label.
func variable(name, label, query string, more object) object {
	v := object{"name": name, "label": label, "type": "query", "datasource": source, "query": object{"query": query, "refId": name}, "definition": query,
		"refresh": 2, "sort": 1, "multi": true, "includeAll": true, "current": object{"text": "All", "value": "$__all"}}
	for k, value := range more {
		v[k] = value
	}
	return v
}

// TestDashboard holds the dashboard to the table of metrics: it is made of the table, and shows all of it. Run
// "go test ./bridge/server/internal/metrics -update" when it fails.
func TestDashboard(t *testing.T) {
	p := &painter{t, tableOf(t), map[string]bool{}}
	var all []object
	id, y := 0, 0
	place := func(to *[]object, panels []panel) {
		x, lowest := 0, 0
		for _, of := range panels {
			width, height := of.width, 8
			if width == 0 {
				width = 8
			}
			if of.kind == "" {
				of.kind = "timeseries"
			} else if of.kind == "stat" {
				height = 4
			}
			if x+width > 24 {
				x, y, lowest = 0, y+lowest, 0
			}
			id++
			*to = append(*to, p.painted(of, id, x, y, width, height))
			x, lowest = x+width, max(lowest, height)
		}
		y += lowest
	}
	for _, r := range p.rows() {
		id++
		head := object{"id": id, "type": "row", "title": r.title, "collapsed": r.closed, "gridPos": object{"x": 0, "y": y, "w": 24, "h": 1}}
		y++
		var inside []object
		place(&inside, r.panels)
		if r.closed {
			head["panels"] = inside
			all = append(all, head)
			continue
		}
		head["panels"] = []object{}
		all = append(append(all, head), inside...)
	}
	for name := range p.table {
		if strings.HasPrefix(name, "mcp_bridge_") && p.shown[name] == slices.Contains(unshown, name) {
			t.Errorf("%s has no panel and is not among those without one, or is both", name)
		}
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(object{
		"title": "mcp-bridge", "uid": "mcp-bridge", "description": "State, calls, tools and resources of mcp-bridge.", "tags": []string{"mcp", "mcp-bridge"},
		"schemaVersion": 39, "version": 1, "editable": true, "graphTooltip": 1, "refresh": "30s", "time": object{"from": "now-6h", "to": "now"}, "timezone": "browser",
		"templating": object{"list": []object{
			{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": object{}},
			variable("job", "Job", "label_values(mcp_bridge_build_info, job)", nil),
			variable("instance", "Instance", `label_values(mcp_bridge_build_info{job=~"$job"}, instance)`, nil),
			variable("server", "Server", `label_values(mcp_bridge_server_up{job=~"$job",instance=~"$instance"}, server)`, object{"allValue": ".*"}), // and what no server got
		}},
		"panels": all,
	}); err != nil {
		t.Fatal(err)
	}
	written(t, dashboardFile, text.String())
	for _, of := range all {
		if inside, ok := of["panels"].([]object); ok {
			checkPanels(t, inside)
		}
	}
	checkPanels(t, all)
}

// checkPanels checks that each panel says what it shows, and no more of its metric.
func checkPanels(t *testing.T, panels []object) {
	t.Helper()
	for _, of := range panels {
		if of["type"] == "row" {
			continue
		}
		unit := of["fieldConfig"].(object)["defaults"].(object)["unit"]
		if of["title"] == "" || of["description"] == "" || unit == "" {
			t.Errorf("a panel lacks title, description or unit: %v", fmt.Sprintf("%.200v", of))
		}
		if strings.Contains(of["description"].(string), "unit: ") {
			t.Errorf("the description of a panel has more than the help of its metric: %q", of["description"])
		}
	}
}
