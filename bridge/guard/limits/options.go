package limits

import (
	"cmp"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/internal/setting"
)

// Options bound the calls to one server. Zero values are the defaults.
type Options struct {
	// Calls is how many calls may be in flight. 0 means 512.
	Calls int `yaml:"calls" default:"512"`
	// Queue is how many more calls may wait for a slot. 0 means as many as Calls.
	Queue int `yaml:"queue" usually:"as calls"`
	// Wait is how long a call may wait for a slot. 0 means 30 s.
	Wait time.Duration `yaml:"wait" default:"30s"`
	// PerPrincipal is how many calls of one principal may be in flight or wait. 0 means no limit. Without access rules
	// it does nothing.
	PerPrincipal int `yaml:"per_principal"`
	// Rate is how often each principal may call. Without access rules it is how often all callers together may call.
	// The zero Rate means no limit.
	Rate Rate `yaml:"rate"`
	// Tools are rates for tools, by patterns of the server's own names (see glob.Match). All rates whose pattern
	// matches apply to a call.
	Tools map[string]Rate `yaml:"tools"`
}

// Complete returns the options with defaults in place of zero values.
func (o Options) Complete() Options {
	setting.Fill(&o)
	o.Queue = cmp.Or(o.Queue, o.Calls)
	return o
}

// HasRate reports whether there is a rate for calls or tools.
func (o *Options) HasRate() bool {
	for _, r := range o.Tools {
		if r.PerSecond > 0 {
			return true
		}
	}
	return o.Rate.PerSecond > 0
}

// PerPrincipal bounds what one principal uses of the whole bridge. Without access rules it does nothing, since no
// caller has a principal.
type PerPrincipal struct {
	// Sessions is how many sessions may be open. 0 means 1,000.
	Sessions int `yaml:"sessions" default:"1000"`
	// Calls is how many calls may be in flight. 0 means 512.
	Calls int `yaml:"calls" default:"512"`
	// Rate is how often the principal may call. The zero Rate means no limit.
	Rate Rate `yaml:"rate"`
}

// Rate is how many calls may be made in a time.
type Rate struct {
	PerSecond float64 // 0 means no limit
	Burst     int     // calls that may be made at once, after a pause; values below 1 mean 1
}

// ParseRate reads a rate such as 10/s, 600/m or 1000/h. A burst may follow: "10/s burst 50". The default burst is the
// number of calls per second, but at least 1.
func ParseRate(s string) (Rate, error) {
	bad := errors.New(`must be a number and a time, such as 10/s, 600/m or 1000/h, or "10/s burst 50"`)
	text, burst, bursts := strings.Cut(s, " burst ")
	n, unit, ok := strings.Cut(text, "/")
	per := map[string]float64{"s": 1, "m": 60, "h": 3600}[strings.TrimSpace(unit)]
	v, err := strconv.ParseFloat(strings.TrimSpace(n), 64)
	if !ok || err != nil || per == 0 || !(v > 0 && v < 1e9) {
		return Rate{}, bad
	}
	r := Rate{PerSecond: v / per, Burst: max(1, int(v/per))}
	if bursts {
		if r.Burst, err = strconv.Atoi(strings.TrimSpace(burst)); err != nil || r.Burst < 1 {
			return Rate{}, bad
		}
	}
	return r, nil
}

// String returns the rate in the form that ParseRate reads, or "none".
func (r Rate) String() string {
	if r.PerSecond == 0 {
		return "none"
	}
	n, unit := r.PerSecond, "s"
	for _, longer := range []string{"m", "h"} {
		if n >= 1 {
			break
		}
		n, unit = n*60, longer
	}
	if whole := math.Round(n); math.Abs(n-whole) < 1e-9*whole { // 5/3600*3600 is not quite 5
		n = whole
	}
	s := strconv.FormatFloat(n, 'f', -1, 64) + "/" + unit
	if r.Burst != max(1, int(r.PerSecond)) {
		s += " burst " + strconv.Itoa(r.Burst)
	}
	return s
}
