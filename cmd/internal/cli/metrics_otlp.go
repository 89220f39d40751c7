package cli

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricpb "go.opentelemetry.io/proto/otlp/metrics/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
)

// mostValues limits the combinations of attributes of one metric; the library counts all others as one. Its own limit of
// 2,000 is too low for bridges with many servers and tools.
const mostValues = 20_000

// meters returns the meter provider that OpenTelemetry's environment variables describe; nil without them. The general
// address of a collector is not enough: many take traces only. stop sends the last values.
func meters(ctx context.Context, log *slog.Logger) (p metric.MeterProvider, stop func(), err error) {
	if on, err := metricsOn(log); err != nil || !on {
		return nil, func() {}, err
	}
	for _, name := range []string{"OTEL_METRIC_EXPORT_INTERVAL", "OTEL_METRIC_EXPORT_TIMEOUT"} { // the library ignores other values
		_, value := firstEnv(name)
		if n, err := strconv.Atoi(value); value != "" && (err != nil || n < 1) {
			return nil, nil, wrongEnv(name, value, "a positive number of milliseconds")
		}
	}
	e := &meterExporter{complaints: complaints{log: log, lost: "metrics lost"}}
	preference, value := firstEnv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE")
	switch strings.ToLower(value) {
	case "", "cumulative":
		e.times = sdkmetric.CumulativeTemporalitySelector
	case "delta":
		e.times = sdkmetric.DeltaTemporalitySelector
	case "lowmemory":
		e.times = sdkmetric.LowMemoryTemporalitySelector
	default:
		return nil, nil, wrongEnv(preference, value, "cumulative, delta or lowmemory")
	}
	if e.to, err = newCollector(ofMetrics); err != nil {
		return nil, nil, err
	}
	r, err := self(ctx)
	if err != nil {
		return nil, nil, err
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(e.complain))
	sdk := sdkmetric.NewMeterProvider(sdkmetric.WithResource(r), sdkmetric.WithCardinalityLimit(mostValues), sdkmetric.WithReader(sdkmetric.NewPeriodicReader(e)))
	return sdk, func() {
		ctx, cancel := context.WithTimeout(context.Background(), goodbyeLimit)
		defer cancel()
		if err := sdk.Shutdown(ctx); err != nil {
			e.complain(err)
		}
	}, nil
}

// metricsOn reports whether the environment asks for metrics. The value prometheus asks for what is always there. The
// value console is one of the specification, which a bridge with traces may share with other programs.
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

// meterExporter sends metrics. It logs failures at intervals, and returns none.
type meterExporter struct {
	complaints
	to    *collector
	times sdkmetric.TemporalitySelector
}

var _ sdkmetric.Exporter = (*meterExporter)(nil)

// Temporality implements sdkmetric.Exporter.
func (e *meterExporter) Temporality(k sdkmetric.InstrumentKind) metricdata.Temporality {
	return e.times(k)
}

// Aggregation implements sdkmetric.Exporter.
func (e *meterExporter) Aggregation(k sdkmetric.InstrumentKind) sdkmetric.Aggregation {
	return sdkmetric.DefaultAggregationSelector(k)
}

// Export implements sdkmetric.Exporter.
func (e *meterExporter) Export(ctx context.Context, all *metricdata.ResourceMetrics) error {
	made := &metricpb.ResourceMetrics{Resource: &resourcepb.Resource{Attributes: valuesOf(all.Resource.Set())}, SchemaUrl: all.Resource.SchemaURL()}
	for _, scope := range all.ScopeMetrics {
		in := &metricpb.ScopeMetrics{Scope: &commonpb.InstrumentationScope{Name: scope.Scope.Name, Version: scope.Scope.Version}}
		for _, m := range scope.Metrics {
			if h, ok := m.Data.(metricdata.Histogram[float64]); ok { // there are no others
				in.Metrics = append(in.Metrics, &metricpb.Metric{Name: m.Name, Description: m.Description, Unit: m.Unit, Data: &metricpb.Metric_Histogram{Histogram: histogramOf(h)}})
			}
		}
		made.ScopeMetrics = append(made.ScopeMetrics, in)
	}
	if len(made.ScopeMetrics) == 0 {
		return nil
	}
	// MetricsData has the wire format of ExportMetricsServiceRequest.
	if err := e.to.send(ctx, &metricpb.MetricsData{ResourceMetrics: []*metricpb.ResourceMetrics{made}}); err != nil {
		e.complain(err)
	}
	return nil
}

// ForceFlush implements sdkmetric.Exporter.
func (e *meterExporter) ForceFlush(context.Context) error { return nil }

// Shutdown implements sdkmetric.Exporter.
func (e *meterExporter) Shutdown(ctx context.Context) error { return e.to.Stop(ctx) }

// histogramOf returns a histogram for the wire.
func histogramOf(h metricdata.Histogram[float64]) *metricpb.Histogram {
	made := &metricpb.Histogram{AggregationTemporality: metricpb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE}
	if h.Temporality == metricdata.DeltaTemporality {
		made.AggregationTemporality = metricpb.AggregationTemporality_AGGREGATION_TEMPORALITY_DELTA
	}
	for _, p := range h.DataPoints {
		point := &metricpb.HistogramDataPoint{
			Attributes: valuesOf(&p.Attributes), StartTimeUnixNano: nanoseconds(p.StartTime), TimeUnixNano: nanoseconds(p.Time),
			Count: p.Count, Sum: &p.Sum, ExplicitBounds: slices.Clone(p.Bounds), BucketCounts: slices.Clone(p.BucketCounts),
		}
		if least, ok := p.Min.Value(); ok {
			point.Min = &least
		}
		if most, ok := p.Max.Value(); ok {
			point.Max = &most
		}
		made.DataPoints = append(made.DataPoints, point)
	}
	return made
}

func nanoseconds(t time.Time) uint64 { return uint64(max(t.UnixNano(), 0)) }

// valuesOf returns attributes for the wire.
func valuesOf(set *attribute.Set) (all []*commonpb.KeyValue) {
	for _, a := range set.ToSlice() {
		v := &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: a.Value.String()}}
		if a.Value.Type() == attribute.INT64 {
			v.Value = &commonpb.AnyValue_IntValue{IntValue: a.Value.AsInt64()}
		}
		all = append(all, &commonpb.KeyValue{Key: string(a.Key), Value: v})
	}
	return all
}
