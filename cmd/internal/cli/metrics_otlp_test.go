package cli

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	metricpb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
)

// metricStub is a collector of metrics that keeps the last values that it gets.
type metricStub struct {
	*httptest.Server
	status int // of its answers

	mu     sync.Mutex // guards the rest
	path   string
	header http.Header
	data   metricpb.MetricsData
}

func newMetricStub(t *testing.T, status int) *metricStub {
	m := &metricStub{status: status}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

func (m *metricStub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = proto.Unmarshal(body, &m.data)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m.path, m.header = r.URL.Path, r.Header
	w.WriteHeader(m.status)
}

// connect sends the durations of its calls where the environment says, at the latest when it ends.
func TestMeters(t *testing.T) {
	for _, test := range []struct {
		name  string
		env   func(at string) map[string]string
		path  string // empty when nothing is to come
		times metricpb.AggregationTemporality
	}{
		{"an endpoint", func(at string) map[string]string {
			return map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": at + "/x"}
		}, "/x", metricpb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE},
		{"the general endpoint", func(at string) map[string]string {
			return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": at, "OTEL_METRICS_EXPORTER": "otlp", "OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "delta"}
		}, "/v1/metrics", metricpb.AggregationTemporality_AGGREGATION_TEMPORALITY_DELTA},
		{"not asked for", func(at string) map[string]string {
			return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": at, "OTEL_TRACES_EXPORTER": "none"}
		}, "", 0},
		{"for Prometheus", func(at string) map[string]string {
			return map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": at, "OTEL_METRICS_EXPORTER": "prometheus"}
		}, "", 0},
		{"disabled", func(at string) map[string]string {
			return map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": at, "OTEL_SDK_DISABLED": "true"}
		}, "", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, before) })
			s, r := newMetricStub(t, 200), newRemote(t, 0)
			env := test.env(s.URL)
			env["OTEL_EXPORTER_OTLP_HEADERS"] = "x-key=top%2Dsecret"
			env["OTEL_METRIC_EXPORT_INTERVAL"] = "3600000" // the last values are sent at the end
			quietly(t, env)
			k := start(t.Context(), t, "connect", r.URL+"/mcp")
			k.ask(hello)
			k.ask(`{"jsonrpc":"2.0","id":20,"method":"tools/list"}`)
			k.ask(toolCall("echo"))
			k.ask(toolCall("invented"))
			if code, _, stderr := k.leave(); code != 0 || strings.Contains(stderr, "secret") || strings.Contains(stderr, "lost") {
				t.Errorf("exit code %d, stderr %q", code, stderr)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.path != test.path {
				t.Errorf("the collector was asked at %q, want %q", s.path, test.path)
			}
			if test.path == "" {
				return
			}
			if s.header.Get("X-Key") != "top-secret" || s.header.Get("Content-Type") != "application/x-protobuf" {
				t.Errorf("the collector got the headers %v", s.header)
			}
			of := s.data.ResourceMetrics[0]
			if got := textsOf(of.Resource.Attributes); got["service.name"] != "mcp-bridge" {
				t.Errorf("the resource is %v", got)
			}
			find := func(name string) *metricpb.Metric {
				at := slices.IndexFunc(of.ScopeMetrics[0].Metrics, func(m *metricpb.Metric) bool { return m.Name == name })
				if at < 0 {
					t.Fatalf("there is no %s", name)
				}
				return of.ScopeMetrics[0].Metrics[at]
			}
			equal := func(name string, got, want map[string]string) {
				for key, value := range want {
					if got[key] != value || value == "" {
						t.Errorf("%s: %s is %q, want %q", name, key, got[key], value)
					}
				}
			}
			for name, more := range map[string]map[string]string{
				"mcp.server.operation.duration": {"network.transport": "pipe"},
				"mcp.client.operation.duration": {"network.transport": "tcp", "network.protocol.name": "http", "server.address": "127.0.0.1", "server.port": r.URL[strings.LastIndex(r.URL, ":")+1:]},
			} {
				m := find(name)
				if h := m.GetHistogram(); m.Unit != "s" || m.Description == "" || h.AggregationTemporality != test.times {
					t.Errorf("%s: unit %q, description %q, %v", name, m.Unit, m.Description, h.AggregationTemporality)
				}
				tools := map[string]uint64{}
				for _, p := range m.GetHistogram().DataPoints {
					got := textsOf(p.Attributes)
					if len(p.ExplicitBounds) != 14 || p.ExplicitBounds[0] != 0.01 || p.ExplicitBounds[13] != 300 || len(p.BucketCounts) != 15 || p.TimeUnixNano < p.StartTimeUnixNano || *p.Sum < 0 {
						t.Errorf("%s has the value %v", name, p)
					}
					if got["mcp.method.name"] != "tools/call" {
						continue
					}
					tools[got["gen_ai.tool.name"]] += p.Count
					more["mcp.protocol.version"], more["gen_ai.operation.name"] = got["mcp.protocol.version"], "execute_tool"
					equal(name, got, more)
				}
				session := strings.Replace(name, "operation", "session", 1)
				points := find(session).GetHistogram().DataPoints
				delete(more, "gen_ai.operation.name")
				got := textsOf(points[0].Attributes)
				if len(points) != 1 || points[0].Count != 1 || got["error.type"] != "" {
					t.Errorf("%s has the values %v", session, points)
				}
				equal(session, got, more)
				if tools["echo"] != 1 || tools["other"] != 1 || len(tools) != 2 {
					t.Errorf("%s has the tools %v", name, tools)
				}
			}
		})
	}
}

// Without a collector calls are answered all the same, and what is lost is said, without the address's secrets.
func TestMetersCollectorDown(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	m, r := newMetricStub(t, 400), newRemote(t, 0)
	quietly(t, map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": m.URL + "/v1/metrics?key=secret", "OTEL_EXPORTER_OTLP_METRICS_HEADERS": "a=secret"})
	k := start(t.Context(), t, "connect", r.URL+"/mcp")
	k.ask(hello)
	if a := k.ask(toolCall("echo")); !strings.Contains(a, `"called":"echo"`) {
		t.Errorf("a call is answered %s", a)
	}
	code, _, stderr := k.leave()
	if code != 0 || !strings.Contains(stderr, "metrics lost") || !strings.Contains(stderr, "HTTP 400") || strings.Contains(stderr, "secret") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}

// The bridge starts although it writes no metrics to the console, and says so.
func TestMetersConsole(t *testing.T) {
	quietly(t, map[string]string{"OTEL_METRICS_EXPORTER": "console", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://localhost:4318"})
	var out strings.Builder
	p, _, err := newMeters(t.Context(), slog.New(slog.NewTextHandler(&out, nil)))
	if p != nil || err != nil || !strings.Contains(out.String(), "OTEL_METRICS_EXPORTER") {
		t.Errorf("got %v, %v, log %q", p, err, out.String())
	}
}

// TestMetersRefused asks for exporters that do not exist: the error names the variable, and no secret.
func TestMetersRefused(t *testing.T) {
	for _, test := range []struct{ env, want string }{
		{"OTEL_METRICS_EXPORTER=zipkin", `OTEL_METRICS_EXPORTER is "zipkin": must be otlp, prometheus or none`},
		{"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=grpc", `OTEL_EXPORTER_OTLP_METRICS_PROTOCOL is "grpc"`},
		{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://me:secret@localhost", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT must be a URL"},
		{"OTEL_EXPORTER_OTLP_METRICS_HEADERS=secret", "OTEL_EXPORTER_OTLP_METRICS_HEADERS must be NAME=VALUE"},
		{"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=never", "must be cumulative, delta or lowmemory"},
		{"OTEL_METRIC_EXPORT_INTERVAL=1m", `OTEL_METRIC_EXPORT_INTERVAL is "1m": must be a positive number of milliseconds`},
		{"OTEL_RESOURCE_ATTRIBUTES=secret", "OTEL_RESOURCE_ATTRIBUTES"},
	} {
		refusesEnvironment(t, "OTEL_METRICS_EXPORTER=otlp "+test.env, test.want, func() error {
			_, _, err := newMeters(t.Context(), slog.New(slog.DiscardHandler))
			return err
		})
	}
}
