package breaker

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/mcp-bridge/bridge/bridge/guard"
)

// Options say when the circuit opens, and for how long.
type Options struct {
	Off bool `yaml:"-"` // there is no circuit breaker; a file says "off"
	// Failures is how many failures in a row open the circuit. 0 means 5.
	Failures int `yaml:"failures"`
	// Percent is the percentage of failures among the calls within Window that opens the circuit. 0 means 60.
	Percent int `yaml:"percent"`
	// Calls is the least number of calls within Window at which Percent applies. 0 means 20.
	Calls int `yaml:"calls"`
	// Window is the time over which Percent and Calls count. 0 means 30 s.
	Window time.Duration `yaml:"window"`
	// Pause is how long the circuit stays open at first. Each failed probe doubles the pause, up to 2 min. 0 means 5 s.
	Pause time.Duration `yaml:"pause"`
	// Slow is how long a call may take before its answer counts as a failure. 0 means no limit.
	Slow time.Duration `yaml:"slow"`
}

// Validate returns an error for each value that is out of bounds.
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

// complete returns the options with defaults in place of zero values. Slow 0 stays.
func (o Options) complete() Options {
	o.Failures, o.Percent, o.Calls = cmp.Or(o.Failures, 5), cmp.Or(o.Percent, 60), cmp.Or(o.Calls, 20)
	o.Window, o.Pause = cmp.Or(o.Window, 30*time.Second), cmp.Or(o.Pause, 5*time.Second)
	return o
}
