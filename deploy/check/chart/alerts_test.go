package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/prometheus/promql/parser"
	core "k8s.io/api/core/v1"
	sigs "sigs.k8s.io/yaml"
)

// A metric is a row of the table of the bridge's metrics.
type metric struct {
	kind   string
	labels []string
}

// metrics returns the table, which a test of the bridge writes.
func metrics(t *testing.T) map[string]metric {
	t.Helper()
	table := map[string]metric{}
	for line := range strings.Lines(read(t, "../../../bridge/server/internal/metrics/testdata/metrics.txt")) {
		if words := strings.Fields(line); !strings.HasPrefix(line, "#") {
			table[words[0]] = metric{words[1], append(words[2:], "job", "instance")} // Prometheus adds the last two
		}
	}
	if len(table) < 40 {
		t.Fatalf("the table has %d metrics", len(table))
	}
	return table
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// grafana are the variables in expressions of the dashboard that stand for durations.
var grafana = strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h")

// exprFaults returns what is wrong with a PromQL expression about the metrics of the table, and the labels of its result.
func exprFaults(table map[string]metric, expr string) (faults, labels []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(grafana.Replace(expr))
	if err != nil {
		return []string{err.Error()}, nil
	}
	// known returns the labels of the selectors below a node.
	known := func(n parser.Node) (all []string) {
		parser.Inspect(n, func(n parser.Node, _ []parser.Node) error {
			if v, ok := n.(*parser.VectorSelector); ok {
				all = append(all, table[strings.TrimSuffix(v.Name, "_bucket")].labels...)
				if strings.HasSuffix(v.Name, "_bucket") {
					all = append(all, "le")
				}
			}
			return nil
		})
		return all
	}
	labels = known(parsed)
	parser.Inspect(parsed, func(n parser.Node, path []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			calls := []string{}
			for _, above := range path {
				if c, ok := above.(*parser.Call); ok {
					calls = append(calls, c.Func.Name)
				}
			}
			name, bucket := strings.CutSuffix(n.Name, "_bucket")
			m, ok := table[name]
			switch counts := slices.Contains(calls, "rate") || slices.Contains(calls, "increase"); {
			case !ok:
				fault("there is no metric %s", n.Name)
			case bucket != (m.kind == "histogram"), bucket && !slices.Contains(calls, "histogram_quantile"):
				fault("%s is a %s, and not used like one", n.Name, m.kind)
			case counts != (m.kind == "counter" || bucket):
				fault("%s is a %s: rate and increase are for counters, and counters are for them", n.Name, m.kind)
			}
			for _, match := range n.LabelMatchers {
				if match.Name != "__name__" && !slices.Contains(m.labels, match.Name) {
					fault("%s has no label %s", n.Name, match.Name)
				}
			}
		case *parser.AggregateExpr:
			if n.Op != parser.TOPK {
				labels = n.Grouping // as long as nothing above takes more away
			}
			for _, label := range n.Grouping {
				if !slices.Contains(known(n.Expr), label) {
					fault("%s has no label %s", n.Expr, label)
				}
			}
		case *parser.Call:
			if n.Func.Name == "histogram_quantile" {
				if sum, ok := n.Args[1].(*parser.AggregateExpr); !ok || !slices.Contains(sum.Grouping, "le") {
					fault("%s needs the label le", n)
				}
			}
		}
		return nil
	})
	return faults, labels
}

// label finds the labels in the text of an alert or the name of a series.
var label = regexp.MustCompile(`\{\{ ?(?:\$labels\.)?(\w+) ?\}\}`)

// textFaults returns the labels that a text has and that are not there.
func textFaults(text string, labels []string) (faults []string) {
	for _, m := range label.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(labels, m[1]) {
			faults = append(faults, fmt.Sprintf("%q: there is no label %s", text, m[1]))
		}
	}
	return faults
}

// A target is a query of a panel.
type target struct{ Expr, LegendFormat string }

// A panel is a panel of the dashboard.
type panel struct {
	ID                       int
	Type, Title, Description string
	Targets                  []target
	Panels                   []panel
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct{ Defaults struct{ Unit string } }
}

// TestDashboard checks the dashboard as it is in the ConfigMap: its expressions are about metrics and labels that the
// bridge has, and its panels say what they show and do not overlap.
func TestDashboard(t *testing.T) {
	made := release(t, "minimal-values.yaml", "grafanaDashboard: { enabled: true }")
	maps := all[core.ConfigMap](made)
	at := slices.IndexFunc(maps, func(c *core.ConfigMap) bool { return c.Labels["grafana_dashboard"] == "1" })
	if at < 0 {
		t.Fatal("no ConfigMap has the label for Grafana")
	}
	text := maps[at].Data["mcp-bridge.json"]
	if text != read(t, filepath.Join(folder, "files/dashboard.json")) {
		t.Error("the ConfigMap is not the file")
	}
	for _, c := range all[core.ConfigMap](release(t, "minimal-values.yaml", "")) {
		if c.Labels["grafana_dashboard"] != "" {
			t.Error("the dashboard is there without being wanted")
		}
	}
	var dashboard struct {
		Panels     []panel
		Templating struct {
			List []struct{ Name, Definition string }
		}
	}
	if err := json.Unmarshal([]byte(text), &dashboard); err != nil {
		t.Fatal(err)
	}
	table, variables := metrics(t), ""
	for _, v := range dashboard.Templating.List {
		variables += " $" + v.Name
		if of, ok := strings.CutPrefix(v.Definition, "label_values("); ok {
			expr, name, _ := strings.Cut(strings.TrimSuffix(of, ")"), ", ")
			faults, labels := exprFaults(table, expr)
			for _, fault := range append(faults, textFaults("{{"+name+"}}", labels)...) {
				t.Errorf("variable %s: %s", v.Name, fault)
			}
		}
	}
	if variables != " $datasource $job $instance $server" {
		t.Errorf("the variables are %s", variables)
	}
	ids, taken, panels := map[int]bool{}, map[[2]int]string{}, 0
	var check func(p panel)
	check = func(p panel) {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				place := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if taken[place] != "" || place[0] >= 24 {
					t.Errorf("%s and %s overlap, or leave the grid", p.Title, taken[place])
				}
				taken[place] = p.Title
			}
		}
		for _, inside := range p.Panels {
			check(inside)
		}
		if p.Type == "row" {
			return
		}
		panels++
		if p.Title == "" || p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
			t.Errorf("the panel %q lacks its title, description, unit or queries", p.Title)
		}
		for _, q := range p.Targets {
			faults, labels := exprFaults(table, q.Expr)
			for _, fault := range append(faults, textFaults(q.LegendFormat, labels)...) {
				t.Errorf("%s: %s", p.Title, fault)
			}
			if strings.Count(q.Expr, `job=~"$job",instance=~"$instance"`) == 0 || q.LegendFormat == "" {
				t.Errorf("%s: %s ignores the variables, or has no legend", p.Title, q.Expr)
			}
		}
	}
	for _, p := range dashboard.Panels {
		check(p)
	}
	if panels < 40 {
		t.Errorf("there are %d panels", panels)
	}
}

// TestAlerts checks the alerts in the PrometheusRule, which is the file of rules.
func TestAlerts(t *testing.T) {
	var file monitoring.PrometheusRuleSpec
	if err := sigs.UnmarshalStrict([]byte(read(t, filepath.Join(folder, "files/alerts.yaml"))), &file); err != nil {
		t.Fatal(err)
	}
	rules := all[monitoring.PrometheusRule](release(t, "minimal-values.yaml", "prometheusRule: { enabled: true }"))
	if len(rules) != 1 || asJSON(t, rules[0].Spec) != asJSON(t, file) {
		t.Error("the PrometheusRule is not the file")
	}
	table := metrics(t)
	page := read(t, "../../../docs/observability.md")
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			faults, labels := exprFaults(table, r.Expr.String())
			for _, fault := range append(faults, textFaults(r.Annotations["summary"], labels)...) {
				t.Errorf("%s: %s", r.Alert, fault)
			}
			if r.Labels["severity"] == "" || r.Annotations["summary"] == "" {
				t.Errorf("%s lacks its severity or summary", r.Alert)
			}
			if !strings.Contains(page, "`"+r.Alert+"`") {
				t.Errorf("docs/observability.md does not have %s", r.Alert)
			}
		}
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestExprFaults shows that the check of expressions finds faults.
func TestExprFaults(t *testing.T) {
	table := metrics(t)
	for expr, want := range map[string]string{
		`mcp_bridge_server_up == 0`: "",
		`histogram_quantile(0.5, sum by (server, le) (rate(mcp_bridge_call_duration_seconds_bucket[5m])))`: "",
		`mcp_bridge_server_down == 0`:                            "no metric mcp_bridge_server_down",
		`mcp_bridge_server_up{tool="x"}`:                         "no label tool",
		`sum by (tool) (mcp_bridge_server_up)`:                   "no label tool",
		`rate(mcp_bridge_server_up[5m])`:                         "is a gauge",
		`mcp_bridge_restarts_total > 1`:                          "is a counter",
		`rate(mcp_bridge_call_duration_seconds[5m])`:             "is a histogram",
		`sum(rate(mcp_bridge_call_duration_seconds_bucket[5m]))`: "is a histogram",
		`histogram_quantile(0.5, sum by (server) (rate(mcp_bridge_call_duration_seconds_bucket[5m])))`: "needs the label le",
		`sum(mcp_bridge_server_up`: "parse error",
	} {
		faults, _ := exprFaults(table, expr)
		if said := strings.Join(faults, "; "); (said == "") != (want == "") || !strings.Contains(said, want) {
			t.Errorf("%s: said is %q, want %q", expr, said, want)
		}
	}
	if faults := textFaults("{{server}} {{ $labels.tool }}", []string{"server"}); len(faults) != 1 {
		t.Errorf("faults of a text: %q", faults)
	}
}
