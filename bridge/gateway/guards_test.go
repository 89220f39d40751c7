package gateway_test

import (
	"testing"

	"github.com/mcp-bridge/bridge/bridge/guard/limits"
)

func TestParseRate(t *testing.T) {
	for _, test := range []struct {
		text string
		want limits.Rate
		back string
	}{
		{"10/s", limits.Rate{PerSecond: 10, Burst: 10}, "10/s"},
		{"600/m", limits.Rate{PerSecond: 10, Burst: 10}, "10/s"},
		{"6/m", limits.Rate{PerSecond: 0.1, Burst: 1}, "6/m"},
		{"36/h", limits.Rate{PerSecond: 0.01, Burst: 1}, "36/h"},
		{"5/h", limits.Rate{PerSecond: 5.0 / 3600, Burst: 1}, "5/h"},
		{"13/h", limits.Rate{PerSecond: 13.0 / 3600, Burst: 1}, "13/h"},
		{"31/m burst 2", limits.Rate{PerSecond: 31.0 / 60, Burst: 2}, "31/m burst 2"},
		{"0.5/s burst 7", limits.Rate{PerSecond: 0.5, Burst: 7}, "30/m burst 7"},
	} {
		got, err := limits.ParseRate(test.text)
		if err != nil || got != test.want || got.String() != test.back {
			t.Errorf("ParseRate(%q) = %+v (%v), %v, want %+v (%s)", test.text, got, got, err, test.want, test.back)
		}
	}
	for _, bad := range []string{"", "10", "10/d", "x/s", "-1/s", "0/s", "NaN/s", "1e99/s", "10/s burst", "10/s burst 0", "10/s burst x"} {
		if r, err := limits.ParseRate(bad); err == nil {
			t.Errorf("ParseRate(%q) = %v, want an error", bad, r)
		}
	}
}
