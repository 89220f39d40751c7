package cli

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	metricpb "go.opentelemetry.io/proto/otlp/metrics/v1"

	"github.com/mcp-bridge/bridge/cmd/internal/meters"
)

// newMeters returns the meter provider that OpenTelemetry's environment variables describe, or nil without these
// variables. The general address of a collector is not enough, because many collectors accept only traces. stop sends
// the last values.
func newMeters(ctx context.Context, log *slog.Logger) (p metric.MeterProvider, stop func(), err error) {
	if on, err := metricsOn(log); err != nil || !on {
		return nil, func() {}, err
	}
	for _, name := range []string{"OTEL_METRIC_EXPORT_INTERVAL", "OTEL_METRIC_EXPORT_TIMEOUT"} { // the library ignores invalid values
		_, value := firstEnv(name)
		if n, err := strconv.Atoi(value); value != "" && (err != nil || n < 1) {
			return nil, nil, wrongEnv(name, value, "a positive number of milliseconds")
		}
	}
	var times meters.Temporality
	preference, value := firstEnv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE")
	switch strings.ToLower(value) {
	case "", "cumulative":
	case "delta":
		times = meters.Delta
	case "lowmemory":
		times = meters.LowMemory
	default:
		return nil, nil, wrongEnv(preference, value, "cumulative, delta or lowmemory")
	}
	to, err := newCollector(ofMetrics)
	if err != nil {
		return nil, nil, err
	}
	r, err := self(ctx)
	if err != nil {
		return nil, nil, err
	}
	m := &metricSender{to, complaints{log: log, lost: "metrics lost"}}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(m.complain))
	p, shutdown := meters.New(r, times, m)
	return p, func() {
		ctx, cancel := context.WithTimeout(context.Background(), goodbyeLimit)
		defer cancel()
		if err := shutdown(ctx); err != nil {
			m.complain(err)
		}
	}, nil
}

// metricsOn reports whether the environment asks for metrics. The value prometheus asks for metrics that are always
// available. The value console is valid in the specification, so a bridge with traces may share it with other programs.
func metricsOn(log *slog.Logger) (bool, error) {
	if _, off := firstEnv("OTEL_SDK_DISABLED"); strings.EqualFold(off, "true") {
		return false, nil
	}
	switch name, to := firstEnv("OTEL_METRICS_EXPORTER"); to {
	case "":
		return os.Getenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT") != "", nil
	case "otlp":
		return true, nil
	case "none", "prometheus":
		return false, nil
	case "console":
		log.Warn("no metrics are sent: the bridge writes none to the console", "variable", name)
		return false, nil
	default:
		return false, wrongEnv(name, to, "otlp, prometheus or none")
	}
}

// metricSender sends metrics to a collector. It logs failures at intervals.
type metricSender struct {
	*collector
	complaints
}

// Send implements meters.Collector.
func (m *metricSender) Send(ctx context.Context, all *metricpb.MetricsData) {
	if err := m.send(ctx, all); err != nil {
		m.complain(err)
	}
}
