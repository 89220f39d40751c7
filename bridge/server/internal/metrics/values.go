package metrics

import (
	"math"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// Family is all values of one metric.
type Family struct {
	Name   string  `json:"name"`
	Kind   string  `json:"kind"` // counter, gauge, histogram or summary
	Help   string  `json:"help"`
	Values []Value `json:"values"`
}

// Value is one value of a metric. It has a Value, or a Count and a Sum.
type Value struct {
	Labels map[string]string `json:"labels,omitempty"`
	Value  *float64          `json:"value,omitempty"`
	Count  *uint64           `json:"count,omitempty"`
	Sum    *float64          `json:"sum,omitempty"`
	// Buckets belong to a histogram, and Quantiles to a summary.
	Buckets   []Bucket   `json:"buckets,omitempty"`
	Quantiles []Quantile `json:"quantiles,omitempty"`
}

// Bucket counts the values of a histogram up to Most. The last bucket, up to infinity, is omitted: it would
// repeat Value.Count.
type Bucket struct {
	Most  float64 `json:"le"`
	Count uint64  `json:"count"`
}

// Quantile is one quantile of a summary.
type Quantile struct {
	Quantile float64 `json:"quantile"`
	Value    float64 `json:"value"`
}

// Values returns the metrics that Serve serves, for names with a prefix and servers that of allows; nil
// allows all. tools includes the metrics of single tools. Values that are no finite numbers are left out.
func (m *Metrics) Values(prefix string, of func(server string) bool, tools bool) ([]Family, error) {
	all, err := m.Gather()
	if err != nil {
		return nil, err
	}
	if of != nil {
		all = allowed(all, of, tools)
	}
	out := []Family{}
	for _, f := range all {
		if !strings.HasPrefix(f.GetName(), prefix) {
			continue
		}
		family := Family{
			Name:   f.GetName(),
			Kind:   strings.ToLower(f.GetType().String()),
			Help:   f.GetHelp(),
			Values: []Value{},
		}
		for _, one := range f.Metric {
			if v, ok := valueOf(one); ok {
				family.Values = append(family.Values, v)
			}
		}
		out = append(out, family)
	}
	return out, nil
}

// valueOf returns the value of a metric; ok is false if JSON cannot represent it.
func valueOf(m *dto.Metric) (v Value, ok bool) {
	for _, l := range m.Label {
		if v.Labels == nil {
			v.Labels = map[string]string{}
		}
		v.Labels[l.GetName()] = l.GetValue()
	}
	number := 0.0
	switch {
	case m.Counter != nil:
		number = m.Counter.GetValue()
		v.Value = &number
	case m.Gauge != nil:
		number = m.Gauge.GetValue()
		v.Value = &number
	case m.Histogram != nil:
		number = m.Histogram.GetSampleSum()
		count := m.Histogram.GetSampleCount()
		v.Count, v.Sum = &count, &number
		for _, b := range m.Histogram.Bucket {
			if !math.IsInf(b.GetUpperBound(), 0) {
				v.Buckets = append(v.Buckets, Bucket{b.GetUpperBound(), b.GetCumulativeCount()})
			}
		}
	case m.Summary != nil:
		number = m.Summary.GetSampleSum()
		count := m.Summary.GetSampleCount()
		v.Count, v.Sum = &count, &number
		for _, q := range m.Summary.Quantile {
			if finite(q.GetValue()) {
				v.Quantiles = append(v.Quantiles, Quantile{q.GetQuantile(), q.GetValue()})
			}
		}
	default:
		return v, false
	}
	return v, finite(number)
}

func finite(n float64) bool { return !math.IsNaN(n) && !math.IsInf(n, 0) }
