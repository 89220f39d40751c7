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

// Value is one of them. It has a Value, or a Count and a Sum.
type Value struct {
	Labels map[string]string `json:"labels,omitempty"`
	Value  *float64          `json:"value,omitempty"`
	Count  *uint64           `json:"count,omitempty"`
	Sum    *float64          `json:"sum,omitempty"`
	// Buckets are those of a histogram: how many values are at most so large. Quantiles
	// are those of a summary.
	Buckets   []Bucket   `json:"buckets,omitempty"`
	Quantiles []Quantile `json:"quantiles,omitempty"`
}

// Bucket is one of a histogram. The last one, of which Count is the number, is left out.
type Bucket struct {
	Most  float64 `json:"le"`
	Count uint64  `json:"count"`
}

// Quantile is one of a summary.
type Quantile struct {
	Quantile float64 `json:"quantile"`
	Value    float64 `json:"value"`
}

// Values returns the metrics whose names begin so, and which are about the servers that of
// allows; nil allows all. They are those that Serve serves, without what is no number.
func (m *Metrics) Values(prefix string, of func(server string) bool) ([]Family, error) {
	all, err := m.Gather()
	if err != nil {
		return nil, err
	}
	if of != nil {
		all = seen(all, of)
	}
	out := []Family{}
	for _, f := range all {
		if !strings.HasPrefix(f.GetName(), prefix) {
			continue
		}
		family := Family{Name: f.GetName(), Kind: strings.ToLower(f.GetType().String()), Help: f.GetHelp(), Values: []Value{}}
		for _, one := range f.Metric {
			if v, ok := valueOf(one); ok {
				family.Values = append(family.Values, v)
			}
		}
		out = append(out, family)
	}
	return out, nil
}

// valueOf returns what a metric says; false if it is no number, which JSON does not have.
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
