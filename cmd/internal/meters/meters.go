// Package meters makes the meter provider that sends the bridge's metrics. It is separate from the command line because
// OpenTelemetry's SDK for metrics makes every package that imports it slow to compile.
package meters

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricpb "go.opentelemetry.io/proto/otlp/metrics/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
)

// mostValues bounds the combinations of attributes of one metric. The library counts all further combinations as one.
// The library's own limit of 2,000 is too low for bridges with many servers and tools.
const mostValues = 20_000

// Temporality decides to what the sent values refer: the start of the process, or the last export.
type Temporality int

// These constants are the temporalities of OpenTelemetry's preference.
const (
	Cumulative Temporality = iota
	Delta
	LowMemory
)

// Collector receives the metrics, in the wire format of ExportMetricsServiceRequest. It reports its failures itself.
type Collector interface {
	Send(ctx context.Context, all *metricpb.MetricsData)
	Stop(ctx context.Context) error
}

// New returns a provider for metrics of r. shutdown sends the last values and stops the collector.
func New(r *resource.Resource, t Temporality, to Collector) (p metric.MeterProvider, shutdown func(context.Context) error) {
	e := &exporter{to, []sdk.TemporalitySelector{sdk.CumulativeTemporalitySelector, sdk.DeltaTemporalitySelector, sdk.LowMemoryTemporalitySelector}[t]}
	made := sdk.NewMeterProvider(sdk.WithResource(r), sdk.WithCardinalityLimit(mostValues), sdk.WithReader(sdk.NewPeriodicReader(e)))
	return made, made.Shutdown
}

type exporter struct {
	to    Collector
	times sdk.TemporalitySelector
}

var _ sdk.Exporter = (*exporter)(nil)

// Temporality implements sdk.Exporter.
func (e *exporter) Temporality(k sdk.InstrumentKind) metricdata.Temporality { return e.times(k) }

// Aggregation implements sdk.Exporter.
func (e *exporter) Aggregation(k sdk.InstrumentKind) sdk.Aggregation {
	return sdk.DefaultAggregationSelector(k)
}

// Export implements sdk.Exporter.
func (e *exporter) Export(ctx context.Context, all *metricdata.ResourceMetrics) error {
	made := &metricpb.ResourceMetrics{Resource: &resourcepb.Resource{Attributes: valuesOf(all.Resource.Set())}, SchemaUrl: all.Resource.SchemaURL()}
	for _, scope := range all.ScopeMetrics {
		in := &metricpb.ScopeMetrics{Scope: &commonpb.InstrumentationScope{Name: scope.Scope.Name, Version: scope.Scope.Version}}
		for _, m := range scope.Metrics {
			if h, ok := m.Data.(metricdata.Histogram[float64]); ok { // there are no other kinds
				in.Metrics = append(in.Metrics, &metricpb.Metric{
					Name:        m.Name,
					Description: m.Description,
					Unit:        m.Unit,
					Data:        &metricpb.Metric_Histogram{Histogram: histogramOf(h)},
				})
			}
		}
		made.ScopeMetrics = append(made.ScopeMetrics, in)
	}
	if len(made.ScopeMetrics) > 0 {
		e.to.Send(ctx, &metricpb.MetricsData{ResourceMetrics: []*metricpb.ResourceMetrics{made}})
	}
	return nil
}

// ForceFlush implements sdk.Exporter.
func (e *exporter) ForceFlush(context.Context) error { return nil }

// Shutdown implements sdk.Exporter.
func (e *exporter) Shutdown(ctx context.Context) error { return e.to.Stop(ctx) }

// histogramOf returns a histogram in the wire format.
func histogramOf(h metricdata.Histogram[float64]) *metricpb.Histogram {
	made := &metricpb.Histogram{AggregationTemporality: metricpb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE}
	if h.Temporality == metricdata.DeltaTemporality {
		made.AggregationTemporality = metricpb.AggregationTemporality_AGGREGATION_TEMPORALITY_DELTA
	}
	for _, p := range h.DataPoints {
		point := &metricpb.HistogramDataPoint{
			Attributes:        valuesOf(&p.Attributes),
			StartTimeUnixNano: nanoseconds(p.StartTime),
			TimeUnixNano:      nanoseconds(p.Time),
			Count:             p.Count,
			Sum:               &p.Sum,
			ExplicitBounds:    slices.Clone(p.Bounds),
			BucketCounts:      slices.Clone(p.BucketCounts),
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

// valuesOf returns attributes in the wire format.
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
