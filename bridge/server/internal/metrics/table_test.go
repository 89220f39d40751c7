package metrics

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mcp-bridge/bridge/bridge/server/internal/placement"
	"github.com/mcp-bridge/bridge/config/reload"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/cluster"
)

var update = flag.Bool("update", false, "write the files that are made of the metrics anew")

// tableFile has the table of metrics for tests of other modules.
const tableFile = "testdata/metrics.txt"

// A tableRow is a row of the table of metrics.
type tableRow struct {
	kind   string // counter, gauge, histogram or summary
	labels []string
	help   string
}

// others are the metrics of the Go runtime and of the process that the table has.
var others = []string{"go_goroutines", "go_memstats_heap_alloc_bytes", "process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_max_fds", "process_start_time_seconds"}

// certified is a good certificate.
type certified struct{}

func (certified) Good() (until time.Time, good bool) { return until, true }

// tableOf returns all metrics that a bridge may have, by name.
func tableOf(t *testing.T) map[string]tableRow {
	t.Helper()
	m := New("v0.0.0")
	m.AddBridge(Bridge{
		Certificate: certified{}, Cluster: new(cluster.Node), Workers: new(placement.Workers), Door: new(auth.Authenticator),
	})
	m.AddConfig(func() (c reload.Counts) { return c })
	described := make(chan *prometheus.Desc)
	go func() { m.registry.Describe(described); close(described) }()
	desc := regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: "(.*?)"(?:, unit: "[^"]*")?, constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	all := map[string]tableRow{}
	for d := range described {
		parts := desc.FindStringSubmatch(d.String())
		if parts == nil {
			t.Fatalf("%s is not understood", d)
		}
		name, row := parts[1], tableRow{kind: "gauge", help: strings.ReplaceAll(parts[2], `\"`, `"`)}
		if !strings.HasPrefix(name, "mcp_bridge_") && !slices.Contains(others, name) {
			continue
		}
		switch {
		case strings.HasSuffix(name, "_total"): // TestMetricsCalls of the server holds them to it
			row.kind = "counter"
		case name == "mcp_bridge_call_duration_seconds":
			row.kind = "histogram"
		}
		for label := range strings.SplitSeq(parts[3], ",") {
			if name, _, ok := strings.Cut(label, "="); ok {
				row.labels = append(row.labels, name)
			}
		}
		row.labels = append(row.labels, strings.FieldsFunc(parts[4], func(r rune) bool { return r == ',' })...)
		slices.Sort(row.labels)
		all[name] = row
	}
	return all
}

// TestTable holds the table of metrics to the code, and the documentation has each of them. Run "go test ./bridge/server/internal/metrics -update" when it fails.
func TestTable(t *testing.T) {
	var text strings.Builder
	text.WriteString("# Made of the code: name, kind, labels.\n")
	all := tableOf(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintln(&text, strings.Join(append([]string{name, all[name].kind}, all[name].labels...), " "))
	}
	written(t, tableFile, text.String())
	doc, err := os.ReadFile("../../../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	for full := range all {
		if name, ours := strings.CutPrefix(full, "mcp_bridge_"); ours && !strings.Contains(string(doc), "`"+name+"`") {
			t.Errorf("docs/observability.md does not have %s", name)
		}
	}
}

// written holds a file to what is made of the code.
func written(t *testing.T, file, made string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(made), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if was, err := os.ReadFile(file); err != nil || string(was) != made {
		t.Errorf("%s is not what the metrics are: run go test ./bridge/server/internal/metrics -update (%v)", file, err)
	}
}
