package breaker

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/mcp-bridge/bridge/bridge/guard"
)

// Options say when a failing server gets no calls, and for how long. Zero values are the defaults.
type Options struct {
	// Off switches the circuit breaker off.
	Off bool `yaml:"-"`
	// Failures is how many failures in a row open the circuit. 0 means 5.
	Failures int `yaml:"failures"`
	// Percent is which part of the calls within Window may fail. 0 means 60.
	Percent int `yaml:"percent"`
	// Calls is how many calls within Window are needed before Percent counts. 0 means 20.
	Calls int `yaml:"calls"`
	// Window is the time that Percent and Calls are about. 0 means 30 s.
	Window time.Duration `yaml:"window"`
	// Pause is how long the breaker stays open at first. It doubles with each failed probe, up to 2
	// min. 0 means 5 s.
	Pause time.Duration `yaml:"pause"`
	// Slow is how long a call may take before it counts as a failure. 0 means any time.
	Slow time.Duration `yaml:"slow"`
}

// Validate returns an error for each value out of bounds.
func (o *Options) Validate() error {
	var f guard.Faults
	f.AtLeast("failures", int64(o.Failures), 1)
	f.AtLeast("percent", int64(o.Percent), 1)
	if o.Percent > 100 {
		f = append(f, fmt.Errorf("percent is %d: must be at most 100", o.Percent))
	}
	f.AtLeast("calls", int64(o.Calls), 1)
	f.NotNegative("window", o.Window)
	f.NotNegative("pause", o.Pause)
	f.NotNegative("slow", o.Slow)
	return errors.Join(f...)
}

// complete returns the options with the defaults in place of zero values.
func (o Options) complete() Options {
	o.Failures, o.Percent, o.Calls = cmp.Or(o.Failures, 5), cmp.Or(o.Percent, 60), cmp.Or(o.Calls, 20)
	o.Window, o.Pause = cmp.Or(o.Window, 30*time.Second), cmp.Or(o.Pause, 5*time.Second)
	return o
}
